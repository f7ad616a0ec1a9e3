//! Ending: SIGTERM, then SIGKILL, then waiting until the driver lists none of the pids.

use berth_domain::{SlotEnd, SlotId, Timestamp};

use super::{Action, DriverView, ReconcileInput, SlotObservation, TreeState};

/// A slot whose processes were asked to end.
#[derive(Clone, Copy)]
pub(super) struct Ending {
    pub(super) since: Timestamp,
    pub(super) killed: bool,
    pub(super) why: SlotEnd,
    pub(super) was_ready: bool,
}

pub(super) fn ending(input: &ReconcileInput<'_>, id: SlotId, seen: &SlotObservation, ending: Ending) -> Option<Action> {
    let Ending { since, killed, why, was_ready } = ending;
    if seen.tree == TreeState::Empty {
        return Some(Action::TreeGone(id, why));
    }
    let grace = seen.grace.unwrap_or(input.timeouts.grace);
    // An engine that is still loading serves no requests and may ignore SIGTERM until it is done (vLLM does).
    let loading_grace = seen.loading_grace.unwrap_or(input.timeouts.loading_grace);
    let forced = since.after(if was_ready { grace } else { grace.min(loading_grace) });
    // SIGKILL is repeated: a tree may grow while it is being killed.
    match killed {
        false if input.now < forced => None,
        true if input.now >= forced.after(input.timeouts.unkillable_after) => Some(Action::GiveUp(id)),
        _ => Some(Action::Kill(id)),
    }
}

pub(super) fn tree_gone(
    input: &ReconcileInput<'_>,
    id: SlotId,
    seen: &SlotObservation,
    since: Timestamp,
    why: SlotEnd,
) -> Option<Action> {
    // A process of the tree appeared after all.
    if seen.tree != TreeState::Empty {
        return Some(Action::Term(id, why));
    }
    if seen.driver == DriverView::Clear {
        return Some(Action::Gone(id, seen.evidence()));
    }
    (input.now.since(since) >= input.timeouts.driver_after).then_some(Action::GiveUp(id))
}
