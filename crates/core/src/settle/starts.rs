//! A slot that waits for its turn, or should go.

use berth_domain::{SlotState, Timestamp};

use crate::decide::{Decision, give_up, retire, retire::stop};
use crate::event::Event;
use crate::reason::{Cause, Closed, StopReason};
use crate::state::{Admission, Slot, State};
use crate::table::SlotKey;

pub(super) fn look_at(state: &State, key: SlotKey, now: Timestamp) -> Option<Decision> {
    let slot = state.slots.get(key).filter(|slot| !slot.is_stray())?;
    let events = match should_go(state, slot) {
        Some((why, true)) => {
            let mut events = Vec::new();
            if !matches!(slot.state, SlotState::Stopping | SlotState::Failed | SlotState::Unknown) {
                give_up(state, slot, Cause::SlotStopped, now, &mut events);
                stop(state, slot, why, &mut events);
            }
            events
        }
        Some((why, false)) => {
            let mut events = Vec::new();
            retire(state, slot, why, now, &mut events);
            events
        }
        None if slot.state == SlotState::Pending => grant(state, slot),
        None => Vec::new(),
    };
    (!events.is_empty()).then(|| Decision::of(events))
}

/// Starts on one device are one at a time.
fn grant(state: &State, slot: &Slot) -> Vec<Event> {
    match state.may_start(slot.gpus.iter().map(|gpu| gpu.device)) {
        true => vec![Event::SlotGranted { slot: slot.id }],
        false => Vec::new(),
    }
}

/// Why a slot should go, and whether it should go whatever it is doing.
pub(super) fn should_go(state: &State, slot: &Slot) -> Option<(StopReason, bool)> {
    let model = slot.model.and_then(|key| state.models.get(key))?;
    let admission = state.runners.get(slot.runner).map(|runner| runner.admission);
    match admission {
        Some(Admission::Draining { overdue, .. }) => return Some((StopReason::Drained, overdue)),
        Some(Admission::Drained) => return Some((StopReason::Drained, true)),
        _ => {}
    }
    // It never started: it goes back to the queue where its device is no good.
    let lost = |device| {
        let no_good = |closed| matches!(closed, Some(Closed::Lost | Closed::Missing | Closed::Quarantined));
        state.devices.get(device).is_none_or(|row| no_good(row.closed()))
    };
    if slot.state == SlotState::Pending && slot.gpus.iter().any(|gpu| lost(gpu.device)) {
        return Some((StopReason::Abandoned, false));
    }
    if slot.is_job && slot.job.is_none() {
        return Some((StopReason::JobEnded, true));
    }
    if !slot.runs_a_job() && (model.deleted || model.revision != slot.revision) {
        return Some((StopReason::Superseded, false));
    }
    if slot.state == SlotState::Draining && !slot.is_job {
        return Some((StopReason::Surplus, false));
    }
    if slot.returned && slot.live && model.spec.replicas.max.is_some_and(|max| model.live > max) {
        return Some((StopReason::Surplus, false));
    }
    // A slot that is kept back for a reservation goes once it may be evicted: idle, past its `min_run`, not needed.
    (slot.evictable && state.reservations_on(slot).next().is_some()).then_some((StopReason::Reserved, false))
}
