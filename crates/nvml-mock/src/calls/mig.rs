//! MIG: GPUs that are partitioned into instances.

use std::ffi::c_uint;

use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlDeviceAttributes_t, nvmlReturn_t};

use crate::error_code::ErrorCode;
use crate::library::{Target, ask_of};
use crate::out::{DeviceIn, Out};

/// Writes whether MIG is on, now and after the next reset.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMigMode(device: DeviceIn, current: Out<c_uint>, pending: Out<c_uint>) -> nvmlReturn_t {
    ask_of("nvmlDeviceGetMigMode", &Target::Handle(device), |_, device| {
        let mig = device.whole()?.mig.as_ref().ok_or(ErrorCode::NotSupported)?;
        current.put(c_uint::from(mig.enabled))?;
        pending.put(c_uint::from(mig.enabled))
    })
}

/// Writes the maximum number of instances; 0 where MIG is off.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMaxMigDeviceCount(device: DeviceIn, count: Out<c_uint>) -> nvmlReturn_t {
    ask_of("nvmlDeviceGetMaxMigDeviceCount", &Target::Handle(device), |_, device| {
        let mig = device.whole()?.mig.as_ref().filter(|mig| mig.enabled);
        count.put(mig.map_or(0, |mig| mig.max_instances))
    })
}

/// Writes the handle of the instance at an index. Some indices may be unused.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMigDeviceHandleByIndex(
    device: DeviceIn,
    index: c_uint,
    instance: Out<nvmlDevice_t>,
) -> nvmlReturn_t {
    ask_of("nvmlDeviceGetMigDeviceHandleByIndex", &Target::Handle(device), |library, device| {
        let gpu = device.whole()?;
        let mig = gpu.mig.as_ref().filter(|mig| mig.enabled).ok_or(ErrorCode::NotSupported)?;
        if index >= mig.max_instances {
            return Err(ErrorCode::InvalidArgument);
        }
        let found = gpu.instances().iter().find(|instance| instance.index() == index).ok_or(ErrorCode::NotFound)?;
        instance.put(library.handle(&found.uuid))
    })
}

/// Writes the handle of an instance's GPU.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetDeviceHandleFromMigDeviceHandle(
    instance: DeviceIn,
    device: Out<nvmlDevice_t>,
) -> nvmlReturn_t {
    ask_of("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", &Target::Handle(instance), |library, found| {
        found.instance.ok_or(ErrorCode::InvalidArgument)?;
        device.put(library.handle(&found.gpu.uuid))
    })
}

/// Writes whether a handle is that of an instance.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceIsMigDeviceHandle(device: DeviceIn, is_instance: Out<c_uint>) -> nvmlReturn_t {
    ask_of("nvmlDeviceIsMigDeviceHandle", &Target::Handle(device), |_, device| {
        is_instance.put(c_uint::from(device.instance.is_some()))
    })
}

/// Writes the attributes of an instance; the mock fills in its memory only.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetAttributes_v2(device: DeviceIn, attributes: Out<nvmlDeviceAttributes_t>) -> nvmlReturn_t {
    ask_of("nvmlDeviceGetAttributes_v2", &Target::Handle(device), |_, device| {
        let instance = device.instance.ok_or(ErrorCode::NotSupported)?;
        attributes.put(nvmlDeviceAttributes_t {
            multiprocessorCount: 14,
            sharedCopyEngineCount: 1,
            sharedDecoderCount: 0,
            sharedEncoderCount: 0,
            sharedJpegCount: 0,
            sharedOfaCount: 0,
            gpuInstanceSliceCount: 1,
            computeInstanceSliceCount: 1,
            memorySizeMB: instance.memory_total.get() >> 20,
        })
    })
}
