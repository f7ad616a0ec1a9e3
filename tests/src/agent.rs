//! A simulated agent of the random histories: it follows its desired state, fails in many ways, and reports.

use std::collections::BTreeMap;

use berth_core::State;
use berth_domain::{
    Bytes, DesiredAction, DesiredSlot, Evidence, ExitStatus, FailureReason, Generation, GpuReport, Incarnation,
    ReportedClaim, ReportedMemory, ReportedState, RunnerReport, RuntimeKind, Sequence, SlotEnd, SlotId, SlotReport,
};

use crate::names::{self, name};
use crate::world::{Machine, Runner};

/// One process (or what is left of it) as the agent knows it.
#[derive(Clone, Debug)]
pub struct Process {
    /// Which start of the slot.
    pub generation: Generation,
    /// Where it is.
    pub state: ReportedState,
    /// What it was given.
    pub claims: Vec<ReportedClaim>,
    /// What it uses beyond that.
    pub beyond: Bytes,
    /// The agent has lost its record; the process runs on.
    pub lost: bool,
    /// The server asks about it, and the agent, which lost its record, cannot tell.
    pub sought: bool,
}

impl Process {
    /// Whether it has memory: everything does but what is gone or was never started.
    #[must_use]
    pub fn has_memory(&self) -> bool {
        !self.state.is_over()
    }

    fn used(&self, claim: &ReportedClaim) -> Bytes {
        let part = match self.state {
            _ if !self.has_memory() => Bytes::ZERO,
            ReportedState::Starting => Bytes::new(claim.bytes.get() / 2),
            _ => claim.bytes.saturating_add(self.beyond),
        };
        if self.beyond.is_zero() { part.min(claim.bytes) } else { part }
    }
}

/// One agent.
#[derive(Clone, Debug)]
pub struct Agent {
    /// Its place in the world.
    pub number: usize,
    /// What it may use.
    pub runner: Runner,
    /// As numbered by the server.
    pub incarnation: Option<Incarnation>,
    /// The last report's number.
    pub sequence: u64,
    /// Its processes.
    pub processes: BTreeMap<SlotId, Process>,
    /// The driver does not tell whose memory it is.
    pub blind: bool,
    /// It belongs to another cluster.
    pub foreign_cluster: bool,
    /// The last report that it sent.
    pub last: Option<RunnerReport>,
}

impl Agent {
    /// An agent that has not registered yet.
    #[must_use]
    pub fn new(number: usize, runner: Runner) -> Self {
        Self {
            number,
            runner,
            incarnation: None,
            sequence: 0,
            processes: BTreeMap::new(),
            blind: false,
            foreign_cluster: false,
            last: None,
        }
    }

    /// Does what is desired, one step for each slot.
    pub fn work(&mut self, state: &State) {
        let desired = state.desired(&names::runner(self.number));
        for slot in &desired {
            self.follow(slot);
        }
        // What is gone is repeated until nobody request for it any more.
        self.processes
            .retain(|id, process| process.lost || process.has_memory() || desired.iter().any(|slot| slot.id == *id));
    }

    fn follow(&mut self, slot: &DesiredSlot) {
        let known = self.processes.get_mut(&slot.id).filter(|process| process.generation == slot.generation);
        let next = match (&slot.action, known) {
            (DesiredAction::Account, Some(process)) => {
                process.sought = process.lost;
                return;
            }
            (_, Some(process)) if process.lost => return,
            (DesiredAction::Run(_), None) => ReportedState::Starting,
            // It never heard of it, so it runs nowhere.
            (DesiredAction::Stop, None) => ReportedState::STOPPED,
            (DesiredAction::Account, None) => {
                ReportedState::Gone { why: SlotEnd::NoTrace, evidence: Evidence::COMPLETE }
            }
            (DesiredAction::Run(_), Some(process)) => match process.state {
                ReportedState::Starting => ReportedState::Ready,
                _ => return,
            },
            (DesiredAction::Stop, Some(process)) => match process.state {
                ReportedState::Failed(why) => {
                    ReportedState::Gone { why: SlotEnd::Failed(why), evidence: Evidence::COMPLETE }
                }
                ReportedState::Exited { code } => {
                    ReportedState::Gone { why: SlotEnd::Exited(code), evidence: Evidence::COMPLETE }
                }
                ReportedState::Gone { why, .. } => ReportedState::Gone { why, evidence: Evidence::COMPLETE },
                ReportedState::Stopping => ReportedState::STOPPED,
                ReportedState::Refused => return,
                _ => ReportedState::Stopping,
            },
        };
        let claims = slot.gpus.iter().map(|gpu| ReportedClaim { uuid: gpu.uuid.clone(), bytes: gpu.memory_bytes });
        let fresh = || Process {
            generation: slot.generation,
            state: next.clone(),
            claims: claims.collect(),
            beyond: Bytes::ZERO,
            lost: false,
            sought: false,
        };
        match self.processes.get_mut(&slot.id).filter(|process| process.generation == slot.generation) {
            Some(process) => process.state = next.clone(),
            None => {
                self.processes.insert(slot.id, fresh());
            }
        }
    }

