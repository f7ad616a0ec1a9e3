//! How a scenario can fail.

use std::path::PathBuf;

use berth_core::Refusal;

/// Why a scenario did not pass.
#[derive(Debug, thiserror::Error)]
pub enum Failed {
    /// The file cannot be read.
    #[error("{}: {source}", path.display())]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is no scenario.
    #[error("{}: {message}", path.display())]
    Malformed {
        /// Which file.
        path: PathBuf,
        /// What is wrong, with the line.
        message: String,
    },
    /// A step did not do what the file says, or something that must always be true was not.
    #[error(transparent)]
    Step(Box<FailedStep>),
}

/// A step that did not do what the file says.
#[derive(Debug, thiserror::Error)]
#[error("{id} {title}\n{}:{line}: {place}: {problem}{explanation}", path.display())]
pub struct FailedStep {
    /// Which file.
    pub path: PathBuf,
    /// The scenario.
    pub id: String,
    /// What it is about.
    pub title: String,
    /// Which step, from 1; 0 is what comes before the first.
    pub step: usize,
    /// On which line it begins.
    pub line: usize,
    /// The step with its verb, `step 2 (expect)`; or the runner or model that comes before the first step.
    pub place: String,
    /// What was expected and what was found.
    pub problem: String,
    /// What the core says to it.
    pub explanation: String,
}

impl Failed {
    /// Whether the file itself is at fault: it could not be read, or is no scenario.
    #[must_use]
    pub const fn is_bad_file(&self) -> bool {
        matches!(self, Self::Unreadable { .. } | Self::Malformed { .. })
    }
}

/// Why a step failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StepError {
    /// The step cannot be carried out as written: it names what is not there.
    #[error("{0}")]
    Meaningless(String),
    /// The core did otherwise.
    #[error("{problem}")]
    Otherwise {
        /// Expected and found.
        problem: String,
        /// In the core's words.
        explanation: String,
    },
}

impl StepError {
    /// The file names something that is not there.
    pub(crate) fn meaningless(text: impl Into<String>) -> Self {
        Self::Meaningless(text.into())
    }

    /// The core refused what it had to take.
    pub(crate) fn refused(refusal: &Refusal) -> Self {
        Self::otherwise(format!("refused ({}): {refusal}", refusal.code()))
    }

    /// The core did otherwise.
    pub(crate) fn otherwise(problem: impl Into<String>) -> Self {
        Self::Otherwise { problem: problem.into(), explanation: String::new() }
    }
}
