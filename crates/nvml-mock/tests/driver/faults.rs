//! What goes wrong.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use berth_nvml_mock::ScriptedDriver;
use nvml_wrapper::Nvml;
use nvml_wrapper::enum_wrappers::device::TemperatureSensor;
use nvml_wrapper::error::NvmlError;
use tempfile::TempDir;

use crate::{A, GIB, Rig, load, one_gpu};

fn fault(function: &str, what: &str) -> String {
    format!("[[fault]]\nfunction = \"{function}\"\n{what}\n")
}

fn two_gpus(rest: &str) -> String {
    format!("{}[[gpu]]\nuuid = \"GPU-b\"\nmemory_total = \"80GiB\"\n{rest}", one_gpu(""))
}

#[test]
fn driver_and_library_do_not_match() {
    let rig = Rig::new(&fault("nvmlInit*", "error = \"lib_rm_version_mismatch\""));
    assert!(matches!(rig.try_load(), Err(NvmlError::LibRmVersionMismatch)));
    let text = fault("nvmlInitWithFlags", "error = \"driver_not_loaded\"");
    rig.driver.rewrite(&text).unwrap();
    assert_eq!(rig.load().device_count().unwrap(), 0);
}

#[test]
fn without_a_script_there_is_no_driver_and_without_a_library_there_is_a_word() {
    let directory = TempDir::new().unwrap();
    let driver = ScriptedDriver::in_directory(directory.path()).unwrap();
    assert!(matches!(load(&driver.library()), Err(NvmlError::DriverNotLoaded)));
    assert!(matches!(load(&directory.path().join("none.so")), Err(NvmlError::LibloadingError(_))));
}

#[test]
fn a_script_with_a_slip_is_not_guessed_at() {
    let rig = Rig::new(&one_gpu(""));
    let nvml = rig.load();
    assert!(rig.driver.rewrite("[[gpu]]\nuuid = 7\n").is_err());
    assert_eq!(nvml.device_count().unwrap(), 1, "it was put in place all the same");
    std::fs::write(rig.driver.script(), "[[gpu]]\nuuid = 7\n").unwrap();
    assert!(matches!(nvml.device_count(), Err(NvmlError::Unknown)));
    rig.driver.rewrite(&two_gpus("")).unwrap();
    assert_eq!(nvml.device_count().unwrap(), 2);
}

#[test]
fn n12_a_lost_gpu_is_counted_and_answers_nothing_until_it_is_back() {
    let rig = Rig::new(&two_gpus(""));
    let nvml = rig.load();
    let gpu = nvml.device_by_uuid("GPU-b").unwrap();
    rig.driver.rewrite(&two_gpus("lost = true")).unwrap();
    assert_eq!(nvml.device_count().unwrap(), 2);
    assert!(matches!(gpu.memory_info(), Err(NvmlError::GpuLost)));
    assert!(matches!(gpu.uuid(), Err(NvmlError::GpuLost)));
    assert!(matches!(gpu.running_compute_processes(), Err(NvmlError::GpuLost)));
    assert!(matches!(nvml.device_by_index(1), Err(NvmlError::GpuLost)));
    assert!(matches!(nvml.device_by_uuid("GPU-b"), Err(NvmlError::GpuLost)));
    assert_eq!(nvml.device_by_index(0).unwrap().memory_info().unwrap().total, 80 * GIB);
    rig.driver.rewrite(&two_gpus("")).unwrap();
    assert_eq!(gpu.memory_info().unwrap().total, 80 * GIB);
}

#[test]
fn a_removed_gpu_is_lost_behind_its_handle() {
    let rig = Rig::new(&two_gpus(""));
    let nvml = rig.load();
    let gpu = nvml.device_by_uuid("GPU-b").unwrap();
    rig.driver.rewrite(&one_gpu("")).unwrap();
    assert!(matches!(gpu.memory_info(), Err(NvmlError::GpuLost)));
    assert_eq!(nvml.device_count().unwrap(), 1);
    assert!(matches!(nvml.device_by_uuid("GPU-b"), Err(NvmlError::NotFound)));
}

#[test]
fn an_old_driver_has_older_calls_only() {
    let rig = Rig::new(&format!(
        "{}{}{}",
        one_gpu("memory_reserved = \"1GiB\"\nmemory_used = \"2GiB\"\nprocess = [{ pid = 1, used = 5 }]"),
        fault("nvmlDeviceGetMemoryInfo_v2", "error = \"function_not_found\""),
        fault("nvmlDeviceGet*RunningProcesses_v3", "error = \"function_not_found\""),
    ));
    let nvml = rig.load();
    let gpu = nvml.device_by_index(0).unwrap();
    assert!(matches!(gpu.memory_info(), Err(NvmlError::FunctionNotFound)));
    assert!(matches!(gpu.running_compute_processes(), Err(NvmlError::FunctionNotFound)));
    assert!(matches!(gpu.running_graphics_processes(), Err(NvmlError::FunctionNotFound)));
    assert!(matches!(gpu.mps_running_compute_processes(), Err(NvmlError::FunctionNotFound)));
    assert_eq!(gpu.running_compute_processes_v2().unwrap()[0].pid, 1);
}

