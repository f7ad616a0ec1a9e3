//! Which machine a runner is on, when others say that they are there too.

use std::hash::BuildHasher;

use berth_domain::{MachineId, ReasonText, RunnerId, RunnerReport};

use crate::command::Refusal;
use crate::event::Event;
use crate::state::{Runner, State};

/// What stands in the id of a machine that a runner has to itself because another one owns the id that it names. A report
/// that names such an id is refused.
pub(super) const APART: &str = "#apart:";
/// The rest of the id is short enough to leave room for the runner's.
const LONGEST_PREFIX: usize = 16;

/// The machine that a runner is taken to be on, and whether that is in dispute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) machine: MachineId,
    pub(super) is_disputed: bool,
}

/// The machine that a report counts for.
///
/// A machine id belongs to the runner that registered it first, in the journal. Machines that were cloned from one image
/// have one id, and a runner may lie: a second runner is on the same machine only if its token or an operator says so.
pub(super) fn place_of(state: &State, known: Option<&Runner>, report: &RunnerReport) -> Place {
    let named = Place { machine: report.machine.clone(), is_disputed: false };
    let word = state.machine_words.get(&report.runner).filter(|(machine, _)| *machine == report.machine);
    if let Some((_, false)) = word {
        return Place { machine: apart(&report.machine, &report.runner), is_disputed: false };
    }
    let is_member = known.and_then(|row| state.machines.get(row.machine)).is_some_and(|row| row.id == report.machine);
    let others = state.machines.find(&report.machine).map(|(_, row)| row.runners.as_slice()).unwrap_or_default();
    let is_owned = others.iter().filter_map(|key| state.runners.get(*key)).any(|row| row.id != report.runner);
    if is_member || !is_owned || word.is_some() || report.shares_machine {
        return named;
    }
    Place { machine: apart(&report.machine, &report.runner), is_disputed: true }
}

/// The machine of a runner that names an id which another runner owns.
fn apart(machine: &MachineId, runner: &RunnerId) -> MachineId {
    let prefix: String = machine.as_str().chars().take(LONGEST_PREFIX).collect();
    let hash = foldhash::fast::FixedState::default().hash_one(runner.as_str());
    let long = MachineId::new(format!("{prefix}{APART}{runner}"));
    // A name that is too long is replaced by a hash: what counts is that each runner has its own.
    let short = || MachineId::new(format!("{APART}{hash:016x}"));
    long.or_else(|_| short()).unwrap_or_else(|error| unreachable!("it is short and plain: {error}"))
}

/// An operator says of runners whether they are on the machine that they name. The word counts from their next report.
pub(super) fn judge(
    state: &State,
    runners: &[RunnerId],
    is_same: bool,
    reason: &ReasonText,
) -> Result<Vec<Event>, Refusal> {
    if reason.as_str().trim().is_empty() {
        return Err(Refusal::ReasonMissing);
    }
    let mut events = Vec::new();
    for id in runners {
        let (_, runner) = state.runners.find(id).ok_or_else(|| Refusal::UnknownRunner(id.clone()))?;
        let machine = named_machine(state, runner).ok_or_else(|| Refusal::UnknownRunner(id.clone()))?;
        let moves = match is_same {
            true => state.machines.get(runner.machine).is_some_and(|row| row.id != machine),
            false => state.machines.get(runner.machine).is_some_and(|row| row.id == machine),
        };
        // The host claims of its slots are in the ledger of the machine that it is on.
        if moves && !runner.slots.is_empty() {
            return Err(Refusal::HasSlots { runner: id.clone() });
        }
        events.push(Event::MachineJudged {
            runner: id.clone(),
            machine: machine.clone(),
            is_same,
            reason: reason.clone(),
        });
        if moves {
            let machine = if is_same { machine } else { apart(&machine, id) };
            events.push(Event::RunnerMoved { runner: id.clone(), machine });
        }
    }
    Ok(events)
}

/// The machine id that a runner reports, whichever machine it is taken to be on.
fn named_machine(state: &State, runner: &Runner) -> Option<MachineId> {
    let word = state.machine_words.get(&runner.id).map(|(machine, _)| machine.clone());
    let own = || state.machines.get(runner.machine).map(|row| row.id.clone());
    runner.disputes.clone().or(word).or_else(own)
}
