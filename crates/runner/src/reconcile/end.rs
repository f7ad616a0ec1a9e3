//! Ending: ask, then force, then look until the driver agrees.

use berth_domain::{SlotEnd, SlotId, Timestamp};

use super::{Action, DriverSeen, Seen, TreeSeen, World};

pub(super) fn ending(
    world: &World<'_>,
    id: SlotId,
    seen: &Seen,
    since: Timestamp,
    killed: bool,
    why: SlotEnd,
) -> Option<Action> {
    if seen.tree == TreeSeen::Empty {
        return Some(Action::TreeGone(id, why));
    }
    let forced = since.after(seen.grace.unwrap_or(world.patience.grace));
    // Forced ends are repeated: a tree may grow while it is being felled.
    match killed {
        false if world.now < forced => None,
        true if world.now >= forced.after(world.patience.unkillable_after) => Some(Action::GiveUp(id)),
        _ => Some(Action::Kill(id)),
    }
}

pub(super) fn tree_gone(world: &World<'_>, id: SlotId, seen: &Seen, since: Timestamp, why: SlotEnd) -> Option<Action> {
    // Somebody of the tree turned up after all.
    if seen.tree != TreeSeen::Empty {
        return Some(Action::Term(id, why));
    }
    if seen.driver == DriverSeen::Clear {
        return Some(Action::Gone(id, seen.evidence()));
    }
    (world.now.since(since) >= world.patience.driver_after).then_some(Action::GiveUp(id))
}