#[test]
fn a_fault_applies_to_one_function_of_one_gpu_for_its_count() {
    let rig = Rig::new(&two_gpus(&fault(
        "nvmlDeviceGetMemoryInfo_v2",
        "gpu = \"GPU-b\"\nerror = \"no_permission\"\ntimes = 2",
    )));
    let nvml = rig.load();
    let [a, b] = [A, "GPU-b"].map(|uuid| nvml.device_by_uuid(uuid).unwrap());
    assert!(a.memory_info().is_ok());
    assert!(matches!(b.memory_info(), Err(NvmlError::NoPermission)));
    assert!(b.name().is_ok());
    assert!(matches!(b.memory_info(), Err(NvmlError::NoPermission)));
    assert!(b.memory_info().is_ok());
}

#[test]
fn a_fault_of_a_gpu_is_one_of_its_instances_too() {
    let instance = "[[gpu.mig.instance]]\nuuid = \"MIG-x\"\nmemory_total = 1\n";
    let text = format!("{}{}", one_gpu(instance), fault("nvmlDeviceGetName", "gpu = \"GPU-a\"\nerror = \"unknown\""));
    let rig = Rig::new(&text);
    let nvml = rig.load();
    assert!(matches!(nvml.device_by_uuid("MIG-x").unwrap().name(), Err(NvmlError::Unknown)));
}

#[test]
fn not_supported_and_reset_required_are_returned_as_scripted() {
    let text = format!(
        "{}{}{}",
        one_gpu("temperature = 50"),
        fault("nvmlDeviceGetTemperature", "error = \"not_supported\""),
        fault("nvmlDeviceGetMemoryInfo_v2", "error = \"reset_required\"")
    );
    let rig = Rig::new(&text);
    let nvml = rig.load();
    let gpu = nvml.device_by_index(0).unwrap();
    assert!(matches!(gpu.temperature(TemperatureSensor::Gpu), Err(NvmlError::NotSupported)));
    assert!(matches!(gpu.memory_info(), Err(NvmlError::ResetRequired)));
}

/// Asks for memory on a thread; the answer comes if the call comes back. The thread keeps the library loaded.
fn ask_for_memory(nvml: &'static Nvml) -> mpsc::Receiver<u64> {
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        let total = nvml.device_by_uuid(A).unwrap().memory_info().unwrap().total;
        let _ = tell.send(total);
    });
    told
}

#[test]
fn n13_a_call_hangs_until_the_script_changes_and_others_go_on() {
    let hang = fault("nvmlDeviceGetMemoryInfo_v2", "gpu = \"GPU-a\"\nhang = \"until_change\"");
    let rig = Rig::new(&two_gpus(&hang));
    let nvml: &'static Nvml = Box::leak(Box::new(rig.load()));
    let told = ask_for_memory(nvml);
    assert!(told.recv_timeout(Duration::from_millis(100)).is_err(), "it did not hang");
    assert!(nvml.device_by_uuid("GPU-b").unwrap().memory_info().is_ok());
    assert!(nvml.device_by_uuid(A).unwrap().name().is_ok());
    // Still hanging after a change that keeps the fault.
    rig.driver.rewrite(&format!("# again\n{}", two_gpus(&hang))).unwrap();
    assert!(told.recv_timeout(Duration::from_millis(100)).is_err(), "it came back too early");
    rig.driver.rewrite(&two_gpus("")).unwrap();
    assert_eq!(told.recv_timeout(Duration::from_secs(10)).unwrap(), 80 * GIB);
}

#[test]
fn n13_a_call_that_hangs_for_ever_does_so_whatever_the_script_says_later() {
    let rig = Rig::new(&two_gpus(&fault("nvmlDeviceGetMemoryInfo_v2", "hang = \"forever\"\ntimes = 1")));
    let nvml: &'static Nvml = Box::leak(Box::new(rig.load()));
    let told = ask_for_memory(nvml);
    assert!(told.recv_timeout(Duration::from_millis(100)).is_err(), "it did not hang");
    rig.driver.rewrite(&two_gpus("")).unwrap();
    assert!(told.recv_timeout(Duration::from_millis(200)).is_err(), "it came back");
    assert_eq!(ask_for_memory(nvml).recv_timeout(Duration::from_secs(10)).unwrap(), 80 * GIB);
}

#[test]
fn a_slow_call_comes_back_with_the_answer() {
    let rig = Rig::new(&two_gpus(&fault("nvmlDeviceGetMemoryInfo_v2", "delay_ms = 80")));
    let nvml = rig.load();
    let begun = std::time::Instant::now();
    assert_eq!(nvml.device_by_uuid(A).unwrap().memory_info().unwrap().total, 80 * GIB);
    assert!(begun.elapsed() >= Duration::from_millis(80));
}
