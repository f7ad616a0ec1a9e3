//! A conservative profile: a program that saves nothing, with all buffers at their largest.
//!
//! With `u` tokens at once, embedding `E`, vocabulary `V`, heads `H`, feed-forward `F` and context `c`:
//!
//! ```text
//! overhead + output 4u(E+V) + weights + KV + inputs 4u(E+1+c) + the largest of
//!     attention      without flash  4u(3E + cH)     with  2cu + 4uE + a query tensor + one layer's KV
//!     feed-forward   4u(2E+2F)
//!     output         4u(E+V)
//! ```

use crate::estimate::{DeviceEstimate, EstimateError, Parts, bytes};
use crate::inputs::Inputs;
use crate::profile::{GgufFacts, state_bytes, widest};
use crate::shape::{Layer, ModelShape};
use crate::split::{LayerSpan, by_layer};

/// Contexts are rounded up to a multiple of this, without and with flash attention.
const CELL_STEPS: (u64, u64) = (32, 256);

/// Estimates the memory of each of `gpus` GPUs.
pub(crate) fn devices(facts: &GgufFacts, inputs: &Inputs, gpus: u16) -> Result<Vec<DeviceEstimate>, EstimateError> {
    let layers = u16::try_from(facts.shape.layers.len()).map_err(|_| EstimateError::TooLarge)?;
    let spans = by_layer(layers, gpus);
    spans.iter().enumerate().map(|(rank, span)| device(facts, inputs, rank, *span)).collect()
}

/// Returns the bytes in host memory: the token embedding.
pub(crate) fn host(facts: &GgufFacts) -> u128 {
    u128::from(facts.weights.token_embedding)
}

fn device(facts: &GgufFacts, inputs: &Inputs, rank: usize, span: LayerSpan) -> Result<DeviceEstimate, EstimateError> {
    let shape = &facts.shape;
    let layers = &shape.layers[span.range()];
    let weights = &facts.weights;
    let own: u128 = weights.layers[span.range()].iter().map(|layer| u128::from(*layer)).sum();
    let before = if rank == 0 { weights.input.saturating_sub(weights.token_embedding) } else { 0 };
    let after = if span.output { weights.output } else { 0 };
    let kv: u128 = layers.iter().map(|layer| cache(layer, inputs)).sum();
    let results = if span.output { output(shape, inputs) } else { 0 };
    let projector = facts.projector.filter(|_| rank == 0).map_or(0, |projector| projector.bytes(inputs));
    let parts = Parts {
        weights: bytes(own + u128::from(before) + u128::from(after) + u128::from(weights.everywhere))?,
        kv: bytes(kv)?,
        compute: bytes(compute(facts, layers, inputs, span.output))?,
        output: bytes(results)?,
        overhead: inputs.overhead,
        projector: bytes(projector)?,
    };
    Ok(DeviceEstimate { layers: span, parts })
}

fn batch(inputs: &Inputs) -> u128 {
    u128::from(inputs.batch.min(inputs.tokens()))
}

fn output(shape: &ModelShape, inputs: &Inputs) -> u128 {
    4 * batch(inputs) * (u128::from(shape.embedding) + u128::from(shape.vocabulary))
}

/// Returns the bytes of keys and values of the whole context, whatever the layer would need of them.
fn cache(layer: &Layer, inputs: &Inputs) -> u128 {
    let states = state_bytes(layer, inputs.parallel);
    if !layer.caches {
        return states;
    }
    let step = if inputs.flash_attention { CELL_STEPS.1 } else { CELL_STEPS.0 };
    let row = inputs.cache_type_k.row(layer.key_row())
        + inputs.cache_type_v.row(layer.value_row())
        + inputs.cache_type_k.row(layer.indexer_length);
    u128::from(row) * u128::from(inputs.tokens().next_multiple_of(step)) + states
}

fn compute(facts: &GgufFacts, layers: &[Layer], inputs: &Inputs, last: bool) -> u128 {
    let (shape, u, context) = (&facts.shape, batch(inputs), u128::from(inputs.tokens()));
    let embedding = u128::from(shape.embedding);
    let attention = match inputs.flash_attention {
        false => 4 * u * (3 * embedding + context * widest(layers, |layer| layer.heads)),
        true => {
            let kv = layers.iter().map(|layer| cache(layer, inputs)).max().unwrap_or(0);
            2 * context * u + 4 * u * embedding + u128::from(facts.query_tensor) + kv
        }
    };
    let feed_forward = 4 * u * (2 * embedding + 2 * widest(layers, feed_forward_width));
    let recurrence = 20 * u * (embedding + widest(layers, |layer| layer.state.map_or(0, |state| state.width)));
    let recurrence = if layers.iter().any(|layer| layer.state.is_some()) { recurrence } else { 0 };
    let results = if last { output(shape, inputs) } else { 0 };
    4 * u * (embedding + 1 + context) + attention.max(feed_forward).max(recurrence).max(results)
}

/// Returns the width of all experts of a token together, where there are experts.
fn feed_forward_width(layer: &Layer) -> u64 {
    let routed = layer.experts.map_or(0, |experts| experts.used.saturating_mul(experts.feed_forward));
    layer.feed_forward.max(routed)
}
