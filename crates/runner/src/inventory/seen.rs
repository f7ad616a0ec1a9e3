//! What was read of GPUs: plain data.

use std::collections::BTreeSet;

use berth_domain::{Bytes, DeviceUuid, GpuHealth, GpuName, GpuReport, Timestamp};

/// One GPU or MIG instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuSeen {
    /// The device.
    pub uuid: DeviceUuid,
    /// The driver's index; a MIG instance has that of its GPU.
    pub index: u16,
    /// The product name.
    pub name: GpuName,
    /// The GPU that a MIG instance is part of.
    pub parent: Option<DeviceUuid>,
    /// Whether these numbers can be trusted.
    pub health: GpuHealth,
    /// Why they cannot be trusted, as text.
    pub trouble: Option<String>,
    /// The device's memory.
    pub memory: MemorySeen,
    /// The processes that use it.
    pub processes: ProcessesSeen,
    /// Load, temperature and the like.
    pub telemetry: Telemetry,
    /// When these numbers were taken.
    pub taken: Timestamp,
}

/// Memory of one device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemorySeen {
    /// The total, including what is reserved.
    pub total: Bytes,
    /// What the driver keeps for itself. Older drivers count it as used.
    pub reserved: Bytes,
    /// What is in use, by any process.
    pub used: Bytes,
}

/// The processes on a device. "None" and "unknown" are different answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProcessesSeen {
    /// All processes that the driver lists, by pid.
    Listed(Vec<ProcessSeen>),
    /// The driver did not answer.
    Unknown,
}

/// One process on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessSeen {
    /// The pid, as the driver sees it.
    pub pid: u32,
    /// The memory that the process uses, where the driver knows it.
    pub used: Option<Bytes>,
}

impl ProcessesSeen {
    /// Returns whether the driver is known to list none of these pids. Unknown counts as no.
    #[must_use]
    pub fn is_clear_of(&self, pids: &BTreeSet<u32>) -> bool {
        match self {
            Self::Listed(listed) => listed.iter().all(|process| !pids.contains(&process.pid)),
            Self::Unknown => false,
        }
    }
}

/// Returns the sum, or `None` if the driver does not know one of the amounts.
fn sum<'a>(processes: impl IntoIterator<Item = &'a ProcessSeen>) -> Option<Bytes> {
    processes.into_iter().try_fold(Bytes::ZERO, |sum, process| Some(sum.saturating_add(process.used?)))
}

/// The condition of a device. What the driver does not report is `None`; MIG instances report nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Telemetry {
    /// The load in per cent.
    pub utilization_percent: Option<u32>,
    /// The temperature.
    pub temperature_celsius: Option<u32>,
    /// The power draw.
    pub power_milliwatts: Option<u32>,
    /// How many processes may use the device.
    pub compute_mode: Option<ComputeMode>,
    /// Memory errors since the driver was loaded.
    pub ecc: Option<EccSeen>,
    /// The last error (Xid) that the driver reported.
    pub last_xid: Option<u64>,
    /// The PCI address.
    pub pci_bus_id: Option<String>,
    /// The nearest NUMA node.
    pub numa_node: Option<u32>,
}

/// How many processes may use a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ComputeMode {
    /// Any number of processes.
    Shared,
    /// One process at a time.
    Exclusive,
    /// No process.
    Prohibited,
}

/// Counts of memory errors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EccSeen {
    /// Errors that were corrected.
    pub corrected: u64,
    /// Errors that were not.
    pub uncorrected: u64,
}

/// The connection between two GPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuLink {
    /// The two GPUs, in order of their UUIDs.
    pub between: (DeviceUuid, DeviceUuid),
    /// Their distance on the bus.
    pub closeness: Closeness,
    /// The number of NVLinks that connect them directly.
    pub nvlinks: u16,
    /// Whether they are connected by NVLink at all, directly or through a switch.
    pub nvlink: bool,
}

/// The nearest common ancestor of two GPUs; nearer is less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Closeness {
    /// They are on one board.
    Board,
    /// They share one PCIe switch.
    Switch,
    /// They are connected through several PCIe switches.
    Switches,
    /// They share one host bridge.
    HostBridge,
    /// They share one NUMA node.
    Node,
    /// They are on different NUMA nodes.
    System,
}

/// The state of the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DriverStatus {
    /// All GPUs are simulated.
    Simulated,
    /// The driver answers.
    Present {
        /// The driver's version.
        version: String,
    },
    /// The driver does not answer, with the reason.
    Absent(String),
}

impl GpuSeen {
    /// Memory that may be in use without a process: what a driver takes for itself.
    const UNEXPLAINED: Bytes = Bytes::mib(512);

    /// Returns what these processes use of the device, or `None` where the driver does not know, which is not the same
    /// as zero: in a container it may list no process, or pids of other namespaces, while memory is in use.
    #[must_use]
    pub fn used_by(&self, pids: &BTreeSet<u32>, is_here: impl Fn(u32) -> bool) -> Option<Bytes> {
        let ProcessesSeen::Listed(listed) = &self.processes else { return None };
        let ours: Vec<&ProcessSeen> = listed.iter().filter(|process| pids.contains(&process.pid)).collect();
        if !ours.is_empty() {
            return sum(ours);
        }
        let explained = sum(listed)?;
        let all_here = listed.iter().all(|process| is_here(process.pid));
        (all_here && self.memory.used.saturating_sub(explained) <= Self::UNEXPLAINED).then_some(Bytes::ZERO)
    }

    /// Returns the part that is reported to the server.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(used_gib: u64, processes: ProcessesSeen) -> GpuSeen {
        GpuSeen {
            uuid: DeviceUuid::new("GPU-a").unwrap(),
            index: 0,
            name: GpuName::new("A100").unwrap(),
            parent: None,
            health: GpuHealth::Ok,
            trouble: None,
            memory: MemorySeen { total: Bytes::gib(80), reserved: Bytes::ZERO, used: Bytes::gib(used_gib) },
            processes,
            telemetry: Telemetry::default(),
            taken: Timestamp::default(),
        }
    }

    fn listed(rows: &[(u32, Option<u64>)]) -> ProcessesSeen {
        let row = |&(pid, gib): &(u32, Option<u64>)| ProcessSeen { pid, used: gib.map(Bytes::gib) };
        ProcessesSeen::Listed(rows.iter().map(row).collect())
    }

    #[test]
    fn memory_use_is_unknown_where_the_driver_does_not_attribute_it() {
        let ours = BTreeSet::from([7, 8]);
        let used = |gib, processes| gpu(gib, processes).used_by(&ours, |pid| (1..100).contains(&pid));
        assert_eq!(used(30, listed(&[(7, Some(10)), (8, Some(5)), (9, Some(15))])), Some(Bytes::gib(15)));
        assert_eq!(used(30, listed(&[(9, Some(30))])), Some(Bytes::ZERO), "all of it is somebody else's");
        assert_eq!(used(0, listed(&[])), Some(Bytes::ZERO));
        assert_eq!(used(30, listed(&[])), None, "a container: memory in use, and nobody uses it");
        assert_eq!(used(30, listed(&[(4711, Some(30))])), None, "a pid of another namespace may be ours");
        assert_eq!(used(30, listed(&[(0, Some(30))])), None, "pid 0 stands for whomever the driver will not name");
        assert_eq!(used(30, listed(&[(7, None)])), None, "listed, but not how much");
        assert_eq!(used(30, ProcessesSeen::Unknown), None);
    }
}
