//! How GPUs are connected, to each other and to the CPUs.

use std::ffi::{c_uint, c_ulong};

use nvml_wrapper_sys::bindings::{
    NVML_NVLINK_MAX_LINKS, nvmlDevice_t, nvmlEnableState_t, nvmlGpuP2PCapsIndex_enum_NVML_P2P_CAPS_INDEX_NVLINK,
    nvmlGpuP2PCapsIndex_enum_NVML_P2P_CAPS_INDEX_UNKNOWN, nvmlGpuP2PCapsIndex_t,
    nvmlGpuP2PStatus_enum_NVML_P2P_STATUS_NOT_SUPPORTED, nvmlGpuP2PStatus_enum_NVML_P2P_STATUS_OK, nvmlGpuP2PStatus_t,
    nvmlGpuTopologyLevel_t, nvmlPciInfo_t, nvmlReturn_t,
};

use super::list::pci_info;
use crate::error_code::{ErrorCode, NvmlResult};
use crate::library::{Device, Target, ask_of};
use crate::out::{DeviceIn, Out};
use crate::script::{Gpu, Level, Script};

/// Writes the nearest common ancestor of two GPUs.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetTopologyCommonAncestor(
    one: DeviceIn,
    other: DeviceIn,
    level: Out<nvmlGpuTopologyLevel_t>,
) -> nvmlReturn_t {
    ask_of("nvmlDeviceGetTopologyCommonAncestor", &Target::Handle(one), |library, one| {
        let other = library.other(one.script, other)?;
        level.put(level_between(one.script, one.whole()?, other.whole()?).code())
    })
}

fn level_between(script: &Script, one: &Gpu, other: &Gpu) -> Level {
    if one.uuid == other.uuid {
        return Level::Internal;
    }
    script.link(&one.uuid, &other.uuid).map_or(Level::System, |link| link.level)
}

/// Writes the other GPUs whose common ancestor with this one is at exactly this level.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetTopologyNearestGpus(
    device: DeviceIn,
    level: nvmlGpuTopologyLevel_t,
    count: Out<c_uint>,
    devices: Out<nvmlDevice_t>,
) -> nvmlReturn_t {
    ask_of("nvmlDeviceGetTopologyNearestGpus", &Target::Handle(device), |library, device| {
        let gpu = device.whole()?;
        let others = device.script.gpus.iter().filter(|other| other.uuid != gpu.uuid);
        let near = others.filter(|other| level_between(device.script, gpu, other).code() == level);
        let near: Vec<nvmlDevice_t> = near.map(|other| library.handle(&other.uuid)).collect();
        // A call that asks for the count alone succeeds.
        if devices.is_null() {
            return count.put(c_uint::try_from(near.len()).unwrap_or(c_uint::MAX));
        }
        devices.fill(count, &near)
    })
}

/// Writes whether two GPUs can access each other's memory.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetP2PStatus(
    one: DeviceIn,
    other: DeviceIn,
    way: nvmlGpuP2PCapsIndex_t,
    status: Out<nvmlGpuP2PStatus_t>,
) -> nvmlReturn_t {
    ask_of("nvmlDeviceGetP2PStatus", &Target::Handle(one), |library, one| {
        let other = library.other(one.script, other)?;
        if way >= nvmlGpuP2PCapsIndex_enum_NVML_P2P_CAPS_INDEX_UNKNOWN {
            return Err(ErrorCode::InvalidArgument);
        }
        let link = one.script.link(&one.whole()?.uuid, &other.whole()?.uuid).filter(|link| link.p2p);
        let by_nvlink = way == nvmlGpuP2PCapsIndex_enum_NVML_P2P_CAPS_INDEX_NVLINK;
        let possible = link.is_some_and(|link| !by_nvlink || link.nvlinks > 0);
        status.put(if possible {
            nvmlGpuP2PStatus_enum_NVML_P2P_STATUS_OK
        } else {
            nvmlGpuP2PStatus_enum_NVML_P2P_STATUS_NOT_SUPPORTED
        })
    })
}

/// Writes whether one of a GPU's NVLinks is up.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetNvLinkState(
    device: DeviceIn,
    link: c_uint,
    is_active: Out<nvmlEnableState_t>,
) -> nvmlReturn_t {
    ask_of("nvmlDeviceGetNvLinkState", &Target::Handle(device), |_, device| {
        is_active.put(nvmlEnableState_t::from(peer_on(device, link)?.is_some()))
    })
}

/// Writes the PCI address at the other end of an NVLink.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetNvLinkRemotePciInfo_v2(
    device: DeviceIn,
    link: c_uint,
    place: Out<nvmlPciInfo_t>,
) -> nvmlReturn_t {
    ask_of("nvmlDeviceGetNvLinkRemotePciInfo_v2", &Target::Handle(device), |_, device| {
        place.put(pci_info(peer_on(device, link)?.ok_or(ErrorCode::NotSupported)?))
    })
}

/// Returns the GPU at the other end of a link. Links are numbered in the order of the script, as many for each pair as
/// it says.
fn peer_on(device: Device<'_>, number: c_uint) -> NvmlResult<Option<&Gpu>> {
    let gpu = device.whole()?;
    if number >= NVML_NVLINK_MAX_LINKS {
        return Err(ErrorCode::InvalidArgument);
    }
    let mut peers = device.script.links.iter().filter_map(|link| Some((link.peer_of(&gpu.uuid)?, link.nvlinks)));
    if peers.clone().all(|(_, nvlinks)| nvlinks == 0) {
        return Err(ErrorCode::NotSupported);
    }
    let mut before = 0;
    let peer = peers.find_map(|(peer, nvlinks)| {
        before += nvlinks;
        (number < before).then_some(peer)
    });
    Ok(peer.and_then(|uuid| device.script.find(uuid)).map(|(gpu, _)| gpu))
}

/// Writes the nearest NUMA node.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetNumaNodeId(device: DeviceIn, node: Out<c_uint>) -> nvmlReturn_t {
    ask_of("nvmlDeviceGetNumaNodeId", &Target::Handle(device), |_, device| {
        node.put(device.whole()?.numa_node.ok_or(ErrorCode::NotSupported)?)
    })
}

/// Writes the nearest CPUs as a bit set.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetCpuAffinity(device: DeviceIn, words: c_uint, set: Out<c_ulong>) -> nvmlReturn_t {
    ask_of("nvmlDeviceGetCpuAffinity", &Target::Handle(device), |_, device| {
        let cpus = device.gpu.cpus.as_ref().ok_or(ErrorCode::NotSupported)?;
        let mut bits: Vec<c_ulong> = vec![0; usize::try_from(words).unwrap_or_default()];
        for cpu in cpus {
            let word = usize::try_from(cpu / c_ulong::BITS).unwrap_or(usize::MAX);
            *bits.get_mut(word).ok_or(ErrorCode::InsufficientSize)? |= 1 << (cpu % c_ulong::BITS);
        }
        set.put_all(&bits)
    })
}
