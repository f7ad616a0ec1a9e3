//! vLLM: it is given a share of each GPU, loads its weights, tries its largest batch, and fills the rest with cache.
//!
//! So vLLM takes the share that it is given. An estimate is the smallest share that works: weights, the cache for the
//! context and the sequences that were asked for, its largest batch, and its overhead.

use std::collections::BTreeSet;

use berth_domain::{Bytes, GpuCount, Utilization, UtilizationError};

use crate::estimate::{DeviceEstimate, Estimate, EstimateError, ModelSummary, Note, Parts, bytes};
use crate::hf::FolderModel;
use crate::inputs::{Defaults, InputError, Inputs, Options, Profile};
use crate::model::notes;
use crate::shape::{Layer, ModelShape};
use crate::split::LayerSpan;

/// Tokens in one block of vLLM's cache.
const BLOCK: u64 = 16;
/// The most GPUs that are tried where the caller does not say how many: what one machine has.
const MOST_UNASKED: GpuCount = GpuCount::new(8);
/// Copies of all scores that sampling may hold at once.
const SAMPLING_COPIES: u128 = 4;

/// What versions before 0.21 take for captured graphs beyond their share.
pub const GRAPHS_BEYOND_SHARE: Bytes = Bytes::gib(1);

/// Returns the `--gpu-memory-utilization` with which vLLM never takes more than its claim on a GPU.
///
/// `beyond` is what it takes without counting it: nothing since version 0.21, [`GRAPHS_BEYOND_SHARE`] before.
pub fn utilization(claim: Bytes, total: Bytes, beyond: Bytes) -> Result<Utilization, UtilizationError> {
    if claim > total {
        return Err(UtilizationError::MoreThanAll { claim, total });
    }
    Utilization::of(claim.saturating_sub(beyond), total)
}

/// Estimates how much memory a folder's model needs.
pub(crate) fn estimate(model: &FolderModel, options: &Options) -> Result<Estimate, EstimateError> {
    let shape = model.shape();
    let mut inputs = Defaults {
        profile: Profile::Vllm,
        trained_context: shape.trained_context,
        cache_type: model.cache_type(),
        projector: false,
    }
    .resolve(options)?;
    if inputs.profile != Profile::Vllm {
        return Err(InputError::Profile { profile: inputs.profile, files: "folders of safetensors" }.into());
    }
    if options.gpu_counts.is_none() {
        inputs.gpu_counts = model.gpu_counts(MOST_UNASKED).into_iter().collect();
    }
    inputs.gpu_counts = possible(model, &inputs.gpu_counts)?;
    let counts = inputs.gpu_counts.iter().map(|count| Ok((*count, devices(model, &inputs, *count)?)));
    let counts = counts.collect::<Result<_, EstimateError>>()?;
    let mut notes = notes(&shape.architecture, shape.trained_context, &inputs);
    notes.extend(model.weights.from_index.then_some(Note::WeightsFromIndex));
    Ok(Estimate {
        model: ModelSummary {
            architecture: shape.architecture.to_string(),
            name: model.name().map(ToOwned::to_owned),
            layers: shape.layers.len(),
            trained_context: shape.trained_context,
            weights: Bytes::new(model.weights.total()),
            files: model.weights.files,
        },
        inputs,
        counts,
        host: Bytes::ZERO,
        notes,
    })
}

/// Returns the GPU counts over which the model can be split.
fn possible(model: &FolderModel, wanted: &BTreeSet<GpuCount>) -> Result<BTreeSet<GpuCount>, EstimateError> {
    let counts: BTreeSet<_> = wanted.iter().copied().filter(|count| model.allows(*count)).collect();
    if counts.is_empty() {
        let layer = model.shape().layers.first();
        let (heads, kv_heads) = layer.map_or((0, 0), |layer| (layer.heads, layer.kv_heads));
        return Err(EstimateError::NoCount { heads, kv_heads });
    }
    Ok(counts)
}

/// Estimates the GPUs of one count. They are all alike: each has a share of each layer.
fn devices(model: &FolderModel, inputs: &Inputs, count: GpuCount) -> Result<Vec<DeviceEstimate>, EstimateError> {
    let (shape, parts) = (model.shape(), u64::from(count.get()));
    let kv: u128 = shape.layers.iter().map(|layer| cache(shape, layer, inputs, parts)).sum();
    let parts = Parts {
        weights: bytes(weights(model, parts))?,
        kv: bytes(kv)?,
        compute: bytes(compute(shape, inputs, parts))?,
        output: Bytes::ZERO,
        overhead: inputs.overhead,
        projector: Bytes::ZERO,
    };
    let layers = LayerSpan { first: 0, count: shape.layers.len(), output: true };
    Ok(vec![DeviceEstimate { layers, parts }; usize::from(count.get())])
}

/// Returns one GPU's share. Keys and values are split by head at most; models in single precision are loaded in half.
fn weights(model: &FolderModel, parts: u64) -> u128 {
    let weights = &model.weights;
    let kv_heads = model.shape().layers.iter().map(|layer| layer.kv_heads).max().unwrap_or(1).max(1);
    let keys_and_values = weights.keys_and_values.div_ceil(parts.min(kv_heads));
    let all = [weights.split.div_ceil(parts), keys_and_values, weights.replicated].map(u128::from).iter().sum::<u128>();
    match weights.single_precision > weights.total() / 2 {
        true => all.div_ceil(2),
        false => all,
    }
}

/// Returns the bytes of keys, values and states of one layer on one GPU.
fn cache(shape: &ModelShape, layer: &Layer, inputs: &Inputs, parts: u64) -> u128 {
    let sequences = u128::from(inputs.parallel);
    let state = layer.state.map_or(0, |state| (state.convolution + state.recurrence).div_ceil(parts));
    let states = 4 * u128::from(state) * sequences;
    if !layer.caches {
        return states;
    }
    let heads = if shape.latent { 1 } else { layer.kv_heads.div_ceil(parts) };
    let row = inputs.cache_type_k.row(heads * layer.key_length) + inputs.cache_type_v.row(heads * layer.value_length);
    let blocks = match layer.window {
        None => inputs.context.div_ceil(BLOCK),
        Some(window) => (window + inputs.batch).min(inputs.context).div_ceil(BLOCK) + 1,
    };
    u128::from(row) * u128::from(blocks * BLOCK) * sequences + states
}

/// Returns the largest batch, in half precision, and the scores of all sequences while one token of each is chosen.
fn compute(shape: &ModelShape, inputs: &Inputs, parts: u64) -> u128 {
    let width = |layer: &Layer| {
        let routed = layer
            .experts
            .map_or(0, |experts| experts.used * (3 * experts.feed_forward.div_ceil(parts) + shape.embedding));
        (3 * layer.feed_forward.div_ceil(parts)).max(routed) + 3 * layer.query_row().div_ceil(parts)
    };
    let widest = u128::from(shape.layers.iter().map(width).max().unwrap_or(0));
    let batch = 2 * u128::from(inputs.batch) * (8 * u128::from(shape.embedding) + widest);
    let scores = 4 * u128::from(inputs.parallel) * u128::from(shape.vocabulary);
    batch + SAMPLING_COPIES * scores
}
