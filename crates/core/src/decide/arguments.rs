//! Which arguments a model entry and a job may pass to an engine.
//!
//! The tables are in `berth-engines`. What they leave to the agents must be allowed by every runner that the work could
//! run on, so that it makes no difference where it is placed. The agent checks again before it starts anything.

use berth_domain::estimate::Profile;
use berth_domain::{Arg, Constraints, ModelSpec, Submission, WorkloadKind};
use berth_engines::{Allow, ArgumentSource, Engine, Forbidden};

use crate::command::Refusal;
use crate::event::RunnerTraits;
use crate::state::{Runner, State};

/// Refuses a model entry that no engine could start, or whose arguments need leave that a runner does not give.
pub(super) fn check_model(state: &State, spec: &ModelSpec) -> Result<(), Refusal> {
    check(state, spec, ArgumentSource::Model, &spec.args)?;
    let Some(engine) = Engine::of(spec.constraints.runtime.as_str()) else { return Ok(()) };
    let most_gpus = spec.allowed_counts().iter().map(|count| count.get()).max().unwrap_or(1);
    let unfit = |why| Refusal::UnfitModel { model: spec.name.clone(), why };
    berth_engines::check_model(engine, &words(&spec.args), most_gpus).map_err(unfit)
}

/// Refuses a job whose arguments would change what its model is charged for, or need leave that a runner does not give.
pub(super) fn check_job(state: &State, spec: &ModelSpec, submission: &Submission) -> Result<(), Refusal> {
    let args = &submission.job.args;
    if submission.kind != WorkloadKind::Job || args.is_empty() {
        return Ok(());
    }
    if let Some(estimate) = &spec.memory.estimate {
        let words_of = match estimate.made.inputs.profile {
            Profile::LlamaCpp | Profile::Conservative => Engine::LlamaServer,
            Profile::Vllm => Engine::Vllm,
        };
        let is_known = Engine::of(spec.constraints.runtime.as_str()).is_some();
        if !is_known {
            let refuse = |forbidden| refusal(spec, ArgumentSource::Job, None, forbidden);
            berth_engines::check_job_memory(words_of, &words(args)).map_err(refuse)?;
        }
    }
    check(state, spec, ArgumentSource::Job, args)
}

/// Checks arguments against what each runner allows that the model could run on; against nothing where there is none.
fn check(state: &State, spec: &ModelSpec, source: ArgumentSource, args: &[Arg]) -> Result<(), Refusal> {
    let engine = Engine::of(spec.constraints.runtime.as_str());
    let args = words(args);
    let Err(forbidden) = berth_engines::check(engine, source, &args, &Allow::default()) else { return Ok(()) };
    if !forbidden.could_be_allowed() {
        return Err(refusal(spec, source, None, forbidden));
    }
    let mut asked = 0;
    for (_, runner) in state.runners.iter() {
        let Some(traits) = runner.traits.as_deref().filter(|traits| could_run(&spec.constraints, source, traits))
        else {
            continue;
        };
        asked += 1;
        berth_engines::check(engine, source, &args, &allow(traits, spec))
            .map_err(|forbidden| refusal(spec, source, Some(runner), forbidden))?;
    }
    if asked == 0 { Err(refusal(spec, source, None, forbidden)) } else { Ok(()) }
}

fn could_run(constraints: &Constraints, source: ArgumentSource, traits: &RunnerTraits) -> bool {
    let kind = traits.runtimes.get(&constraints.runtime);
    let is_for_it = |kind: &berth_domain::RuntimeKind| source == ArgumentSource::Model || kind.takes(WorkloadKind::Job);
    let has_labels = constraints.labels.iter().all(|(key, value)| traits.labels.get(key) == Some(value));
    traits.pool == constraints.pool && has_labels && kind.is_some_and(is_for_it)
}

/// What a runner allows for the runtime of a model. A list that cannot be meant allows nothing.
fn allow(traits: &RunnerTraits, spec: &ModelSpec) -> Allow {
    let runtime = &spec.constraints.runtime;
    let has_table = Engine::of(runtime.as_str()).is_some();
    let listed = traits.allowed.get(runtime);
    let entries: Vec<&str> = listed.into_iter().flatten().map(Arg::as_str).collect();
    Allow::new(&entries, has_table).unwrap_or_default()
}

fn refusal(spec: &ModelSpec, source: ArgumentSource, runner: Option<&Runner>, forbidden: Forbidden) -> Refusal {
    Refusal::ForbiddenArgument {
        of: source,
        runtime: spec.constraints.runtime.clone(),
        runner: runner.map(|runner| runner.id.clone()),
        forbidden: Box::new(forbidden),
    }
}

fn words(args: &[Arg]) -> Vec<&str> {
    args.iter().map(Arg::as_str).collect()
}
