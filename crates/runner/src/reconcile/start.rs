//! Starting: only what the driver shows room for, one at a time on a device, and nothing that runs already.

use std::collections::BTreeSet;

use berth_domain::{DesiredSlot, DeviceUuid};

use super::unrecorded::{Search, search};
use super::{Action, Wish, World};

/// Devices on which something is starting. What this very round ends does not count any more.
pub(super) fn devices_with_a_start(world: &World<'_>, actions: &[Action]) -> BTreeSet<DeviceUuid> {
    let ready = |id| actions.contains(&Action::Ready(id));
    let starting = world.kept.values().filter(|kept| kept.is_starting() && !ready(kept.id));
    starting.flat_map(|kept| kept.gpus.iter().map(|gpu| gpu.uuid.clone())).collect()
}

/// Starts a slot, refuses it, or leaves it for the next round.
pub(super) fn start(
    world: &World<'_>,
    wish: &Wish,
    slot: &DesiredSlot,
    starting: &mut BTreeSet<DeviceUuid>,
) -> Option<Action> {
    if wish.is_expired(world.monotonic) || !world.can_record {
        return None;
    }
    if slot.gpus.iter().any(|gpu| starting.contains(&gpu.uuid)) {
        return None;
    }
    let mut has_room = true;
    for gpu in &slot.gpus {
        let device = world.devices.iter().find(|device| device.uuid == gpu.uuid);
        match device.map(|device| device.free) {
            // A driver that does not answer says neither yes nor no.
            Some(None) => return None,
            Some(Some(free)) => has_room &= free >= gpu.memory_bytes,
            None => has_room = false,
        }
    }
    let action = match search(world, slot) {
        Search::Act(action) => action,
        Search::Later => return None,
        Search::Nobody if has_room => Action::Start(Box::new(slot.clone())),
        Search::Nobody => Action::Refuse(Box::new(slot.clone())),
    };
    // One that somebody else started has its turn on its devices too.
    if matches!(action, Action::Start(_) | Action::Adopt(_)) {
        starting.extend(slot.gpus.iter().map(|gpu| gpu.uuid.clone()));
    }
    Some(action)
}
