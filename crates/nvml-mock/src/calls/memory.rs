//! Memory, and the processes that use it.

use std::ffi::c_uint;

use berth_domain::Bytes;
use nvml_wrapper_sys::bindings::{
    nvmlMemory_t, nvmlMemory_v2_t, nvmlProcessInfo_t, nvmlProcessInfo_v1_t, nvmlReturn_t,
};

use crate::error_code::ErrorCode;
use crate::library::{Device, Library, Target, ask_of};
use crate::out::{DeviceIn, Out};
use crate::script::ProcessKind;
use crate::usage::Listed;

/// The value that NVML writes where a number is not available.
const NOT_AVAILABLE: u64 = u64::MAX;
const NO_INSTANCE: c_uint = c_uint::MAX;

/// Total, reserved and used memory in bytes. Used memory is not capped at the total: a test should see an
/// overcommitment.
struct Amounts {
    total: u64,
    reserved: u64,
    used: u64,
}

impl Amounts {
    fn of(library: &mut Library, device: Device<'_>) -> Self {
        let used = library.usage(device).used;
        let (total, reserved) = device.instance.map_or_else(
            || (device.gpu.memory_total, device.gpu.memory_reserved),
            |instance| (instance.memory_total, instance.memory_reserved),
        );
        Self { total: total.get(), reserved: reserved.get(), used: used.get() }
    }

    fn free(&self) -> u64 {
        self.total.saturating_sub(self.reserved).saturating_sub(self.used)
    }
}

/// Returns the size and version that the caller must have written into the structure.
fn memory_version() -> c_uint {
    c_uint::try_from(size_of::<nvmlMemory_v2_t>()).unwrap_or_default() | (2 << 24)
}

/// Writes memory with the driver's reserved part separate.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMemoryInfo_v2(device: DeviceIn, memory: Out<nvmlMemory_v2_t>) -> nvmlReturn_t {
    ask_of("nvmlDeviceGetMemoryInfo_v2", &Target::Handle(device), |library, device| {
        let version = memory.version()?;
        if version != memory_version() {
            return Err(ErrorCode::ArgumentVersionMismatch);
        }
        let amounts = Amounts::of(library, device);
        let free = amounts.free();
        let Amounts { total, reserved, used } = amounts;
        memory.put(nvmlMemory_v2_t { version, total, reserved, free, used })
    })
}

/// Writes memory as older drivers do: reserved memory counts as used.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMemoryInfo(device: DeviceIn, memory: Out<nvmlMemory_t>) -> nvmlReturn_t {
    ask_of("nvmlDeviceGetMemoryInfo", &Target::Handle(device), |library, device| {
        let amounts = Amounts::of(library, device);
        let used = amounts.used.saturating_add(amounts.reserved);
        memory.put(nvmlMemory_t { total: amounts.total, free: amounts.free(), used })
    })
}

/// Lists processes that compute.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetComputeRunningProcesses_v3(
    device: DeviceIn,
    count: Out<c_uint>,
    infos: Out<nvmlProcessInfo_t>,
) -> nvmlReturn_t {
    list("nvmlDeviceGetComputeRunningProcesses_v3", device, ProcessKind::Compute, count, infos, with_instance)
}

/// Lists processes that render.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetGraphicsRunningProcesses_v3(
    device: DeviceIn,
    count: Out<c_uint>,
    infos: Out<nvmlProcessInfo_t>,
) -> nvmlReturn_t {
    list("nvmlDeviceGetGraphicsRunningProcesses_v3", device, ProcessKind::Graphics, count, infos, with_instance)
}

/// Lists processes that compute through the multi-process service.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMPSComputeRunningProcesses_v3(
    device: DeviceIn,
    count: Out<c_uint>,
    infos: Out<nvmlProcessInfo_t>,
) -> nvmlReturn_t {
    list("nvmlDeviceGetMPSComputeRunningProcesses_v3", device, ProcessKind::Mps, count, infos, with_instance)
}

/// Lists processes that compute, in the structure of older drivers.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetComputeRunningProcesses_v2(
    device: DeviceIn,
    count: Out<c_uint>,
    infos: Out<nvmlProcessInfo_t>,
) -> nvmlReturn_t {
    list("nvmlDeviceGetComputeRunningProcesses_v2", device, ProcessKind::Compute, count, infos, with_instance)
}

/// Lists processes that render, in the structure of older drivers.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetGraphicsRunningProcesses_v2(
    device: DeviceIn,
    count: Out<c_uint>,
    infos: Out<nvmlProcessInfo_t>,
) -> nvmlReturn_t {
    list("nvmlDeviceGetGraphicsRunningProcesses_v2", device, ProcessKind::Graphics, count, infos, with_instance)
}

/// Lists processes that compute, in the oldest structure: without instances.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetComputeRunningProcesses(
    device: DeviceIn,
    count: Out<c_uint>,
    infos: Out<nvmlProcessInfo_v1_t>,
) -> nvmlReturn_t {
    list("nvmlDeviceGetComputeRunningProcesses", device, ProcessKind::Compute, count, infos, without_instance)
}

fn list<T: Copy>(
    function: &str,
    device: DeviceIn,
    kind: ProcessKind,
    count: Out<c_uint>,
    infos: Out<T>,
    form: fn(&Listed) -> T,
) -> nvmlReturn_t {
    ask_of(function, &Target::Handle(device), |library, device| {
        let computing = kind == ProcessKind::Compute;
        let usage = if computing { library.usage(device) } else { library.usage_by_script(device) };
        let listed: Vec<T> = usage.listed.iter().filter(|listed| listed.kind == kind).map(form).collect();
        infos.fill(count, &listed)
    })
}

fn with_instance(listed: &Listed) -> nvmlProcessInfo_t {
    let (gpu, compute) = listed.instance.unwrap_or((NO_INSTANCE, NO_INSTANCE));
    nvmlProcessInfo_t {
        pid: listed.pid,
        usedGpuMemory: listed.used.map_or(NOT_AVAILABLE, Bytes::get),
        gpuInstanceId: gpu,
        computeInstanceId: compute,
    }
}

fn without_instance(listed: &Listed) -> nvmlProcessInfo_v1_t {
    nvmlProcessInfo_v1_t { pid: listed.pid, usedGpuMemory: listed.used.map_or(NOT_AVAILABLE, Bytes::get) }
}
