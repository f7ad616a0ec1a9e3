//! Who reports: machine, boot, incarnation, sequence. What is not the newest changes nothing.

use std::collections::BTreeSet;
use std::sync::Arc;

use berth_domain::{Bytes, DeviceUuid, HostReport, Incarnation, Millicores, RunnerReport, Sequence, SlotId, Timestamp};

use crate::command::Refusal;
use crate::decide::machines::{self, APART, Place};
use crate::decide::operator::released;
use crate::decide::retire::settle_proven;
use crate::event::{Event, RunnerTraits};
use crate::reason::{Cause, Proof};
use crate::state::{Runner, Slot, State};

/// Entries of one report, at most.
const MOST_ENTRIES: usize = 8192;
/// Runtimes of one runner, and its labels, at most: they are written to the journal whenever they change.
const MOST_TRAITS: usize = 128;
/// No device and no machine has more memory than this; sums of claims stay far from overflow.
const MOST_MEMORY: Bytes = Bytes::gib(1 << 20);
/// No machine has more cores than this.
const MOST_CPU: Millicores = Millicores::new(1 << 40);

pub(super) fn identify(state: &State, report: &RunnerReport, now: Timestamp) -> Result<Vec<Event>, Refusal> {
    check_plausible(report)?;
    check_size(state, report)?;
    let known = state.runners.find(&report.runner).map(|(_, row)| row);
    check_boot(known, report)?;
    let incarnation = check_incarnation(known, report)?;
    let rebooted = known.and_then(|row| row.boot.as_ref()).is_some_and(|boot| *boot != report.boot);
    let place = machines::place_of(state, known, report);
    check_machine(state, known, &place, report, rebooted)?;

    let mut events = Vec::new();
    if let Some(runner) = known.filter(|_| rebooted) {
        prove_rebooted(state, runner, now, &mut events);
    }
    if let Some(incarnation) = incarnation {
        let (runner, machine) = (report.runner.clone(), place.machine.clone());
        events.push(Event::RunnerRegistered { runner, machine, incarnation });
    }
    if rebooted || known.is_none_or(|row| row.boot.is_none()) {
        events.push(Event::RunnerBooted { runner: report.runner.clone(), boot: report.boot.clone() });
    }
    settle_dispute(known, &place, report, &mut events);
    describe(known, report, &mut events);
    size_host(state, &place, report, &mut events);
    Ok(events)
}

/// A dispute begins when a runner names a machine of another one, and ends when it is on the machine that it names.
fn settle_dispute(known: Option<&Runner>, place: &Place, report: &RunnerReport, events: &mut Vec<Event>) {
    let before = known.and_then(|row| row.disputes.as_ref());
    let runner = || report.runner.clone();
    if place.is_disputed && before != Some(&report.machine) {
        events.push(Event::MachineDisputed { runner: runner(), machine: report.machine.clone() });
    } else if !place.is_disputed && before.is_some() {
        events.push(Event::RunnerMoved { runner: runner(), machine: place.machine.clone() });
    }
}

fn check_plausible(report: &RunnerReport) -> Result<(), Refusal> {
    let too_large = |bytes: Bytes| bytes > MOST_MEMORY;
    let gpu = |gpu: &berth_domain::GpuReport| {
        [gpu.memory_total, gpu.memory_used, gpu.memory_reserved].into_iter().any(too_large)
    };
    let slot = |slot: &berth_domain::SlotReport| {
        let claims = slot.claims.iter().map(|claim| claim.bytes);
        let memory = slot.memory.iter().flat_map(|memory| [memory.used, memory.peak]);
        claims.chain(memory).any(too_large) || slot.claims.len() + slot.memory.len() > MOST_ENTRIES
    };
    if report.runtimes.len() > MOST_TRAITS || report.labels.len() > MOST_TRAITS {
        return Err(Refusal::Implausible("more than 128 runtimes or labels"));
    }
    if report.gpus.len() > MOST_ENTRIES || report.slots.len() > MOST_ENTRIES {
        return Err(Refusal::Implausible("too many entries"));
    }
    if report.gpus.iter().any(gpu)
        || too_large(report.host.ram)
        || report.host.cpu > MOST_CPU
        || report.slots.iter().any(slot)
    {
        return Err(Refusal::Implausible("more memory or CPU than any machine has"));
    }
    if report.machine.as_str().contains(APART) {
        return Err(Refusal::Implausible("a machine id that only the server gives out"));
    }
    if report.gpus.iter().any(|gpu| gpu.parent.as_ref() == Some(&gpu.uuid)) {
        return Err(Refusal::Implausible("a MIG instance of itself"));
    }
    Ok(())
}

