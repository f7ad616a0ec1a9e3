//! What an operator says about the inventory: the table `[inventory]` of the agent's configuration.

use std::path::PathBuf;

use berth_domain::{Bytes, DeviceUuid, GpuName, MachineId, Span};
use serde::Deserialize;

/// `[inventory]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct InventorySettings {
    /// The driver's library, where it is not found by its name.
    pub library: Option<PathBuf>,
    /// How long the driver may take to answer.
    pub deadline: Span,
    /// How long after a GPU was lost the driver is opened anew, in case it is back.
    pub reopen: Span,
    /// The machine's name, where `/etc/machine-id` is not the machine's (as in containers).
    pub machine_id: Option<MachineId>,
    /// GPUs that are not there. If any are named, the driver is not asked.
    pub simulated: Vec<SimulatedGpu>,
}

impl Default for InventorySettings {
    fn default() -> Self {
        Self {
            library: None,
            deadline: Span::from_secs(2),
            reopen: Span::from_secs(60),
            machine_id: None,
            simulated: Vec::new(),
        }
    }
}

/// A GPU that is not there.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SimulatedGpu {
    /// Its name in the whole fleet.
    pub uuid: DeviceUuid,
    /// What it pretends to be.
    pub name: GpuName,
    /// All its memory.
    pub memory: Bytes,
    /// What a driver would keep for itself.
    #[serde(default)]
    pub reserved: Bytes,
    /// What others use of it.
    #[serde(default)]
    pub used: Bytes,
}
