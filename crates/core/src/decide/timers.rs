//! What a timer asks, and what is answered. None of the answers frees memory.

use berth_domain::{Timestamp, WorkloadEnd};

use super::Decision;
use super::retire::{give_up, give_up_lost, retire, stop, unblock_lost};
use crate::event::Event;
use crate::reason::{Cause, StopReason, UnknownReason};
use crate::state::{Liveness, Slot, State, Timer};
use crate::table::{RunnerKey, SlotKey, WorkloadKey};

/// The answer to a timer that is due.
pub(crate) fn fire(state: &State, timer: Timer, now: Timestamp) -> Decision {
    let events = match timer {
        Timer::Silence(runner) => silence(state, runner, now),
        Timer::DrainDeadline(runner) => drain_deadline(state, runner),
        Timer::DeviceBackoff(device) => {
            let reopened = state.devices.get(device).map(|row| Event::DeviceReopened { uuid: row.uuid.clone() });
            reopened.into_iter().collect()
        }
        Timer::StartDeadline(slot) => start_deadline(state, slot, now),
        Timer::StopStall(slot) => stop_stall(state, slot, now),
        Timer::Ripe(slot) => on_slot(state, slot, |row| vec![Event::SlotPassedMinRun { slot: row.id }]),
        Timer::KeepAlive(slot) => on_slot(state, slot, |row| {
            let mut events = Vec::new();
            retire(state, row, StopReason::Idle, now, &mut events);
            events
        }),
        Timer::MaxRun(slot) => on_slot(state, slot, |row| {
            let mut events = Vec::new();
            stop(state, row, StopReason::MaxRun, &mut events);
            events
        }),
        Timer::Reservations => vec![Event::ReservationsDue],
        Timer::Replicas(model) => {
            let retried = state.models.get(model).map(|row| Event::ModelRetried { model: row.name.clone() });
            retried.into_iter().collect()
        }
        Timer::Lease(workload) => expire(state, workload, Cause::LeaseExpired),
        Timer::QueueTimeout(workload) => expire(state, workload, Cause::QueueTimeout),
        Timer::Backoff(workload) => {
            let eligible = state.workloads.get(workload).map(|row| Event::WorkloadEligible { workload: row.id });
            eligible.into_iter().collect()
        }
        Timer::Forget(workload) => {
            let forgotten = state.workloads.get(workload).map(|row| Event::WorkloadForgotten { workload: row.id });
            forgotten.into_iter().collect()
        }
    };
    Decision::of(events)
}

fn on_slot(state: &State, slot: SlotKey, then: impl FnOnce(&Slot) -> Vec<Event>) -> Vec<Event> {
    state.slots.get(slot).map(then).unwrap_or_default()
}

fn silence(state: &State, key: RunnerKey, now: Timestamp) -> Vec<Event> {
    let Some(runner) = state.runners.get(key) else { return Vec::new() };
    let id = runner.id.clone();
    match runner.liveness {
        Liveness::Ready => vec![Event::RunnerSuspected { runner: id }],
        Liveness::Suspect if is_our_own_fault(state, runner.last_seen) => vec![Event::LossDeferred { runner: id }],
        Liveness::Suspect => {
            let mut events = Vec::new();
            for slot in runner.slots.iter().filter_map(|slot| state.slots.get(*slot)) {
                lose(state, slot, now, &mut events);
            }
            events.push(Event::RunnerLost { runner: id });
            events
        }
        Liveness::Lost => Vec::new(),
    }
}

/// A lost runner's leases move on; its memory stays charged.
fn lose(state: &State, slot: &Slot, now: Timestamp, events: &mut Vec<Event>) {
    use berth_domain::SlotState;
    give_up_lost(state, slot, now, events);
    unblock_lost(state, slot, events);
    match slot.state {
        _ if slot.is_stray() => {}
        SlotState::Promised | SlotState::Pending => stop(state, slot, StopReason::Abandoned, events),
        SlotState::Unknown | SlotState::Stopping | SlotState::Failed => {}
        _ => events.push(Event::SlotUnknown { slot: slot.id, why: UnknownReason::RunnerLost }),
    }
}

/// When most of the fleet went silent together, it is more likely that nobody can reach the server.
fn is_our_own_fault(state: &State, last_seen: Timestamp) -> bool {
    let window = state.settings.suspect_after;
    let (mut known, mut silent_with_it) = (0usize, 0usize);
    for (_, runner) in state.runners.iter().filter(|(_, row)| !row.is_forgotten() && row.liveness != Liveness::Lost) {
        known += 1;
        let apart = runner.last_seen.since(last_seen).max(last_seen.since(runner.last_seen));
        silent_with_it += usize::from(runner.liveness == Liveness::Suspect && apart <= window);
    }
    known >= state.settings.self_suspicion_from && silent_with_it * 2 > known
}

fn drain_deadline(state: &State, runner: RunnerKey) -> Vec<Event> {
    state.runners.get(runner).map(|row| Event::DrainDeadlinePassed { runner: row.id.clone() }).into_iter().collect()
}

fn start_deadline(state: &State, slot: SlotKey, now: Timestamp) -> Vec<Event> {
    let why = berth_domain::FailureReason::StartDeadline;
    on_slot(state, slot, |row| {
        let mut events = Vec::new();
        give_up(state, row, Cause::SlotFailed(why), now, &mut events);
        events.push(Event::SlotFailed { slot: row.id, why, retry_at: state.retry_at(row, now) });
        events
    })
}

/// A stop that takes too long: who was promised its memory should not wait for it.
fn stop_stall(state: &State, key: SlotKey, now: Timestamp) -> Vec<Event> {
    let Some(slot) = state.slots.get(key) else { return Vec::new() };
    if slot.is_stray() {
        return Vec::new();
    }
    let mut events = Vec::new();
    let on_its_devices = |other: &Slot| other.gpus.iter().any(|gpu| slot.on(gpu.device).is_some());
    let same_host = |other: &Slot| other.runner == slot.runner && (slot.cpu.get() > 0 || !slot.ram.is_zero());
    for promised in state.promised.values().flatten().filter_map(|(_, key)| state.slots.get(*key)) {
        if on_its_devices(promised) || same_host(promised) {
            retire(state, promised, StopReason::Abandoned, now, &mut events);
        }
    }
    events.push(Event::StopStalled { slot: slot.id });
    events
}

fn expire(state: &State, workload: WorkloadKey, cause: Cause) -> Vec<Event> {
    let Some(row) = state.workloads.get(workload) else { return Vec::new() };
    vec![Event::WorkloadEnded { workload: row.id, end: WorkloadEnd::Expired, cause }]
}
