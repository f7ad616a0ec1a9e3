//! What must be true at every instant, recomputed from scratch and compared with what is kept.

use berth_domain::{Bytes, SlotState, WorkloadKind, WorkloadState};

use crate::ledger::{Ledger, Phase, Quantity};
use crate::memory::MemoryVerdict;
use crate::state::{Device, OwnerPhase, Owners, Shape, Slot, State};
use crate::table::{DeviceKey, Lookup, SlotKey, WorkloadKey};

/// Something that must be true and is not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Violation(String);

macro_rules! ensure {
    ($condition:expr, $($text:tt)*) => {
        if !$condition {
            return Err(Violation(format!($($text)*)));
        }
    };
}

/// Everything there is to check.
pub fn check(state: &State) -> Result<(), Violation> {
    check_ledgers(state)?;
    check_slots(state)?;
    check_work(state)?;
    check_models(state)?;
    check_reservations(state)?;
    check_bars(state)?;
    check_owners(state)?;
    check_index(state)
}

/// Every ledger equals the fold of its claims, and the lines hold but for what reality broke.
pub fn check_ledgers(state: &State) -> Result<(), Violation> {
    ensure!(state.counters.faults == 0, "{} events crossed a line", state.counters.faults);
    for (key, device) in state.devices.iter() {
        check_ledger(&device.ledger, device.uuid.as_str())?;
        check_exclusive(state, device)?;
        for claim in device.ledger.claims() {
            let gpu = state.slots.get(claim.slot).and_then(|slot| slot.on(key));
            ensure!(gpu.is_some_and(|gpu| gpu.bytes == claim.amount), "{}: a claim that no slot knows", device.uuid);
        }
    }
    for (_, machine) in state.machines.iter() {
        check_ledger(&machine.cpu, machine.id.as_str())?;
        check_ledger(&machine.ram, machine.id.as_str())?;
    }
    Ok(())
}

fn check_ledger<Q: Quantity>(ledger: &Ledger<Q>, name: &str) -> Result<(), Violation> {
    ensure!(ledger.equals_fold(), "{name}: the sums are not the fold of the claims");
    let claims = ledger.claims();
    for (position, claim) in claims.iter().enumerate() {
        ensure!(!claims[..position].iter().any(|other| other.slot == claim.slot), "{name}: two claims of one slot");
    }
    Ok(())
}

/// A whole device belongs to one slot. Only what nobody decided about (a stray) may be there beside it.
fn check_exclusive(state: &State, device: &Device) -> Result<(), Violation> {
    let ours = |claim: &&crate::ledger::Claim<Bytes>| {
        claim.phase == Phase::Held && state.slots.get(claim.slot).is_some_and(|slot| !slot.is_stray() && !slot.returned)
    };
    let held = device.ledger.claims().iter().filter(ours);
    let shut = held.clone().any(|claim| claim.exclusive);
    ensure!(!shut || held.count() <= 1, "{}: an exclusive slot has company", device.uuid);
    Ok(())
}

fn check_slots(state: &State) -> Result<(), Violation> {
    for (key, slot) in state.slots.iter() {
        let phase = match slot.state {
            SlotState::Promised => Phase::Promised,
            SlotState::Stopping if !slot.is_stray() => Phase::Releasing,
            _ => Phase::Held,
        };
        for gpu in &slot.gpus {
            let Some(device) = state.devices.get(gpu.device) else {
                return Err(Violation(format!("slot {}: a device that is not there", slot.id)));
            };
            let claim = device.ledger.claim_of(key);
            // An unknown slot may have been releasing when it got lost: charged either way.
            let right = claim.is_some_and(|claim| {
                claim.phase == phase || (slot.state == SlotState::Unknown && claim.phase != Phase::Promised)
            });
            ensure!(right, "slot {} is {} but its claim on {} is {claim:?}", slot.id, slot.state, device.uuid);
        }
        ensure!(has_distinct_devices(slot), "slot {}: one device twice", slot.id);
        ensure!(slot.evictable == state.is_evictable(slot), "slot {}: evictable is {}", slot.id, slot.evictable);
        let concurrency = slot.spec.as_ref().map_or(0, |spec| spec.concurrency);
        ensure!(slot.active() <= concurrency, "slot {}: {} leases of {concurrency}", slot.id, slot.active());
        ensure!(
            state.runners.get(slot.runner).is_some_and(|runner| runner.slots.contains(&key)),
            "slot {}: its runner does not know it",
            slot.id
        );
        ensure!((slot.state == SlotState::Promised) == is_noted(state, key, slot), "slot {}: promised or not", slot.id);
        check_starts(state, key, slot)?;
    }
    Ok(())
}

