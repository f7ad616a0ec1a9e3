//! `config.json`: layers, heads, types.

use serde::Deserialize;

use crate::inputs::CacheType;
use crate::shape::{Experts, LONGEST, Layer, MOST_HEADS, MOST_LAYERS, MOST_TOKENS, ModelShape, State, WIDEST};

use super::FolderError;

/// The fields of a configuration that matter for memory.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) shape: ModelShape,
    pub(crate) dtype: CacheType,
    pub(crate) quantization: Option<String>,
}

/// The file as it is. Models that see or hear keep the language model's configuration in a nested table.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct RawConfig {
    model_type: Option<String>,
    text_config: Option<Box<RawConfig>>,
    llm_config: Option<Box<RawConfig>>,
    language_config: Option<Box<RawConfig>>,
    thinker_config: Option<Box<RawConfig>>,
    num_hidden_layers: Option<u64>,
    hidden_size: Option<u64>,
    num_attention_heads: Option<u64>,
    num_key_value_heads: Option<u64>,
    head_dim: Option<u64>,
    intermediate_size: Option<u64>,
    moe_intermediate_size: Option<u64>,
    #[serde(alias = "num_experts_per_token", alias = "moe_topk")]
    num_experts_per_tok: Option<u64>,
    vocab_size: Option<u64>,
    max_position_embeddings: Option<u64>,
    #[serde(alias = "dtype")]
    torch_dtype: Option<String>,
    sliding_window: Option<u64>,
    use_sliding_window: Option<bool>,
    sliding_window_pattern: Option<u64>,
    layer_types: Option<Vec<String>>,
    full_attention_interval: Option<u64>,
    kv_lora_rank: Option<u64>,
    qk_rope_head_dim: Option<u64>,
    linear_num_key_heads: Option<u64>,
    linear_num_value_heads: Option<u64>,
    linear_key_head_dim: Option<u64>,
    linear_value_head_dim: Option<u64>,
    linear_conv_kernel_dim: Option<u64>,
    quantization_config: Option<RawQuantization>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct RawQuantization {
    quant_method: Option<String>,
}

impl RawConfig {
    /// Returns the language model's part, completed with what only the outer table states.
    fn writer(mut self) -> Self {
        let places =
            [self.text_config.take(), self.llm_config.take(), self.language_config.take(), self.thinker_config.take()];
        let Some(inner) = places.into_iter().flatten().next() else { return self };
        let mut inner = inner.writer();
        inner.torch_dtype = inner.torch_dtype.or(self.torch_dtype);
        inner.quantization_config = inner.quantization_config.or(self.quantization_config);
        inner.model_type = self.model_type.or(inner.model_type);
        inner.vocab_size = inner.vocab_size.or(self.vocab_size);
        inner
    }
}

fn within(key: &'static str, value: u64, limit: u64) -> Result<u64, FolderError> {
    match value > limit {
        true => Err(FolderError::TooLarge { key, value, limit }),
        false => Ok(value),
    }
}

fn required(key: &'static str, value: Option<u64>, limit: u64) -> Result<u64, FolderError> {
    within(key, value.ok_or(FolderError::Missing(key))?, limit)
}

impl Config {
    pub(crate) fn new(raw: RawConfig) -> Result<Self, FolderError> {
        let raw = raw.writer();
        let embedding = required("hidden_size", raw.hidden_size, WIDEST)?;
        let count = required("num_hidden_layers", raw.num_hidden_layers, MOST_LAYERS)?;
        let layer = raw.attention(embedding)?;
        let kinds = raw.kinds(count)?;
        let state = raw.state()?;
        let layers = kinds.into_iter().map(|kind| match kind {
            Kind::Full => layer.clone(),
            Kind::Window(window) => Layer { window: Some(window), ..layer.clone() },
            Kind::Linear => Layer { caches: false, state: Some(state), ..layer.clone() },
        });
        Ok(Self {
            shape: ModelShape {
                architecture: raw.model_type.clone().unwrap_or_default().into(),
                embedding,
                vocabulary: required("vocab_size", raw.vocab_size, MOST_TOKENS)?,
                trained_context: required("max_position_embeddings", raw.max_position_embeddings, LONGEST)?,
                layers: layers.collect(),
                latent: raw.kv_lora_rank.is_some_and(|rank| rank > 0),
                encoder: false,
                weighs_first: false,
            },
            dtype: raw.torch_dtype.as_deref().map_or(CacheType::Bf16, computes_in),
            quantization: raw.quantization_config.and_then(|quantization| quantization.quant_method),
        })
    }
}

