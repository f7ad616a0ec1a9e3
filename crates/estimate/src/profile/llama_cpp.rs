//! The server of llama.cpp.
//!
//! Weights, caches and states follow its source exactly. Buffers for computing follow its graphs as they were measured
//! (docs/ESTIMATION.md): exact where attention or a dense feed-forward part decides, else a little more.

use berth_domain::Bytes;

use crate::estimate::{DeviceEstimate, EstimateError, Parts, bytes};
use crate::inputs::{CacheType, Inputs};
use crate::profile::{GgufFacts, state_bytes};
use crate::shape::{Layer, ModelShape};
use crate::split::{LayerSpan, by_layer};

/// Contexts and windows are rounded up to a multiple of this.
const CELL_STEP: u64 = 256;
/// With several GPUs, batches overlap: each GPU keeps this many copies of its inputs.
const PIPELINE_COPIES: u128 = 4;

/// The padding between the tensors of a graph, each of which begins at a multiple of 128 bytes.
const ALIGNMENT: u128 = 16 << 10;
/// Rows of a token that are held beside the attention for a feed-forward part that takes the same input.
const PARALLEL_ROWS: u128 = 1;
/// Bytes for each token of a batch in inputs that only some architectures have, such as places in a cache of windows.
const SMALL_INPUTS: u128 = 32;

/// The sizes that follow from the inputs alone.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    /// Cells of one cache.
    cells: u64,
    /// The number of caches: one for all sequences, or one for each.
    streams: u64,
    /// Tokens computed at once, as asked for.
    asked: u64,
    /// Tokens that buffers are made for: each sequence has the same part of a batch, so it is a multiple of their
    /// number.
    batch: u64,
}

impl Sizes {
    fn of(inputs: &Inputs) -> Self {
        let tokens = inputs.tokens().next_multiple_of(CELL_STEP);
        // llama.cpp limits the batch by the context before it rounds the context up.
        let asked = inputs.batch.min(inputs.tokens());
        let batch = asked.next_multiple_of(inputs.parallel);
        match inputs.unified_cache {
            true => Self { cells: tokens, streams: 1, asked, batch },
            false => {
                let cells = (tokens / inputs.parallel).next_multiple_of(CELL_STEP);
                Self { cells, streams: inputs.parallel, asked, batch }
            }
        }
    }

    /// Returns the cells of one cache for a layer: with a window, the window and one batch.
    fn cells_of(&self, layer: &Layer, inputs: &Inputs) -> u64 {
        let Some(window) = layer.window else { return self.cells };
        let sharers = if inputs.unified_cache { inputs.parallel } else { 1 };
        let wanted = window.saturating_mul(sharers).saturating_add(self.asked);
        self.cells.min(wanted).next_multiple_of(CELL_STEP)
    }
}

/// Estimates the memory of each of `gpus` GPUs.
pub(crate) fn devices(facts: &GgufFacts, inputs: &Inputs, gpus: u16) -> Result<Vec<DeviceEstimate>, EstimateError> {
    let layers = u16::try_from(facts.shape.layers.len()).map_err(|_| EstimateError::TooLarge)?;
    let spans = by_layer(layers, gpus);
    spans.iter().enumerate().map(|(rank, span)| device(facts, inputs, rank, *span, gpus)).collect()
}

/// Returns the bytes in host memory: the token embedding, and the results.
pub(crate) fn host(facts: &GgufFacts, inputs: &Inputs) -> u128 {
    let shape = &facts.shape;
    u128::from(facts.weights.input) + output_row(shape) * u128::from(inputs.parallel)
}

