//! Ending: ask, then force, then look until the driver agrees.

use berth_domain::{FailureReason, SlotId, Timestamp};

use super::slot::{End, Kept};
use super::{Action, Seen, World};

/// On record, but no process was noted: the agent died in between, or it is starting right now.
pub(super) fn planned(kept: &Kept, seen: &Seen, stop: bool) -> Option<Action> {
    let id = kept.slot.id;
    match (seen.tree.is_empty(), seen.ended) {
        (true, Some(why)) => Some(Action::TreeGone(id, why)),
        (true, None) if stop => Some(Action::TreeGone(id, End::Asked)),
        (false, Some(why)) => Some(Action::Term(id, why)),
        (false, None) if stop => Some(Action::Term(id, End::Asked)),
        _ => None,
    }
}

pub(super) fn ending(
    world: &World<'_>,
    id: SlotId,
    seen: &Seen,
    since: Timestamp,
    killed: bool,
    why: End,
) -> Option<Action> {
    let waited = world.now.since(since);
    if seen.tree.is_empty() {
        return Some(Action::TreeGone(id, why));
    }
    // Forced ends are repeated: a tree may grow while it is being felled.
    match killed {
        false if waited < world.patience.grace => None,
        true if waited >= world.patience.unkillable_after => Some(Action::GiveUp(id)),
        _ => Some(Action::Kill(id)),
    }
}

pub(super) fn tree_gone(world: &World<'_>, kept: &Kept, seen: &Seen, since: Timestamp) -> Option<Action> {
    let id = kept.slot.id;
    // Somebody of the tree turned up after all.
    if !seen.tree.is_empty() {
        return Some(Action::Term(id, End::Failed(FailureReason::Crashed)));
    }
    if seen.on_driver.is_empty() {
        return Some(Action::Gone(id));
    }
    (world.now.since(since) >= world.patience.driver_after).then_some(Action::GiveUp(id))
}
