//! The options by which a model entry states what Ollama reads from its environment.

use crate::estimate::Estimate;
use crate::inputs::{CacheType, Options};

use super::flags::GivenOptions;
use super::{Comparison, Disagreement, LaunchError};

const CONTEXT: &str = "--num-ctx";
const CACHE: &str = "--kv-cache-type";
const FLASH: &str = "--flash-attention";

/// The batch size of Ollama, which no argument changes.
const BATCH: u64 = 512;

pub(super) fn compare(said: &GivenOptions, estimate: &Estimate) -> Vec<Disagreement> {
    let inputs = &estimate.inputs;
    let mut held = Comparison::new(said);
    // Ollama's context is that of one sequence. Its default depends on the size of the GPU.
    held.hold(CONTEXT, inputs.context, |value| value.is_some_and(|value| value.parse() == Ok(inputs.context)));
    held.hold(CACHE, cache_type(estimate), |value| match value {
        None => is_cache(estimate, CacheType::F16),
        Some(value) => value.parse().is_ok_and(|said| is_cache(estimate, said)),
    });
    held.hold(FLASH, switch(inputs.flash_attention), |value| value.and_then(is_on) == Some(inputs.flash_attention));
    held.hold("batch", BATCH, |_| inputs.batch == BATCH);
    held.found
}

/// Returns whether keys and values are both of this type: Ollama stores them in one.
fn is_cache(estimate: &Estimate, said: CacheType) -> bool {
    (estimate.inputs.cache_type_k, estimate.inputs.cache_type_v) == (said, said)
}

fn cache_type(estimate: &Estimate) -> String {
    let (keys, values) = (estimate.inputs.cache_type_k, estimate.inputs.cache_type_v);
    if keys == values { keys.to_string() } else { format!("{keys} for keys and {values} for values") }
}

const fn switch(is_on: bool) -> &'static str {
    if is_on { "1" } else { "0" }
}

fn is_on(value: &str) -> Option<bool> {
    match value {
        "1" | "true" => Some(true),
        "0" | "false" => Some(false),
        _ => None,
    }
}

pub(super) fn arguments(estimate: &Estimate) -> Vec<String> {
    let inputs = &estimate.inputs;
    [
        (CONTEXT, inputs.context.to_string()),
        (CACHE, inputs.cache_type_k.to_string()),
        (FLASH, switch(inputs.flash_attention).to_owned()),
    ]
    .into_iter()
    .flat_map(|(word, value)| [word.to_owned(), value])
    .collect()
}

pub(super) fn read_inputs(said: &GivenOptions, options: &mut Options) -> Result<(), LaunchError> {
    if let Some(value) = said.get(CONTEXT) {
        let wrong = |_| LaunchError::NotANumber { flag: CONTEXT, value: value.to_owned() };
        options.context = Some(value.parse().map_err(wrong)?);
    }
    if let Some(kind) = said.get(CACHE) {
        let kind: CacheType = kind.parse()?;
        (options.cache_type_k, options.cache_type_v) = (Some(kind), Some(kind));
    }
    match said.get(FLASH).map(|value| (value, is_on(value))) {
        Some((_, Some(on))) => options.flash_attention = Some(on),
        Some((value, None)) => return Err(LaunchError::NotCovered(format!("{FLASH} {value}"))),
        None => {}
    }
    Ok(())
}
