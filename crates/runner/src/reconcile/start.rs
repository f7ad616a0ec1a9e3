//! Starting: only what the driver shows room for, and one at a time on a device.

use std::collections::BTreeSet;

use berth_domain::{DesiredSlot, DeviceUuid};

use super::{Action, World};

/// Devices on which something is starting. What this very round ends does not count any more.
pub(super) fn devices_with_a_start(world: &World<'_>, actions: &[Action]) -> BTreeSet<DeviceUuid> {
    let ready = |id| actions.contains(&Action::Ready(id));
    let starting = world.kept.values().filter(|kept| kept.is_starting() && !ready(kept.slot.id));
    starting.flat_map(|kept| kept.slot.gpus.iter().map(|gpu| gpu.uuid.clone())).collect()
}

/// Starts a slot, refuses it, or leaves it for the next round.
pub(super) fn start(world: &World<'_>, slot: &DesiredSlot, starting: &mut BTreeSet<DeviceUuid>) -> Option<Action> {
    if slot.gpus.iter().any(|gpu| starting.contains(&gpu.uuid)) {
        return None;
    }
    for gpu in &slot.gpus {
        let device = world.devices.iter().find(|device| device.uuid == gpu.uuid);
        // A driver that does not answer says neither yes nor no.
        let Some(free) = device.map(|device| device.free) else { return Some(Action::Refuse(Box::new(slot.clone()))) };
        match free {
            None => return None,
            Some(free) if free < gpu.memory_bytes => return Some(Action::Refuse(Box::new(slot.clone()))),
            Some(_) => {}
        }
    }
    starting.extend(slot.gpus.iter().map(|gpu| gpu.uuid.clone()));
    Some(Action::Start(Box::new(slot.clone())))
}
