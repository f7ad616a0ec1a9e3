//! Listing the GPUs, and how they are connected.

use berth_domain::DeviceUuid;
use nvml_wrapper::enum_wrappers::device::{P2pCapabilitiesIndex, P2pStatus, TopologyLevel};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};

use crate::inventory::seen::{Closeness, GpuLink};

use super::worker::{Step, WorkerInbox};

/// The most NVLinks of any GPU.
const MOST_NVLINKS: u32 = 18;

/// The GPUs that the driver lists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Listing {
    pub(super) version: String,
    pub(super) uuids: Vec<DeviceUuid>,
    pub(super) links: Vec<GpuLink>,
    /// GPUs that are counted but whose UUIDs cannot be read.
    pub(super) notes: Vec<String>,
}

impl Listing {
    /// Returns whether a GPU may be there: it is listed, or one is listed whose UUID cannot be read.
    pub(super) fn may_have(&self, uuid: &DeviceUuid) -> bool {
        self.uuids.contains(uuid) || !self.notes.is_empty()
    }
}

/// Lists GPUs on request until the requester is dropped. This is the body of the thread.
pub(super) fn serve(nvml: &Nvml, inbox: &WorkerInbox<(), Result<Listing, String>>) {
    // Connections between GPUs do not change while the GPUs stay.
    let mut last = Listing::default();
    inbox.work(|()| {
        let step = inbox.step();
        let mut listing = list(nvml, step).map_err(|error| format!("the driver does not list its GPUs: {error}"))?;
        listing.links =
            if listing.uuids == last.uuids { last.links.clone() } else { links(nvml, step, &listing.uuids) };
        last = listing.clone();
        step.set("nothing");
        Ok(listing)
    });
}

fn list(nvml: &Nvml, step: &Step) -> Result<Listing, NvmlError> {
    step.set("listing GPUs");
    let mut listing = Listing { version: nvml.sys_driver_version()?, ..Listing::default() };
    for index in 0..nvml.device_count()? {
        let uuid = nvml.device_by_index(index).and_then(|device| device.uuid());
        match uuid.map(|uuid| DeviceUuid::new(&uuid)) {
            Ok(Ok(uuid)) => listing.uuids.push(uuid),
            Ok(Err(error)) => listing.notes.push(format!("GPU {index}: {error}")),
            Err(error) => listing.notes.push(format!("GPU {index} cannot be named: {error}")),
        }
    }
    Ok(listing)
}

/// Returns all pairs of GPUs that the driver describes.
fn links(nvml: &Nvml, step: &Step, uuids: &[DeviceUuid]) -> Vec<GpuLink> {
    step.set("reading the topology");
    let pairs = uuids.iter().enumerate().flat_map(|(at, one)| uuids.iter().skip(at + 1).map(move |other| (one, other)));
    pairs.filter_map(|(one, other)| link(nvml, one.min(other), one.max(other))).collect()
}

fn link(nvml: &Nvml, one: &DeviceUuid, other: &DeviceUuid) -> Option<GpuLink> {
    let first = nvml.device_by_uuid(one.as_str()).ok()?;
    let second = nvml.device_by_uuid(other.as_str()).ok()?;
    let nvlinks = nvlinks(&first, &second);
    let over_nvlink = first.p2p_status(&second, P2pCapabilitiesIndex::NvLink);
    let closeness = match first.topology_common_ancestor(second).ok()? {
        TopologyLevel::Internal => Closeness::Board,
        TopologyLevel::Single => Closeness::Switch,
        TopologyLevel::Multiple => Closeness::Switches,
        TopologyLevel::HostBridge => Closeness::HostBridge,
        TopologyLevel::Node => Closeness::Node,
        TopologyLevel::System => Closeness::System,
    };
    let nvlink = nvlinks > 0 || matches!(over_nvlink, Ok(P2pStatus::Ok));
    Some(GpuLink { between: (one.clone(), other.clone()), closeness, nvlinks, nvlink })
}

/// Returns how many NVLinks connect two GPUs directly.
fn nvlinks(one: &Device<'_>, other: &Device<'_>) -> u16 {
    let Ok(there) = other.pci_info() else { return 0 };
    let ends_there = |number: &u32| {
        let link = one.link_wrapper_for(*number);
        matches!(link.is_active(), Ok(true)) && link.remote_pci_info().is_ok_and(|place| place.bus_id == there.bus_id)
    };
    u16::try_from((0..MOST_NVLINKS).filter(ends_there).count()).unwrap_or(u16::MAX)
}
