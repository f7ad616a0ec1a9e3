//! Starting: only where the driver shows enough free memory, one at a time on a device, and nothing that runs already.

use std::collections::BTreeSet;

use berth_domain::{DesiredSlot, DeviceUuid};

use super::unrecorded::{SearchStep, search};
use super::{Action, DesiredState, ReconcileInput};

/// Returns the devices on which a slot is starting. A slot that this round finds ready does not count any more.
pub(super) fn devices_with_a_start(input: &ReconcileInput<'_>, actions: &[Action]) -> BTreeSet<DeviceUuid> {
    let ready = |id| actions.contains(&Action::Ready(id));
    let starting = input.records.values().filter(|record| record.is_starting() && !ready(record.id));
    starting.flat_map(|record| record.gpus.iter().map(|gpu| gpu.uuid.clone())).collect()
}

/// Starts a slot, refuses it, or leaves it for the next round.
pub(super) fn start(
    input: &ReconcileInput<'_>,
    desired: &DesiredState,
    slot: &DesiredSlot,
    starting: &mut BTreeSet<DeviceUuid>,
) -> Option<Action> {
    if desired.is_expired(input.monotonic) || !input.can_record {
        return None;
    }
    if slot.gpus.iter().any(|gpu| starting.contains(&gpu.uuid)) {
        return None;
    }
    let mut has_memory = true;
    for gpu in &slot.gpus {
        let device = input.devices.iter().find(|device| device.uuid == gpu.uuid);
        match device.map(|device| device.free) {
            // A driver that does not answer says neither yes nor no.
            Some(None) => return None,
            Some(Some(free)) => has_memory &= free >= gpu.memory_bytes,
            None => has_memory = false,
        }
    }
    let action = match search(input, slot) {
        SearchStep::Act(action) => action,
        SearchStep::Later => return None,
        SearchStep::NotFound if has_memory => Action::Start(Box::new(slot.clone())),
        SearchStep::NotFound => Action::Refuse(Box::new(slot.clone())),
    };
    // A slot that another agent started takes its turn on its devices too.
    if matches!(action, Action::Start(_) | Action::Adopt(_)) {
        starting.extend(slot.gpus.iter().map(|gpu| gpu.uuid.clone()));
    }
    Some(action)
}
