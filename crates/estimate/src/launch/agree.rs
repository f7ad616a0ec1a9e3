//! One number for a model of the catalogue: its estimate and the arguments of its runtime agree, or it is refused.

use berth_domain::RuntimeName;
use berth_engines::Engine;

use super::{Disagreement, LaunchError, Launched, arguments_for, disagreements, options};
use crate::estimate::{Estimate, EstimateError};
use crate::inputs::{Options, Profile};
use crate::model::Model;

/// A program whose arguments are known, by the name of its runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// llama-server, the server of llama.cpp.
    LlamaServer,
    /// vLLM.
    Vllm,
    /// Ollama, which is configured through its environment.
    Ollama,
    /// Any other program. Arguments in the options of the estimate's profile are compared with the estimate; missing
    /// ones are left to the operator.
    Other,
}

impl Program {
    /// Returns the program behind a runtime: `llama-server`, `vllm`, `ollama`, and names that begin so.
    #[must_use]
    pub fn of(runtime: &RuntimeName) -> Self {
        match Engine::of(runtime.as_str()) {
            Some(Engine::LlamaServer) => Self::LlamaServer,
            Some(Engine::Vllm) => Self::Vllm,
            Some(Engine::Ollama) => Self::Ollama,
            None => Self::Other,
        }
    }

    /// Returns the engine whose table of options applies to the program.
    pub(super) const fn engine(self) -> Option<Engine> {
        match self {
            Self::LlamaServer => Some(Engine::LlamaServer),
            Self::Vllm => Some(Engine::Vllm),
            Self::Ollama => Some(Engine::Ollama),
            Self::Other => None,
        }
    }

    /// Returns whether a profile describes this program.
    const fn has(self, profile: Profile) -> bool {
        match self {
            Self::LlamaServer | Self::Ollama => matches!(profile, Profile::LlamaCpp | Profile::Conservative),
            Self::Vllm => matches!(profile, Profile::Vllm),
            Self::Other => true,
        }
    }
}

/// An estimate, and the arguments that must be added to make it true.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agreement {
    /// The estimate for the launch.
    pub estimate: Estimate,
    /// The arguments that are missing.
    pub missing: Vec<String>,
}

/// Why an estimate and the arguments of a runtime do not agree.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAgreed {
    /// No estimate can be made.
    #[error(transparent)]
    Estimate(#[from] EstimateError),
    /// An argument has an effect that no estimate covers.
    #[error(transparent)]
    Args(#[from] LaunchError),
    /// The arguments and the estimate differ.
    #[error("{}", list(.0))]
    Differ(Vec<Disagreement>),
    /// The estimate is of another program's memory.
    #[error("this file would be estimated for {0}, which is not what the runtime starts")]
    OtherProgram(Profile),
}

fn list(found: &[Disagreement]) -> String {
    found.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// Estimates a model for a launch and completes its arguments: [`estimate_for_launch`], then [`missing_arguments`].
pub fn agree<S: AsRef<str>>(
    model: &Model,
    program: Program,
    asked: &Options,
    args: &[S],
    parallel: u64,
) -> Result<Agreement, NotAgreed> {
    let estimate = estimate_for_launch(model, program, asked, args, parallel)?;
    let missing = missing_arguments(program, args, &estimate)?;
    Ok(Agreement { estimate, missing })
}

/// Estimates a model for what is asked. What that leaves open is taken from the arguments, else `parallel` sequences
/// are assumed.
pub fn estimate_for_launch<S: AsRef<str>>(
    model: &Model,
    program: Program,
    asked: &Options,
    args: &[S],
    parallel: u64,
) -> Result<Estimate, NotAgreed> {
    let profile = asked.profile.unwrap_or(model.usual_profile());
    if !program.has(profile) {
        return Err(NotAgreed::OtherProgram(profile));
    }
    // The agent configures Ollama to serve as many sequences as the model states, and no argument changes that.
    if let Some(other) = asked.parallel.filter(|asked| program == Program::Ollama && *asked != parallel) {
        let launched = Launched::Said(parallel.to_string());
        let differs = Disagreement { flag: "concurrency".to_owned(), estimated: other.to_string(), launched };
        return Err(NotAgreed::Differ(vec![differs]));
    }
    let base = Options { parallel: asked.parallel.or(Some(parallel)), ..Options::default() };
    let said = options(program, args, profile, &base)?;
    Ok(model.estimate(&merged(asked, said, profile))?)
}

/// Computes the arguments that must be added so that the program takes what was estimated. Refuses arguments that
/// contradict the estimate, and an estimate of another program's memory.
///
/// It needs the estimate and not the files, so a server can do this for files that only a runner can read.
pub fn missing_arguments<S: AsRef<str>>(
    program: Program,
    args: &[S],
    estimate: &Estimate,
) -> Result<Vec<String>, NotAgreed> {
    if !program.has(estimate.inputs.profile) {
        return Err(NotAgreed::OtherProgram(estimate.inputs.profile));
    }
    let (unsaid, differ): (Vec<_>, Vec<_>) =
        disagreements(program, args, estimate)?.into_iter().partition(|found| found.launched == Launched::NotSaid);
    if !differ.is_empty() {
        return Err(NotAgreed::Differ(differ));
    }
    let missing = match program {
        Program::Other => Vec::new(),
        Program::LlamaServer | Program::Vllm | Program::Ollama => missing(program, estimate, &unsaid),
    };
    let all: Vec<&str> = args.iter().map(AsRef::as_ref).chain(missing.iter().map(String::as_str)).collect();
    let rest = disagreements(program, &all, estimate)?;
    match program == Program::Other || rest.is_empty() {
        true => Ok(missing),
        false => Err(NotAgreed::Differ(rest)),
    }
}

/// Merges what was asked with what the arguments state.
fn merged(asked: &Options, said: Options, profile: Profile) -> Options {
    Options {
        profile: Some(profile),
        context: asked.context.or(said.context),
        parallel: asked.parallel.or(said.parallel),
        cache_type_k: asked.cache_type_k.or(said.cache_type_k),
        cache_type_v: asked.cache_type_v.or(said.cache_type_v),
        flash_attention: asked.flash_attention.or(said.flash_attention),
        batch: asked.batch.or(said.batch),
        unified_cache: asked.unified_cache.or(said.unified_cache),
        gpu_counts: asked.gpu_counts.clone().or(said.gpu_counts),
        overhead: asked.overhead,
    }
}

/// Returns the missing arguments, each with its value.
fn missing(program: Program, estimate: &Estimate, unsaid: &[Disagreement]) -> Vec<String> {
    let all = arguments_for(program, estimate);
    let mut missing = Vec::new();
    let mut take = false;
    for word in all {
        if word.starts_with("--") {
            take = unsaid.iter().any(|found| found.flag == word);
        }
        missing.extend(take.then_some(word));
    }
    missing
}
