//! Which GPUs there are.

use berth_nvml_mock::EXAMPLE;
use nvml_wrapper::Device;
use nvml_wrapper::enum_wrappers::device::{ComputeMode, EccCounter, MemoryError, MemoryLocation, TemperatureSensor};
use nvml_wrapper::error::NvmlError;

use crate::{A, Rig, one_gpu};

#[test]
fn the_example_of_the_documentation_is_a_machine() {
    let rig = Rig::new(EXAMPLE);
    let nvml = rig.load();
    assert_eq!(nvml.sys_driver_version().unwrap(), "570.86.15");
    assert_eq!(nvml.sys_nvml_version().unwrap(), "12.570.86.15");
    assert_eq!(nvml.sys_cuda_driver_version().unwrap(), 12080);
    assert_eq!(nvml.device_count().unwrap(), 3);
    let first = nvml.device_by_index(0).unwrap();
    assert_eq!(first.uuid().unwrap(), "GPU-11111111-1111-1111-1111-111111111111");
    assert_eq!(first.name().unwrap(), "NVIDIA H100 80GB HBM3");
    assert_eq!(first.index().unwrap(), 0);
    assert_eq!(first.minor_number().unwrap(), 0);
    let place = first.pci_info().unwrap();
    assert_eq!((place.domain, place.bus, place.device, place.bus_id.as_str()), (0, 0x1B, 0, "00000000:1B:00.0"));
    let load = first.utilization_rates().unwrap();
    assert_eq!((load.gpu, load.memory), (37, 12));
    assert_eq!(first.temperature(TemperatureSensor::Gpu).unwrap(), 54);
    assert_eq!(first.power_usage().unwrap(), 312_000);
    assert_eq!(first.enforced_power_limit().unwrap(), 700_000);
    assert_eq!(first.compute_mode().unwrap(), ComputeMode::Default);
    let capability = first.cuda_compute_capability().unwrap();
    assert_eq!((capability.major, capability.minor), (9, 0));
}

#[test]
fn memory_errors_are_counted_by_kind() {
    let rig = Rig::new(EXAMPLE);
    let nvml = rig.load();
    let gpu = nvml.device_by_index(0).unwrap();
    assert!(gpu.is_ecc_enabled().unwrap().currently_enabled);
    let total = |kind, counter| gpu.total_ecc_errors(kind, counter).unwrap();
    assert_eq!(total(MemoryError::Corrected, EccCounter::Volatile), 3);
    assert_eq!(total(MemoryError::Uncorrected, EccCounter::Volatile), 0);
    assert_eq!(total(MemoryError::Corrected, EccCounter::Aggregate), 12);
    assert_eq!(total(MemoryError::Uncorrected, EccCounter::Aggregate), 1);
    let placed = |location| gpu.memory_error_counter(MemoryError::Corrected, EccCounter::Aggregate, location).unwrap();
    assert_eq!(placed(MemoryLocation::Device), 12);
    assert_eq!(placed(MemoryLocation::L2Cache), 0);
}

#[test]
fn what_the_script_leaves_out_is_not_supported() {
    let rig = Rig::new(&one_gpu(""));
    let nvml = rig.load();
    let gpu = nvml.device_by_index(0).unwrap();
    let refused = |result: Result<u32, NvmlError>| matches!(result, Err(NvmlError::NotSupported));
    assert!(refused(gpu.temperature(TemperatureSensor::Gpu)));
    assert!(refused(gpu.power_usage()));
    assert!(refused(gpu.numa_node_id()));
    assert!(refused(gpu.utilization_rates().map(|load| load.gpu)));
    assert!(refused(gpu.is_ecc_enabled().map(|_| 0)));
    assert!(refused(gpu.mig_mode().map(|mode| mode.current)));
}

#[test]
fn a_gpu_is_found_by_index_uuid_and_place_and_is_the_same() {
    let rig = Rig::new(EXAMPLE);
    let nvml = rig.load();
    let uuid = "GPU-22222222-2222-2222-2222-222222222222";
    let uuid_of = |device: Result<Device<'_>, NvmlError>| device.unwrap().uuid().unwrap();
    assert_eq!(uuid_of(nvml.device_by_index(1)), uuid);
    assert_eq!(uuid_of(nvml.device_by_uuid(uuid)), uuid);
    assert_eq!(uuid_of(nvml.device_by_pci_bus_id("00000000:02:00.0")), uuid);
    assert_eq!(uuid_of(nvml.device_by_pci_bus_id("0000:02:00.0")), uuid);
    assert!(matches!(nvml.device_by_index(3), Err(NvmlError::InvalidArg)));
    assert!(matches!(nvml.device_by_uuid("GPU-none"), Err(NvmlError::NotFound)));
    assert!(matches!(nvml.device_by_pci_bus_id("0000:77:00.0"), Err(NvmlError::NotFound)));
}

#[test]
fn g9_indexes_change_and_handles_stay_with_their_gpu() {
    let two = |first: u32, second: u32| {
        format!(
            "[[gpu]]\nuuid = \"{A}\"\nindex = {first}\nmemory_total = 1\n\
             [[gpu]]\nuuid = \"GPU-b\"\nindex = {second}\nmemory_total = 2\n"
        )
    };
    let rig = Rig::new(&two(0, 1));
    let nvml = rig.load();
    let a = nvml.device_by_index(0).unwrap();
    rig.driver.rewrite(&two(1, 0)).unwrap();
    assert_eq!((a.uuid().unwrap().as_str(), a.index().unwrap()), (A, 1));
    assert_eq!(nvml.device_by_index(0).unwrap().uuid().unwrap(), "GPU-b");
}

#[test]
fn a_script_is_seen_in_the_very_next_call() {
    let rig = Rig::new(&one_gpu("temperature = 0"));
    let nvml = rig.load();
    let gpu = nvml.device_by_index(0).unwrap();
    // As fast as it goes: times on files are coarse, and the length does not change.
    for degrees in 10..90 {
        let text = one_gpu(&format!("temperature = {degrees}"));
        if degrees % 2 == 0 {
            rig.driver.rewrite(&text).unwrap();
        } else {
            std::fs::write(rig.driver.script(), &text).unwrap();
        }
        assert_eq!(gpu.temperature(TemperatureSensor::Gpu).unwrap(), degrees);
    }
}

#[test]
fn two_copies_in_one_process_are_two_drivers() {
    let (one, other) = (Rig::new(&one_gpu("")), Rig::new(""));
    let (first, second) = (one.load(), other.load());
    assert_eq!(first.device_count().unwrap(), 1);
    assert_eq!(second.device_count().unwrap(), 0);
}
