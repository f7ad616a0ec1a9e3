//! Checking that the arguments of a slot may be passed to its program.
//!
//! The server checks them too, when a model is applied and when a job is submitted. The agent checks again, because its
//! operator decides what runs on the machine, whatever a server says.

use std::ffi::OsString;

use berth_domain::{Arg, RunSpec, RuntimeName};
use berth_engines::{ArgumentSource, Engine, Forbidden, ParsedOption, Unfit};

use super::arguments::Reserved;
use super::config::Runtime;
use super::render::StartRequest;

/// Why the arguments of a slot are not passed on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotPermitted {
    /// An argument must be allowed, and is not.
    #[error("{}", text(.runtime, .forbidden))]
    Argument {
        /// The runtime.
        runtime: RuntimeName,
        /// The argument, and the rule that forbids it.
        forbidden: Box<Forbidden>,
    },
    /// The program could not serve the model with these arguments.
    #[error("{0}")]
    Unfit(#[from] Unfit),
}

fn text(runtime: &RuntimeName, forbidden: &Forbidden) -> String {
    match forbidden.could_be_allowed() {
        true => format!(
            "{forbidden}, and this agent does not allow it: remove it from the `args` of the model or the job, or add it \
             to `allow` of [runtime.{runtime}] in the agent's configuration"
        ),
        false => format!("{forbidden} (in the `args` of the model or the job)"),
    }
}

/// Checks the arguments of a model entry and of a job, each by its own rules.
pub(super) fn check(runtime: &Runtime, spec: &RunSpec) -> Result<(), NotPermitted> {
    let (of_model, of_job) = spec.args_by_owner();
    for (source, args) in [(ArgumentSource::Model, of_model), (ArgumentSource::Job, of_job)] {
        let refuse =
            |forbidden| NotPermitted::Argument { runtime: runtime.name.clone(), forbidden: Box::new(forbidden) };
        berth_engines::check(runtime.engine, source, &words(args), &runtime.allow).map_err(refuse)?;
    }
    Ok(())
}

/// Checks that the program can serve a model with this command on `gpu_count` GPUs. The operator's part of the command
/// counts too: it may be the one that names the model.
pub(super) fn check_command(engine: Engine, argv: &[OsString], gpu_count: usize) -> Result<(), NotPermitted> {
    let gpu_count = u16::try_from(gpu_count).unwrap_or(u16::MAX);
    let words: Vec<&str> = argv.iter().skip(1).filter_map(|word| word.to_str()).collect();
    Ok(berth_engines::check_model(engine, &words, gpu_count)?)
}

/// Checks the arguments that the agent itself reads.
pub(super) fn check_words(engine: Engine, request: StartRequest<'_>) -> Result<(), NotPermitted> {
    let gpu_count = u16::try_from(request.gpus.len()).unwrap_or(u16::MAX);
    Ok(berth_engines::check_model(engine, &words(&request.spec.args), gpu_count)?)
}

/// Returns the first argument that states what the agent decides, under any name that the engine has for it.
pub(super) fn conflict<'a>(engine: Engine, args: &'a [Arg], reserved: &[Reserved]) -> Option<&'a Arg> {
    let words = words(args);
    let said = engine.read(&words).ok()?;
    let is_decided = |said: &&ParsedOption<'_>| {
        let is_it = |reserved: &&Reserved| match said.known {
            Some(known) => known.has_name(&reserved.option),
            None => said.name == reserved.option,
        };
        let found = reserved.iter().find(is_it);
        found.is_some_and(|reserved| reserved.value.is_none() || reserved.value.as_deref() != said.value())
    };
    let word = said.iter().find(is_decided)?.word;
    args.iter().find(|arg| arg.as_str() == word)
}

fn words(args: &[Arg]) -> Vec<&str> {
    args.iter().map(Arg::as_str).collect()
}
