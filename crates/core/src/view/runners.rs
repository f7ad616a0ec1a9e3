//! Runners.

use std::sync::Arc;

use berth_domain::{DeviceUuid, GpuName, Incarnation, MachineId, Revision, RunnerId, Timestamp};

use super::sorted;
use crate::event::RunnerTraits;
use crate::reason::Exclusion;
use crate::state::{Admission, Liveness, State};
use crate::table::RunnerKey;

/// A runner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunnerView {
    /// The id of the runner.
    pub id: RunnerId,
    /// The machine that it runs on.
    pub machine: MachineId,
    /// The start of its agent that is registered.
    pub incarnation: Incarnation,
    /// Whether its agent was heard of lately.
    pub liveness: Liveness,
    /// Whether operators let it take new work.
    pub admission: Admission,
    /// Whether it reported since the server started.
    pub reported: bool,
    /// Why it takes nothing new, whatever operators want of it: the history went back, or it sent a wrong code.
    pub barred: Option<Exclusion>,
    /// The machine that it names, while that belongs to another runner, and that runner.
    pub disputes: Option<(MachineId, RunnerId)>,
    /// When it was last heard of.
    pub last_seen: Timestamp,
    /// Its pool, labels, runtimes and address, once it has reported them.
    pub traits: Option<Arc<RunnerTraits>>,
    /// Its devices, by index.
    pub devices: Vec<DeviceUuid>,
    /// Devices that it reports but that belong to another machine.
    pub disputed: Vec<DeviceUuid>,
    /// GPUs that it had since its machine was booted and no longer lists, with their names.
    pub missing: Vec<(DeviceUuid, GpuName)>,
    /// The last revision at which what it should run changed.
    pub desired: Revision,
}

impl RunnerView {
    /// Whether it takes new work, or will as soon as it has reported to a server that was just started.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.liveness == Liveness::Ready && self.barred.is_none() && self.admission == Admission::Open
    }
}

impl State {
    /// Lists all runners, ordered by id.
    #[must_use]
    pub fn runners(&self) -> Vec<RunnerView> {
        sorted(self.runners.iter().filter_map(|(key, _)| self.runner_view(key)).collect(), |view| view.id.clone())
    }

    /// Finds a runner by its id.
    #[must_use]
    pub fn runner(&self, id: &RunnerId) -> Option<RunnerView> {
        self.runners.key(id).and_then(|key| self.runner_view(key))
    }

    /// Finds the runner that registered a machine first.
    fn owner_of(&self, machine: &MachineId) -> Option<RunnerId> {
        let (_, row) = self.machines.find(machine)?;
        row.runners.first().and_then(|key| self.runners.get(*key)).map(|row| row.id.clone())
    }

    pub(crate) fn runner_view(&self, key: RunnerKey) -> Option<RunnerView> {
        let row = self.runners.get(key)?;
        Some(RunnerView {
            id: row.id.clone(),
            machine: self.machines.get(row.machine)?.id.clone(),
            incarnation: row.incarnation,
            liveness: row.liveness,
            admission: row.admission,
            reported: row.reported,
            barred: row.barred,
            disputes: row.disputes.as_ref().and_then(|machine| Some((machine.clone(), self.owner_of(machine)?))),
            last_seen: row.last_seen,
            traits: row.traits.clone(),
            devices: row
                .devices
                .iter()
                .filter_map(|key| self.devices.get(*key))
                .map(|device| device.uuid.clone())
                .collect(),
            disputed: row.disputed.clone(),
            missing: row.missing.iter().map(|gpu| (gpu.uuid.clone(), gpu.name.clone())).collect(),
            desired: row.desired,
        })
    }
}
