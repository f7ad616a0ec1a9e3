//! Comparing how a program is started with what was estimated.
//!
//! A claim is right only for the context, the cache and the batch that it was computed for. [`disagreements`] compares
//! the arguments of a model with its estimate; [`arguments`] returns those that make the estimate true, for what was
//! not stated; [`options`] reads arguments as the inputs of another estimate; [`agree`] does all of it for a model of
//! the catalogue.

mod agree;
mod flags;
mod llama_cpp;
mod ollama;
mod vllm;

use std::fmt;

use berth_engines::Misread;
use serde::{Deserialize, Serialize};

use crate::estimate::Estimate;
use crate::inputs::{Options, Profile, UnknownName};

pub use agree::{Agreement, NotAgreed, Program, agree, estimate_for_launch, missing_arguments};
use flags::GivenOptions;

/// What the arguments say about one option.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Launched {
    /// The option is not given: the program uses its own default.
    NotSaid,
    /// The option is given with this value.
    Said(String),
}

/// A difference between an estimate and the arguments of a launch.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Disagreement {
    /// The name of the option.
    pub flag: String,
    /// The value that the estimate assumed.
    pub estimated: String,
    /// The value that the arguments state.
    pub launched: Launched,
}

impl fmt::Display for Disagreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { flag, estimated, launched } = self;
        match launched {
            Launched::NotSaid => write!(f, "{flag} is not said, and was estimated as {estimated}"),
            Launched::Said(said) => write!(f, "{flag} {said}, but was estimated as {estimated}"),
        }
    }
}

/// Why arguments cannot be read as the inputs of an estimate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LaunchError {
    /// A value is not a number.
    #[error("{flag} {value:?} is not a number that can be estimated for")]
    NotANumber {
        /// The name of the option.
        flag: &'static str,
        /// The value that was given.
        value: String,
    },
    /// A cache type is unknown.
    #[error(transparent)]
    Unknown(#[from] UnknownName),
    /// An argument has an effect that no estimate covers.
    #[error("{0} is not covered by an estimate")]
    NotCovered(String),
    /// The program could not read the arguments, or not as they look.
    #[error(transparent)]
    Misread(#[from] Misread),
}

/// Returns where the arguments of a program and an estimate differ: nothing, if the estimate is right for them.
pub fn disagreements<S: AsRef<str>>(
    program: Program,
    args: &[S],
    estimate: &Estimate,
) -> Result<Vec<Disagreement>, LaunchError> {
    let profile = estimate.inputs.profile;
    let said = GivenOptions::read(program, profile, args)?;
    Ok(match (program, profile) {
        (Program::Ollama, _) => ollama::compare(&said, estimate),
        (_, Profile::Vllm) => vllm::compare(&said, estimate),
        (_, Profile::LlamaCpp | Profile::Conservative) => llama_cpp::compare(&said, estimate),
    })
}

/// Returns the arguments that make the program of the estimate's profile do what was estimated.
#[must_use]
pub fn arguments(estimate: &Estimate) -> Vec<String> {
    arguments_for(Program::Other, estimate)
}

/// Returns the arguments that make a program do what was estimated.
pub(crate) fn arguments_for(program: Program, estimate: &Estimate) -> Vec<String> {
    match (program, estimate.inputs.profile) {
        (Program::Ollama, _) => ollama::arguments(estimate),
        (_, Profile::Vllm) => vllm::arguments(estimate),
        (_, Profile::LlamaCpp | Profile::Conservative) => llama_cpp::arguments(estimate),
    }
}

/// Returns the inputs of an estimate for a program with these arguments. What they do not state stays as it is in
/// `base`.
pub fn options<S: AsRef<str>>(
    program: Program,
    args: &[S],
    profile: Profile,
    base: &Options,
) -> Result<Options, LaunchError> {
    let said = GivenOptions::read(program, profile, args)?;
    let mut options = Options { profile: Some(profile), ..base.clone() };
    match (program, profile) {
        (Program::Ollama, _) => ollama::read_inputs(&said, &mut options)?,
        (_, Profile::Vllm) => vllm::read_inputs(&said, &mut options)?,
        (_, Profile::LlamaCpp | Profile::Conservative) => llama_cpp::read_inputs(&said, &mut options)?,
    }
    Ok(options)
}

/// Collects the differences.
struct Comparison<'a> {
    said: &'a GivenOptions,
    found: Vec<Disagreement>,
}

impl<'a> Comparison<'a> {
    const fn new(said: &'a GivenOptions) -> Self {
        Self { said, found: Vec::new() }
    }

    /// Compares a given value with the estimated one. `agrees` gets `None` where no value was given.
    fn hold(&mut self, flag: &str, estimated: impl fmt::Display, agrees: impl Fn(Option<&str>) -> bool) {
        let value = self.said.get(flag);
        if agrees(value) {
            return;
        }
        let launched = value.map_or(Launched::NotSaid, |value| Launched::Said(value.to_owned()));
        self.found.push(Disagreement { flag: flag.to_owned(), estimated: estimated.to_string(), launched });
    }

    /// Notes an option that must not be given at all.
    fn absent(&mut self, flag: &str, estimated: &str) {
        self.hold(flag, estimated, |value| value.is_none());
    }
}