/// Returns the type that vLLM computes in: models in single precision are computed in half.
fn computes_in(dtype: &str) -> CacheType {
    match dtype.parse() {
        Ok(CacheType::F32 | CacheType::F16) => CacheType::F16,
        _ => CacheType::Bf16,
    }
}

/// How a layer treats earlier tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Full,
    Window(u64),
    Linear,
}

impl RawConfig {
    /// Returns a layer with its heads and widths.
    fn attention(&self, embedding: u64) -> Result<Layer, FolderError> {
        let heads = required("num_attention_heads", self.num_attention_heads, MOST_HEADS)?;
        let divided = embedding.checked_div(heads).unwrap_or(0);
        let head = within("head_dim", self.head_dim.unwrap_or(divided), MOST_HEADS)?;
        let kv_heads = within("num_key_value_heads", self.num_key_value_heads.unwrap_or(heads), MOST_HEADS)?;
        let feed_forward = within("intermediate_size", self.intermediate_size.unwrap_or(0), WIDEST)?;
        let used = within("num_experts_per_tok", self.num_experts_per_tok.unwrap_or(0), MOST_HEADS)?;
        let expert = within("moe_intermediate_size", self.moe_intermediate_size.unwrap_or(feed_forward), WIDEST)?;
        let plain = Layer {
            heads,
            kv_heads,
            key_length: head,
            value_length: head,
            feed_forward,
            experts: (used > 0).then_some(Experts { used, feed_forward: expert, shared: 0 }),
            caches: true,
            ..Layer::default()
        };
        match self.kv_lora_rank.filter(|rank| *rank > 0) {
            None => Ok(plain),
            Some(rank) => {
                let rank = within("kv_lora_rank", rank, MOST_HEADS)?;
                let rope = within("qk_rope_head_dim", self.qk_rope_head_dim.unwrap_or(0), MOST_HEADS)?;
                Ok(Layer { kv_heads: 1, key_length: rank + rope, value_length: 0, ..plain })
            }
        }
    }

    /// Returns the kind of each layer: from a list if there is one, else from a pattern, else the same for all.
    fn kinds(&self, count: u64) -> Result<Vec<Kind>, FolderError> {
        let window = self.sliding_window.filter(|window| *window > 0 && self.use_sliding_window != Some(false));
        let window = window.map(|window| within("sliding_window", window, LONGEST)).transpose()?;
        let windowed = window.map_or(Kind::Full, Kind::Window);
        if let Some(list) = self.layer_types.as_ref().filter(|list| list.len() as u64 == count) {
            let kind = |name: &String| match name.as_str() {
                "sliding_attention" | "chunked_attention" => windowed,
                "linear_attention" => Kind::Linear,
                _ => Kind::Full,
            };
            return Ok(list.iter().map(kind).collect());
        }
        if let Some(interval) = self.full_attention_interval.filter(|interval| *interval > 0) {
            let kind = |layer: u64| if layer.is_multiple_of(interval) { Kind::Full } else { Kind::Linear };
            return Ok((1..=count).map(kind).collect());
        }
        if let Some(pattern) = self.sliding_window_pattern.filter(|pattern| *pattern > 0) {
            let kind = |layer: u64| if layer.is_multiple_of(pattern) { Kind::Full } else { windowed };
            return Ok((1..=count).map(kind).collect());
        }
        Ok((0..count).map(|_| windowed).collect())
    }

    /// Returns the state that a layer of linear attention keeps for a sequence.
    fn state(&self) -> Result<State, FolderError> {
        let get = |key, value: Option<u64>| within(key, value.unwrap_or(0), MOST_HEADS);
        let key_heads = get("linear_num_key_heads", self.linear_num_key_heads)?;
        let value_heads = get("linear_num_value_heads", self.linear_num_value_heads)?;
        let key_dim = get("linear_key_head_dim", self.linear_key_head_dim)?;
        let value_dim = get("linear_value_head_dim", self.linear_value_head_dim)?;
        let kernel = within("linear_conv_kernel_dim", self.linear_conv_kernel_dim.unwrap_or(0), 1 << 10)?;
        let width = 2 * key_heads * key_dim + value_heads * value_dim;
        Ok(State {
            convolution: kernel.saturating_sub(1) * width,
            recurrence: value_heads * key_dim * value_dim,
            width,
        })
    }
}
