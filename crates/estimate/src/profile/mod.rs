//! How much memory each program takes for a model: one file for each program.
//!
//! Sizes are computed in 128 bits. The limits on shapes and inputs keep all products far below that.

pub(crate) mod conservative;
pub(crate) mod llama_cpp;
pub(crate) mod vllm;

use berth_domain::Bytes;

use crate::gguf::GgufModel;
use crate::inputs::Profile;
use crate::projector::Projector;
use crate::shape::{Layer, ModelShape};
use crate::weights::Weights;

/// Returns what a process takes on each GPU before it does any work, unless an operator states another value.
///
/// For llama.cpp: the CUDA context (107 MiB on a small GPU, 555 MiB on the largest that was reported) and the
/// workspaces of its libraries. For vLLM: the same, its collectives and its captured graphs.
pub(crate) const fn overhead(profile: Profile) -> Bytes {
    match profile {
        Profile::LlamaCpp => Bytes::mib(640),
        Profile::Conservative => Bytes::mib(250),
        Profile::Vllm => Bytes::mib(2_048),
    }
}

/// What a profile reads of a GGUF model.
pub(crate) struct GgufFacts {
    pub(crate) shape: ModelShape,
    /// Weights as in the files.
    pub(crate) weights: Weights,
    /// Weights as on a GPU.
    pub(crate) gpu_weights: Weights,
    /// The largest tensor that makes queries.
    pub(crate) query_tensor: u64,
    pub(crate) projector: Option<Projector>,
}

impl GgufFacts {
    pub(crate) fn new(model: &GgufModel, shape: ModelShape, projector: Option<Projector>) -> Self {
        let layers = shape.layers.len();
        let queries = model.tensors().iter().filter(|tensor| tensor.name().ends_with(".attn_q.weight"));
        Self {
            weights: Weights::of(model, layers),
            gpu_weights: Weights::on_gpu(model, layers),
            query_tensor: queries.map(crate::gguf::Tensor::bytes).max().unwrap_or(0),
            shape,
            projector,
        }
    }
}

/// Returns the largest value of a property over some layers.
pub(crate) fn widest(layers: &[Layer], of: impl Fn(&Layer) -> u64) -> u128 {
    u128::from(layers.iter().map(of).max().unwrap_or(0))
}

/// Returns the bytes of the states of recurrent layers for this many sequences.
pub(crate) fn state_bytes(layer: &Layer, sequences: u64) -> u128 {
    let state = layer.state.map_or(0, |state| u128::from(state.convolution) + u128::from(state.recurrence));
    4 * state * u128::from(sequences)
}
