//! What is asked about files that another machine can read, and what it answers.

use serde::{Deserialize, Serialize};

use super::{Estimate, Options};
use crate::{Arg, FilePath, RuntimeName};

/// How much memory does the model in these files need?
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Question {
    /// A GGUF file, or a folder.
    pub file: FilePath,
    /// A projector beside it.
    #[serde(default)]
    pub projector: Option<FilePath>,
    /// What for.
    #[serde(default)]
    pub options: Options,
    /// How it would be started, if it is for the catalogue: the two must agree.
    #[serde(default)]
    pub launch: Option<Launch>,
}

/// How a model would be started.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Launch {
    /// What starts it.
    pub runtime: RuntimeName,
    /// Its arguments.
    pub args: Vec<Arg>,
    /// How many leases one slot serves.
    pub concurrency: u32,
}

/// What a refusal is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Asked {
    /// The model's file.
    File,
    /// The projector.
    Projector,
    /// What it is estimated for.
    Options,
    /// The arguments of its runtime.
    Args,
}

/// Why there is no estimate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{why}")]
pub struct Refusal {
    /// Of what.
    pub of: Asked,
    /// Why, and what to do.
    pub why: String,
}

/// What is answered: numbers, or why there are none. Arguments for a program are not among them: the server computes
/// those itself, because it does not let a runner choose what other runners start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// An estimate.
    Found(Box<Estimate>),
    /// None.
    Refused(Refusal),
}
