//! What one slot on record needs next.

use std::collections::BTreeSet;

use berth_domain::{
    DesiredAction, DesiredGpu, DesiredSlot, ExitStatus, FailureReason, Generation, RunSpec, SlotEnd, SlotId,
    WorkloadKind,
};
use serde::{Deserialize, Serialize};

use super::{Action, DriverView, Health, LocalState, ReconcileInput, SlotObservation, TreeState, end};
use crate::process::{ProcessId, StartedAs};

/// What the agent keeps of one slot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotRecord {
    /// Which slot.
    pub id: SlotId,
    /// Which start of it.
    pub generation: Generation,
    /// Its devices in rank order, as far as they are known.
    pub gpus: Vec<DesiredGpu>,
    /// How it is run. Absent where nobody said: a slot that was found by its mark, or that was only to be stopped or
    /// accounted for.
    pub spec: Option<RunSpec>,
    /// Whether it is a job, as it was started. Absent where that is not known.
    pub kind: Option<WorkloadKind>,
    /// Where it is.
    #[serde(rename = "life")]
    pub state: LocalState,
    /// The first of its processes, once it was started.
    pub process: Option<ProcessId>,
    /// The port that it was given.
    pub port: Option<u16>,
    /// How its first process ended, if nobody had asked it to.
    #[serde(default)]
    pub exit: Option<ExitStatus>,
    /// Pids that its tree had: the driver must list none of them before it is gone. As of the last change of its life.
    pub pids: BTreeSet<u32>,
    /// What its processes are known by. Absent for a slot that was found by its mark, or that an agent started which
    /// noted no such thing.
    #[serde(default)]
    pub started_as: Option<StartedAs>,
}

impl SlotRecord {
    /// A slot as the server mentions it, of which there is no process yet.
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

    /// Whether nothing of it is left that could hold memory.
    #[must_use]
    pub fn is_over(&self) -> bool {
        matches!(self.state, LocalState::Gone { .. } | LocalState::Refused)
    }

    /// Whether it is on its way to be ready: others wait for their turn on its devices.
    #[must_use]
    pub fn is_starting(&self) -> bool {
        matches!(self.state, LocalState::Planned | LocalState::Started { ready: false, .. })
    }

    /// Whether nothing is about to change by itself.
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

    /// Whether `slot` is a newer start of this one, and this one is over.
    #[must_use]
    pub fn is_replaced_by(&self, slot: &DesiredSlot) -> bool {
        slot.generation > self.generation && self.is_over()
    }

    /// Whether `slot` says more of this very start than is on record.
    fn is_completed_by(&self, slot: &DesiredSlot) -> bool {
        let is_new = (self.spec.is_none() && slot.should_run()) || (self.gpus.is_empty() && !slot.gpus.is_empty());
        slot.generation == self.generation && is_new
    }
}

/// What a slot on record needs next, if anything.
pub(super) fn next(
    input: &ReconcileInput<'_>,
    record: &SlotRecord,
    seen: &SlotObservation,
    wanted: Option<&DesiredSlot>,
    heard: bool,
) -> Option<Action> {
    let id = record.id;
    // Words about an older generation change nothing.
    let wanted = wanted.filter(|slot| slot.generation >= record.generation);
    let stop = wanted.is_some_and(|slot| is_stopped_by(record, slot));
    match &record.state {
        // The server mentions a slot until it knows that it is gone.
        LocalState::Gone { .. } | LocalState::Refused if heard && wanted.is_none() => Some(Action::Forget(id)),
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
        // A device may come to its senses: what is gone after all is proven gone.
        LocalState::GivenUp if seen.tree == TreeState::Empty && seen.driver == DriverView::Clear => {
            Some(Action::Gone(id, seen.evidence()))
        }
        LocalState::GivenUp => None,
    }
}

/// A slot is ended when it should stop, and to make place for a newer start of it. To be asked about it is no reason.
fn is_stopped_by(record: &SlotRecord, wanted: &DesiredSlot) -> bool {
    match wanted.action {
        DesiredAction::Stop => true,
        DesiredAction::Run(_) => wanted.generation > record.generation,
        DesiredAction::Account => false,
    }
}

/// On record, but no process was noted: the agent died in between. If it had started nobody, nothing has happened yet.
/// Of a job that is known: its exit file is made before its program is started.
fn planned(id: SlotId, seen: &SlotObservation, stop: bool) -> Option<Action> {
    match (&seen.tree, seen.ended) {
        (TreeState::Alive(process), _) => Some(Action::NoteProcess(id, process.clone())),
        (TreeState::Empty, Some(ended)) => Some(Action::TreeGone(id, ended)),
        (TreeState::Empty, None) if stop => Some(Action::TreeGone(id, SlotEnd::Asked)),
        (TreeState::Empty, None) => Some(Action::Forget(id)),
        (TreeState::Unknown, _) => None,
    }
}
