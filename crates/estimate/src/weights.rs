//! The weights of a GGUF model, by tensor and by layer.

use crate::gguf::{GgufModel, Tensor};

/// A GPU starts each tensor at a multiple of this.
const GPU_ALIGNMENT: u64 = 128;
/// A GPU reads quantized rows in steps of this many values, past the end of the last row.
const ROW_STEP: u64 = 512;

/// The part of a model that a tensor belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The tensor looks tokens up before the first layer.
    Input,
    /// The tensor belongs to one layer.
    Layer(usize),
    /// The tensor is small and used by all layers: each GPU has its own copy.
    Everywhere,
    /// The tensor comes after the last layer.
    Output,
}

impl Place {
    /// Returns the place of a tensor in a model with this many layers.
    #[must_use]
    pub fn of(tensor: &Tensor, layers: usize) -> Self {
        let name = tensor.name();
        if let Some(layer) = layer_of(name).filter(|layer| *layer < layers) {
            return Self::Layer(layer);
        }
        match name.split('.').next().unwrap_or(name) {
            "token_embd" | "token_types" | "position_embd" | "per_layer_token_embd" => Self::Input,
            "rope_freqs" | "rope_factors_long" | "rope_factors_short" => Self::Everywhere,
            _ => Self::Output,
        }
    }
}

/// Returns the number in `blk.7.attn_q.weight`. Encoders and decoders number their layers apart: `enc.blk.7.`,
/// `dec.blk.7.`.
fn layer_of(name: &str) -> Option<usize> {
    let numbered = ["blk.", "enc.blk.", "dec.blk."].into_iter().find_map(|prefix| name.strip_prefix(prefix))?;
    numbered.split('.').next()?.parse().ok()
}

/// The bytes of a model's weights by place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Weights {
    /// The token embedding by itself.
    pub token_embedding: u64,
    /// All tensors that look tokens up, including the token embedding.
    pub input: u64,
    /// The tensors of each layer.
    pub layers: Vec<u64>,
    /// The tensors of which each GPU has its own copy.
    pub everywhere: u64,
    /// The tensors after the last layer. Where the model has no output tensor, the token embedding counts here once
    /// more.
    pub output: u64,
    /// Whether the token embedding is the output tensor too.
    pub tied: bool,
}

impl Weights {
    /// Adds up the tensors of a model as they are in its files.
    #[must_use]
    pub fn of(model: &GgufModel, layers: usize) -> Self {
        Self::add_up(model, layers, Tensor::bytes)
    }

    /// Adds them up as a GPU stores them: aligned, and with padding after quantized rows.
    #[must_use]
    pub fn on_gpu(model: &GgufModel, layers: usize) -> Self {
        Self::add_up(model, layers, on_gpu)
    }

    fn add_up(model: &GgufModel, layers: usize, size: impl Fn(&Tensor) -> u64) -> Self {
        let mut weights = Self { layers: vec![0; layers], ..Self::default() };
        for tensor in model.tensors() {
            let bytes = size(tensor);
            let place = match Place::of(tensor, layers) {
                Place::Input => &mut weights.input,
                Place::Layer(layer) => &mut weights.layers[layer],
                Place::Everywhere => &mut weights.everywhere,
                Place::Output => &mut weights.output,
            };
            *place = place.saturating_add(bytes);
            if tensor.name() == "token_embd.weight" {
                weights.token_embedding = bytes;
            }
        }
        weights.tied = model.tensor("output.weight").is_none();
        if weights.tied {
            weights.output = weights.output.saturating_add(weights.token_embedding);
        }
        weights
    }

    /// Returns the bytes of all tensors, each counted once.
    #[must_use]
    pub fn total(&self) -> u64 {
        let twice = if self.tied { self.token_embedding } else { 0 };
        let layers = self.layers.iter().fold(0u64, |sum, layer| sum.saturating_add(*layer));
        let rest = self.input.saturating_add(self.everywhere).saturating_add(self.output);
        layers.saturating_add(rest).saturating_sub(twice)
    }
}

/// Returns the bytes that a tensor takes on a GPU.
fn on_gpu(tensor: &Tensor) -> u64 {
    let kind = tensor.kind();
    let beyond = tensor.dimensions()[0] % ROW_STEP;
    let padding = match kind.is_quantized() && beyond != 0 {
        true => (ROW_STEP - beyond).div_ceil(kind.block()) * kind.block_bytes(),
        false => 0,
    };
    let bytes = tensor.bytes().saturating_add(padding);
    bytes.checked_next_multiple_of(GPU_ALIGNMENT).unwrap_or(u64::MAX)
}
