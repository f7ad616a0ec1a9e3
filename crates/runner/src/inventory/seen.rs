//! What was seen of GPUs: plain data.

use berth_domain::{Bytes, DeviceUuid, GpuHealth, GpuName, GpuReport, Timestamp};

/// One GPU or MIG instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuSeen {
    /// Which device.
    pub uuid: DeviceUuid,
    /// Its index; a MIG instance has that of its GPU.
    pub index: u16,
    /// What the driver calls it.
    pub name: GpuName,
    /// The GPU that it is a MIG instance of.
    pub parent: Option<DeviceUuid>,
    /// Whether these numbers are to be trusted.
    pub health: GpuHealth,
    /// Why not, in words.
    pub trouble: Option<String>,
    /// Its memory.
    pub memory: MemorySeen,
    /// Who uses it.
    pub processes: ProcessesSeen,
    /// How it is doing.
    pub telemetry: Telemetry,
    /// When these numbers were taken.
    pub taken: Timestamp,
}

/// Memory of one device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemorySeen {
    /// All of it.
    pub total: Bytes,
    /// What the driver keeps for itself. Older drivers count it as used.
    pub reserved: Bytes,
    /// What is in use, by whomever.
    pub used: Bytes,
}

/// Who uses a device. "Nobody" and "cannot be told" are different answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProcessesSeen {
    /// All that the driver lists, by pid.
    Listed(Vec<ProcessSeen>),
    /// The driver did not say.
    Unknown,
}

/// One process on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessSeen {
    /// Its pid, as the driver sees it.
    pub pid: u32,
    /// What it uses, where the driver can tell.
    pub used: Option<Bytes>,
}

impl ProcessesSeen {
    /// Whether the driver is known to list none of these pids. Not knowing is no.
    #[must_use]
    pub fn is_clear_of(&self, pids: &[u32]) -> bool {
        match self {
            Self::Listed(listed) => listed.iter().all(|process| !pids.contains(&process.pid)),
            Self::Unknown => false,
        }
    }
}

/// How a device is doing. What the driver does not say is absent; MIG instances say nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Telemetry {
    /// How busy it is.
    pub utilization_percent: Option<u32>,
    /// How hot it is.
    pub temperature_celsius: Option<u32>,
    /// What it draws.
    pub power_milliwatts: Option<u32>,
    /// Who may use it.
    pub compute_mode: Option<ComputeMode>,
    /// Memory errors since the driver was loaded.
    pub ecc: Option<EccSeen>,
    /// The last error that the driver told by itself.
    pub last_xid: Option<u64>,
    /// Its place on the bus.
    pub pci_bus_id: Option<String>,
    /// The NUMA node that it is nearest to.
    pub numa_node: Option<u32>,
}

/// Who may use a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ComputeMode {
    /// Any number of processes.
    Shared,
    /// One process at a time.
    Exclusive,
    /// Nobody.
    Prohibited,
}

/// Memory errors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EccSeen {
    /// Those that were put right.
    pub corrected: u64,
    /// Those that were not.
    pub uncorrected: u64,
}

/// What joins two GPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuLink {
    /// Which two, in order of their UUIDs.
    pub between: (DeviceUuid, DeviceUuid),
    /// How far apart they are on the bus.
    pub closeness: Closeness,
    /// How many NVLinks lead straight from one to the other.
    pub nvlinks: u16,
    /// Whether they reach each other over NVLink at all, straight or through a switch.
    pub nvlink: bool,
}

/// How far up from two GPUs one meets the other; nearer is less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Closeness {
    /// On one board.
    Board,
    /// Under one switch.
    Switch,
    /// Under several switches.
    Switches,
    /// Under one host bridge.
    HostBridge,
    /// In one NUMA node.
    Node,
    /// Somewhere in the machine.
    System,
}

/// The driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DriverSeen {
    /// There are only simulated GPUs.
    Simulated,
    /// It answers.
    Present {
        /// Its version.
        version: String,
    },
    /// It does not, and this is why, in words.
    Absent(String),
}

impl GpuSeen {
    /// What the server is told of it.
    #[must_use]
    pub fn report(&self) -> GpuReport {
        GpuReport {
            uuid: self.uuid.clone(),
            index: self.index,
            name: self.name.clone(),
            memory_total: self.memory.total,
            memory_used: self.memory.used,
            memory_reserved: self.memory.reserved,
            parent: self.parent.clone(),
            health: self.health,
        }
    }
}
