//! The physical side: what is in use on a GPU, whoever accounts for it, and what an agent's driver shows.

use std::collections::BTreeMap;

use berth_domain::{
    Bytes, DesiredSlot, DeviceUuid, Endpoint, GpuReport, MachineId, ReasonText, ReportedClaim, ReportedMemory,
    ReportedState, RunnerReport, SlotId, SlotReport,
};

use crate::agent::{Agent, AgentSlot, Gpu};
use crate::world::World;

/// What others (not our slots) use of the GPUs of each machine: one amount, however many agents see the GPU.
#[derive(Debug, Default)]
pub(crate) struct Foreign(BTreeMap<(MachineId, DeviceUuid), ForeignUse>);

#[derive(Debug, Clone, Copy, Default)]
struct ForeignUse {
    bytes: Bytes,
    /// Others came since the last report of any agent, and the server cannot know.
    is_hidden: bool,
}

impl FromIterator<((MachineId, DeviceUuid), Bytes)> for Foreign {
    fn from_iter<T: IntoIterator<Item = ((MachineId, DeviceUuid), Bytes)>>(amounts: T) -> Self {
        Self(amounts.into_iter().map(|(gpu, bytes)| (gpu, ForeignUse { bytes, is_hidden: false })).collect())
    }
}

impl Foreign {
    fn get(&self, machine: &MachineId, uuid: &DeviceUuid) -> ForeignUse {
        self.0.get(&(machine.clone(), uuid.clone())).copied().unwrap_or_default()
    }

    fn entry(&mut self, machine: &MachineId, uuid: &DeviceUuid) -> &mut ForeignUse {
        self.0.entry((machine.clone(), uuid.clone())).or_default()
    }

    /// Others use so much from now on, and the next report shows it.
    pub(crate) fn set(&mut self, machine: &MachineId, uuid: &DeviceUuid, bytes: Bytes) {
        self.entry(machine, uuid).bytes = bytes;
    }

    /// Others use so much from now on, and the server cannot know before somebody reports.
    pub(crate) fn hide(&mut self, machine: &MachineId, uuid: &DeviceUuid, bytes: Bytes) {
        *self.entry(machine, uuid) = ForeignUse { bytes, is_hidden: true };
    }

    /// Something stays in use that belongs to nobody any more.
    pub(crate) fn add(&mut self, machine: &MachineId, uuid: &DeviceUuid, bytes: Bytes) {
        let foreign = self.entry(machine, uuid);
        foreign.bytes = foreign.bytes.saturating_add(bytes);
    }

    /// An agent reported what it sees: nothing is hidden on its GPUs any more.
    pub(crate) fn show(&mut self, agent: &Agent) {
        for gpu in agent.gpus.iter().filter(|gpu| gpu.listed) {
            if let Some(foreign) = self.0.get_mut(&(agent.machine.clone(), gpu.uuid.clone())) {
                foreign.is_hidden = false;
            }
        }
    }
}

impl World {
    /// The agents of a machine.
    fn agents_of(&self, machine: &MachineId) -> Vec<&Agent> {
        self.agents.iter().filter(|agent| agent.machine == *machine).collect()
    }

    /// All that is in use of a GPU, by others and by the slots of all agents of its machine.
    fn in_use(&self, machine: &MachineId, agents: &[&Agent], gpu: &Gpu) -> Bytes {
        let foreign = self.foreign.get(machine, &gpu.uuid).bytes;
        agents.iter().map(|agent| agent.uses(&gpu.uuid)).fold(foreign, Bytes::saturating_add)
    }

    /// The first GPU without room for a slot that is to be started: what is free there, what is needed, and whether
    /// the server could have known.
    pub(crate) fn lacking(&self, agent: &Agent, told: &DesiredSlot) -> Option<Lacking> {
        let there = self.agents_of(&agent.machine);
        told.gpus.iter().find_map(|claim| {
            let gpu = agent.gpus.iter().find(|gpu| gpu.uuid == claim.uuid)?;
            let usable = gpu.memory.saturating_sub(gpu.reserved);
            let free = usable.saturating_sub(self.in_use(&agent.machine, &there, gpu));
            (free < claim.memory_bytes).then(|| Lacking {
                uuid: claim.uuid.clone(),
                free,
                needed: claim.memory_bytes,
                hidden: self.foreign.get(&agent.machine, &gpu.uuid).is_hidden,
            })
        })
    }

    /// What an agent reports now.
    pub(crate) fn report_of(&self, agent: &Agent) -> RunnerReport {
        let nothing = || ReasonText::new("").unwrap_or_else(|error| unreachable!("{error}"));
        let slots = agent.slots.iter().filter(|(_, slot)| slot.mentioned || slot.is_sought);
        let there = self.agents_of(&agent.machine);
        let listed = agent.gpus.iter().filter(|gpu| gpu.listed);
        RunnerReport {
            runner: agent.id.clone(),
            incarnation: agent.incarnation,
            cluster: agent.cluster,
            obeyed: None,
            shares_machine: true,
            sequence: agent.sequence.next(),
            machine: agent.machine.clone(),
            boot: agent.boot.clone(),
            version: nothing(),
            address: nothing(),
            pool: agent.pool.clone(),
            labels: agent.labels.clone(),
            allowed: BTreeMap::new(),
            engines: BTreeMap::new(),
            runtimes: agent.runtimes.clone(),
            host: agent.host,
            gpus: listed.flat_map(|gpu| entries(gpu, self.in_use(&agent.machine, &there, gpu))).collect(),
            slots: slots.map(|(id, slot)| slot_report(agent, *id, slot)).collect(),
        }
    }
}

/// What the driver shows of a GPU. A time-sliced one is advertised many times over, each under a name of its own.
fn entries(gpu: &Gpu, used: Bytes) -> Vec<GpuReport> {
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
        exit: None,
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