fn is_noted(state: &State, key: SlotKey, slot: &Slot) -> bool {
    let promised = slot.model.and_then(|model| state.promised.get(&model));
    promised.is_some_and(|promised| promised.contains(&(slot.number, key)))
}

fn has_distinct_devices(slot: &Slot) -> bool {
    let devices: Vec<DeviceKey> = slot.gpus.iter().map(|gpu| gpu.device).collect();
    devices.iter().enumerate().all(|(position, device)| !devices[..position].contains(device))
}

/// Two starts on one device would measure each other's memory.
fn check_starts(state: &State, key: SlotKey, slot: &Slot) -> Result<(), Violation> {
    if slot.state != SlotState::Starting {
        return Ok(());
    }
    for device in slot.gpus.iter().filter_map(|gpu| state.devices.get(gpu.device)) {
        let starting = |slot: &Slot| slot.state == SlotState::Starting && !slot.returned;
        let other = |claim: &crate::ledger::Claim<Bytes>| {
            claim.slot != key && state.slots.get(claim.slot).is_some_and(starting)
        };
        ensure!(slot.returned || !device.ledger.claims().iter().any(other), "{}: two slots start at once", device.uuid);
    }
    Ok(())
}

fn check_work(state: &State) -> Result<(), Violation> {
    let mut listed: Lookup<(SlotKey, WorkloadKey), usize> = Lookup::default();
    for (key, slot) in state.slots.iter() {
        slot.leases.iter().chain(&slot.job).for_each(|work| *listed.entry((key, *work)).or_default() += 1);
    }
    let mut queued = 0;
    for (key, row) in state.workloads.iter() {
        let in_queue = row.queued.is_some();
        queued += usize::from(in_queue);
        ensure!(in_queue == (row.state == WorkloadState::Queued), "workload {}: in the queue or not", row.id);
        let slot = row.slot.and_then(|slot| state.slots.get(slot));
        let placed = matches!(row.state, WorkloadState::Assigned | WorkloadState::Running);
        ensure!(placed == slot.is_some(), "workload {} is {} with slot {:?}", row.id, row.state, row.slot);
        if let Some(slot) = row.slot.filter(|_| placed) {
            let known = listed.get(&(slot, key)).copied().unwrap_or_default();
            ensure!(known == 1, "workload {}: its slot counts it {known} times", row.id);
        }
        let waiting = state
            .models
            .get(row.model)
            .is_some_and(|model| model.waiting(row.submission.kind).contains(&row.queue_key(key)));
        ensure!(waiting == row.eligible, "workload {}: waits or not", row.id);
    }
    ensure!(queued == state.queue.order.len(), "{queued} queued, {} in order", state.queue.order.len());
    for (_, slot) in state.slots.iter() {
        for lease in &slot.leases {
            let row = state.workloads.get(*lease);
            ensure!(row.is_some_and(|row| !row.is_ended()), "slot {}: a lease that has ended", slot.id);
        }
    }
    Ok(())
}

