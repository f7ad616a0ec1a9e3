//! The arguments of llama.cpp's server.

use berth_domain::GpuCount;

use crate::estimate::Estimate;
use crate::inputs::{CacheType, Options};

use super::flags::GivenOptions;
use super::{Comparison, Disagreement, LaunchError};

const CONTEXT: &str = "--ctx-size";
const PARALLEL: &str = "--parallel";
const CACHE_K: &str = "--cache-type-k";
const CACHE_V: &str = "--cache-type-v";
const FLASH: &str = "--flash-attn";
const BATCH: &str = "--ubatch-size";
const UNIFIED: &str = "--kv-unified";
const SPLIT: &str = "--tensor-split";
const SPLIT_MODE: &str = "--split-mode";
const LAYERS: &str = "--n-gpu-layers";
const PROJECTOR: &str = "--mmproj";
const PROJECTOR_URL: &str = "--mmproj-url";

/// Options that are compared with the estimate one by one.
const COMPARED: [&str; 11] =
    [CONTEXT, PARALLEL, CACHE_K, CACHE_V, FLASH, BATCH, UNIFIED, SPLIT, SPLIT_MODE, LAYERS, PROJECTOR];

/// Options that change RAM, or make a buffer smaller, and leave the GPU memory as it was estimated.
const WITHOUT_EFFECT: [&str; 8] = [
    "--batch-size",
    "--cache-ram",
    "--ctx-checkpoints",
    "--repack",
    "--no-host",
    "--embedding",
    "--rerank",
    "--pooling",
];

/// What the estimate assumes about all other options.
const ASSUMED_OTHERWISE: &str = "all of the model on the GPU, and nothing beside it";

pub(super) fn compare(said: &GivenOptions, estimate: &Estimate) -> Vec<Disagreement> {
    let (inputs, model) = (&estimate.inputs, &estimate.model);
    let mut held = Comparison::new(said);
    held.hold(CONTEXT, inputs.tokens(), |value| match value {
        // Without a number, or with 0, the model's own context is taken.
        None | Some("0") => model.trained_context == inputs.tokens(),
        Some(value) => is_number(value, inputs.tokens()),
    });
    held.hold(PARALLEL, inputs.parallel, |value| value.is_some_and(|value| is_number(value, inputs.parallel)));
    for (flag, estimated) in [(CACHE_K, inputs.cache_type_k), (CACHE_V, inputs.cache_type_v)] {
        held.hold(flag, estimated, |value| match value {
            None => estimated == CacheType::F16,
            Some(value) => value.parse() == Ok(estimated),
        });
    }
    held.hold(FLASH, if inputs.flash_attention { "on" } else { "off" }, |value| {
        value.and_then(switch) == Some(inputs.flash_attention)
    });
    held.hold(BATCH, inputs.batch, |value| match value {
        None => inputs.batch == 512,
        Some(value) => is_number(value, inputs.batch),
    });
    let unified = unified(said);
    match inputs.unified_cache {
        true => held.hold(UNIFIED, "one cache for all sequences", |_| unified == Some(true)),
        false => held.hold(UNIFIED, "a cache for each sequence", |_| unified != Some(true)),
    }
    let several = inputs.gpu_counts.last().is_some_and(|count| count.get() > 1);
    held.hold(SPLIT, "equal parts", |value| value.map_or(!several, is_even));
    held.hold(SPLIT_MODE, "layer", |value| value.is_none_or(|value| value == "layer"));
    held.hold(LAYERS, "all layers", |value| value.is_none_or(|value| covers(value, model.layers)));
    for projector in [PROJECTOR, PROJECTOR_URL] {
        let is_other = said.get(PROJECTOR).is_some() || said.get(PROJECTOR_URL).is_some();
        match inputs.projector {
            true => held.hold(projector, "a projector", |_| is_other),
            false => held.absent(projector, "no projector"),
        }
    }
    for (flag, _) in not_covered(said) {
        held.absent(flag, ASSUMED_OTHERWISE);
    }
    held.found
}

