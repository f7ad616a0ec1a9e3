//! The physical side: what is in use on a GPU, whoever accounts for it, and what an agent's driver shows.

use berth_domain::{
    Bytes, DesiredSlot, DeviceUuid, Endpoint, GpuReport, MachineId, ReasonText, ReportedClaim, ReportedMemory,
    ReportedState, RunnerReport, SlotId, SlotReport,
};

use crate::agent::{Agent, AgentSlot, Gpu};
use crate::world::World;

impl World {
    /// What the slots of all agents of a machine use of one of its GPUs.
    fn slots_use(&self, machine: &MachineId, uuid: &DeviceUuid) -> Bytes {
        let there = self.agents.iter().filter(|agent| agent.machine == *machine);
        there.map(|agent| agent.uses(uuid)).fold(Bytes::ZERO, Bytes::saturating_add)
    }

    /// All that is in use of a GPU.
    fn in_use(&self, agent: &Agent, gpu: &Gpu) -> Bytes {
        gpu.foreign.saturating_add(self.slots_use(&agent.machine, &gpu.uuid))
    }

    /// The first GPU without room for a slot that is to be started: what is free there, what is needed, and whether
    /// the server could have known.
    pub(crate) fn lacking(&self, agent: &Agent, told: &DesiredSlot) -> Option<Lacking> {
        told.gpus.iter().find_map(|claim| {
            let gpu = agent.gpus.iter().find(|gpu| gpu.uuid == claim.uuid)?;
            let usable = gpu.memory.saturating_sub(gpu.reserved);
            let free = usable.saturating_sub(self.in_use(agent, gpu));
            (free < claim.memory_bytes).then(|| Lacking {
                uuid: claim.uuid.clone(),
                free,
                needed: claim.memory_bytes,
                hidden: gpu.hidden,
            })
        })
    }

    /// What an agent reports now.
    pub(crate) fn report_of(&self, agent: &Agent) -> RunnerReport {
        let nothing = || ReasonText::new("").unwrap_or_else(|error| unreachable!("{error}"));
        let slots = agent.slots.iter().filter(|(_, slot)| slot.mentioned || slot.is_sought);
        RunnerReport {
            runner: agent.id.clone(),
            incarnation: agent.incarnation,
            cluster: agent.cluster,
            sequence: agent.sequence.next(),
            machine: agent.machine.clone(),
            boot: agent.boot.clone(),
            version: nothing(),
            address: nothing(),
            pool: agent.pool.clone(),
            labels: agent.labels.clone(),
            runtimes: agent.runtimes.clone(),
            host: agent.host,
            gpus: agent.gpus.iter().filter(|gpu| gpu.listed).flat_map(|gpu| self.entries(agent, gpu)).collect(),
            slots: slots.map(|(id, slot)| slot_report(agent, *id, slot)).collect(),
        }
    }

    /// A time-sliced GPU is advertised many times over, each under a name of its own.
    fn entries(&self, agent: &Agent, gpu: &Gpu) -> Vec<GpuReport> {
        let used = self.in_use(agent, gpu);
        let entry = |number: u16, memory: Bytes| GpuReport {
            uuid: advertised(gpu, number),
            index: gpu.index,
            name: gpu.name.clone(),
            memory_total: memory,
            memory_used: used,
            memory_reserved: gpu.reserved,
            parent: gpu.parent.clone(),
            health: gpu.health,
        };
        let replicas = (0..gpu.replicas).map(|number| entry(number, gpu.memory));
        replicas.chain(gpu.also.map(|memory| entry(gpu.replicas, memory))).collect()
    }
}

fn advertised(gpu: &Gpu, number: u16) -> DeviceUuid {
    let name = format!("{}::{number}", gpu.uuid);
    if gpu.replicas == 1 { gpu.uuid.clone() } else { DeviceUuid::physical(&name).unwrap_or_else(|_| gpu.uuid.clone()) }
}

fn slot_report(agent: &Agent, id: SlotId, slot: &AgentSlot) -> SlotReport {
    let ready = slot.state == ReportedState::Ready;
    let over = slot.is_over();
    // Until it is over, the driver says of each of its devices how much it uses there.
    let memory = |(uuid, _): (&DeviceUuid, &Bytes)| {
        let used = slot.uses.get(uuid).copied().unwrap_or_default();
        ReportedMemory { uuid: uuid.clone(), used, peak: used }
    };
    let unclear = matches!(slot.state, ReportedState::Gone { .. }) && !over;
    let shown = agent.attributes && !over && !unclear && slot.mentioned;
    let why = || ReasonText::new("the agent has no record of it").unwrap_or_else(|error| unreachable!("{error}"));
    let state = if slot.mentioned { slot.state.clone() } else { ReportedState::Unknown { why: why() } };
    SlotReport {
        id,
        generation: slot.generation,
        model: slot.model.clone(),
        state,
        endpoint: ready.then(|| Endpoint::new(format!("{}:{id}", agent.id)).ok()).flatten(),
        claims: slot.claims.iter().map(|(uuid, bytes)| ReportedClaim { uuid: uuid.clone(), bytes: *bytes }).collect(),
        memory: if shown { slot.claims.iter().map(memory).collect() } else { Vec::new() },
    }
}

/// A GPU on which a slot cannot be started.
#[derive(Debug)]
pub(crate) struct Lacking {
    pub(crate) uuid: DeviceUuid,
    pub(crate) free: Bytes,
    pub(crate) needed: Bytes,
    /// Others came since the last report.
    pub(crate) hidden: bool,
}
