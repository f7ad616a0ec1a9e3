//! Whether a program is started with what was estimated.
//!
//! A claim is right only for the context, the cache and the batch that it was computed for. [`disagreements`] holds
//! the arguments of a model against its estimate; [`arguments`] gives those that make the estimate true, for what was
//! not said; [`options`] takes what was said as the wish for another estimate; [`agree`] does all of it for a model of
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
use flags::Said;

/// What a program was told of one thing.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Launched {
    /// Nothing: it does what its version does by itself.
    NotSaid,
    /// This.
    Said(String),
}

/// Something that was estimated one way and would be started another.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Disagreement {
    /// The argument in question.
    pub flag: String,
    /// What the estimate assumed.
    pub estimated: String,
    /// What the program was told.
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

/// Why arguments cannot be taken as a wish.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LaunchError {
    /// A value that is none.
    #[error("{flag} {value:?} is not a number that can be estimated for")]
    NotANumber {
        /// Which argument.
        flag: &'static str,
        /// Its value.
        value: String,
    },
    /// A type that is none.
    #[error(transparent)]
    Unknown(#[from] UnknownName),
    /// Something that no estimate covers.
    #[error("{0} is not covered by an estimate")]
    NotCovered(String),
    /// The program could not read them, or not as they look.
    #[error(transparent)]
    Misread(#[from] Misread),
}

/// Where the arguments of a program and an estimate differ. Nothing, if the estimate is right for them.
pub fn disagreements<S: AsRef<str>>(
    program: Program,
    args: &[S],
    estimate: &Estimate,
) -> Result<Vec<Disagreement>, LaunchError> {
    let profile = estimate.inputs.profile;
    let said = Said::read(program, profile, args)?;
    Ok(match (program, profile) {
        (Program::Ollama, _) => ollama::compare(&said, estimate),
        (_, Profile::Vllm) => vllm::compare(&said, estimate),
        (_, Profile::LlamaCpp | Profile::Conservative) => llama_cpp::compare(&said, estimate),
    })
}

/// The arguments that make the program of the estimate's profile do what was estimated.
#[must_use]
pub fn arguments(estimate: &Estimate) -> Vec<String> {
    arguments_for(Program::Other, estimate)
}

/// The arguments that make a program do what was estimated.
pub(crate) fn arguments_for(program: Program, estimate: &Estimate) -> Vec<String> {
    match (program, estimate.inputs.profile) {
        (Program::Ollama, _) => ollama::arguments(estimate),
        (_, Profile::Vllm) => vllm::arguments(estimate),
        (_, Profile::LlamaCpp | Profile::Conservative) => llama_cpp::arguments(estimate),
    }
}

/// What should be estimated for a program with these arguments. What they do not say stays as it is in `base`.
pub fn options<S: AsRef<str>>(
    program: Program,
    args: &[S],
    profile: Profile,
    base: &Options,
) -> Result<Options, LaunchError> {
    let said = Said::read(program, profile, args)?;
    let mut options = Options { profile: Some(profile), ..base.clone() };
    match (program, profile) {
        (Program::Ollama, _) => ollama::wish(&said, &mut options)?,
        (_, Profile::Vllm) => vllm::wish(&said, &mut options)?,
        (_, Profile::LlamaCpp | Profile::Conservative) => llama_cpp::wish(&said, &mut options)?,
    }
    Ok(options)
}

/// Collects what differs.
struct Comparison<'a> {
    said: &'a Said,
    found: Vec<Disagreement>,
}

impl<'a> Comparison<'a> {
    const fn new(said: &'a Said) -> Self {
        Self { said, found: Vec::new() }
    }

    /// Holds what was said against what was estimated. `agrees` gets nothing where nothing was said.
    fn hold(&mut self, flag: &str, estimated: impl fmt::Display, agrees: impl Fn(Option<&str>) -> bool) {
        let value = self.said.get(flag);
        if agrees(value) {
            return;
        }
        let launched = value.map_or(Launched::NotSaid, |value| Launched::Said(value.to_owned()));
        self.found.push(Disagreement { flag: flag.to_owned(), estimated: estimated.to_string(), launched });
    }

    /// An argument that must not be there at all.
    fn absent(&mut self, flag: &str, estimated: &str) {
        self.hold(flag, estimated, |value| value.is_none());
    }
}
