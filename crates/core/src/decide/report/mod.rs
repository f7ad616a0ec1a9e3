//! An agent reports: who it is, what it has, what it runs, what others use.
//!
//! Each phase is decided on the state that the one before it left, so that memory which a gone process left behind is
//! foreign before anybody could be placed on it.

mod foreign;
mod identity;
mod inventory;
mod slots;

use berth_domain::{DeviceUuid, GpuReport, RunnerReport, Timestamp};

use super::{Decision, Phase, history, memory};
use crate::command::{Answer, Command, Refusal};
use crate::event::Event;
use crate::state::{Liveness, Runner, State};
use crate::table::RunnerKey;

/// The phases of a report.
pub(super) const PHASES: &[Phase] = &[
    identify,
    compare_history,
    take_inventory,
    follow_generations,
    hear_of_slots,
    weigh_foreign_use,
    watch_memory,
    take_note,
];

pub(super) fn identify(state: &State, command: &Command, now: Timestamp) -> Result<(Decision, Answer), Refusal> {
    if state.cluster.is_none() {
        return Err(Refusal::NotStarted);
    }
    phase(command, |report| identity::identify(state, report, now))
}

/// What the runner obeyed last is held against what this server knows of, on the state that its registration left.
fn compare_history(state: &State, command: &Command, now: Timestamp) -> Result<(Decision, Answer), Refusal> {
    phase(command, |report| Ok(history::judge_obeyed(state, &report.runner, report.obeyed, now)))
}

fn take_inventory(state: &State, command: &Command, now: Timestamp) -> Result<(Decision, Answer), Refusal> {
    phase(command, |report| {
        Ok(with_runner(state, report, |key, runner| inventory::take(state, key, runner, report, now)))
    })
}

/// A slot that was started again while this server did not know of it is followed to its newest start.
fn follow_generations(state: &State, command: &Command, now: Timestamp) -> Result<(Decision, Answer), Refusal> {
    phase(command, |report| Ok(with_runner(state, report, |key, _| slots::follow_generations(state, key, report, now))))
}

fn hear_of_slots(state: &State, command: &Command, now: Timestamp) -> Result<(Decision, Answer), Refusal> {
    phase(command, |report| Ok(with_runner(state, report, |key, runner| slots::hear(state, key, runner, report, now))))
}

fn weigh_foreign_use(state: &State, command: &Command, _: Timestamp) -> Result<(Decision, Answer), Refusal> {
    phase(command, |report| Ok(with_runner(state, report, |key, _| foreign::weigh(state, key, report))))
}

/// What its slots use is held against what their models are charged.
fn watch_memory(state: &State, command: &Command, now: Timestamp) -> Result<(Decision, Answer), Refusal> {
    phase(command, |report| Ok(with_runner(state, report, |_, runner| memory::watch(state, runner, now))))
}

/// Last, the runner counts as heard of: only now may anything new go to its devices.
fn take_note(state: &State, command: &Command, _: Timestamp) -> Result<(Decision, Answer), Refusal> {
    let Command::Report(report) = command else { return Ok((Decision::default(), Answer::Done)) };
    let mut events = Vec::new();
    let Some((_, runner)) = state.runners.find(&report.runner) else { return Ok((Decision::default(), Answer::Done)) };
    if !runner.caught_up {
        events.push(Event::RunnerCaughtUp { runner: report.runner.clone() });
    }
    if runner.liveness != Liveness::Ready {
        events.push(Event::RunnerReturned { runner: report.runner.clone() });
    }
    events.push(Event::RunnerSeen { runner: report.runner.clone(), sequence: Some(report.sequence) });
    Ok((Decision::of(events), Answer::Reported { incarnation: runner.incarnation }))
}

fn phase(
    command: &Command,
    decide: impl FnOnce(&RunnerReport) -> Result<Vec<Event>, Refusal>,
) -> Result<(Decision, Answer), Refusal> {
    match command {
        Command::Report(report) => decide(report).map(|events| (Decision::of(events), Answer::Done)),
        _ => Ok((Decision::default(), Answer::Done)),
    }
}

fn with_runner(
    state: &State,
    report: &RunnerReport,
    decide: impl FnOnce(RunnerKey, &Runner) -> Vec<Event>,
) -> Vec<Event> {
    state.runners.find(&report.runner).map(|(key, runner)| decide(key, runner)).unwrap_or_default()
}

/// The entries of each physical device, in the order of their first mention.
fn by_device(report: &RunnerReport) -> Vec<(&DeviceUuid, Vec<&GpuReport>)> {
    let mut places = std::collections::BTreeMap::new();
    let mut devices: Vec<(&DeviceUuid, Vec<&GpuReport>)> = Vec::new();
    for gpu in &report.gpus {
        let place = *places.entry(&gpu.uuid).or_insert_with(|| {
            devices.push((&gpu.uuid, Vec::new()));
            devices.len() - 1
        });
        devices[place].1.push(gpu);
    }
    devices
}
