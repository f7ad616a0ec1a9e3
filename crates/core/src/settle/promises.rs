//! Promises: kept when the memory is proven free, oldest first; taken back when their device is no good, or when the
//! work fits elsewhere now.

use berth_domain::Timestamp;

use crate::decide::{Decision, retire};
use crate::event::Event;
use crate::ledger::Quantity;
use crate::plan::{self, Demand};
use crate::reason::StopReason;
use crate::state::{Slot, State};
use crate::table::SlotKey;

pub(super) fn next(state: &State, now: Timestamp) -> Option<Decision> {
    if state.agenda.devices.is_empty() && state.agenda.hosts.is_empty() && state.agenda.runners.is_empty() {
        return None;
    }
    state.promised.iter().find_map(|(_, key)| {
        let slot = state.slots.get(*key)?;
        if !is_sound(state, slot) {
            return Some(withdraw(state, slot, now));
        }
        if can_keep(state, *key, slot) {
            return Some(keep(state, slot));
        }
        fits_elsewhere(state, slot).then(|| withdraw(state, slot, now))
    })
}

/// Whether its runner and devices may still be built on.
fn is_sound(state: &State, slot: &Slot) -> bool {
    let runner = state.runners.get(slot.runner);
    let mut devices = slot.gpus.iter().filter_map(|gpu| state.devices.get(gpu.device));
    let first = state.workloads_of(slot).first().copied();
    runner.is_some_and(crate::state::Runner::is_open)
        && devices.all(|device| device.is_open_for(device.reserved_for.or(first)))
}

/// All devices of the slot at once, or not at all.
fn can_keep(state: &State, key: SlotKey, slot: &Slot) -> bool {
    let devices =
        slot.gpus.iter().all(|gpu| state.devices.get(gpu.device).is_some_and(|device| device.ledger.can_keep(key)));
    let machine = state.runners.get(slot.runner).and_then(|runner| state.machines.get(runner.machine));
    let host = machine.is_some_and(|machine| {
        (slot.cpu.units() == 0 || machine.cpu.can_keep(key)) && (slot.ram.is_zero() || machine.ram.can_keep(key))
    });
    devices && host
}

fn keep(state: &State, slot: &Slot) -> Decision {
    let granted = state.may_start(slot.gpus.iter().map(|gpu| gpu.device));
    Decision::of(vec![Event::PromiseKept { slot: slot.id, granted }])
}

/// Whether whoever it was promised to could start now on another place.
fn fits_elsewhere(state: &State, slot: &Slot) -> bool {
    let demand = match state.workloads_of(slot).first() {
        Some(workload) => Demand::of_workload(state, *workload),
        None => return false,
    };
    demand.is_some_and(|demand| plan::site_now(state, demand).is_some())
}

fn withdraw(state: &State, slot: &Slot, now: Timestamp) -> Decision {
    let mut events = Vec::new();
    retire(state, slot, StopReason::Abandoned, now, &mut events);
    Decision::of(events)
}
