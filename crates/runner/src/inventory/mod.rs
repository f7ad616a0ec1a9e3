//! The inventory of the machine: GPUs, CPU, RAM, and identity.
//!
//! [`Machine::look`] returns an [`Inventory`]: all GPUs with their memory, processes and health; the host; and when
//! each number was taken. It promises:
//!
//! - **A call into the driver that hangs cannot stop the agent.** Each GPU is read by a thread of its own, with a
//!   deadline. A GPU that does not answer in time is [`Stale`](GpuHealth::Stale) with its last numbers, is not waited for
//!   again, and the others go on.
//! - **Absent is distinguished from unknown.** A GPU that was seen once is in each inventory after that: fresh, stale
//!   or [`Lost`](GpuHealth::Lost). A list of processes that could not be read is [`ProcessesSeen::Unknown`], not empty.
//! - Numbers are the driver's. This module adds, subtracts and guesses nothing.
//!
//! ```text
//! Machine ─┬─ Gpus ─┬─ Nvml ──── opener thread ─ lister thread ─ a watcher thread for each GPU
//!          │        └─ Simulated
//!          └─ host: /proc, cgroups, machine id, boot id
//! ```

mod gpus;
mod host;
mod nvml;
mod seen;
mod settings;
mod simulated;

use berth_domain::Timestamp;

pub use berth_domain::GpuHealth;
pub use gpus::{Gpus, GpusSeen};
pub use host::{HostError, HostSeen, HostSource};
pub use nvml::NvmlGpus;
pub use seen::{
    Closeness, ComputeMode, DriverStatus, EccSeen, GpuLink, GpuSeen, MemorySeen, ProcessSeen, ProcessesSeen, Telemetry,
};
pub use settings::{InventorySettings, SimulatedGpu};
pub use simulated::SimulatedGpus;

/// How much to ask the driver for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// Memory, processes and health of the GPUs that are known. Cheap enough to poll while memory is being released.
    Usage,
    /// Everything: also which GPUs there are, how they are connected, load, temperature, power.
    Full,
}

/// The inventory of a machine at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inventory {
    /// GPUs and MIG instances by index, instances after their GPU.
    pub gpus: Vec<GpuSeen>,
    /// Connections between GPUs, as far as the driver reports them.
    pub links: Vec<GpuLink>,
    /// The state of the driver.
    pub driver: DriverStatus,
    /// Problems that belong to no GPU, as text for an operator.
    pub notes: Vec<String>,
    /// CPU, RAM, machine and boot.
    pub host: HostSeen,
    /// When the look began. Each GPU has the time of its own numbers.
    pub taken: Timestamp,
}

/// A machine whose inventory can be read.
#[derive(Debug)]
pub struct Machine {
    /// The source of the GPUs.
    pub gpus: Gpus,
    /// The source of the host's facts.
    pub host: HostSource,
}

impl Machine {
    /// Returns the machine that the agent runs on. The driver is not opened yet.
    #[must_use]
    pub fn new(settings: InventorySettings) -> Self {
        let host = HostSource::new(settings.machine_id.clone());
        Self { gpus: Gpus::new(settings), host }
    }

    /// Reads the inventory. It takes no longer than the deadline of the settings, whatever the driver does.
    pub fn look(&mut self, now: Timestamp, detail: Detail) -> Result<Inventory, HostError> {
        let host = self.host.look()?;
        let GpusSeen { gpus, links, driver, notes } = self.gpus.look(now, detail);
        Ok(Inventory { gpus, links, driver, notes, host, taken: now })
    }
}
