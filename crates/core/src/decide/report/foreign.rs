//! Memory in use on a device that is not ours. A rise counts at once; a fall needs two samples.

use berth_domain::{Bytes, GpuHealth, RunnerReport, SlotState};

use super::by_device;
use crate::event::Event;
use crate::ledger::Phase;
use crate::state::{Device, State};
use crate::table::RunnerKey;

pub(super) fn weigh(state: &State, key: RunnerKey, report: &RunnerReport) -> Vec<Event> {
    let mut events = Vec::new();
    for (uuid, entries) in by_device(report) {
        let Some((_, device)) = state.devices.find(uuid).filter(|(_, device)| device.seat_on(key).is_some()) else {
            continue;
        };
        if matches!(device.health, GpuHealth::Stale | GpuHealth::Lost) {
            continue;
        }
        let used = entries.iter().map(|gpu| gpu.memory_used).max().unwrap_or_default();
        let (foreign, attributed) = foreign_use(state, device, used);
        events.extend(believe(state, device, foreign, attributed));
    }
    events
}

/// What is used beyond our own, over all runners that share the device.
fn foreign_use(state: &State, device: &Device, used: Bytes) -> (Bytes, bool) {
    let (mut observed, mut claimed, mut attributed) = (Bytes::ZERO, Bytes::ZERO, true);
    for claim in device.ledger.claims().iter().filter(|claim| claim.phase != Phase::Promised) {
        claimed = claimed.saturating_add(claim.amount);
        let Some(slot) = state.slots.get(claim.slot) else { continue };
        let gpu = slot.gpus.iter().find(|gpu| state.devices.get(gpu.device).is_some_and(|row| row.uuid == device.uuid));
        match gpu.and_then(|gpu| gpu.observed) {
            Some(bytes) => observed = observed.saturating_add(bytes),
            // What a stray uses is what it was charged.
            None if slot.is_stray() => observed = observed.saturating_add(claim.amount),
            None if slot.seen && slot.state != SlotState::Pending => attributed = false,
            None => {}
        }
    }
    if attributed {
        (used.saturating_sub(observed), true)
    } else {
        (device.baseline.max(used.saturating_sub(claimed)), false)
    }
}

fn believe(state: &State, device: &Device, foreign: Bytes, attributed: bool) -> Option<Event> {
    let uuid = device.uuid.clone();
    let now = device.ledger.foreign();
    let changed = |bytes| Some(Event::ForeignChanged { uuid: uuid.clone(), bytes, attributed });
    if foreign > now {
        return changed(foreign);
    }
    if foreign == now && device.lower_sample.is_none() {
        return if attributed == device.attributed { None } else { changed(now) };
    }
    let confirmed = device.lower_sample.map(|before| before.max(foreign));
    let worth_it =
        |bytes: &Bytes| *bytes < now && (bytes.is_zero() || now.saturating_sub(*bytes) >= state.settings.foreign_step);
    match confirmed.filter(worth_it) {
        Some(bytes) => changed(bytes),
        None if device.lower_sample == Some(foreign) => None,
        None => Some(Event::ForeignSampled { uuid, bytes: foreign }),
    }
}
