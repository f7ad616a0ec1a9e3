//! What each step does.

use berth_core::{Answer, Command, Refusal};
use berth_domain::{
    Attempt, JobSpec, Priority, ReasonText, RunnerId, SlotId, Span, Submission, WorkloadId, WorkloadKind,
};

use crate::error::StepError;
use crate::format::{Submit, Verb};
use crate::names::KnownTo;
use crate::world::World;

/// What came of a step that may be refused.
pub(crate) type Taken = Result<(), Refusal>;

/// Carries out a step. The inner result says whether the core took it.
pub(crate) fn carry_out(world: &mut World, verb: Verb) -> Result<Taken, StepError> {
    match verb {
        Verb::Submit(submit) => submit_all(world, &submit),
        Verb::Cancel(name) => command(world, |world| Ok(Command::Cancel { workload: world.workload(&name)? })),
        Verb::Heartbeat(beat) => command(world, |world| {
            let (workload, attempt) = turn(world, &beat.workload, beat.attempt)?;
            Ok(Command::Heartbeat { workload, attempt })
        }),
        Verb::Complete(done) => command(world, |world| {
            let (workload, attempt) = turn(world, &done.workload, done.attempt)?;
            Ok(Command::Complete { workload, attempt, succeeded: !done.failed })
        }),
        Verb::PutModel(model) => command(world, |_| {
            let spec = model.spec().map_err(StepError::meaningless)?;
            Ok(Command::PutModel { spec: Box::new(spec) })
        }),
        Verb::DeleteModel(model) => command(world, |_| Ok(Command::DeleteModel { model })),
        Verb::Register(register) => crate::reports::register(world, &register),
        Verb::Report(report) => crate::reports::report(world, report),
        Verb::Silence(runners) => silence(world, &runners.0).map(Ok),
        Verb::Return(runners) => come_back(world, &runners.0),
        Verb::Join(runners) => join(world, &runners.0).map(Ok),
        Verb::Advance(span) => pass(world, span.into()).map(Ok),
        Verb::Pause(span) => pause(world, span.into()).map(Ok),
        Verb::Restart(really) => {
            when(really, "restart").and_then(|()| world.restart()).and_then(|()| world.settle()).map(Ok)
        }
        Verb::Wipe(really) => when(really, "wipe").and_then(|()| world.wipe()).map(Ok),
        Verb::Cordon(runner) => command(world, |_| Ok(Command::CordonRunner { runner })),
        Verb::Uncordon(runner) => command(world, |_| Ok(Command::UncordonRunner { runner })),
        Verb::Drain(drain) => command(world, |_| {
            Ok(Command::DrainRunner { runner: drain.runner, deadline: drain.deadline.map(Into::into) })
        }),
        Verb::Forget(forget) => {
            command(world, |_| Ok(Command::ForgetRunner { runner: forget.runner, reason: said(forget.reason)? }))
        }
        Verb::CordonDevice(uuid) => command(world, |_| Ok(Command::CordonDevice { uuid })),
        Verb::UncordonDevice(uuid) => command(world, |_| Ok(Command::UncordonDevice { uuid })),
        Verb::StopSlot(slot) => {
            command(world, |world| Ok(Command::StopSlot { slot: world.slot(&slot, KnownTo::Server)? }))
        }
        Verb::ForceRelease(force) => command(world, |world| {
            Ok(Command::ForceRelease { slot: world.slot(&force.slot, KnownTo::Server)?, reason: said(force.reason)? })
        }),
        Verb::Ready(slots) => crate::reports::ready(world, &slots.0),
        Verb::Gone(gone) => crate::reports::gone(world, &gone),
        Verb::Fail(fail) => crate::reports::fail(world, &fail),
        Verb::Exit(exit) => crate::reports::exit(world, &exit),
        Verb::Refuse(slot) => crate::reports::refuse(world, &slot),
        Verb::Occupy(devices) => crate::reports::occupy(world, &devices).map(Ok),
        Verb::Expect(expect) => crate::expect::check(world, &expect).map(Ok),
    }
    .and_then(|taken| world.settle().map(|()| taken))
}

/// A command made on the world as it is; refusals are for the caller to judge.
fn command(world: &mut World, make: impl FnOnce(&World) -> Result<Command, StepError>) -> Result<Taken, StepError> {
    let command = make(world)?;
    Ok(world.send(&command).map(|_| ()))
}

/// A switch that only makes sense when it is on.
fn when(really: bool, verb: &str) -> Result<(), StepError> {
    if really { Ok(()) } else { Err(StepError::meaningless(format!("{verb} = true, or no such step"))) }
}

fn said(reason: Option<ReasonText>) -> Result<ReasonText, StepError> {
    reason
        .map_or_else(|| ReasonText::new("the scenario says so"), Ok)
        .map_err(|e| StepError::meaningless(e.to_string()))
}

fn turn(world: &World, name: &str, attempt: Option<u32>) -> Result<(WorkloadId, Attempt), StepError> {
    let workload = world.workload(name)?;
    Ok((workload, attempt.map_or_else(|| world.attempt(workload), Attempt::new)))
}

