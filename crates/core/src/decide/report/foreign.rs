//! Memory in use on a device that is not ours. A rise counts at once; a fall needs two samples.
//!
//! What our own slots use is known exactly for slots of the runner that reports, where its driver attributes memory to
//! processes. Of the others only bounds are known: a slot of another runner may have grown up to its claim since it was
//! last heard of, and where the driver attributes nothing a slot uses anything up to its claim. Foreign use is changed
//! only as far as these bounds say that it must be another.

use berth_domain::{Bytes, GpuHealth, RunnerReport, SlotState};

use super::by_device;
use crate::event::Event;
use crate::ledger::Phase;
use crate::state::{Device, Slot, State};
use crate::table::RunnerKey;

pub(super) fn weigh(state: &State, key: RunnerKey, report: &RunnerReport) -> Vec<Event> {
    let mut events = Vec::new();
    for (uuid, entries) in by_device(report) {
        let Some((_, device)) = state.devices.find(uuid) else { continue };
        let Some(attachment) = device.attachment_on(key) else { continue };
        if matches!(attachment.health, GpuHealth::Stale | GpuHealth::Lost) {
            continue;
        }
        let used = entries.iter().map(|gpu| gpu.memory_used).max().unwrap_or_default();
        events.extend(believe(state, device, foreign_use(state, key, device, used)));
        if device.last_used != Some(used) || !device.left_since.is_zero() {
            events.push(Event::DeviceSampled { uuid: uuid.clone(), used });
        }
    }
    events
}

/// What our own slots use of a device, as far as that is known.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OwnUse {
    pub(crate) least: Bytes,
    pub(crate) most: Bytes,
    /// The driver attributes the memory of every slot that runs.
    pub(crate) attributed: bool,
}

/// What a sample says of foreign use.
#[derive(Clone, Copy, Debug)]
struct Sample {
    bytes: Bytes,
    attributed: bool,
    /// Memory that a slot left behind is part of it, and will not be seen again.
    left_behind: bool,
}

/// What is used beyond our own, over all runners that share the device.
fn foreign_use(state: &State, reporter: RunnerKey, device: &Device, used: Bytes) -> Sample {
    let own = state.own_use_as_of(device, Some(reporter), |_| true);
    let (least, most) = (used.saturating_sub(own.most), used.saturating_sub(own.least));
    let bytes = match own.attributed {
        true => device.ledger.foreign().clamp(least, most.max(least)),
        false => device.baseline.max(least),
    };
    // What a slot that has just gone did not give back is foreign, however little the others let us see.
    let left = device.ledger.foreign().saturating_add(device.left_since).min(most);
    let left_behind = !device.left_since.is_zero() && left > bytes;
    Sample { bytes: if left_behind { left } else { bytes }, attributed: own.attributed, left_behind }
}

impl State {
    /// What our own slots (those that `counts`) use of a device, by all that was reported so far.
    pub(crate) fn own_use(&self, device: &Device, counts: impl Fn(&Slot) -> bool) -> OwnUse {
        self.own_use_as_of(device, None, counts)
    }

    /// The same while `reporter` reports: what is known of its slots is as new as what is in use.
    fn own_use_as_of(&self, device: &Device, reporter: Option<RunnerKey>, counts: impl Fn(&Slot) -> bool) -> OwnUse {
        let mut own = OwnUse { attributed: true, ..OwnUse::default() };
        for claim in device.ledger.claims().iter().filter(|claim| claim.phase != Phase::Promised) {
            let Some(slot) = self.slots.get(claim.slot).filter(|slot| counts(slot)) else { continue };
            let gpu =
                slot.gpus.iter().find(|gpu| self.devices.get(gpu.device).is_some_and(|row| row.uuid == device.uuid));
            let is_started = slot.seen && slot.state != SlotState::Pending;
            let (least, most) = match gpu.and_then(|gpu| gpu.observed) {
                Some(bytes) if reporter.is_none_or(|reporter| reporter == slot.runner) => (bytes, bytes),
                // It may have grown since its own runner reported it.
                Some(bytes) => (bytes, bytes.max(claim.amount)),
                // What a stray uses is what it was charged.
                None if slot.is_stray() => (claim.amount, claim.amount),
                None if slot.state == SlotState::Pending => (Bytes::ZERO, Bytes::ZERO),
                // Its own runner does not mention it: it was not started.
                None if !is_started && reporter == Some(slot.runner) => (Bytes::ZERO, Bytes::ZERO),
                None if !is_started => (Bytes::ZERO, claim.amount),
                None => {
                    own.attributed = false;
                    (self.unattributed_use(slot, device, claim.amount), claim.amount)
                }
            };
            own.least = own.least.saturating_add(least);
            own.most = own.most.saturating_add(most);
        }
        own
    }

    /// What a slot uses at least where the driver attributes nothing: what was added since it was told to start while it
    /// still loads, and what it was given once it serves.
    fn unattributed_use(&self, slot: &Slot, device: &Device, claim: Bytes) -> Bytes {
        let gpu = slot.gpus.iter().find(|gpu| self.devices.get(gpu.device).is_some_and(|row| row.uuid == device.uuid));
        let grown = gpu.and_then(|gpu| Some(device.last_used?.saturating_sub(gpu.used_before?)));
        match slot.state {
            SlotState::Starting => grown.map_or(claim, |grown| grown.min(claim)),
            _ => claim,
        }
    }
}

fn believe(state: &State, device: &Device, sample: Sample) -> Option<Event> {
    let uuid = device.uuid.clone();
    let Sample { bytes: foreign, attributed, left_behind } = sample;
    // Where the driver attributes memory, the next report tells it apart again.
    let left_behind = left_behind && !attributed;
    let now = device.ledger.foreign();
    let changed = |bytes| Some(Event::ForeignChanged { uuid: uuid.clone(), bytes, attributed, left_behind });
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
