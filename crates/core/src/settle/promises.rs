//! Promises: kept when the memory is proven free, oldest first; taken back when their device is no good, or when the
//! work fits elsewhere now.

use std::collections::BTreeSet;

use berth_domain::{SlotState, Timestamp};

use super::room::touched_runners;
use crate::decide::{Decision, retire};
use crate::event::Event;
use crate::ledger::{Phase, Quantity};
use crate::plan::{Demand, Search};
use crate::reason::{Closed, StopReason};
use crate::state::{Admission, Liveness, Runner, Slot, State};
use crate::table::{RunnerKey, SlotKey};

pub(super) fn next(state: &State, now: Timestamp) -> Option<Decision> {
    if state.promised.is_empty() && state.crowded_out.is_empty() {
        return None;
    }
    let touched = touched_promises(state);
    let kept_or_taken_back = touched.into_iter().find_map(|(_, key)| {
        let slot = state.slots.get(key)?;
        if !is_sound(state, slot) {
            return Some(withdraw(state, slot, now));
        }
        let open = state.runners.get(slot.runner).is_some_and(Runner::is_open);
        (open && can_keep(state, key, slot)).then(|| keep(state, slot))
    });
    kept_or_taken_back.or_else(|| move_one(state, now)).or_else(|| move_crowded_out(state, now))
}

/// Promises on what the dirty set names, oldest first.
fn touched_promises(state: &State) -> BTreeSet<(u64, SlotKey)> {
    let devices = state.dirty.devices.iter().filter_map(|device| state.devices.get(*device));
    let on_devices = devices
        .flat_map(|device| device.ledger.claims())
        .filter(|claim| claim.phase == Phase::Promised)
        .map(|claim| claim.slot);
    let runners = state.dirty.runners.iter().chain(&state.dirty.hosts).filter_map(|runner| state.runners.get(*runner));
    let on_runners = runners.flat_map(|runner| runner.slots.iter().copied());
    let promised =
        |key: SlotKey| Some((state.slots.get(key).filter(|slot| slot.state == SlotState::Promised)?.number, key));
    on_devices.chain(on_runners).filter_map(promised).collect()
}

/// A promise whose work could start now on a runner that was touched. The first of each model speaks for the rest.
fn move_one(state: &State, now: Timestamp) -> Option<Decision> {
    let runners = touched_runners(state);
    let firsts = state.promised.values().filter_map(|promised| promised.first());
    let mut movable =
        firsts.filter_map(|(_, key)| state.slots.get(*key)).filter(|slot| fits_elsewhere(state, slot, &runners));
    movable.next().map(|slot| withdraw(state, slot, now))
}

/// A slot that waits for its turn on a device where others took its memory, and would fit anywhere else now.
fn move_crowded_out(state: &State, now: Timestamp) -> Option<Decision> {
    let fits = |slot: &&Slot| {
        let first = state.workloads_of(slot).first().copied();
        let demand = match first {
            Some(workload) => Demand::of_workload(state, workload),
            None => slot.model.and_then(|model| Demand::of_replica(state, model)),
        };
        demand.is_some_and(|demand| Search::new(state, demand).fits_now())
    };
    let mut movable = state.crowded_out.iter().filter_map(|key| state.slots.get(*key)).filter(fits);
    movable.next().map(|slot| withdraw(state, slot, now))
}

/// Whether its runner and devices may still be built on.
fn is_sound(state: &State, slot: &Slot) -> bool {
    let runner = state.runners.get(slot.runner);
    let mut devices = slot.gpus.iter().filter_map(|gpu| state.devices.get(gpu.device));
    let here = runner.is_some_and(|row| row.liveness != Liveness::Lost && row.admission == Admission::Open);
    // A promise that was made before a place was kept free stands.
    here && devices.all(|device| matches!(device.closed(), None | Some(Closed::Reserved)))
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

/// Whether whoever it was promised to could start now on one of these runners.
fn fits_elsewhere(state: &State, slot: &Slot, runners: &BTreeSet<RunnerKey>) -> bool {
    let first = state.workloads_of(slot).first().copied();
    let Some(demand) = first.and_then(|workload| Demand::of_workload(state, workload)) else { return false };
    let search = Search::new(state, demand);
    runners.iter().any(|runner| search.fits_now_on(*runner))
}

fn withdraw(state: &State, slot: &Slot, now: Timestamp) -> Decision {
    let mut events = Vec::new();
    retire(state, slot, StopReason::Abandoned, now, &mut events);
    Decision::of(events)
}