/// Returns options that no estimate covers.
fn not_covered(said: &GivenOptions) -> impl Iterator<Item = (&str, &str)> {
    let is_default = |(option, _): &(&str, &str)| match said.spelled(option) {
        Some("--kv-offload" | "-kvo" | "--no-mmproj" | "--no-mmproj-auto" | "--no-op-offload") => true,
        Some(_) | None => false,
    };
    let other = |(option, _): &(&str, &str)| !WITHOUT_EFFECT.contains(option) && *option != PROJECTOR_URL;
    said.not_covered(&COMPARED).filter(other).filter(move |word| !is_default(word))
}

/// Returns whether one cache for all sequences was asked for, or one for each.
fn unified(said: &GivenOptions) -> Option<bool> {
    said.spelled(UNIFIED).map(|spelled| !spelled.contains("no-kv"))
}

pub(super) fn arguments(estimate: &Estimate) -> Vec<String> {
    let inputs = &estimate.inputs;
    let most = inputs.gpu_counts.last().copied().map_or(1, GpuCount::get);
    let mut args = vec![
        (CONTEXT, inputs.tokens().to_string()),
        (PARALLEL, inputs.parallel.to_string()),
        (CACHE_K, inputs.cache_type_k.to_string()),
        (CACHE_V, inputs.cache_type_v.to_string()),
        (FLASH, if inputs.flash_attention { "on" } else { "off" }.to_owned()),
        (BATCH, inputs.batch.to_string()),
        (LAYERS, (estimate.model.layers + 1).to_string()),
        (SPLIT_MODE, "layer".to_owned()),
    ];
    if most > 1 {
        // Shares beyond the GPUs that are there count for nothing, so one list serves all counts.
        args.push((SPLIT, vec!["1"; usize::from(most)].join(",")));
    }
    let unified = inputs.unified_cache.then(|| UNIFIED.to_owned());
    args.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]).chain(unified).collect()
}

pub(super) fn read_inputs(said: &GivenOptions, options: &mut Options) -> Result<(), LaunchError> {
    if let Some((flag, _)) = not_covered(said).next() {
        return Err(LaunchError::NotCovered(flag.to_owned()));
    }
    if said.get(SPLIT).is_some_and(|value| !is_even(value)) || said.get(SPLIT_MODE).is_some_and(|mode| mode != "layer")
    {
        return Err(LaunchError::NotCovered("an uneven split".to_owned()));
    }
    if let Some(parallel) = number(said, PARALLEL)? {
        options.parallel = Some(parallel);
    }
    if let Some(tokens) = number(said, CONTEXT)? {
        let parallel = options.parallel.unwrap_or(1).max(1);
        options.context = (tokens > 0).then(|| tokens.div_ceil(parallel));
    }
    if let Some(batch) = number(said, BATCH)? {
        options.batch = Some(batch);
    }
    if let Some(kind) = said.get(CACHE_K) {
        options.cache_type_k = Some(kind.parse()?);
    }
    if let Some(kind) = said.get(CACHE_V) {
        options.cache_type_v = Some(kind.parse()?);
    }
    match said.get(FLASH).map(|value| (value, switch(value))) {
        Some((_, Some(on))) => options.flash_attention = Some(on),
        Some((value, None)) => return Err(LaunchError::NotCovered(format!("{FLASH} {value}"))),
        None => {}
    }
    options.unified_cache = unified(said).or(options.unified_cache);
    Ok(())
}

fn number(said: &GivenOptions, flag: &'static str) -> Result<Option<u64>, LaunchError> {
    let parse = |value: &str| value.parse().map_err(|_| LaunchError::NotANumber { flag, value: value.to_owned() });
    said.get(flag).map(parse).transpose()
}

fn is_number(value: &str, number: u64) -> bool {
    value.parse() == Ok(number)
}

/// Reads on or off. `auto` is neither: it may not be what was estimated.
fn switch(value: &str) -> Option<bool> {
    match value {
        "on" | "1" | "true" | "enabled" => Some(true),
        "off" | "0" | "false" | "disabled" => Some(false),
        _ => None,
    }
}

/// Returns whether all parts of a split are equal.
fn is_even(split: &str) -> bool {
    let mut parts = split.split([',', '/']).map(|part| part.trim().parse::<f64>().ok());
    let first = parts.next().flatten();
    first.is_some_and(|part| part > 0.0) && parts.all(|part| part == first)
}

/// Returns whether this many layers include all of them and the output.
fn covers(value: &str, layers: usize) -> bool {
    value == "all" || value.parse::<usize>().is_ok_and(|said| said > layers)
}
