//! A GPU as the driver of a simulated agent shows it.

use berth_domain::{Bytes, DeviceUuid, GpuHealth, GpuName, GpuReport};

/// A GPU as the driver shows it to one agent.
#[derive(Clone, Debug)]
pub struct SimulatedGpu {
    /// The identity of the physical GPU.
    pub uuid: DeviceUuid,
    /// The position in the driver's list, which may change.
    pub index: u16,
    /// The name of its type.
    pub name: GpuName,
    /// All of its memory.
    pub memory: Bytes,
    /// Memory that the driver keeps for itself.
    pub reserved: Bytes,
    /// How many time-sliced replicas of it are advertised.
    pub replicas: u16,
    /// The size of one further entry under the same UUID, which contradicts `memory`.
    pub contradicting_entry: Option<Bytes>,
    /// The GPU that it is a MIG instance of.
    pub parent: Option<DeviceUuid>,
    /// What the driver says of its health.
    pub health: GpuHealth,
    /// Whether the driver lists it at all.
    pub listed: bool,
}

impl SimulatedGpu {
    /// Takes over the GPU that a report describes.
    #[must_use]
    pub fn from_report(report: GpuReport) -> Self {
        Self {
            uuid: report.uuid,
            index: report.index,
            name: report.name,
            memory: report.memory_total,
            reserved: report.memory_reserved,
            replicas: 1,
            contradicting_entry: None,
            parent: report.parent,
            health: report.health,
            listed: true,
        }
    }

    /// Returns what can be used of its memory.
    #[must_use]
    pub fn usable(&self) -> Bytes {
        self.memory.saturating_sub(self.reserved)
    }

    /// Returns the entries of a report: one for each replica, all with the UUID of the physical GPU.
    pub(crate) fn entries(&self, used: Bytes) -> impl Iterator<Item = GpuReport> {
        let listed = if self.listed { usize::from(self.replicas) } else { 0 };
        let sizes = std::iter::repeat_n(self.memory, listed).chain(self.contradicting_entry.filter(|_| self.listed));
        sizes.map(move |memory_total| GpuReport {
            uuid: self.uuid.clone(),
            index: self.index,
            name: self.name.clone(),
            memory_total,
            memory_used: used,
            memory_reserved: self.reserved,
            parent: self.parent.clone(),
            health: self.health,
        })
    }
}