    /// Refuses everything that it should start and has not.
    pub fn refuse(&mut self, state: &State) {
        for slot in state.desired(&names::runner(self.number)) {
            let new = self.processes.get(&slot.id).is_none_or(|known| known.generation != slot.generation);
            if slot.should_run() && new {
                self.follow(&slot);
                self.put(slot.id, ReportedState::Refused);
            }
        }
    }

    /// Puts a process into a state.
    pub fn put(&mut self, slot: SlotId, state: ReportedState) {
        if let Some(process) = self.processes.get_mut(&slot) {
            process.state = state;
        }
    }

    /// A process that runs, chosen by a number.
    #[must_use]
    pub fn running(&self, choice: u8) -> Option<SlotId> {
        let running: Vec<SlotId> = self
            .processes
            .iter()
            .filter(|(_, process)| process.has_memory() && !process.lost)
            .map(|(id, _)| *id)
            .collect();
        (!running.is_empty()).then(|| running[usize::from(choice) % running.len()])
    }

    /// What its processes use of a device.
    #[must_use]
    pub fn uses(&self, uuid: &berth_domain::DeviceUuid) -> Bytes {
        let claims =
            self.processes.values().flat_map(|process| process.claims.iter().map(move |claim| (process, claim)));
        let here = claims.filter(|(_, claim)| claim.uuid == *uuid);
        here.fold(Bytes::ZERO, |sum, (process, claim)| sum.saturating_add(process.used(claim)))
    }

    /// Its next report. `uses` tells what the slots of all agents of the machine use of a device.
    pub fn report(&mut self, machine: &Machine, uses: impl Fn(&berth_domain::DeviceUuid) -> Bytes) -> RunnerReport {
        self.sequence += 1;
        let cluster = if self.foreign_cluster { names::other_cluster() } else { names::cluster() };
        let mut runtimes = BTreeMap::from([(name("vllm"), RuntimeKind::Both)]);
        if self.runner.both_runtimes {
            runtimes.insert(name("llama"), self.runner.second_runtime);
        }
        let report = RunnerReport {
            runner: names::runner(self.number),
            incarnation: self.incarnation,
            cluster: self.incarnation.map(|_| cluster),
            obeyed: None,
            shares_machine: true,
            sequence: Sequence::new(self.sequence),
            machine: names::machine(self.runner.machine),
            boot: name(&format!("boot-{}", machine.boots)),
            version: name("1"),
            address: name("here"),
            pool: name(if self.runner.default_pool { "default" } else { "batch" }),
            labels: self.runner.labelled.then(|| (name("tier"), name("gold"))).into_iter().collect(),
            runtimes,
            allowed: BTreeMap::new(),
            engines: BTreeMap::new(),
            host: machine.host,
            gpus: self.gpus(machine, uses),
            slots: self
                .processes
                .iter()
                .filter(|(_, process)| !process.lost || process.sought)
                .map(|(id, p)| self.slot(*id, p))
                .collect(),
        };
        self.last = Some(report.clone());
        report
    }

    fn gpus(&self, machine: &Machine, uses: impl Fn(&berth_domain::DeviceUuid) -> Bytes) -> Vec<GpuReport> {
        let mut gpus = Vec::new();
        for (index, gpu) in machine.gpus.iter().enumerate() {
            let seen = self.runner.sees & (1 << index) != 0 && gpu.listed;
            for _ in 0..if seen { self.runner.replicas } else { 0 } {
                gpus.push(GpuReport {
                    uuid: gpu.uuid.clone(),
                    index: u16::try_from(index).unwrap_or(u16::MAX),
                    name: gpu.name.clone(),
                    memory_total: gpu.total,
                    memory_used: gpu.foreign.saturating_add(uses(&gpu.uuid)),
                    memory_reserved: Bytes::ZERO,
                    parent: gpu.parent.clone(),
                    health: gpu.health,
                });
            }
        }
        gpus
    }

    fn slot(&self, id: SlotId, process: &Process) -> SlotReport {
        let memory = |claim: &ReportedClaim| ReportedMemory {
            uuid: claim.uuid.clone(),
            used: process.used(claim),
            peak: process.used(claim),
        };
        let told = !self.blind && process.has_memory() && !process.lost;
        let state = match process.lost {
            true => ReportedState::Unknown { why: name("its record was lost") },
            false => process.state.clone(),
        };
        SlotReport {
            id,
            generation: process.generation,
            model: None,
            exit: exit_of(&state),
            state,
            endpoint: (process.state == ReportedState::Ready).then(|| name("http://here")),
            claims: process.claims.clone(),
            memory: if told { process.claims.iter().map(memory).collect() } else { Vec::new() },
        }
    }

    /// A failure: the usual, or too little memory.
    #[must_use]
    pub const fn failure(choice: u8) -> ReportedState {
        ReportedState::Failed(if choice.is_multiple_of(2) {
            FailureReason::Crashed
        } else {
            FailureReason::OutOfMemory
        })
    }
}

/// Programs that fail are killed by a signal here; jobs exit with their code.
const fn exit_of(state: &ReportedState) -> Option<ExitStatus> {
    match state {
        ReportedState::Failed(_) | ReportedState::Gone { why: SlotEnd::Failed(_), .. } => Some(ExitStatus::Signal(9)),
        _ => None,
    }
}
