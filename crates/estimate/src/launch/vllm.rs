//! The arguments of vLLM's server.

use berth_domain::GpuCount;

use crate::estimate::Estimate;
use crate::inputs::{CacheType, Options};

use super::flags::GivenOptions;
use super::{Comparison, Disagreement, LaunchError};

const CONTEXT: &str = "--max-model-len";
const PARALLEL: &str = "--max-num-seqs";
const CACHE: &str = "--kv-cache-dtype";
const BATCH: &str = "--max-num-batched-tokens";
const TENSOR_PARALLEL: &str = "--tensor-parallel-size";
const UTILIZATION: &str = "--gpu-memory-utilization";

/// Options that are compared with the estimate one by one.
const COMPARED: [&str; 6] = [CONTEXT, PARALLEL, CACHE, BATCH, TENSOR_PARALLEL, UTILIZATION];

/// Options that change RAM, or make memory use smaller, and leave the GPU memory as it was estimated.
const WITHOUT_EFFECT: [&str; 9] = [
    "--enforce-eager",
    "--attention-backend",
    "--moe-backend",
    "--linear-backend",
    "--mamba-backend",
    "--mm-processor-cache-gb",
    "--mm-processor-cache-type",
    "--max-num-active-seqs",
    "--language-model-only",
];

/// Values that state what the estimate assumes anyway.
const NEUTRAL: [(&str, &str); 7] = [
    ("--pipeline-parallel-size", "1"),
    ("--data-parallel-size", "1"),
    ("--decode-context-parallel-size", "1"),
    ("--prefill-context-parallel-size", "1"),
    ("--nnodes", "1"),
    ("--dtype", "auto"),
    ("--cpu-offload-gb", "0"),
];

/// What the estimate assumes about all other options.
const ASSUMED_OTHERWISE: &str = "one copy of the model as its files are, and nothing beside it";

pub(super) fn compare(said: &GivenOptions, estimate: &Estimate) -> Vec<Disagreement> {
    let (inputs, model) = (&estimate.inputs, &estimate.model);
    let mut held = Comparison::new(said);
    held.hold(CONTEXT, inputs.context, |value| match value {
        None | Some("-1" | "auto") => model.trained_context == inputs.context,
        Some(value) => count(value) == Some(inputs.context),
    });
    held.hold(PARALLEL, inputs.parallel, |value| value.and_then(count) == Some(inputs.parallel));
    held.hold(BATCH, inputs.batch, |value| value.and_then(count) == Some(inputs.batch));
    held.hold(CACHE, inputs.cache_type_k, |value| match value {
        // The default stores the type that the model computes in, and all of those take two bytes.
        None | Some("auto") => matches!(inputs.cache_type_k, CacheType::F16 | CacheType::Bf16),
        Some(value) => value.parse() == Ok(inputs.cache_type_k),
    });
    held.hold(TENSOR_PARALLEL, counts(estimate), |value| match value {
        // The agent fills in the number of GPUs at start.
        None => true,
        Some(value) => {
            let size = value.parse().ok().map(GpuCount::new);
            inputs.gpu_counts.len() == 1 && inputs.gpu_counts.first().copied() == size
        }
    });
    held.absent(UTILIZATION, "the share that belongs to the slot");
    for (flag, _) in not_covered(said) {
        held.absent(flag, ASSUMED_OTHERWISE);
    }
    held.found
}

/// Returns options that no estimate covers.
fn not_covered(said: &GivenOptions) -> impl Iterator<Item = (&str, &str)> {
    said.not_covered(&COMPARED).filter(|word| !WITHOUT_EFFECT.contains(&word.0) && !NEUTRAL.contains(word))
}

fn counts(estimate: &Estimate) -> String {
    let counts: Vec<String> = estimate.inputs.gpu_counts.iter().map(ToString::to_string).collect();
    counts.join(", ")
}

pub(super) fn arguments(estimate: &Estimate) -> Vec<String> {
    let inputs = &estimate.inputs;
    let cache = match inputs.cache_type_k {
        CacheType::F16 | CacheType::Bf16 => "auto",
        other => other.name(),
    };
    [
        (CONTEXT, inputs.context.to_string()),
        (PARALLEL, inputs.parallel.to_string()),
        (BATCH, inputs.batch.to_string()),
        (CACHE, cache.to_owned()),
    ]
    .into_iter()
    .flat_map(|(flag, value)| [flag.to_owned(), value])
    .collect()
}

pub(super) fn read_inputs(said: &GivenOptions, options: &mut Options) -> Result<(), LaunchError> {
    if let Some((flag, _)) = not_covered(said).next() {
        return Err(LaunchError::NotCovered(flag.to_owned()));
    }
    let number = |flag: &'static str| {
        let parse = |value: &str| count(value).ok_or_else(|| LaunchError::NotANumber { flag, value: value.to_owned() });
        said.get(flag).filter(|value| !matches!(*value, "auto" | "-1")).map(parse).transpose()
    };
    options.context = number(CONTEXT)?.or(options.context);
    options.parallel = number(PARALLEL)?.or(options.parallel);
    options.batch = number(BATCH)?.or(options.batch);
    if let Some(size) = number(TENSOR_PARALLEL)? {
        let count = u16::try_from(size).map(GpuCount::new);
        let wrong = |_| LaunchError::NotANumber { flag: TENSOR_PARALLEL, value: size.to_string() };
        options.gpu_counts = Some([count.map_err(wrong)?].into());
    }
    if let Some(kind) = said.get(CACHE).filter(|kind| *kind != "auto") {
        let kind = kind.parse()?;
        (options.cache_type_k, options.cache_type_v) = (Some(kind), Some(kind));
    }
    Ok(())
}

/// Parses a count as vLLM does: `8192`, `8k` for thousands, `8K` for 1024s, with a fraction if needed.
fn count(value: &str) -> Option<u64> {
    let (digits, unit) = match value.char_indices().last()? {
        (at, 'k') => (value.get(..at)?, 1_000),
        (at, 'm') => (value.get(..at)?, 1_000_000),
        (at, 'K') => (value.get(..at)?, 1 << 10),
        (at, 'M') => (value.get(..at)?, 1 << 20),
        _ => (value, 1),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let thousandths: u64 = match fraction.len() {
        0 => 0,
        length @ 1..=3 => fraction.parse::<u64>().ok()? * 10u64.pow(3 - u32::try_from(length).ok()?),
        _ => return None,
    };
    let scaled = whole.parse::<u64>().ok()?.checked_mul(1_000)?.checked_add(thousandths)?;
    Some(scaled.checked_mul(unit)? / 1_000)
}
