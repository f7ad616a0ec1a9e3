//! The table `[inventory]` of the agent's configuration.

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
    /// How long after a GPU was lost the driver is opened again, in case the GPU is back.
    pub reopen: Span,
    /// The machine's id, where `/etc/machine-id` is not the machine's (as in containers).
    pub machine_id: Option<MachineId>,
    /// Simulated GPUs. If any are listed, the driver is not used.
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

/// A simulated GPU.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SimulatedGpu {
    /// The UUID, which must be unique in the fleet.
    pub uuid: DeviceUuid,
    /// The product name that it reports.
    pub name: GpuName,
    /// The total memory.
    pub memory: Bytes,
    /// The memory that a driver would reserve.
    #[serde(default)]
    pub reserved: Bytes,
    /// The memory that other processes use.
    #[serde(default)]
    pub used: Bytes,
}
