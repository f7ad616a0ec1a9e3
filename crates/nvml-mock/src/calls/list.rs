//! The GPUs of the machine and their identities.

use std::ffi::{c_char, c_int, c_uint};

use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlPciInfo_t, nvmlReturn_t};

use crate::error_code::ErrorCode;
use crate::library::{Target, ask, ask_of};
use crate::out::{DeviceIn, Out, TextIn, TextOut};
use crate::script::Gpu;

/// Writes the number of GPUs, lost ones included.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetCount_v2(count: Out<c_uint>) -> nvmlReturn_t {
    ask("nvmlDeviceGetCount_v2", |_, script| count.put(c_uint::try_from(script.gpus.len()).unwrap_or(c_uint::MAX)))
}

/// Writes the handle of the GPU at an index.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, device: Out<nvmlDevice_t>) -> nvmlReturn_t {
    handle("nvmlDeviceGetHandleByIndex_v2", &Target::Index(index), device)
}

/// Writes the handle of the GPU or MIG instance with a UUID.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetHandleByUUID(uuid: TextIn, device: Out<nvmlDevice_t>) -> nvmlReturn_t {
    match uuid.read() {
        Ok(uuid) => handle("nvmlDeviceGetHandleByUUID", &Target::Uuid(uuid), device),
        Err(error_code) => error_code.code(),
    }
}

/// Writes the handle of the GPU with a PCI bus id.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetHandleByPciBusId_v2(bus: TextIn, device: Out<nvmlDevice_t>) -> nvmlReturn_t {
    match bus.read() {
        Ok(bus) => handle("nvmlDeviceGetHandleByPciBusId_v2", &Target::Bus(bus), device),
        Err(error_code) => error_code.code(),
    }
}

fn handle(function: &str, target: &Target, place: Out<nvmlDevice_t>) -> nvmlReturn_t {
    ask_of(function, target, |library, device| place.put(library.handle(device.uuid())))
}

/// Writes the UUID.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetUUID(device: DeviceIn, uuid: TextOut, length: c_uint) -> nvmlReturn_t {
    ask_of("nvmlDeviceGetUUID", &Target::Handle(device), |_, device| uuid.put(length, device.uuid()))
}

/// Writes the product name.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetName(device: DeviceIn, name: TextOut, length: c_uint) -> nvmlReturn_t {
    ask_of("nvmlDeviceGetName", &Target::Handle(device), |_, device| {
        let instance = device.instance.and_then(|instance| instance.name.as_deref());
        name.put(length, instance.unwrap_or(&device.gpu.name))
    })
}

/// Writes the index: among the GPUs, or among the MIG instances of the parent.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetIndex(device: DeviceIn, index: Out<c_uint>) -> nvmlReturn_t {
    ask_of("nvmlDeviceGetIndex", &Target::Handle(device), |_, device| {
        index.put(device.instance.map_or_else(|| device.gpu.index(), |instance| instance.index()))
    })
}

/// Writes the number of the device file.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMinorNumber(device: DeviceIn, minor: Out<c_uint>) -> nvmlReturn_t {
    ask_of("nvmlDeviceGetMinorNumber", &Target::Handle(device), |_, device| minor.put(device.whole()?.minor()))
}

/// Writes the PCI address.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetPciInfo_v3(device: DeviceIn, place: Out<nvmlPciInfo_t>) -> nvmlReturn_t {
    ask_of("nvmlDeviceGetPciInfo_v3", &Target::Handle(device), |_, device| place.put(pci_info(device.whole()?)))
}

/// Writes CUDA's compute capability.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetCudaComputeCapability(
    device: DeviceIn,
    major: Out<c_int>,
    minor: Out<c_int>,
) -> nvmlReturn_t {
    ask_of("nvmlDeviceGetCudaComputeCapability", &Target::Handle(device), |_, device| {
        let (is_major, is_minor) = device.gpu.cuda_capability.ok_or(ErrorCode::NotSupported)?;
        major.put(is_major)?;
        minor.put(is_minor)
    })
}

/// Converts a GPU's PCI address to the C structure.
pub(super) fn pci_info(gpu: &Gpu) -> nvmlPciInfo_t {
    let (domain, bus, device) = gpu.pci();
    // The older form has four digits of domain.
    let legacy = gpu.pci_bus_id().strip_prefix("0000").unwrap_or_default();
    nvmlPciInfo_t {
        busIdLegacy: text(legacy),
        domain,
        bus,
        device,
        pciDeviceId: 0x2330_10DE,
        pciSubSystemId: 0x16C1_10DE,
        busId: text(gpu.pci_bus_id()),
    }
}

/// Copies text into an array, cut where it does not fit, with a zero at its end.
fn text<const N: usize>(text: &str) -> [c_char; N] {
    let mut array = [0; N];
    for (place, byte) in array.iter_mut().take(N - 1).zip(text.bytes()) {
        *place = c_char::try_from(byte).unwrap_or_default();
    }
    array
}
