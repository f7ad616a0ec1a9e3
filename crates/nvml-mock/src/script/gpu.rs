//! One GPU of the script, its MIG instances and its processes.

use std::collections::BTreeSet;

use berth_domain::Bytes;
use serde::Deserialize;

/// A physical GPU.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Gpu {
    pub(crate) uuid: String,
    #[serde(default = "default_name")]
    pub(crate) name: String,
    index: Option<u32>,
    minor: Option<u32>,
    pci_bus_id: Option<String>,
    pub(crate) memory_total: Bytes,
    #[serde(default)]
    pub(crate) memory_reserved: Bytes,
    #[serde(default)]
    pub(crate) memory_used: Bytes,
    #[serde(default)]
    pub(crate) used_follows_processes: bool,
    #[serde(default)]
    pub(crate) attribution: Attribution,
    #[serde(default)]
    pub(crate) lost: bool,
    pub(crate) utilization: Option<u32>,
    pub(crate) memory_utilization: Option<u32>,
    pub(crate) temperature: Option<u32>,
    pub(crate) power_mw: Option<u32>,
    pub(crate) power_limit_mw: Option<u32>,
    #[serde(default)]
    pub(crate) compute_mode: ComputeMode,
    pub(crate) numa_node: Option<u32>,
    pub(crate) cpus: Option<BTreeSet<u32>>,
    pub(crate) cuda_capability: Option<(i32, i32)>,
    pub(crate) ecc: Option<Ecc>,
    pub(crate) mig: Option<Mig>,
    #[serde(default, rename = "process")]
    pub(crate) processes: Vec<Process>,
}

/// How much the driver attributes to processes on a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Attribution {
    /// Pids and the memory of each.
    #[default]
    Full,
    /// Pids only.
    Pids,
    /// Nothing.
    None,
}

/// The compute mode of a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ComputeMode {
    #[default]
    Default,
    Prohibited,
    ExclusiveProcess,
}

/// Counts of memory errors.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Ecc {
    pub(crate) enabled: bool,
    pub(crate) corrected_volatile: u64,
    pub(crate) uncorrected_volatile: u64,
    pub(crate) corrected_aggregate: u64,
    pub(crate) uncorrected_aggregate: u64,
}

/// The MIG configuration of one GPU.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Mig {
    #[serde(default = "yes")]
    pub(crate) enabled: bool,
    #[serde(default = "seven")]
    pub(crate) max_instances: u32,
    #[serde(default, rename = "instance")]
    pub(crate) instances: Vec<Instance>,
}

/// One MIG instance.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Instance {
    pub(crate) uuid: String,
    pub(crate) name: Option<String>,
    index: Option<u32>,
    pub(crate) memory_total: Bytes,
    #[serde(default)]
    pub(crate) memory_reserved: Bytes,
    #[serde(default)]
    pub(crate) memory_used: Bytes,
    #[serde(default)]
    pub(crate) used_follows_processes: bool,
    #[serde(default)]
    pub(crate) gpu_instance: u32,
    #[serde(default)]
    pub(crate) compute_instance: u32,
    #[serde(default, rename = "process")]
    pub(crate) processes: Vec<Process>,
}

/// One process on a GPU.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    /// `None` means that the driver does not know.
    pub(crate) used: Option<Bytes>,
    #[serde(default)]
    pub(crate) kind: ProcessKind,
}

/// The list that a process is on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ProcessKind {
    #[default]
    Compute,
    Graphics,
    Mps,
}

fn default_name() -> String {
    "NVIDIA Mock GPU".to_owned()
}

const fn yes() -> bool {
    true
}

const fn seven() -> u32 {
    7
}

impl Gpu {
    /// Fills in defaults that follow from the position in the file.
    pub(super) fn settle(&mut self, position: u32) {
        let index = *self.index.get_or_insert(position);
        self.minor.get_or_insert(index);
        self.pci_bus_id.get_or_insert_with(|| format!("00000000:{:02X}:00.0", index.saturating_add(1)));
        for (position, instance) in self.mig.iter_mut().flat_map(|mig| &mut mig.instances).enumerate() {
            instance.index.get_or_insert(u32::try_from(position).unwrap_or(u32::MAX));
            if instance.name.is_none() {
                let gib = instance.memory_total.get().div_ceil(1 << 30);
                instance.name = Some(format!("{} MIG {gib}gb", self.name));
            }
        }
    }

    pub(super) fn check(&self) -> Result<(), String> {
        if parse_bus_id(self.pci_bus_id()).is_none() {
            return Err(format!("{:?} is no PCI bus id; write it as 00000000:1B:00.0", self.pci_bus_id()));
        }
        let indexes: BTreeSet<u32> = self.instances().iter().map(Instance::index).collect();
        if indexes.len() != self.instances().len() {
            return Err(format!("two MIG instances of {} have the same index", self.uuid));
        }
        Ok(())
    }

    pub(crate) fn index(&self) -> u32 {
        self.index.unwrap_or_default()
    }

    pub(crate) fn minor(&self) -> u32 {
        self.minor.unwrap_or_default()
    }

    pub(crate) fn pci_bus_id(&self) -> &str {
        self.pci_bus_id.as_deref().unwrap_or_default()
    }

    /// Returns domain, bus and device of the PCI address.
    pub(crate) fn pci(&self) -> (u32, u32, u32) {
        parse_bus_id(self.pci_bus_id()).unwrap_or_default()
    }

    /// Returns the MIG instances, if MIG is on.
    pub(crate) fn instances(&self) -> &[Instance] {
        self.mig.as_ref().filter(|mig| mig.enabled).map_or(&[], |mig| &mig.instances)
    }

    /// Returns the GPU's own UUID and those of its instances.
    pub(crate) fn uuids(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.uuid.as_str()).chain(self.instances().iter().map(|instance| instance.uuid.as_str()))
    }
}

impl Instance {
    pub(crate) fn index(&self) -> u32 {
        self.index.unwrap_or_default()
    }
}

/// Parses `domain:bus:device.function`, all hexadecimal.
fn parse_bus_id(text: &str) -> Option<(u32, u32, u32)> {
    let mut parts = text.split(':');
    let (domain, bus, rest) = (parts.next()?, parts.next()?, parts.next()?);
    let (device, _function) = rest.split_once('.')?;
    let hex = |part: &str| u32::from_str_radix(part, 16).ok();
    let place = (hex(domain)?, hex(bus)?, hex(device)?);
    (parts.next().is_none() && text.len() < 32).then_some(place)
}
