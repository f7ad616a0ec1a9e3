//! Who reports: machine, boot, incarnation, sequence. What is not the newest changes nothing.

use std::sync::Arc;

use berth_domain::{Bytes, HostReport, Incarnation, Millicores, RunnerReport, Sequence, Timestamp};

use crate::command::Refusal;
use crate::decide::operator::released;
use crate::decide::retire::settle_proven;
use crate::event::{Event, RunnerTraits};
use crate::reason::{Cause, Proof};
use crate::state::{Machine, Runner, State};

/// Entries of one report, at most.
const MOST_ENTRIES: usize = 8192;
/// No device and no machine has more memory than this; sums of claims stay far from overflow.
const MOST_MEMORY: Bytes = Bytes::gib(1 << 20);
/// No machine has more cores than this.
const MOST_CPU: Millicores = Millicores::new(1 << 40);

pub(super) fn identify(state: &State, report: &RunnerReport, now: Timestamp) -> Result<Vec<Event>, Refusal> {
    check_plausible(report)?;
    let known = state.runners.find(&report.runner).map(|(_, row)| row);
    let machine = state.machines.find(&report.machine).map(|(_, row)| row);
    check_boot(machine, report)?;
    let incarnation = check_incarnation(known, report)?;
    let rebooted = machine.is_some_and(|machine| machine.boot != report.boot);
    check_machine(state, known, report, rebooted)?;

    let mut events = Vec::new();
    if let Some(machine) = machine.filter(|_| rebooted) {
        prove_rebooted(state, machine, now, &mut events);
    }
    if machine.is_none() || rebooted {
        events.push(Event::MachineBooted { machine: report.machine.clone(), boot: report.boot.clone() });
    }
    if let Some(incarnation) = incarnation {
        let (runner, machine) = (report.runner.clone(), report.machine.clone());
        events.push(Event::RunnerRegistered { runner, machine, incarnation });
    }
    describe(known, report, &mut events);
    size_host(state, machine, report, &mut events);
    Ok(events)
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
    if report.gpus.iter().any(|gpu| gpu.parent.as_ref() == Some(&gpu.uuid)) {
        return Err(Refusal::Implausible("a MIG instance of itself"));
    }
    Ok(())
}

fn check_boot(machine: Option<&Machine>, report: &RunnerReport) -> Result<(), Refusal> {
    let superseded = machine.is_some_and(|machine| machine.past_boots.contains(&report.boot));
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

/// A runner belongs to one machine. It moves only by registering anew with nothing left behind, and a boot begins
/// with a registration.
fn check_machine(state: &State, known: Option<&Runner>, report: &RunnerReport, rebooted: bool) -> Result<(), Refusal> {
    let Some(runner) = known else { return Ok(()) };
    let same = state.machines.get(runner.machine).is_some_and(|machine| machine.id == report.machine);
    let changed = Refusal::MachineChanged { runner: report.runner.clone() };
    match (same, report.incarnation) {
        (true, Some(named)) if rebooted => Err(Refusal::NotRegistered { runner: report.runner.clone(), named }),
        (true, _) => Ok(()),
        (false, None) if runner.slots.is_empty() && runner.devices.is_empty() => Ok(()),
        (false, _) => Err(changed),
    }
}

/// A new boot proves that nothing from before it runs, on any of the machine's runners.
fn prove_rebooted(state: &State, machine: &Machine, now: Timestamp, events: &mut Vec<Event>) {
    let runners = machine.runners.iter().filter_map(|key| state.runners.get(*key));
    for slot in runners.flat_map(|runner| runner.slots.iter()).filter_map(|key| state.slots.get(*key)) {
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
        version: report.version.clone(),
        address: report.address.clone(),
        host: report.host,
    };
    if known.and_then(|row| row.traits.as_deref()) != Some(&traits) {
        events.push(Event::RunnerDescribed { runner: report.runner.clone(), traits: Arc::new(traits) });
    }
}

/// A machine's host is as large as the smallest view of it.
fn size_host(state: &State, machine: Option<&Machine>, report: &RunnerReport, events: &mut Vec<Event>) {
    let mut host = report.host;
    let others =
        machine.into_iter().flat_map(|machine| machine.runners.iter()).filter_map(|key| state.runners.get(*key));
    for other in others.filter(|row| row.id != report.runner).filter_map(|row| row.traits.as_ref()) {
        host = HostReport { cpu: host.cpu.min(other.host.cpu), ram: host.ram.min(other.host.ram) };
    }
    let same = machine.is_some_and(|machine| machine.cpu.capacity() == host.cpu && machine.ram.capacity() == host.ram);
    if !same {
        events.push(Event::HostSized { machine: report.machine.clone(), cpu: host.cpu, ram: host.ram });
    }
}
