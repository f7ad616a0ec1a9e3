//! What devices a runner has. A replica is a name, not memory.

use std::collections::BTreeSet;

use berth_domain::{Bytes, DeviceUuid, FailureReason, GpuHealth, GpuReport, RunnerReport, SlotState, Timestamp};

use super::by_device;
use crate::decide::retire::give_up;
use crate::event::{Attachment, Event};
use crate::reason::Cause;
use crate::sabotage::{self, Mutation};
use crate::state::{Device, Runner, State, badness};
use crate::table::RunnerKey;

pub(super) fn take(
    state: &State,
    key: RunnerKey,
    runner: &Runner,
    report: &RunnerReport,
    now: Timestamp,
) -> Vec<Event> {
    let mut events = Vec::new();
    let devices = by_device(report);
    detach_missing(state, runner, &devices, &mut events);
    for (uuid, entries) in &devices {
        let Some(first) = entries.first() else { continue };
        let known = state.devices.find(uuid).map(|(_, row)| row);
        // A MIG instance shuts its parent, so it may only be one of a GPU of the same machine.
        let parent = first.parent.as_ref().and_then(|parent| state.devices.find(parent)).map(|(_, row)| row);
        let elsewhere = known.into_iter().chain(parent).any(|device| device.machine != runner.machine);
        if elsewhere {
            // Two machines cannot have one GPU: the newcomer is wrong until an operator says otherwise.
            if !runner.disputed.contains(uuid) {
                events.push(Event::DeviceDisputed { runner: runner.id.clone(), uuid: (*uuid).clone() });
            }
            continue;
        }
        if runner.disputed.contains(uuid) {
            events.push(Event::DisputeEnded { runner: runner.id.clone(), uuid: (*uuid).clone() });
        }
        attach(state, key, runner, first, entries, known, &mut events);
        change_health(state, (key, runner), known, worst_health(entries), first, now, &mut events);
    }
    let listed: BTreeSet<&DeviceUuid> = devices.iter().map(|(uuid, _)| *uuid).collect();
    let gone = runner.disputed.iter().filter(|uuid| !listed.contains(uuid));
    events.extend(gone.map(|uuid| Event::DisputeEnded { runner: runner.id.clone(), uuid: uuid.clone() }));
    events
}

fn detach_missing(state: &State, runner: &Runner, devices: &[(&DeviceUuid, Vec<&GpuReport>)], events: &mut Vec<Event>) {
    let listed: BTreeSet<&DeviceUuid> = devices.iter().map(|(uuid, _)| *uuid).collect();
    for device in runner.devices.iter().filter_map(|key| state.devices.get(*key)) {
        if !listed.contains(&device.uuid) {
            events.push(Event::DeviceDetached { runner: runner.id.clone(), uuid: device.uuid.clone() });
        }
    }
}

/// Several entries for one UUID are one device of the smallest size, flagged where they differ.
fn attach(
    state: &State,
    key: RunnerKey,
    runner: &Runner,
    first: &GpuReport,
    entries: &[&GpuReport],
    known: Option<&Device>,
    events: &mut Vec<Event>,
) {
    let usable = |gpu: &&GpuReport| gpu.memory_total.saturating_sub(gpu.memory_reserved);
    let smallest = entries.iter().map(usable).min().unwrap_or_default();
    let replicas = u16::try_from(entries.len()).unwrap_or(u16::MAX);
    // A driver that does not answer for a GPU says nothing of its size either: it is as large as it was.
    let is_silent = matches!(worst_health(entries), GpuHealth::Lost | GpuHealth::Stale);
    let was = known_capacity(known, key, runner, first).filter(|was| is_silent && smallest < *was);
    let capacity = was.unwrap_or_else(|| smallest.saturating_sub(state.settings.device_reserve));
    let counted = if sabotage::is(Mutation::CountReplicas) { u64::from(replicas) } else { 1 };
    let attachment = Attachment {
        index: entries.iter().map(|gpu| gpu.index).min().unwrap_or(first.index),
        capacity: Bytes::new(capacity.get().saturating_mul(counted)),
        replicas,
        sizes_differ: entries.iter().map(usable).any(|size| size != smallest),
    };
    let same = known.is_some_and(|device| {
        device.name == first.name && device.attachment_on(key).is_some_and(|row| row.attachment == attachment)
    });
    if !same {
        events.push(Event::DeviceAttached {
            runner: runner.id.clone(),
            uuid: first.uuid.clone(),
            name: first.name.clone(),
            parent: first.parent.clone(),
            attachment,
        });
    }
}

/// How large a GPU of a runner was when it was last seen well.
fn known_capacity(known: Option<&Device>, key: RunnerKey, runner: &Runner, gpu: &GpuReport) -> Option<Bytes> {
    let attachment = known.and_then(|device| device.attachment_on(key)).map(|row| row.attachment.capacity);
    attachment
        .or_else(|| runner.missing.iter().find(|missing| missing.uuid == gpu.uuid).map(|missing| missing.capacity))
}

fn worst_health(entries: &[&GpuReport]) -> GpuHealth {
    entries.iter().map(|gpu| gpu.health).max_by_key(|health| badness(*health)).unwrap_or_default()
}

/// Notes what one runner's driver says of a device. Where several runners share it the worst word counts, but each
/// speaks for its own slots only.
fn change_health(
    state: &State,
    (key, runner): (RunnerKey, &Runner),
    known: Option<&Device>,
    health: GpuHealth,
    gpu: &GpuReport,
    now: Timestamp,
    events: &mut Vec<Event>,
) {
    let said = known.and_then(|device| device.attachment_on(key)).map_or(GpuHealth::Ok, |row| row.health);
    if said == health {
        return;
    }
    if let (Some(device), GpuHealth::Lost) = (known, health) {
        fail_slots(state, key, device, now, events);
    }
    events.push(Event::DeviceHealthChanged { runner: runner.id.clone(), uuid: gpu.uuid.clone(), health });
}

/// A device that fell off the bus takes the slots of the runner that says so with it. Their claims stay until proof.
fn fail_slots(state: &State, runner: RunnerKey, device: &Device, now: Timestamp, events: &mut Vec<Event>) {
    let why = FailureReason::DeviceLost;
    for slot in device.ledger.claims().iter().filter_map(|claim| state.slots.get(claim.slot)) {
        let runs = matches!(slot.state, SlotState::Starting | SlotState::Ready | SlotState::Draining);
        if slot.is_stray() || slot.runner != runner || !runs {
            continue;
        }
        give_up(state, slot, Cause::SlotFailed(why), now, events);
        events.push(Event::SlotFailed { slot: slot.id, why, retry_at: state.retry_at(slot, now) });
    }
}
