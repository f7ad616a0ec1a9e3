//! MIG instances.

use berth_domain::Bytes;
use berth_nvml_mock::EXAMPLE;
use nvml_wrapper::error::NvmlError;

use crate::{GIB, Rig, Sleeper, one_gpu};

#[test]
fn g8_instances_are_devices_with_memory_of_their_own() {
    let rig = Rig::new(EXAMPLE);
    let nvml = rig.load();
    let parent = nvml.device_by_index(2).unwrap();
    assert_eq!(parent.mig_mode().unwrap().current, 1);
    assert!(!parent.mig_is_mig_device_handle().unwrap());
    assert_eq!(parent.mig_device_count().unwrap(), 7);
    let first = parent.mig_device_by_index(0).unwrap();
    assert!(first.mig_is_mig_device_handle().unwrap());
    assert_eq!(first.uuid().unwrap(), "MIG-44444444-4444-4444-4444-444444444444");
    assert_eq!(first.name().unwrap(), "NVIDIA A100-SXM4-40GB MIG 1g.5gb");
    assert_eq!(first.memory_info().unwrap().total, 4864 << 20);
    assert_eq!(first.memory_info().unwrap().used, (14 << 20) + GIB);
    assert_eq!(first.attributes().unwrap().memory_size_mb, 4864);
    assert_eq!(first.mig_parent_device().unwrap().uuid().unwrap(), parent.uuid().unwrap());
    // What its instances use is in use on the parent, too.
    assert_eq!(parent.memory_info().unwrap().used, (14 << 20) + GIB);
}

#[test]
fn g8_there_are_holes_between_instances() {
    let rig = Rig::new(EXAMPLE);
    let nvml = rig.load();
    let parent = nvml.device_by_index(2).unwrap();
    let found: Vec<u32> = (0..7).filter(|index| parent.mig_device_by_index(*index).is_ok()).collect();
    assert_eq!(found, [0, 2]);
    assert!(matches!(parent.mig_device_by_index(1), Err(NvmlError::NotFound)));
    assert!(matches!(parent.mig_device_by_index(7), Err(NvmlError::InvalidArg)));
    let second = parent.mig_device_by_index(2).unwrap();
    assert_eq!((second.index().unwrap(), second.name().unwrap().as_str()), (2, "NVIDIA A100-SXM4-40GB MIG 10gb"));
    assert_eq!(nvml.device_by_uuid(second.uuid().unwrap()).unwrap().index().unwrap(), 2);
}

#[test]
fn an_instance_does_not_answer_for_the_gpu() {
    let rig = Rig::new(EXAMPLE);
    let nvml = rig.load();
    let instance = nvml.device_by_uuid("MIG-44444444-4444-4444-4444-444444444444").unwrap();
    assert!(matches!(instance.utilization_rates(), Err(NvmlError::NotSupported)));
    assert!(matches!(instance.mig_mode(), Err(NvmlError::NotSupported)));
    assert!(matches!(instance.pci_info(), Err(NvmlError::NotSupported)));
    let whole = nvml.device_by_index(0).unwrap();
    assert!(matches!(whole.mig_parent_device(), Err(NvmlError::InvalidArg)));
    assert!(matches!(whole.attributes(), Err(NvmlError::NotSupported)));
}

#[test]
fn a_claim_on_an_instance_is_listed_with_its_instance() {
    let process = Sleeper::start();
    let rig = Rig::new(&one_gpu(
        "[[gpu.mig.instance]]\nuuid = \"MIG-x\"\nmemory_total = \"10GiB\"\ngpu_instance = 3\ncompute_instance = 1\n\
         [[gpu.mig.instance]]\nuuid = \"MIG-y\"\nmemory_total = \"10GiB\"\ngpu_instance = 4",
    ));
    let nvml = rig.load();
    rig.driver.claim(process.pid(), "MIG-x", Bytes::gib(2)).unwrap();
    let parent = nvml.device_by_index(0).unwrap();
    for device in [&parent, &parent.mig_device_by_index(0).unwrap()] {
        let listed = device.running_compute_processes().unwrap();
        assert_eq!(listed.len(), 1);
        assert_eq!(listed[0].pid, process.pid());
        assert_eq!((listed[0].gpu_instance_id, listed[0].compute_instance_id), (Some(3), Some(1)));
        assert_eq!(device.memory_info().unwrap().used, 2 * GIB);
    }
    let empty = parent.mig_device_by_index(1).unwrap();
    assert!(empty.running_compute_processes().unwrap().is_empty());
    assert_eq!(empty.memory_info().unwrap().used, 0);
}

#[test]
fn mig_is_switched_off_and_its_instances_are_gone() {
    let text = |enabled: bool| {
        one_gpu(&format!(
            "[gpu.mig]\nenabled = {enabled}\n[[gpu.mig.instance]]\nuuid = \"MIG-x\"\nmemory_total = \"10GiB\"\n"
        ))
    };
    let rig = Rig::new(&text(true));
    let nvml = rig.load();
    let instance = nvml.device_by_uuid("MIG-x").unwrap();
    assert_eq!(instance.memory_info().unwrap().total, 10 * GIB);
    rig.driver.rewrite(&text(false)).unwrap();
    let parent = nvml.device_by_index(0).unwrap();
    assert_eq!((parent.mig_mode().unwrap().current, parent.mig_device_count().unwrap()), (0, 0));
    assert!(matches!(parent.mig_device_by_index(0), Err(NvmlError::NotSupported)));
    assert!(matches!(instance.memory_info(), Err(NvmlError::GpuLost)));
}