/// A report costs time by its devices and slots, and everybody waits for it. A runner may have as many slots as the server
/// placed there, and a bounded number of others: those that it invents stay charged until they are proven gone.
fn check_size(state: &State, report: &RunnerReport) -> Result<(), Refusal> {
    let settings = &state.settings;
    let too_many = |what, count, limit, setting| {
        let runner = report.runner.clone();
        if count > limit { Err(Refusal::TooMany { runner, what, count, limit, setting }) } else { Ok(()) }
    };
    let devices: BTreeSet<&DeviceUuid> = report.gpus.iter().map(|gpu| &gpu.uuid).collect();
    too_many("GPUs", devices.len(), settings.devices_per_runner, "scheduler.devices_per_runner")?;
    let known = state.runners.find(&report.runner).map(|(_, row)| row.slots.as_slice()).unwrap_or_default();
    let (strays, own): (Vec<&Slot>, Vec<&Slot>) =
        known.iter().filter_map(|key| state.slots.get(*key)).partition(|slot| slot.is_stray());
    let own: BTreeSet<SlotId> = own.iter().map(|slot| slot.id).collect();
    let said = report.slots.iter().map(|slot| slot.id).filter(|slot| !own.contains(slot));
    let unknown: BTreeSet<SlotId> = said.chain(strays.iter().map(|slot| slot.id)).collect();
    let limit = settings.unknown_slots_per_runner;
    too_many("slots that the server does not know", unknown.len(), limit, "scheduler.unknown_slots_per_runner")
}

fn check_boot(known: Option<&Runner>, report: &RunnerReport) -> Result<(), Refusal> {
    let superseded = known.is_some_and(|runner| runner.past_boots.contains(&report.boot));
    if superseded { Err(Refusal::OldBoot { boot: report.boot.clone() }) } else { Ok(()) }
}

/// The incarnation to register, or `None` if it is registered and this is its next report.
fn check_incarnation(known: Option<&Runner>, report: &RunnerReport) -> Result<Option<Incarnation>, Refusal> {
    let runner = || report.runner.clone();
    let (current, sequence) =
        known.map_or((Incarnation::default(), Sequence::default()), |row| (row.incarnation, row.sequence));
    match report.incarnation {
        None => Ok(Some(current.next())),
        Some(named) if named < current => Err(Refusal::Superseded { runner: runner(), current, named }),
        Some(named) if known.is_none_or(Runner::is_forgotten) || named > current => {
            Err(Refusal::NotRegistered { runner: runner(), named })
        }
        Some(_) if report.sequence <= sequence => {
            Err(Refusal::OldReport { current: sequence.get(), named: report.sequence.get() })
        }
        Some(_) => Ok(None),
    }
}

/// A runner belongs to one machine. It moves only by registering anew with nothing left behind, or at the end of a
/// dispute, while which it takes nothing; and a boot begins with a registration.
fn check_machine(
    state: &State,
    known: Option<&Runner>,
    place: &Place,
    report: &RunnerReport,
    rebooted: bool,
) -> Result<(), Refusal> {
    let Some(runner) = known else { return Ok(()) };
    let same = state.machines.get(runner.machine).is_some_and(|machine| machine.id == place.machine);
    let changed = Refusal::MachineChanged { runner: report.runner.clone() };
    let is_settled = runner.disputes.as_ref() == Some(&report.machine) && runner.slots.is_empty();
    match (same, report.incarnation) {
        (true, Some(named)) if rebooted => Err(Refusal::NotRegistered { runner: report.runner.clone(), named }),
        (true, _) => Ok(()),
        (false, _) if is_settled => Ok(()),
        (false, None) if runner.slots.is_empty() && runner.devices.is_empty() => Ok(()),
        (false, _) => Err(changed),
    }
}

/// A new boot proves that nothing from before it runs on the runner that reports it. It proves nothing of other runners:
/// one runner's word never frees another's memory.
fn prove_rebooted(state: &State, runner: &Runner, now: Timestamp, events: &mut Vec<Event>) {
    for slot in runner.slots.iter().filter_map(|key| state.slots.get(*key)) {
        settle_proven(state, slot, Cause::Rebooted, now, events);
        match slot.state {
            berth_domain::SlotState::Promised => events.push(Event::PromiseWithdrawn { slot: slot.id }),
            _ => events.push(released(state, slot, Proof::Rebooted, None)),
        }
    }
}

fn describe(known: Option<&Runner>, report: &RunnerReport, events: &mut Vec<Event>) {
    let traits = RunnerTraits {
        pool: report.pool.clone(),
        labels: report.labels.clone(),
        runtimes: report.runtimes.clone(),
        allowed: report.allowed.clone(),
        engines: report.engines.clone(),
        version: report.version.clone(),
        address: report.address.clone(),
        host: report.host,
    };
    if known.and_then(|row| row.traits.as_deref()) != Some(&traits) {
        events.push(Event::RunnerDescribed { runner: report.runner.clone(), traits: Arc::new(traits) });
    }
}

/// A machine's host is as large as the smallest view of it.
fn size_host(state: &State, place: &Place, report: &RunnerReport, events: &mut Vec<Event>) {
    let machine = state.machines.find(&place.machine).map(|(_, row)| row);
    let mut host = report.host;
    let others =
        machine.into_iter().flat_map(|machine| machine.runners.iter()).filter_map(|key| state.runners.get(*key));
    for other in others.filter(|row| row.id != report.runner).filter_map(|row| row.traits.as_ref()) {
        host = HostReport { cpu: host.cpu.min(other.host.cpu), ram: host.ram.min(other.host.ram) };
    }
    let same = machine.is_some_and(|machine| machine.cpu.capacity() == host.cpu && machine.ram.capacity() == host.ram);
    if !same {
        events.push(Event::HostSized { machine: place.machine.clone(), cpu: host.cpu, ram: host.ram });
    }
}
