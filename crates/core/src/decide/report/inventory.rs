//! What devices a runner has. A replica is a name, not memory.

use berth_domain::{Bytes, FailureReason, GpuHealth, GpuReport, RunnerReport, SlotState, Timestamp};

use super::by_device;
use crate::decide::retire::{Rehome, abandon};
use crate::event::{Event, Seat};
use crate::reason::Cause;
use crate::sabotage::{self, Mutation};
use crate::state::{Device, Runner, State};
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
    detach_missing(state, runner, report, &mut events);
    for (uuid, entries) in &devices {
        let Some(first) = entries.first() else { continue };
        let known = state.devices.find(uuid).map(|(_, row)| row);
        let elsewhere = known.is_some_and(|device| device.machine != runner.machine);
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
        change_health(state, known, worst_health(entries), first, now, &mut events);
    }
    let gone = runner.disputed.iter().filter(|uuid| !devices.iter().any(|(listed, _)| listed == uuid));
    events.extend(gone.map(|uuid| Event::DisputeEnded { runner: runner.id.clone(), uuid: uuid.clone() }));
    events
}

fn detach_missing(state: &State, runner: &Runner, report: &RunnerReport, events: &mut Vec<Event>) {
    for device in runner.devices.iter().filter_map(|key| state.devices.get(*key)) {
        if !report.gpus.iter().any(|gpu| gpu.uuid == device.uuid) {
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
    let capacity = smallest.saturating_sub(state.settings.device_reserve);
    let counted = if sabotage::is(Mutation::CountReplicas) { u64::from(replicas) } else { 1 };
    let seat = Seat {
        index: entries.iter().map(|gpu| gpu.index).min().unwrap_or(first.index),
        capacity: Bytes::new(capacity.get().saturating_mul(counted)),
        replicas,
        sizes_differ: entries.iter().map(usable).any(|size| size != smallest),
    };
    let same = known
        .is_some_and(|device| device.name == first.name && device.seat_on(key).is_some_and(|row| row.seat == seat));
    if !same {
        events.push(Event::DeviceAttached {
            runner: runner.id.clone(),
            uuid: first.uuid.clone(),
            name: first.name.clone(),
            parent: first.parent.clone(),
            seat,
        });
    }
}

fn worst_health(entries: &[&GpuReport]) -> GpuHealth {
    let rank = |health: &GpuHealth| match health {
        GpuHealth::Ok => 0,
        GpuHealth::Stale => 1,
        GpuHealth::Failed => 2,
        GpuHealth::Lost => 3,
    };
    entries.iter().map(|gpu| gpu.health).max_by_key(rank).unwrap_or_default()
}

fn change_health(
    state: &State,
    known: Option<&Device>,
    health: GpuHealth,
    gpu: &GpuReport,
    now: Timestamp,
    events: &mut Vec<Event>,
) {
    if known.map_or(GpuHealth::Ok, |device| device.health) == health {
        return;
    }
    if let (Some(device), GpuHealth::Lost) = (known, health) {
        fail_slots(state, device, now, events);
    }
    events.push(Event::DeviceHealthChanged { uuid: gpu.uuid.clone(), health });
}

/// A device that fell off the bus takes its slots with it. Their claims stay until proof.
fn fail_slots(state: &State, device: &Device, now: Timestamp, events: &mut Vec<Event>) {
    let why = FailureReason::DeviceLost;
    for slot in device.ledger.claims().iter().filter_map(|claim| state.slots.get(claim.slot)) {
        if slot.is_stray() || !matches!(slot.state, SlotState::Starting | SlotState::Ready | SlotState::Draining) {
            continue;
        }
        abandon(state, slot, Rehome { cause: Cause::SlotFailed(why), now, may_still_run: false }, events);
        events.push(Event::SlotFailed { slot: slot.id, why });
    }
}
