//! The agents of random histories: simulated agents on the machines of a world.

use std::collections::BTreeMap;

use berth_core::State;
use berth_domain::{
    Bytes, DesiredAction, DeviceUuid, ExitStatus, FailureReason, ReportedState, RunnerReport, RuntimeKind, Sequence,
    SlotEnd, SlotId,
};
use berth_sim::{Pace, Record, SimulatedAgent, SimulatedGpu};

use crate::names::{self, name};
use crate::world::{Machine, Runner};

/// One agent of a world.
#[derive(Clone, Debug)]
pub struct Agent {
    /// Its number in the world.
    pub number: usize,
    /// The part of a machine that it may use.
    pub runner: Runner,
    /// The agent itself, with its slots.
    pub sim: SimulatedAgent,
    /// Whether it says that it belongs to another cluster.
    pub foreign_cluster: bool,
    /// The last report that it sent.
    pub last: Option<RunnerReport>,
}

impl Agent {
    /// Makes an agent that has not registered yet. Its slots start and stop in steps.
    #[must_use]
    pub fn new(number: usize, runner: Runner) -> Self {
        let mut runtimes = BTreeMap::from([(name("vllm"), RuntimeKind::Both)]);
        if runner.both_runtimes {
            runtimes.insert(name("llama"), runner.second_runtime);
        }
        let facts = RunnerReport {
            runner: names::runner(number),
            incarnation: None,
            cluster: None,
            obeyed: None,
            shares_machine: true,
            sequence: Sequence::default(),
            machine: names::machine(runner.machine),
            boot: name("boot-0"),
            version: name("1"),
            address: name("here"),
            pool: name(if runner.default_pool { "default" } else { "batch" }),
            labels: runner.labelled.then(|| (name("tier"), name("gold"))).into_iter().collect(),
            runtimes,
            allowed: BTreeMap::new(),
            engines: BTreeMap::new(),
            host: Default::default(),
            gpus: Vec::new(),
            slots: Vec::new(),
        };
        let mut sim = SimulatedAgent::new(facts);
        (sim.starts, sim.stops) = (Pace::InSteps, Pace::InSteps);
        Self { number, runner, sim, foreign_cluster: false, last: None }
    }

    /// Follows what the server desires, one step for each slot.
    pub fn work(&mut self, state: &State) {
        let desired = state.desired(&self.sim.facts.runner);
        for slot in &desired {
            // A driver that listed a pid for a moment lists it no more.
            if let Some(known) = self.sim.slots.get_mut(&slot.id)
                && slot.action == DesiredAction::Stop
                && known.is_on_record()
                && matches!(known.state, ReportedState::Gone { .. })
            {
                known.prove_gone();
            }
            self.sim.follow(slot);
        }
        // What is gone is repeated until the server does not mention it any more.
        self.sim.forget_undesired(&desired);
    }

    /// Refuses every start that is new.
    pub fn refuse(&mut self, state: &State) {
        for slot in state.desired(&self.sim.facts.runner) {
            if self.sim.is_new(&slot) {
                self.sim.refuse(&slot);
            }
        }
    }

    /// Puts a slot into a state. One that is over uses no memory.
    pub fn put(&mut self, slot: SlotId, state: ReportedState) {
        if let Some(slot) = self.sim.slots.get_mut(&slot) {
            if state.is_over() {
                slot.uses.clear();
            }
            slot.state = state;
        }
    }

    /// Chooses a slot that runs and is on record.
    #[must_use]
    pub fn running(&self, choice: u8) -> Option<SlotId> {
        let slots = self.sim.slots.iter().filter(|(_, slot)| !slot.state.is_over() && slot.is_on_record());
        let running: Vec<SlotId> = slots.map(|(id, _)| *id).collect();
        (!running.is_empty()).then(|| running[usize::from(choice) % running.len()])
    }

    /// Loses the record of a slot that runs on.
    pub fn lose_record(&mut self, slot: SlotId) {
        self.sim.slots.get_mut(&slot).into_iter().for_each(|slot| slot.record = Record::Lost);
    }

    /// Lets a slot use this much beyond its claims.
    pub fn overuse(&mut self, slot: SlotId, beyond: Bytes) {
        let Some(slot) = self.sim.slots.get_mut(&slot) else { return };
        let more = |claim: &berth_domain::ReportedClaim| (claim.uuid.clone(), claim.bytes.saturating_add(beyond));
        slot.uses = slot.claims.iter().map(more).collect();
    }

    /// Restarts the agent: it adopts what it has on record, and registers with its next report.
    pub fn restart(&mut self) {
        (self.sim.facts.incarnation, self.sim.facts.sequence) = (None, Sequence::default());
    }

    /// Returns its next report. `uses` tells what the slots of all agents of the machine use of a device.
    pub fn report(&mut self, machine: &Machine, uses: impl Fn(&DeviceUuid) -> Bytes) -> RunnerReport {
        let cluster = if self.foreign_cluster { names::other_cluster() } else { names::cluster() };
        self.sim.facts.cluster = self.sim.facts.incarnation.map(|_| cluster);
        self.sim.facts.boot = name(&format!("boot-{}", machine.boots));
        self.sim.facts.host = machine.host;
        self.sim.gpus = self.visible_gpus(machine);
        let foreign = |uuid: &DeviceUuid| machine.gpus.iter().find(|gpu| gpu.uuid == *uuid).map(|gpu| gpu.foreign);
        let mut report = self.sim.report(|uuid| foreign(uuid).unwrap_or_default().saturating_add(uses(uuid)));
        report.slots.iter_mut().for_each(|slot| slot.exit = exit_of(&slot.state));
        self.sim.sent_report(Default::default());
        self.last = Some(report.clone());
        report
    }

    fn visible_gpus(&self, machine: &Machine) -> Vec<SimulatedGpu> {
        let seen = |(index, _): &(usize, _)| self.runner.sees & (1 << index) != 0;
        let gpu = |(index, gpu): (usize, &crate::world::Gpu)| SimulatedGpu {
            uuid: gpu.uuid.clone(),
            index: u16::try_from(index).unwrap_or(u16::MAX),
            name: gpu.name.clone(),
            memory: gpu.total,
            reserved: Bytes::ZERO,
            replicas: self.runner.replicas,
            contradicting_entry: None,
            parent: gpu.parent.clone(),
            health: gpu.health,
            listed: gpu.listed,
        };
        machine.gpus.iter().enumerate().filter(seen).map(gpu).collect()
    }

    /// Returns a failed state: a crash, or too little memory.
    #[must_use]
    pub const fn failure(choice: u8) -> ReportedState {
        ReportedState::Failed(if choice.is_multiple_of(2) {
            FailureReason::Crashed
        } else {
            FailureReason::OutOfMemory
        })
    }
}

/// Returns how a program ended: one that failed was killed by a signal.
const fn exit_of(state: &ReportedState) -> Option<ExitStatus> {
    match state {
        ReportedState::Failed(_) | ReportedState::Gone { why: SlotEnd::Failed(_), .. } => Some(ExitStatus::Signal(9)),
        _ => None,
    }
}
