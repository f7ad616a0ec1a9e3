//! Which GPUs there are, and who they are.

use std::ffi::{c_char, c_int, c_uint};

use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlPciInfo_t, nvmlReturn_t};

use crate::library::{Whom, ask, ask_of};
use crate::out::{DeviceIn, Out, TextIn, TextOut};
use crate::refusal::Refusal;
use crate::script::Gpu;

/// How many GPUs there are, lost ones included.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetCount_v2(count: Out<c_uint>) -> nvmlReturn_t {
    ask("nvmlDeviceGetCount_v2", |_, script| count.put(c_uint::try_from(script.gpus.len()).unwrap_or(c_uint::MAX)))
}

/// The GPU at an index.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, device: Out<nvmlDevice_t>) -> nvmlReturn_t {
    handle("nvmlDeviceGetHandleByIndex_v2", &Whom::Index(index), device)
}

/// The GPU or MIG instance with a UUID.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetHandleByUUID(uuid: TextIn, device: Out<nvmlDevice_t>) -> nvmlReturn_t {
    match uuid.read() {
        Ok(uuid) => handle("nvmlDeviceGetHandleByUUID", &Whom::Uuid(uuid), device),
        Err(refusal) => refusal.code(),
    }
}

/// The GPU at a place on the bus.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetHandleByPciBusId_v2(bus: TextIn, device: Out<nvmlDevice_t>) -> nvmlReturn_t {
    match bus.read() {
        Ok(bus) => handle("nvmlDeviceGetHandleByPciBusId_v2", &Whom::Bus(bus), device),
        Err(refusal) => refusal.code(),
    }
}

fn handle(function: &str, whom: &Whom, place: Out<nvmlDevice_t>) -> nvmlReturn_t {
    ask_of(function, whom, |library, device| place.put(library.handle(device.uuid())))
}

/// What names it for good.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetUUID(device: DeviceIn, uuid: TextOut, length: c_uint) -> nvmlReturn_t {
    ask_of("nvmlDeviceGetUUID", &Whom::Handle(device), |_, device| uuid.put(length, device.uuid()))
}

/// What it is.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetName(device: DeviceIn, name: TextOut, length: c_uint) -> nvmlReturn_t {
    ask_of("nvmlDeviceGetName", &Whom::Handle(device), |_, device| {
        let instance = device.instance.and_then(|instance| instance.name.as_deref());
        name.put(length, instance.unwrap_or(&device.gpu.name))
    })
}

/// Its index: among the GPUs, or among the MIG instances of its parent.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetIndex(device: DeviceIn, index: Out<c_uint>) -> nvmlReturn_t {
    ask_of("nvmlDeviceGetIndex", &Whom::Handle(device), |_, device| {
        index.put(device.instance.map_or_else(|| device.gpu.index(), |instance| instance.index()))
    })
}

/// The number of its device file.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMinorNumber(device: DeviceIn, minor: Out<c_uint>) -> nvmlReturn_t {
    ask_of("nvmlDeviceGetMinorNumber", &Whom::Handle(device), |_, device| minor.put(device.whole()?.minor()))
}

/// Its place on the bus.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetPciInfo_v3(device: DeviceIn, place: Out<nvmlPciInfo_t>) -> nvmlReturn_t {
    ask_of("nvmlDeviceGetPciInfo_v3", &Whom::Handle(device), |_, device| place.put(pci_info(device.whole()?)))
}

/// What CUDA calls its compute capability.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetCudaComputeCapability(
    device: DeviceIn,
    major: Out<c_int>,
    minor: Out<c_int>,
) -> nvmlReturn_t {
    ask_of("nvmlDeviceGetCudaComputeCapability", &Whom::Handle(device), |_, device| {
        let (is_major, is_minor) = device.gpu.cuda_capability.ok_or(Refusal::NotSupported)?;
        major.put(is_major)?;
        minor.put(is_minor)
    })
}

/// A GPU's place in the form of the C interface.
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

/// Text in an array, cut where it does not fit, always with a zero at its end.
fn text<const N: usize>(text: &str) -> [c_char; N] {
    let mut array = [0; N];
    for (place, byte) in array.iter_mut().take(N - 1).zip(text.bytes()) {
        *place = c_char::try_from(byte).unwrap_or_default();
    }
    array
}
