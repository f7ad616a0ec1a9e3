//! What was seen of GPUs: plain data.

use std::collections::BTreeSet;

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
    pub fn is_clear_of(&self, pids: &BTreeSet<u32>) -> bool {
        match self {
            Self::Listed(listed) => listed.iter().all(|process| !pids.contains(&process.pid)),
            Self::Unknown => false,
        }
    }
}

/// Nothing, if the driver does not say of one of them.
fn sum<'a>(processes: impl IntoIterator<Item = &'a ProcessSeen>) -> Option<Bytes> {
    processes.into_iter().try_fold(Bytes::ZERO, |sum, process| Some(sum.saturating_add(process.used?)))
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
    /// So much may be in use without a process that uses it: what a driver takes for itself.
    const UNEXPLAINED: Bytes = Bytes::mib(512);

    /// What these processes use of it. Nothing where the driver cannot tell, which is not the same as zero: in a
    /// container it may list nobody, or others' pids, while memory is in use.
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
    fn what_a_slot_uses_is_a_number_only_where_the_driver_can_tell() {
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
