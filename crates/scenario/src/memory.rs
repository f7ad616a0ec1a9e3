//! The physical side: what is in use on a GPU, whoever accounts for it, and what an agent's driver shows.

use std::collections::BTreeMap;

use berth_domain::{Bytes, DesiredSlot, DeviceUuid, MachineId, RunnerReport};

use crate::agent::Agent;
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
        let machine = &agent.sim.facts.machine;
        for gpu in agent.sim.gpus.iter().filter(|gpu| gpu.listed) {
            if let Some(foreign) = self.0.get_mut(&(machine.clone(), gpu.uuid.clone())) {
                foreign.is_hidden = false;
            }
        }
    }
}

impl World {
    /// The agents of a machine.
    fn agents_of(&self, machine: &MachineId) -> Vec<&Agent> {
        self.agents.iter().filter(|agent| agent.sim.facts.machine == *machine).collect()
    }

    /// All that is in use of a GPU, by others and by the slots of all agents of its machine.
    fn in_use(&self, machine: &MachineId, agents: &[&Agent], uuid: &DeviceUuid) -> Bytes {
        let foreign = self.foreign.get(machine, uuid).bytes;
        agents.iter().map(|agent| agent.sim.uses(uuid)).fold(foreign, Bytes::saturating_add)
    }

    /// The first GPU without room for a slot that is to be started: what is free there, what is needed, and whether
    /// the server could have known.
    pub(crate) fn lacking(&self, agent: &Agent, told: &DesiredSlot) -> Option<Lacking> {
        let machine = &agent.sim.facts.machine;
        let there = self.agents_of(machine);
        told.gpus.iter().find_map(|claim| {
            let gpu = agent.sim.gpus.iter().find(|gpu| gpu.uuid == claim.uuid)?;
            let free = gpu.usable().saturating_sub(self.in_use(machine, &there, &gpu.uuid));
            (free < claim.memory_bytes).then(|| Lacking {
                uuid: claim.uuid.clone(),
                free,
                needed: claim.memory_bytes,
                hidden: self.foreign.get(machine, &gpu.uuid).is_hidden,
            })
        })
    }

    /// What an agent reports now.
    pub(crate) fn report_of(&self, agent: &Agent) -> RunnerReport {
        let machine = &agent.sim.facts.machine;
        let there = self.agents_of(machine);
        agent.sim.report(|uuid| self.in_use(machine, &there, uuid))
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
