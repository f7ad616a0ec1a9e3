//! Slots that the server mentions and that are not on record: an agent lost its record, or another agent started them.
//!
//! A process of a slot carries its mark. So before such a slot is started, or reported as gone, the agent searches all
//! processes for its mark, and puts what it finds on record. From then on it is a slot like any other.

use berth_domain::{DesiredSlot, SlotEnd, WorkloadKind};

use super::{Action, Doubt, LocalState, ReconcileInput, SearchResult, SlotRecord};
use crate::process::MarkedStart;

/// The next step for a slot that is not on record.
pub(super) enum SearchStep {
    /// This action comes first.
    Act(Action),
    /// The search is repeated a little later.
    Later,
    /// No process carries its mark; what the driver says is another matter.
    NotFound,
}

/// Asks for a search for a slot, or returns what follows from its result.
pub(super) fn search(input: &ReconcileInput<'_>, slot: &DesiredSlot) -> SearchStep {
    match input.searched.get(&slot.id) {
        Some(SearchResult::Found(found)) => SearchStep::Act(Action::Adopt(Box::new(adopted(input, slot, found)))),
        Some(SearchResult::Unknown(why)) => SearchStep::Act(cannot_tell(input, slot, why)),
        Some(SearchResult::NotFound { .. }) => SearchStep::NotFound,
        None if was_just_looked_for(input, slot) => SearchStep::Later,
        None => SearchStep::Act(Action::Search(Box::new(slot.clone()))),
    }
}

/// Accounts for a slot: it is adopted, or gone, or unknown. Nothing is started or ended here.
pub(super) fn account(input: &ReconcileInput<'_>, slot: &DesiredSlot, end: SlotEnd) -> Option<Action> {
    if let Some(result @ SearchResult::NotFound { doubt }) = input.searched.get(&slot.id) {
        return Some(match doubt {
            Some(why) => cannot_tell(input, slot, why),
            None => {
                let state = LocalState::Gone { why: end, evidence: result.evidence() };
                Action::RecordAbsence(Box::new(SlotRecord::of(slot, state)))
            }
        });
    }
    match search(input, slot) {
        SearchStep::Act(action) => Some(action),
        SearchStep::Later | SearchStep::NotFound => None,
    }
}

fn was_just_looked_for(input: &ReconcileInput<'_>, slot: &DesiredSlot) -> bool {
    let doubt = input.doubts.get(&slot.id).filter(|doubt| doubt.generation == slot.generation);
    doubt.is_some_and(|doubt| input.monotonic.saturating_duration_since(doubt.looked) < Doubt::LOOK_AGAIN)
}

fn cannot_tell(input: &ReconcileInput<'_>, slot: &DesiredSlot, why: &str) -> Action {
    let doubt = Doubt { generation: slot.generation, why: why.to_owned(), looked: input.monotonic };
    Action::NoteDoubt(slot.id, doubt)
}

/// Returns the record of a slot of which a process was found. Its port is unknown, so its health cannot be probed.
///
/// A job counts as ready while it runs. A slot that the server only asks about counts as ready, since the server knows
/// it; one that should be started was never ready, and is not reported as such.
fn adopted(input: &ReconcileInput<'_>, slot: &DesiredSlot, found: &MarkedStart) -> SlotRecord {
    let is_that_start = found.generation == slot.generation;
    let is_job = found.kind == Some(WorkloadKind::Job);
    let state = LocalState::Started { at: input.now, ready: is_job || !slot.should_run() || !is_that_start };
    SlotRecord {
        id: slot.id,
        generation: found.generation,
        // How another generation was run is unknown.
        gpus: if is_that_start { slot.gpus.clone() } else { Vec::new() },
        spec: slot.run_spec().filter(|_| is_that_start).cloned(),
        kind: found.kind,
        state,
        process: Some(found.process.clone()),
        port: None,
        exit: None,
        pids: [found.process.pid].into(),
        // The secret that it carries may not be the one that it was given.
        started_as: None,
    }
}