/// Submits one, or many of the same kind in one instant. Only the last may be refused.
fn submit_all(world: &mut World, submit: &Submit) -> Result<Taken, StepError> {
    let count = submit.count.unwrap_or(1);
    if count == 0 {
        return Err(StepError::meaningless("count is at least 1"));
    }
    let base = submit.base_name();
    if submit.name.is_some() && world.workloads.contains(&base) {
        return Err(StepError::meaningless(format!("a workload is already named {base}")));
    }
    let mut taken = Ok(());
    for number in 1..=count {
        let name = world.workloads.fresh(&base);
        taken = submit_one(world, submit, name)?;
        if let Err(refusal) = &taken
            && number < count
        {
            let code = refusal.code();
            return Err(StepError::otherwise(format!("number {number} of {count} was refused ({code}): {refusal}")));
        }
    }
    Ok(taken)
}

fn submit_one(world: &mut World, submit: &Submit, name: String) -> Result<Taken, StepError> {
    let id = WorkloadId::new(world.fresh_id());
    let submission = Submission {
        model: submit.model.clone(),
        kind: submit.kind,
        priority: Priority::new(submit.priority),
        tenant: submit.tenant.clone(),
        owner: None,
        ttl: submit.ttl.map(Into::into),
        queue_timeout: submit.queue_timeout.map(Into::into),
        job: JobSpec {
            restart_on_lost: submit.restart_on_lost,
            max_run: submit.max_run.map(Into::into),
            ..JobSpec::default()
        },
        idempotency_key: submit.key.clone(),
    };
    if (submit.restart_on_lost || submit.max_run.is_some()) && submit.kind != WorkloadKind::Job {
        return Err(StepError::meaningless("restart_on_lost and max_run are for jobs"));
    }
    let (known, repeated) = match world.send(&Command::Submit { workload: id, submission, limits: None }) {
        Ok(Answer::Submitted { workload, repeated }) => (workload, repeated),
        Ok(other) => return Err(StepError::otherwise(format!("a submission was answered with {other:?}"))),
        Err(refusal) => return Ok(Err(refusal)),
    };
    check_repeated(world, submit, known, repeated)?;
    world.names.entry(known).or_insert_with(|| name.clone());
    world.workloads.take(name, known);
    if submit.renews.unwrap_or(world.gateways_renew) {
        world.renewed.insert(known, world.now);
    }
    Ok(Ok(()))
}

fn check_repeated(world: &World, submit: &Submit, known: WorkloadId, repeated: bool) -> Result<(), StepError> {
    let expected = submit.same_as.as_ref().map(|name| world.workload(name)).transpose()?;
    match expected {
        Some(first) if first == known && repeated => Ok(()),
        Some(_) => Err(StepError::otherwise(format!("it became a workload of its own: {}", world.name_of(known)))),
        None if repeated => Err(StepError::otherwise(format!(
            "it was taken for {}; if that is right, say same_as",
            world.name_of(known)
        ))),
        None => Ok(()),
    }
}

fn silence(world: &mut World, runners: &[RunnerId]) -> Result<(), StepError> {
    for runner in runners {
        let place = world.agent(runner)?;
        world.agents[place].silent = true;
    }
    Ok(())
}

/// Agents are heard again. One that never registered does so now.
fn come_back(world: &mut World, runners: &[RunnerId]) -> Result<Taken, StepError> {
    for runner in runners {
        let place = world.agent(runner)?;
        world.agents[place].silent = false;
        let taken = world.speak(place);
        if taken.is_err() {
            return Ok(taken);
        }
    }
    Ok(Ok(()))
}

/// An operator says that agents belong to the cluster that is there now. One that is cut off tells nobody.
fn join(world: &mut World, runners: &[RunnerId]) -> Result<(), StepError> {
    for runner in runners {
        let place = world.agent(runner)?;
        world.agents[place].sim.facts.cluster = Some(world.cluster);
        if !world.agents[place].silent || world.agents[place].sim.facts.incarnation.is_none() {
            world.report(place)?;
        }
    }
    Ok(())
}

fn pause(world: &mut World, span: Span) -> Result<(), StepError> {
    if span == Span::ZERO {
        return Err(StepError::meaningless("pause for more than nothing"));
    }
    world.pause(span);
    Ok(())
}

fn pass(world: &mut World, span: Span) -> Result<(), StepError> {
    if span == Span::ZERO {
        return Err(StepError::meaningless("advance by more than nothing"));
    }
    world.advance(span)
}

/// The agent that has a slot, or had it, for steps that speak for it.
pub(crate) fn holder(world: &World, slot: SlotId) -> Result<usize, StepError> {
    let has = |place: &usize| world.agents[*place].sim.slots.contains_key(&slot);
    let had = |place: &usize| world.agents[*place].past.contains_key(&slot);
    let places = 0..world.agents.len();
    let found = places.clone().find(has).or_else(|| places.clone().find(had));
    found.ok_or_else(|| StepError::otherwise(format!("no agent was told of slot {slot}")))
}