fn device(
    facts: &GgufFacts,
    inputs: &Inputs,
    rank: usize,
    span: LayerSpan,
    gpus: u16,
) -> Result<DeviceEstimate, EstimateError> {
    let (shape, sizes) = (&facts.shape, Sizes::of(inputs));
    let layers = &shape.layers[span.range()];
    let weights: u128 = facts.gpu_weights.layers[span.range()].iter().map(|layer| u128::from(*layer)).sum();
    let after = if span.output { facts.gpu_weights.output } else { 0 };
    let kv: u128 = layers.iter().map(|layer| cache(shape, layer, inputs, sizes)).sum();
    let projector = facts.projector.filter(|_| rank == 0).map_or(0, |projector| projector.bytes(inputs));
    let parts = Parts {
        weights: bytes(weights + u128::from(after) + u128::from(facts.gpu_weights.everywhere))?,
        kv: bytes(kv)?,
        compute: bytes(compute(shape, layers, inputs, sizes, span.output, gpus))?,
        output: Bytes::ZERO,
        overhead: inputs.overhead,
        projector: bytes(projector)?,
    };
    Ok(DeviceEstimate { layers: span, parts })
}

/// Returns the bytes of keys, values, an indexer's keys and states of one layer.
fn cache(shape: &ModelShape, layer: &Layer, inputs: &Inputs, sizes: Sizes) -> u128 {
    let states = state_bytes(layer, inputs.parallel);
    if !layer.caches {
        return states;
    }
    // Transposed values, as they are without flash attention, all take the width of the widest.
    let value_row = match (shape.latent, inputs.flash_attention) {
        (true, _) => 0,
        (false, true) => layer.value_row(),
        (false, false) => shape.widest_value_row(),
    };
    let row = inputs.cache_type_k.row(layer.key_row())
        + inputs.cache_type_v.row(value_row)
        + inputs.cache_type_k.row(layer.indexer_length);
    u128::from(row) * u128::from(sizes.cells_of(layer, inputs)) * u128::from(sizes.streams) + states
}

/// Returns the compute buffer of one GPU: its inputs, and the largest of the steps.
fn compute(shape: &ModelShape, layers: &[Layer], inputs: &Inputs, sizes: Sizes, output: bool, gpus: u16) -> u128 {
    if layers.is_empty() && !output {
        return 0;
    }
    let copies = if gpus > 1 { PIPELINE_COPIES } else { 1 };
    let steps = layers.iter().flat_map(|layer| {
        [
            attention(shape, layer, inputs, sizes),
            feed_forward(shape, layer, sizes),
            recurrence(shape, layer, inputs, sizes),
        ]
    });
    // The output of the last layer is still in use when the results are computed.
    let last = 16 * u128::from(sizes.batch) * u128::from(shape.embedding);
    let last = if output { last + output_row(shape) * u128::from(inputs.parallel) } else { 0 };
    let unpacked = layers.iter().map(|layer| unpacked(shape, layer, inputs, sizes)).max().unwrap_or(0);
    let largest = steps.max().unwrap_or(0).max(last);
    // The last layer selects the rows that become results from its sums.
    let picked = if output { 8 * u128::from(inputs.parallel) * u128::from(shape.embedding) } else { 0 };
    copies * graph_inputs(shape, layers, inputs, sizes) + largest + picked + unpacked + ALIGNMENT
}

/// Returns the bytes of masks, positions, places in the cache, and the output of the layer before.
fn graph_inputs(shape: &ModelShape, layers: &[Layer], inputs: &Inputs, sizes: Sizes) -> u128 {
    let batch = u128::from(sizes.batch);
    let scalar = if inputs.flash_attention { 2 } else { 4 };
    let places = match inputs.flash_attention || shape.latent {
        true => 8 * batch,
        false => 8 * batch * u128::from(shape.widest_value_row()),
    };
    let caching = |windowed: bool| {
        let mut found = layers.iter().filter(|layer| layer.caches && layer.window.is_some() == windowed);
        found.next().map_or(0, |layer| scalar * batch * u128::from(sizes.cells_of(layer, inputs)) + 8 * batch + places)
    };
    // Tokens, positions, outputs and the numbers that mix tokens with embeddings: some architectures have more of them.
    let positions = 4 * batch + 16 * batch + SMALL_INPUTS * batch;
    caching(false) + caching(true) + positions + 4 * batch * u128::from(shape.embedding)
}

