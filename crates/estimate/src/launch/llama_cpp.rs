//! The arguments of llama.cpp's server.

use berth_domain::GpuCount;

use crate::estimate::Estimate;
use crate::inputs::{CacheType, Options};

use super::flags::{Flag, Said, Takes};
use super::{Comparison, Disagreement, LaunchError};

const CONTEXT: &str = "--ctx-size";
const PARALLEL: &str = "--parallel";
const CACHE_K: &str = "--cache-type-k";
const CACHE_V: &str = "--cache-type-v";
const FLASH: &str = "--flash-attn";
const BATCH: &str = "--ubatch-size";
const UNIFIED: &str = "--kv-unified";
const NOT_UNIFIED: &str = "--no-kv-unified";
const SPLIT: &str = "--tensor-split";
const SPLIT_MODE: &str = "--split-mode";
const LAYERS: &str = "--n-gpu-layers";
const PROJECTOR: &str = "--mmproj";

/// Arguments that put more or less on a GPU than any estimate here knows of.
const NOT_COVERED: [(&str, &str); 8] = [
    ("--swa-full", "windows as large as the model's"),
    ("--model-draft", "no draft model"),
    ("--lora", "no adapters"),
    ("--control-vector", "no control vectors"),
    ("--no-kv-offload", "the cache on the GPU"),
    ("--override-tensor", "all tensors on the GPU"),
    ("--cpu-moe", "all tensors on the GPU"),
    ("--n-cpu-moe", "all tensors on the GPU"),
];

pub(super) const FLAGS: &[Flag] = &[
    (&[CONTEXT, "-c"], Takes::Value),
    (&[PARALLEL, "-np"], Takes::Value),
    (&[CACHE_K, "-ctk"], Takes::Value),
    (&[CACHE_V, "-ctv"], Takes::Value),
    (&[FLASH, "-fa"], Takes::Maybe(&["on", "off", "auto", "1", "0", "-1", "true", "false", "enabled", "disabled"])),
    (&[BATCH, "-ub"], Takes::Value),
    (&[UNIFIED, "-kvu"], Takes::Nothing),
    (&[NOT_UNIFIED, "-no-kvu"], Takes::Nothing),
    (&[SPLIT, "-ts"], Takes::Value),
    (&[SPLIT_MODE, "-sm"], Takes::Value),
    (&[LAYERS, "-ngl", "--gpu-layers"], Takes::Value),
    (&[PROJECTOR, "-mm", "--mmproj-url", "-mmu"], Takes::Value),
    (&["--swa-full"], Takes::Nothing),
    (&["--model-draft", "-md", "--spec-draft-model", "--hf-repo-draft", "-hfd"], Takes::Value),
    (&["--lora", "--lora-scaled"], Takes::Value),
    (&["--control-vector", "--control-vector-scaled"], Takes::Value),
    (&["--no-kv-offload", "-nkvo"], Takes::Nothing),
    (&["--override-tensor", "-ot"], Takes::Value),
    (&["--cpu-moe", "-cmoe"], Takes::Nothing),
    (&["--n-cpu-moe", "-ncmoe"], Takes::Value),
];

pub(super) fn compare(said: &Said, estimate: &Estimate) -> Vec<Disagreement> {
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
    match inputs.unified_cache {
        true => held.hold(UNIFIED, "one cache for all sequences", |value| value.is_some()),
        false => held.absent(UNIFIED, "a cache for each sequence"),
    }
    let several = inputs.gpu_counts.last().is_some_and(|count| count.get() > 1);
    held.hold(SPLIT, "equal parts", |value| value.map_or(!several, is_even));
    held.hold(SPLIT_MODE, "layer", |value| value.is_none_or(|value| value == "layer"));
    held.hold(LAYERS, "all layers", |value| value.is_none_or(|value| covers(value, model.layers)));
    match inputs.projector {
        true => held.hold(PROJECTOR, "a projector", |value| value.is_some()),
        false => held.absent(PROJECTOR, "no projector"),
    }
    for (flag, estimated) in NOT_COVERED {
        held.absent(flag, estimated);
    }
    held.found
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
        // Parts beyond the GPUs that are there count for nothing, so one list does for every count.
        args.push((SPLIT, vec!["1"; usize::from(most)].join(",")));
    }
    let unified = inputs.unified_cache.then(|| UNIFIED.to_owned());
    args.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]).chain(unified).collect()
}

pub(super) fn wish(said: &Said, options: &mut Options) -> Result<(), LaunchError> {
    if let Some((flag, _)) = NOT_COVERED.into_iter().find(|(flag, _)| said.get(flag).is_some()) {
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
    if said.get(UNIFIED).is_some() || said.get(NOT_UNIFIED).is_some() {
        options.unified_cache = Some(said.get(UNIFIED).is_some());
    }
    Ok(())
}

fn number(said: &Said, flag: &'static str) -> Result<Option<u64>, LaunchError> {
    let parse = |value: &str| value.parse().map_err(|_| LaunchError::NotANumber { flag, value: value.to_owned() });
    said.get(flag).map(parse).transpose()
}

fn is_number(value: &str, number: u64) -> bool {
    value.parse() == Ok(number)
}

/// On, off, or neither: "auto" may be either, and is not the same as what was estimated.
fn switch(value: &str) -> Option<bool> {
    match value {
        "" | "on" | "1" | "true" | "enabled" => Some(true),
        "off" | "0" | "false" | "disabled" => Some(false),
        _ => None,
    }
}

/// Whether all parts of a split are the same.
fn is_even(split: &str) -> bool {
    let mut parts = split.split([',', '/']).map(|part| part.trim().parse::<f64>().ok());
    let first = parts.next().flatten();
    first.is_some_and(|part| part > 0.0) && parts.all(|part| part == first)
}

/// Whether so many layers are all of them and the output.
fn covers(value: &str, layers: usize) -> bool {
    value == "all" || value.parse::<usize>().is_ok_and(|said| said > layers)
}
