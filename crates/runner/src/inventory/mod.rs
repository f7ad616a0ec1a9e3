//! What the machine has.
//!
//! [`Machine::look`] gives an [`Inventory`]: all GPUs with their memory, who uses it, and how they are; what the host
//! has; and when each number was taken. It promises:
//!
//! - **A call into the driver that hangs cannot stop the agent.** Every GPU is looked at by a thread of its own, with a
//!   deadline. One that does not answer in time is [`Stale`](GpuHealth::Stale) with its last numbers, is not waited for
//!   again, and the others go on.
//! - **Absent is told from unknown.** A GPU that was seen once is in every inventory after that: fresh, stale or
//!   [`Lost`](GpuHealth::Lost). A list of processes that could not be read is [`ProcessesSeen::Unknown`], not empty.
//! - Numbers are the driver's. Nothing is added, subtracted or guessed here.
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
    Closeness, ComputeMode, DriverSeen, EccSeen, GpuLink, GpuSeen, MemorySeen, ProcessSeen, ProcessesSeen, Telemetry,
};
pub use settings::{InventorySettings, SimulatedGpu};
pub use simulated::SimulatedGpus;

/// How much to ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// Memory, processes and health of the GPUs that are known. Cheap enough to wait for memory with.
    Usage,
    /// Everything: which GPUs there are, how they are joined, load, heat, power.
    Full,
}

/// What a machine has, at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inventory {
    /// Its GPUs and MIG instances, by index, instances after their GPU.
    pub gpus: Vec<GpuSeen>,
    /// How its GPUs are joined, as far as the driver says.
    pub links: Vec<GpuLink>,
    /// The driver.
    pub driver: DriverSeen,
    /// What an operator should know and no GPU can carry.
    pub notes: Vec<String>,
    /// CPU, RAM, machine and boot.
    pub host: HostSeen,
    /// When somebody looked. Each GPU says by itself how old its numbers are.
    pub taken: Timestamp,
}

/// A machine that can be looked at.
#[derive(Debug)]
pub struct Machine {
    /// Where its GPUs come from.
    pub gpus: Gpus,
    /// Where its other facts come from.
    pub host: HostSource,
}

impl Machine {
    /// The machine that the agent runs on. Nothing is opened yet.
    #[must_use]
    pub fn new(settings: InventorySettings) -> Self {
        let host = HostSource::new(settings.machine_id.clone());
        Self { gpus: Gpus::new(settings), host }
    }

    /// Looks. It takes no longer than the deadline of the settings, whatever the driver does.
    pub fn look(&mut self, now: Timestamp, detail: Detail) -> Result<Inventory, HostError> {
        let host = self.host.look()?;
        let GpusSeen { gpus, links, driver, notes } = self.gpus.look(now, detail);
        Ok(Inventory { gpus, links, driver, notes, host, taken: now })
    }
}
