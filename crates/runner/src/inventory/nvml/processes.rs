//! The processes on a device.

use std::collections::BTreeMap;

use berth_domain::Bytes;
use nvml_wrapper::Device;
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::ProcessInfo;

use crate::inventory::seen::{ProcessSeen, ProcessesSeen};

use super::trouble::{Trouble, is_too_new, optional};

/// Returns all processes on a device. A process that computes and renders is on two lists with the same amount.
pub(super) fn read(device: &Device<'_>) -> Result<ProcessesSeen, Trouble> {
    let newer = [device.running_compute_processes(), device.running_graphics_processes()];
    let [compute, graphics] = match newer {
        [Err(error), _] if is_too_new(&error) => {
            [device.running_compute_processes_v2(), device.running_graphics_processes_v2()]
        }
        lists => lists,
    };
    // A driver may lack the lists of rendering and of MPS processes, but not the list of computing ones.
    let lists = [compute, or_empty(graphics), or_empty(device.mps_running_compute_processes())];
    let mut by_pid: BTreeMap<u32, Option<Bytes>> = BTreeMap::new();
    for list in lists {
        let Some(list) = optional(list, "listing processes")? else { return Ok(ProcessesSeen::Unknown) };
        for process in list {
            let used = match process.used_gpu_memory {
                UsedGpuMemory::Used(bytes) => Some(Bytes::new(bytes)),
                UsedGpuMemory::Unavailable => None,
            };
            let known = by_pid.entry(process.pid).or_default();
            *known = used.max(*known);
        }
    }
    Ok(ProcessesSeen::Listed(by_pid.into_iter().map(|(pid, used)| ProcessSeen { pid, used }).collect()))
}

fn or_empty(list: Result<Vec<ProcessInfo>, NvmlError>) -> Result<Vec<ProcessInfo>, NvmlError> {
    match list {
        Err(NvmlError::NotSupported) => Ok(Vec::new()),
        Err(error) if is_too_new(&error) => Ok(Vec::new()),
        list => list,
    }
}
