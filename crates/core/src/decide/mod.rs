//! What a command means: events, an answer, and why. Reads the state, changes nothing.
//!
//! One file for each group of commands. [`decide`] is pure; [`crate::step`] applies its events and settles what follows. A
//! report is decided in phases, each on the state that the one before it left: [`decide`] is its first.

mod arguments;
mod fleet;
mod history;
mod leases;
mod machines;
mod memory;
mod models;
pub(crate) mod operator;
mod report;
pub(crate) mod retire;
mod start;
mod submit;
mod timers;

use berth_domain::Timestamp;

pub(crate) use retire::{give_up, retire};
pub(crate) use submit::{assign, place};
pub(crate) use timers::fire;

use crate::command::{Answer, Command, Refusal};
use crate::event::Event;
use crate::explain::Report;
use crate::state::State;

/// What was decided: what happens, what is answered, and why.
#[derive(Clone, Debug, Default)]
pub struct Decision {
    /// What happens.
    pub events: Vec<Event>,
    /// Why, where something was chosen.
    pub report: Option<Report>,
}

impl Decision {
    pub(crate) fn of(events: Vec<Event>) -> Self {
        Self { events, report: None }
    }
}

/// Decides one phase of a command. All commands but reports have a single phase.
pub(crate) type Phase = fn(&State, &Command, Timestamp) -> Result<(Decision, Answer), Refusal>;

/// The phases of a command. Each is decided on the state that the one before it left.
pub(crate) fn phases(command: &Command) -> &'static [Phase] {
    match command {
        Command::Report(_) => report::PHASES,
        _ => &[decide],
    }
}

/// What a command means. A refusal changes nothing.
pub fn decide(state: &State, command: &Command, now: Timestamp) -> Result<(Decision, Answer), Refusal> {
    if let Command::Start { cluster, tag } = command {
        return start::start(state, *cluster, *tag).map(done);
    }
    if state.cluster.is_none() {
        return Err(Refusal::NotStarted);
    }
    match command {
        Command::Start { .. } | Command::Tick => Ok(done(Vec::new())),
        Command::Restore => Ok(done(history::restore(state, now))),
        Command::ContinueHistory { reason } => history::go_on(state, reason).map(done),
        Command::Report(_) => report::identify(state, command, now),
        Command::Submit { workload, submission, limits } => {
            submit::submit(state, *workload, submission, limits.as_ref(), now)
        }
        Command::Cancel { workload } => leases::cancel(state, *workload).map(done),
        Command::Heartbeat { workload, attempt } => leases::heartbeat(state, *workload, *attempt).map(done),
        Command::Complete { workload, attempt, succeeded } => {
            leases::complete(state, *workload, *attempt, *succeeded).map(done)
        }
        Command::PutModel { spec } => models::put(state, spec).map(done),
        Command::DeleteModel { model } => models::delete(state, model).map(done),
        Command::Poll { runner, incarnation, obeyed } => {
            fleet::poll(state, runner, *incarnation, *obeyed, now).map(done)
        }
        Command::CordonRunner { runner } => operator::cordon(state, runner).map(done),
        Command::UncordonRunner { runner } => operator::uncordon(state, runner).map(done),
        Command::DrainRunner { runner, deadline } => operator::drain(state, runner, *deadline, now).map(done),
        Command::ForgetRunner { runner, reason } => operator::forget(state, runner, reason).map(done),
        Command::JudgeMachines { runners, is_same, reason } => {
            machines::judge(state, runners, *is_same, reason).map(done)
        }
        Command::CordonDevice { uuid } => operator::cordon_device(state, uuid, true).map(done),
        Command::UncordonDevice { uuid } => operator::cordon_device(state, uuid, false).map(done),
        Command::StopSlot { slot } => operator::stop_slot(state, *slot).map(done),
        Command::ForceRelease { slot, reason } => operator::force_release(state, *slot, reason).map(done),
    }
}

fn done(events: Vec<Event>) -> (Decision, Answer) {
    (Decision::of(events), Answer::Done)
}
