//! What one slot on record needs next.

use std::collections::BTreeSet;

use berth_domain::{
    DesiredAction, DesiredGpu, DesiredSlot, ExitStatus, FailureReason, Generation, RunSpec, SlotEnd, SlotId,
    WorkloadKind,
};
use serde::{Deserialize, Serialize};

use super::{Action, DriverView, Health, LocalState, ReconcileInput, SlotObservation, TreeState, end};
use crate::process::{ProcessId, StartedAs};

/// The record of one slot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotRecord {
    /// The slot's id.
    pub id: SlotId,
    /// The slot's generation.
    pub generation: Generation,
    /// The devices in rank order, as far as they are known.
    pub gpus: Vec<DesiredGpu>,
    /// How the slot is run. `None` where the server did not say: a slot that was found by its mark, or that was only to
    /// be stopped or accounted for.
    pub spec: Option<RunSpec>,
    /// Whether it is a job, as it was started. `None` where that is unknown.
    pub kind: Option<WorkloadKind>,
    /// The slot's state on this machine.
    #[serde(rename = "life")]
    pub state: LocalState,
    /// The first of its processes, once it was started.
    pub process: Option<ProcessId>,
    /// The port that it was given.
    pub port: Option<u16>,
    /// How its first process ended, if the agent had not asked it to.
    #[serde(default)]
    pub exit: Option<ExitStatus>,
    /// Pids that its tree had: the driver must list none of them before the slot is gone. As of the last change of
    /// state.
    pub pids: BTreeSet<u32>,
    /// What identifies its processes. `None` for a slot that was found by its mark, or that an earlier version of the
    /// agent started.
    #[serde(default)]
    pub started_as: Option<StartedAs>,
}

impl SlotRecord {
    /// Returns the record of a slot as the server mentions it, without a process.
    #[must_use]
    pub fn of(slot: &DesiredSlot, state: LocalState) -> Self {
        Self {
            id: slot.id,
            generation: slot.generation,
            gpus: slot.gpus.clone(),
            spec: slot.run_spec().cloned(),
            kind: None,
            state,
            process: None,
            port: None,
            exit: None,
            pids: BTreeSet::new(),
            started_as: None,
        }
    }

    /// Returns whether nothing of the slot is left that could hold memory.
    #[must_use]
    pub fn is_over(&self) -> bool {
        matches!(self.state, LocalState::Gone { .. } | LocalState::Refused)
    }

    /// Returns whether the slot is starting: other starts on its devices wait.
    #[must_use]
    pub fn is_starting(&self) -> bool {
        matches!(self.state, LocalState::Planned | LocalState::Started { ready: false, .. })
    }

    /// Returns whether the slot's state changes only by an event from outside.
    #[must_use]
    pub fn is_at_rest(&self) -> bool {
        matches!(
            self.state,
            LocalState::Started { ready: true, .. }
                | LocalState::Gone { .. }
                | LocalState::Refused
                | LocalState::GivenUp
        )
    }

    /// Returns whether `slot` is a newer generation of this one, and this one is over.
    #[must_use]
    pub fn is_replaced_by(&self, slot: &DesiredSlot) -> bool {
        slot.generation > self.generation && self.is_over()
    }

    /// Returns whether `slot` states more of this generation than is on record.
    fn is_completed_by(&self, slot: &DesiredSlot) -> bool {
        let is_new = (self.spec.is_none() && slot.should_run()) || (self.gpus.is_empty() && !slot.gpus.is_empty());
        slot.generation == self.generation && is_new
    }
}

/// Decides what a slot on record needs next, if anything.
pub(super) fn next(
    input: &ReconcileInput<'_>,
    record: &SlotRecord,
    seen: &SlotObservation,
    wanted: Option<&DesiredSlot>,
    is_bound: bool,
) -> Option<Action> {
    let id = record.id;
    // A mention of an older generation changes nothing.
    let wanted = wanted.filter(|slot| slot.generation >= record.generation);
    let stop = wanted.is_some_and(|slot| is_stopped_by(record, slot));
    match &record.state {
        // The server mentions a slot until it knows that the slot is gone.
        LocalState::Gone { .. } | LocalState::Refused if is_bound && wanted.is_none() => Some(Action::Forget(id)),
        LocalState::Gone { .. } | LocalState::Refused => None,
        _ if wanted.is_some_and(|slot| record.is_completed_by(slot)) => {
            wanted.map(|slot| Action::CompleteRecord(Box::new(slot.clone())))
        }
        _ if seen.tree == TreeState::Unknown => None,
        LocalState::Planned => planned(id, seen, stop),
        LocalState::Started { ready, .. } => match (&seen.tree, &seen.ended, seen.health) {
            (TreeState::Empty, ended, _) => {
                Some(Action::TreeGone(id, ended.unwrap_or(SlotEnd::Failed(FailureReason::Crashed))))
            }
            (_, Some(why), _) => Some(Action::Term(id, *why)),
            (_, None, _) if stop => Some(Action::Term(id, SlotEnd::Asked)),
            (_, None, Health::Failed(why)) => Some(Action::Term(id, SlotEnd::Failed(why))),
            (_, None, Health::Ready) if !ready => Some(Action::Ready(id)),
            (_, None, _) => None,
        },
        LocalState::Ending { since, killed, why, was_ready } => {
            let ending = end::Ending { since: *since, killed: *killed, why: *why, was_ready: *was_ready };
            end::ending(input, id, seen, ending)
        }
        LocalState::TreeGone { since, why } => end::tree_gone(input, id, seen, *since, *why),
        // A device may recover: then the slot is proven gone after all.
        LocalState::GivenUp if seen.tree == TreeState::Empty && seen.driver == DriverView::Clear => {
            Some(Action::Gone(id, seen.evidence()))
        }
        LocalState::GivenUp => None,
    }
}

/// Returns whether a slot is ended: because it should stop, or to make place for a newer generation. A question about
/// it is no reason.
fn is_stopped_by(record: &SlotRecord, wanted: &DesiredSlot) -> bool {
    match wanted.action {
        DesiredAction::Stop => true,
        DesiredAction::Run(_) => wanted.generation > record.generation,
        DesiredAction::Account => false,
    }
}

/// Decides about a slot on record whose process was not noted, because the agent died in between. If no process exists,
/// nothing has happened yet. For a job this is certain: its exit file is made before its program is started.
fn planned(id: SlotId, seen: &SlotObservation, stop: bool) -> Option<Action> {
    match (&seen.tree, seen.ended) {
        (TreeState::Alive(process), _) => Some(Action::NoteProcess(id, process.clone())),
        (TreeState::Empty, Some(ended)) => Some(Action::TreeGone(id, ended)),
        (TreeState::Empty, None) if stop => Some(Action::TreeGone(id, SlotEnd::Asked)),
        (TreeState::Empty, None) => Some(Action::Forget(id)),
        (TreeState::Unknown, _) => None,
    }
}
