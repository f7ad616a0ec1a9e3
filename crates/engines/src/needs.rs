//! Conditions that a model entry must meet for its engine to start at all.

use crate::{Engine, ParsedOption};

/// Why an engine could not start a model, or would start another one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// llama-server without a model waits for clients to name one.
    #[error(
        "llama-server needs a model, or it becomes a router that serves none: add `--model FILE` or `-hf REPOSITORY` to \
         `args`, or estimate its memory from its file"
    )]
    NoModel,
    /// The entry allows more GPUs than the engine can use.
    #[error("llama-server takes at most {most} GPUs{}, and gpu_counts has {count}", if *.split { " in a tensor split" } else { "" })]
    TooManyGpus {
        /// The largest GPU count of the entry.
        count: u16,
        /// The most GPUs that the engine can use.
        most: u16,
        /// Whether the limit is that of a tensor split, not that of the engine.
        split: bool,
    },
    /// A value that the engine would ignore, or read as another one.
    #[error("{option} {value:?} is of no use to {}: it takes {takes}", .engine.name())]
    Value {
        /// The engine that reads the value.
        engine: Engine,
        /// The name of the option.
        option: &'static str,
        /// The value as it was written.
        value: String,
        /// The values that the option takes, in words.
        takes: &'static str,
    },
    /// A quantised cache without flash attention, which Ollama ignores.
    #[error("--kv-cache-type {0} needs flash attention: remove `--flash-attention {1}`, or the cache type")]
    CacheWithoutFlash(String, String),
}

/// The most GPUs that llama-server uses, and the most shares that a tensor split may list.
const LLAMA_GPUS: u16 = 16;
const LLAMA_SPLIT: u16 = 15;

/// The words that Ollama takes for a switch. Its parser reads any other word as "on".
const SWITCH: [(&str, bool); 4] = [("1", true), ("true", true), ("0", false), ("false", false)];

/// Checks that an engine can start a model with these arguments on up to `most_gpus` GPUs.
///
/// Arguments that cannot be read are skipped here, because [`crate::check`] refuses them.
pub fn check_model<S: AsRef<str>>(engine: Engine, args: &[S], most_gpus: u16) -> Result<(), Unfit> {
    let options = engine.read(args).unwrap_or_else(|_| engine.recognise(args));
    match engine {
        Engine::LlamaServer => check_llama(&options, most_gpus),
        Engine::Vllm => Ok(()),
        Engine::Ollama => check_ollama(&options),
    }
}

/// Returns whether the arguments name the model to load, for engines that take it from their arguments.
#[must_use]
pub fn has_model<S: AsRef<str>>(engine: Engine, args: &[S]) -> bool {
    engine != Engine::LlamaServer || engine.recognise(args).iter().any(names_model)
}

/// Returns whether an option names a model: its file, or a preset that downloads one.
fn names_model(option: &ParsedOption<'_>) -> bool {
    const SOURCES: [&str; 4] = ["--model", "--model-url", "--hf-repo", "--docker-repo"];
    let name = option.canonical();
    let is_preset = name.ends_with("-default") || name.starts_with("--fim-");
    SOURCES.contains(&name) || (is_preset && name != "--spec-default")
}

fn check_llama(options: &[ParsedOption<'_>], count: u16) -> Result<(), Unfit> {
    if !options.iter().any(names_model) {
        return Err(Unfit::NoModel);
    }
    let split = options.iter().any(|option| option.canonical() == "--tensor-split");
    let most = if split { LLAMA_SPLIT } else { LLAMA_GPUS };
    if count > most { Err(Unfit::TooManyGpus { count, most, split }) } else { Ok(()) }
}

fn check_ollama(options: &[ParsedOption<'_>]) -> Result<(), Unfit> {
    let last =
        |name: &str| options.iter().rev().find(|option| option.canonical() == name).and_then(ParsedOption::value);
    let wrong =
        |option, value: &str, takes| Unfit::Value { engine: Engine::Ollama, option, value: value.to_owned(), takes };
    for context in options.iter().filter(|option| option.canonical() == "--num-ctx").filter_map(ParsedOption::value) {
        if !context.parse::<u64>().is_ok_and(|tokens| tokens > 0) {
            return Err(wrong("--num-ctx", context, "a number of tokens above 0"));
        }
    }
    let cache = last("--kv-cache-type");
    if let Some(cache) = cache.filter(|cache| !["f16", "q8_0", "q4_0"].contains(cache)) {
        return Err(wrong("--kv-cache-type", cache, "f16, q8_0 or q4_0"));
    }
    let Some(flash) = last("--flash-attention") else { return Ok(()) };
    let Some((_, is_on)) = SWITCH.into_iter().find(|(word, _)| *word == flash) else {
        return Err(wrong("--flash-attention", flash, "1 or 0"));
    };
    match cache.filter(|cache| !is_on && *cache != "f16") {
        Some(cache) => Err(Unfit::CacheWithoutFlash(cache.to_owned(), flash.to_owned())),
        None => Ok(()),
    }
}
