//! Slots that the server mentions and that are not on record: an agent lost its record, or another agent started them.
//!
//! A process of a slot carries its mark. So before such a slot is started, or said to be gone, its mark is looked for on
//! everybody; and what is found is put on record, from where it goes its usual way.

use berth_domain::{DesiredSlot, SlotEnd, WorkloadKind};

use super::{Action, Doubt, Kept, Life, Trace, World};
use crate::process::Carrier;

/// What was found of a slot that is not on record.
pub(super) enum Search {
    /// There is something to do about it before anything else.
    Act(Action),
    /// It is looked for again a little later.
    Later,
    /// Nobody carries its mark; what the driver says is another matter.
    Nobody,
}

/// Looks for a slot: asks for a look, or says what came of it.
pub(super) fn search(world: &World<'_>, slot: &DesiredSlot) -> Search {
    match world.traces.get(&slot.id) {
        Some(Trace::Carried(carrier)) => Search::Act(Action::Adopt(Box::new(adopted(world, slot, carrier)))),
        Some(Trace::Unknown(why)) => Search::Act(cannot_tell(world, slot, why)),
        Some(Trace::Nobody { .. }) => Search::Nobody,
        None if was_just_looked_for(world, slot) => Search::Later,
        None => Search::Act(Action::LookFor(Box::new(slot.clone()))),
    }
}

/// Accounts for a slot: it is adopted, it is gone like this, or it cannot be told. Nothing is started or ended here.
pub(super) fn account(world: &World<'_>, slot: &DesiredSlot, end: SlotEnd) -> Option<Action> {
    if let Some(trace @ Trace::Nobody { doubt }) = world.traces.get(&slot.id) {
        return Some(match doubt {
            Some(why) => cannot_tell(world, slot, why),
            None => {
                let life = Life::Gone { why: end, evidence: trace.evidence() };
                Action::NoTrace(Box::new(Kept::of(slot, life)))
            }
        });
    }
    match search(world, slot) {
        Search::Act(action) => Some(action),
        Search::Later | Search::Nobody => None,
    }
}

fn was_just_looked_for(world: &World<'_>, slot: &DesiredSlot) -> bool {
    let doubt = world.doubts.get(&slot.id).filter(|doubt| doubt.generation == slot.generation);
    doubt.is_some_and(|doubt| world.monotonic.saturating_duration_since(doubt.looked) < Doubt::LOOK_AGAIN)
}

fn cannot_tell(world: &World<'_>, slot: &DesiredSlot, why: &str) -> Action {
    let doubt = Doubt { generation: slot.generation, why: why.to_owned(), looked: world.monotonic };
    Action::CannotTell(slot.id, doubt)
}

/// The record of a slot of which a process was found. Nobody noted its port, so it cannot be asked whether it answers.
///
/// A job counts as ready while it runs. Otherwise a slot that the server only asks about is taken for what it was, since
/// the server knows it; one that should be started was never ready, and is not said to be.
fn adopted(world: &World<'_>, slot: &DesiredSlot, carrier: &Carrier) -> Kept {
    let is_that_start = carrier.generation == slot.generation;
    let is_job = carrier.kind == Some(WorkloadKind::Job);
    let life = Life::Started { at: world.now, ready: is_job || !slot.should_run() || !is_that_start };
    Kept {
        id: slot.id,
        generation: carrier.generation,
        // How another start of it was run is not known.
        gpus: if is_that_start { slot.gpus.clone() } else { Vec::new() },
        spec: slot.run_spec().filter(|_| is_that_start).cloned(),
        kind: carrier.kind,
        life,
        process: Some(carrier.process.clone()),
        port: None,
        exit: None,
        pids: [carrier.process.pid].into(),
        // The secret that it carries may not be the one that it was given.
        started_as: None,
    }
}