fn check_models(state: &State) -> Result<(), Violation> {
    for (_, model) in state.models.iter() {
        let slots = model.slots.iter().filter_map(|key| state.slots.get(*key));
        let live = slots.clone().filter(|slot| slot.live).count();
        ensure!(u32::try_from(live) == Ok(model.live), "model {}: {live} live, {} counted", model.name, model.live);
        if let Some(max) = model.spec.replicas.max {
            let returned = slots.clone().any(|slot| slot.returned);
            ensure!(model.live <= max || returned, "model {}: {} slots of at most {max}", model.name, model.live);
        }
        let open = slots.clone().filter(|slot| slot.open.is_some()).count();
        ensure!(open == model.open.len(), "model {}: {open} open, {} kept", model.name, model.open.len());
        let kept_back = slots.filter(|slot| slot.kept_back.is_some()).count();
        ensure!(kept_back == model.kept_back.len(), "model {}: {kept_back} kept back", model.name);
        ensure!(model.short_since.is_some() == is_short(model), "model {}: short of slots or not", model.name);
        let shape = state.shapes.get(model.shape).map(|row| row.shape.as_ref());
        let right = Shape::of(&model.spec, &model.memory);
        ensure!(shape == Some(&right), "model {}: its shape is not what it is charged", model.name);
        for (count, row) in &model.memory {
            let claim = model.bytes_on(*count).unwrap_or_default();
            let verdict = MemoryVerdict::of(&claim, &row.peaks, row.settled);
            ensure!(verdict == row.verdict, "model {}: {count} GPUs judged {:?}", model.name, row.verdict);
        }
        for kind in [WorkloadKind::Lease, WorkloadKind::Job] {
            ensure!(model.heads[kind as usize] == model.waiting(kind).first().copied(), "model {}: head", model.name);
        }
    }
    Ok(())
}

fn is_short(model: &crate::state::Model) -> bool {
    !model.deleted && model.live < model.spec.replicas.min
}

/// Every reservation is known on its devices and its machine, and no device is marked for a reservation that is gone.
fn check_reservations(state: &State) -> Result<(), Violation> {
    for (key, device) in state.devices.iter() {
        let row = device.reserved_for.and_then(|owner| state.reservation_of(owner));
        let right = row
            .map_or(device.reserved_for.is_none(), |row| row.devices.contains(&key) && row.backfill == device.backfill);
        ensure!(right, "{}: kept for somebody who has no reservation there", device.uuid);
    }
    for (_, machine) in state.machines.iter() {
        let right = machine.reserved_for.iter().all(|owner| state.reservation_of(*owner).is_some());
        ensure!(right, "{}: kept for somebody who has no reservation", machine.id);
    }
    for row in &state.queue.reservations {
        let owned = |device: &DeviceKey| {
            state.devices.get(*device).is_some_and(|device| device.reserved_for == Some(row.owner))
        };
        ensure!(row.devices.iter().all(owned), "a reservation of {:?} whose devices are another's", row.owner);
    }
    Ok(())
}

/// Each owner's counts are the fold of its workloads.
fn check_owners(state: &State) -> Result<(), Violation> {
    let mut fresh = Owners::default();
    for (_, row) in state.workloads.iter() {
        if let Some(owner) = &row.submission.owner {
            fresh.move_one(owner, None, OwnerPhase::of(row.state));
        }
    }
    ensure!(state.owners == fresh, "owners have {:?}, and their workloads say {fresh:?}", state.owners);
    Ok(())
}

/// What keeps runners from taking new work is what the history and their own words say.
fn check_bars(state: &State) -> Result<(), Violation> {
    for machine in state.machines.keys() {
        for (key, barred) in state.bars_on(machine) {
            let row = state.runners.get(key);
            ensure!(row.is_some_and(|row| row.barred == barred), "a runner is barred by {barred:?}, but {row:?}");
        }
    }
    Ok(())
}

/// The shelves answer as if they had just been made.
fn check_index(state: &State) -> Result<(), Violation> {
    let mut fresh = state.clone();
    fresh.rebuild_index();
    for class in fresh.index.classes() {
        let kept = state.index.classes().find(|kept| kept.traits == class.traits);
        ensure!(
            kept.is_some_and(|kept| kept.is_same(class, &state.index)),
            "the shelves of {:?} are out of date",
            class.traits
        );
    }
    let evictable = |key: DeviceKey| {
        let claims = state.devices.get(key).map(|device| device.ledger.claims()).unwrap_or_default();
        let idle = claims.iter().filter(|claim| state.slots.get(claim.slot).is_some_and(|slot| slot.evictable));
        idle.fold(Bytes::ZERO, |sum, claim| sum.saturating_add(claim.amount))
    };
    for (key, device) in state.devices.iter() {
        ensure!(device.evictable == evictable(key), "{}: evictable is {}", device.uuid, device.evictable);
    }
    Ok(())
}
