//! Questions about files that another machine can read, and their answers.

use serde::{Deserialize, Serialize};

use super::{Estimate, Options};
use crate::{Arg, FilePath, RuntimeName};

/// The question how much memory the model in these files needs.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Question {
    /// A GGUF file, or a folder.
    pub file: FilePath,
    /// The projector's file.
    #[serde(default)]
    pub projector: Option<FilePath>,
    /// The options of the estimate.
    #[serde(default)]
    pub options: Options,
    /// How the model would be started, if the estimate is for the catalogue: estimate and arguments must agree.
    #[serde(default)]
    pub launch: Option<Launch>,
}

/// How a model would be started.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Launch {
    /// The runtime that starts the model.
    pub runtime: RuntimeName,
    /// The arguments of the model.
    pub args: Vec<Arg>,
    /// How many leases one slot serves.
    pub concurrency: u32,
}

/// The part of a question that a refusal is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Asked {
    /// The model's file.
    File,
    /// The projector.
    Projector,
    /// The options.
    Options,
    /// The arguments of the runtime.
    Args,
}

/// Why there is no estimate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{why}")]
pub struct Refusal {
    /// The part of the question that is refused.
    pub of: Asked,
    /// The reason, and what to do.
    pub why: String,
}

/// The answer: numbers, or why there are none. It has no arguments for a program: the server computes those itself,
/// because it does not let a runner choose what other runners start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// An estimate.
    Found(Box<Estimate>),
    /// There is no estimate, for this reason.
    Refused(Refusal),
}
