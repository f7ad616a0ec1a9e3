//! Compares the views of the core with the reference model.

use std::collections::BTreeMap;

use berth_core::{Phase, State};
use berth_domain::{Bytes, SlotId, SlotState, WorkloadId, WorkloadState};

use crate::assertions::ensure;
use crate::reference::Reference;
use crate::system_under_test::{AssertionResult, FailedAssertion};

/// Checks that slots, ledgers, hosts, workloads and queue are those of the reference model.
pub(crate) fn compare(reference: &Reference, state: &State) -> AssertionResult {
    compare_slots(reference, state)?;
    compare_devices(reference, state)?;
    compare_hosts(reference, state)?;
    compare_workloads(reference, state)?;
    compare_queue(reference, state)
}

fn compare_slots(reference: &Reference, state: &State) -> AssertionResult {
    let mut shown: Vec<(SlotId, String, SlotState, u32)> = state
        .slots()
        .into_iter()
        .map(|slot| (slot.id, slot.runner.to_string(), slot.state, slot.generation.get()))
        .collect();
    let mut known: Vec<_> = reference
        .slots
        .iter()
        .map(|((id, _), slot)| (*id, slot.runner.to_string(), slot.state, slot.generation.get()))
        .collect();
    shown.sort();
    known.sort();
    ensure!("reference: slots", shown == known, "shown {shown:?}\nknown {known:?}");
    for slot in state.slots() {
        let users = reference.workloads.values().filter(|row| row.slot == Some(slot.id)).count();
        let placed = reference.slots.get(&(slot.id, None)).filter(|row| row.runner == slot.runner);
        let job = placed.and_then(|row| row.placed.as_ref()).is_some_and(|placed| placed.job.is_some());
        // A slot that was a job's counts as used until it is gone.
        let right = placed.is_none() || job || usize::try_from(slot.active) == Ok(users);
        ensure!("reference: users of a slot", right, "{users} of {slot:?}");
    }
    Ok(())
}

type Claims = Vec<(SlotId, Phase, Bytes)>;

fn compare_devices(reference: &Reference, state: &State) -> AssertionResult {
    let claims = |uuid| {
        let mut claims: Claims = Vec::new();
        for ((id, _), slot) in &reference.slots {
            let here = slot.claims.iter().filter(|(on, ..)| on == uuid);
            claims.extend(here.map(|(_, bytes, _)| (*id, slot.phase, *bytes)));
        }
        claims.sort();
        claims
    };
    let known: BTreeMap<_, _> = reference
        .devices
        .iter()
        .map(|(uuid, device)| (uuid.clone(), (device.capacity, device.foreign, claims(uuid))))
        .collect();
    let shown: BTreeMap<_, _> = state
        .devices()
        .into_iter()
        .map(|device| {
            let mut claims: Claims = device.claims.iter().map(|claim| (claim.slot, claim.phase, claim.bytes)).collect();
            claims.sort();
            (device.uuid, (device.balance.capacity, device.balance.foreign, claims))
        })
        .collect();
    ensure!("reference: ledgers", shown == known, "shown {shown:?}\nknown {known:?}");
    Ok(())
}

/// Sums of a machine's CPU or RAM: held, releasing, promised.
type Sums = [u64; 3];

fn compare_hosts(reference: &Reference, state: &State) -> AssertionResult {
    for host in state.hosts() {
        let (mut cpu, mut ram): (Sums, Sums) = ([0; 3], [0; 3]);
        for slot in reference.slots.values() {
            let Some(placed) = &slot.placed else { continue };
            if reference.machines.get(&slot.runner) == Some(&host.machine) {
                let phase = match slot.phase {
                    Phase::Held => 0,
                    Phase::Releasing => 1,
                    Phase::Promised => 2,
                };
                cpu[phase] += placed.cpu.get();
                ram[phase] += placed.ram.get();
            }
        }
        let (all_cpu, all_ram) = reference.hosts.get(&host.machine).copied().unwrap_or_default();
        let shown_cpu = [host.cpu.held, host.cpu.releasing, host.cpu.promised].map(|amount| amount.get());
        let shown_ram = [host.ram.held, host.ram.releasing, host.ram.promised].map(|amount| amount.get());
        let right = shown_cpu == cpu && shown_ram == ram;
        ensure!("reference: hosts", right, "shown {host:?}\nknown cpu {cpu:?} ram {ram:?}");
        let sizes = host.cpu.capacity == all_cpu && host.ram.capacity == all_ram;
        ensure!("reference: hosts", sizes, "shown {host:?}\nknown {all_cpu} {all_ram}");
    }
    Ok(())
}

fn compare_workloads(reference: &Reference, state: &State) -> AssertionResult {
    let shown: BTreeMap<WorkloadId, (WorkloadState, u32, Option<SlotId>)> =
        state.workloads().into_iter().map(|row| (row.id, (row.state, row.attempt.get(), row.slot))).collect();
    let known: BTreeMap<_, _> =
        reference.workloads.iter().map(|(id, row)| (*id, (row.state, row.attempt, row.slot))).collect();
    ensure!("reference: workloads", shown == known, "shown {shown:?}\nknown {known:?}");
    Ok(())
}

/// Checks the order of the queue: priority, then age, with positions from 1.
fn compare_queue(reference: &Reference, state: &State) -> AssertionResult {
    let mut waiting: Vec<_> =
        reference.workloads.iter().filter(|(_, row)| row.state == WorkloadState::Queued).collect();
    waiting.sort_by_key(|(_, row)| (std::cmp::Reverse(row.submission.priority), row.number));
    let known: Vec<WorkloadId> = waiting.iter().map(|(id, _)| **id).collect();
    ensure!("reference: queue", state.queue() == known, "shown {:?}\nknown {known:?}", state.queue());
    for (place, id) in known.iter().enumerate() {
        let position = state.workload(*id).and_then(|row| row.position);
        ensure!("reference: positions", position == Some(place + 1), "{id}: {position:?}, not {}", place + 1);
    }
    let stray =
        state.workloads().into_iter().find(|row| (row.state == WorkloadState::Queued) != row.position.is_some());
    ensure!("reference: positions", stray.is_none(), "{stray:?}");
    Ok(())
}
