//! Why an argument was refused, and what to do about it.

use std::fmt;

use berth_domain::{RunnerId, RuntimeName};
use berth_engines::{ArgumentSource, Forbidden, Why};

/// The text of a refused argument.
pub(crate) struct ArgumentText<'a> {
    pub(crate) source: ArgumentSource,
    pub(crate) runtime: &'a RuntimeName,
    pub(crate) runner: Option<&'a RunnerId>,
    pub(crate) forbidden: &'a Forbidden,
}

impl fmt::Display for ArgumentText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { source, runtime, runner, forbidden } = self;
        let field = match source {
            ArgumentSource::Model => "`args` of the model",
            ArgumentSource::Job => "`job.args`",
        };
        write!(f, "{forbidden}")?;
        match (&forbidden.why, runner) {
            (Why::Misread(_), _) => Ok(()),
            (Why::ChangesClaim(_), _) => {
                write!(f, ": remove it from {field}, or submit to a model that has it in `args`")
            }
            (_, Some(runner)) => write!(
                f,
                ", and runner {runner} does not allow it: remove it from {field}, or add it to `allow` of \
                 [runtime.{runtime}] in the configuration of that runner's agent"
            ),
            (_, None) => write!(
                f,
                ", and no runner that could run it has said that it allows it: remove it from {field}, or add it to \
                 `allow` of [runtime.{runtime}] in the configuration of an agent"
            ),
        }
    }
}