/// Returns the scores of all heads over all cells, or with flash attention its inputs and outputs.
fn attention(shape: &ModelShape, layer: &Layer, inputs: &Inputs, sizes: Sizes) -> u128 {
    if layer.heads == 0 {
        return 0;
    }
    let batch = u128::from(sizes.batch);
    let cells = if shape.encoder { sizes.batch } else { sizes.cells_of(layer, inputs) };
    let (query, key) = (u128::from(layer.query_row()), u128::from(layer.key_row()));
    let fused = (query + 2 * key).max(2 * query + key);
    let queries = match (layer.build.fused_queries, inputs.flash_attention) {
        (true, _) => fused,
        (false, false) => 2 * query,
        (false, true) => 2 * query + 2 * key,
    };
    let waiting = if layer.build.parallel { PARALLEL_ROWS } else { 0 };
    let latent = if shape.latent { 1 } else { 0 };
    let width = (4 + waiting + latent) * u128::from(shape.embedding) + queries;
    match inputs.flash_attention {
        false if shape.latent => {
            // The latent rows are turned into values: a copy of one layer's cache, and queries once more.
            let copy = u128::from(inputs.cache_type_k.row(layer.value_row())) * u128::from(cells * sizes.streams);
            4 * batch * (u128::from(layer.heads) * u128::from(cells) + width + query) + copy
        }
        false => 4 * batch * (u128::from(layer.heads) * u128::from(cells) + width),
        true => 4 * batch * width,
    }
}

/// Returns the copies of one layer's cache as f16, which flash attention reads. They share memory with nothing else.
fn unpacked(shape: &ModelShape, layer: &Layer, inputs: &Inputs, sizes: Sizes) -> u128 {
    if !layer.caches || !inputs.flash_attention {
        return 0;
    }
    let copy = |kind: CacheType, row: u64| if kind == CacheType::F16 { 0 } else { 2 * u128::from(row) };
    let row = copy(inputs.cache_type_k, layer.key_row()) + copy(inputs.cache_type_v, layer.value_row());
    // Tensors that are held beside the attention cannot share memory with a copy.
    let waiting = if layer.build.parallel && row > 0 { 8 * u128::from(sizes.batch * shape.embedding) } else { 0 };
    row * u128::from(sizes.cells_of(layer, inputs)) * u128::from(sizes.streams) + waiting
}

/// Returns the rows of a token that are in use at once in the feed-forward part: gate, up and their product, all
/// experts of a token together.
fn feed_forward(shape: &ModelShape, layer: &Layer, sizes: Sizes) -> u128 {
    let embedding = u128::from(shape.embedding);
    let width = u128::from(layer.feed_forward);
    let dense = match (layer.build.ungated, layer.build.parallel) {
        (true, false) => width,
        (true, true) => width + embedding,
        (false, _) => 3 * width,
    };
    let routed = layer.experts.map_or(0, |experts| {
        let one = u128::from(experts.feed_forward);
        // The results of all experts take the place of gate and up, unless they are wider than both. Where tokens are
        // weighed before the experts see them, each expert has a copy of its own.
        let beyond = if embedding > 2 * one || shape.weighs_first { embedding } else { 0 };
        let bias = if layer.build.biased_experts { embedding.div_ceil(2) } else { 0 };
        (u128::from(experts.used) * (3 * one + beyond) + bias).max(3 * u128::from(experts.shared))
    });
    // In a model with recurrent layers one row more is in use.
    let rows = if shape.layers.iter().any(|layer| layer.state.is_some()) { 5 } else { 4 };
    4 * u128::from(sizes.batch) * (dense.max(routed) + rows * embedding)
}

/// Returns the input and output of a recurrent layer, and its states twice: before and after. The output of an
/// attention beside it is held as well.
fn recurrence(shape: &ModelShape, layer: &Layer, inputs: &Inputs, sizes: Sizes) -> u128 {
    let Some(state) = layer.state else { return 0 };
    let embedding = u128::from(shape.embedding);
    let beside = if layer.caches { embedding + u128::from(layer.query_row()) } else { 0 };
    let width = 5 * u128::from(state.width) + 4 * embedding + beside;
    4 * u128::from(sizes.batch) * width + 2 * state_bytes(layer, inputs.parallel)
}

/// Returns the results of one token: a score for each token of the vocabulary, and the embedding it was computed from.
fn output_row(shape: &ModelShape) -> u128 {
    4 * (u128::from(shape.vocabulary) + u128::from(shape.embedding))
}
