//! Inventories of a driver without failures.

use berth_domain::{Bytes, GpuHealth};
use berth_nvml_mock::EXAMPLE;
use berth_runner::inventory::{
    Closeness, ComputeMode, Detail, DriverStatus, EccSeen, MemorySeen, ProcessSeen, ProcessesSeen,
};

use crate::{Rig, Sleeper, at, gpu, two, until, uuid};

const FIRST: &str = "GPU-11111111-1111-1111-1111-111111111111";
const SECOND: &str = "GPU-22222222-2222-2222-2222-222222222222";
const THIRD: &str = "GPU-33333333-3333-3333-3333-333333333333";

#[test]
fn a_gpu_is_seen_with_memory_processes_and_telemetry() {
    let mut rig = Rig::new(EXAMPLE);
    let seen = rig.full();
    assert_eq!(seen.driver, DriverStatus::Present { version: "570.86.15".to_owned() });
    let first = gpu(&seen, FIRST);
    assert_eq!((first.index, first.name.as_str(), first.health), (0, "NVIDIA H100 80GB HBM3", GpuHealth::Ok));
    let memory = MemorySeen { total: Bytes::gib(80), reserved: Bytes::mib(512), used: Bytes::gib(3) };
    assert_eq!((first.memory, first.taken), (memory, at(1)));
    // Pid 1 computes and draws: one process, on two lists, one of them with an amount.
    assert_eq!(first.processes, ProcessesSeen::Listed(vec![ProcessSeen { pid: 1, used: Some(Bytes::gib(2)) }]));
    let telemetry = &first.telemetry;
    assert_eq!((telemetry.utilization_percent, telemetry.temperature_celsius), (Some(37), Some(54)));
    assert_eq!((telemetry.power_milliwatts, telemetry.numa_node), (Some(312_000), Some(0)));
    assert_eq!(telemetry.compute_mode, Some(ComputeMode::Shared));
    assert_eq!(telemetry.ecc, Some(EccSeen { corrected: 3, uncorrected: 0 }));
    assert_eq!(telemetry.pci_bus_id.as_deref(), Some("00000000:1B:00.0"));
}

#[test]
fn what_a_driver_does_not_say_is_absent_and_not_zero() {
    let mut rig = Rig::new(EXAMPLE);
    let seen = rig.full();
    let third = gpu(&seen, THIRD);
    assert_eq!((third.telemetry.utilization_percent, third.telemetry.ecc), (None, None));
    let report = gpu(&seen, FIRST).report();
    assert_eq!((report.memory_reserved, report.parent), (Bytes::mib(512), None));
}

#[test]
fn g8_mig_instances_are_devices_after_their_parent() {
    let mut rig = Rig::new(EXAMPLE);
    let seen = rig.full();
    let names: Vec<&str> = seen.gpus.iter().map(|gpu| gpu.uuid.as_str()).collect();
    let (one, two) = ("MIG-44444444-4444-4444-4444-444444444444", "MIG-55555555-5555-5555-5555-555555555555");
    assert_eq!(names, [FIRST, SECOND, THIRD, one, two]);
    let instance = gpu(&seen, one);
    assert_eq!(instance.parent, Some(uuid(THIRD)));
    assert_eq!(instance.memory.total, Bytes::mib(4864));
    assert_eq!(instance.memory.used, Bytes::mib(1024 + 14));
    assert_eq!(instance.report().parent, Some(uuid(THIRD)));
    assert_eq!(gpu(&seen, two).processes, ProcessesSeen::Listed(vec![]));
    assert_eq!(gpu(&seen, THIRD).parent, None);
}

#[test]
fn gpus_are_joined_as_the_driver_says() {
    let mut rig = Rig::new(EXAMPLE);
    let seen = rig.full();
    let told: Vec<_> = seen.links.iter().map(|link| (link.closeness, link.nvlinks, link.nvlink)).collect();
    assert_eq!(seen.links[0].between, (uuid(FIRST), uuid(SECOND)));
    assert_eq!(told, [(Closeness::Switch, 4, true), (Closeness::System, 0, false), (Closeness::System, 0, false)]);
    assert!(Closeness::Switch < Closeness::System);
}

#[test]
fn r6_a_process_comes_and_goes_and_its_memory_with_it() {
    let mut rig = Rig::new(&two("", "", ""));
    let mut process = Sleeper::start();
    assert_eq!(gpu(&rig.full(), "GPU-a").memory.used, Bytes::ZERO);
    rig.driver.claim(process.pid(), "GPU-a", Bytes::gib(20)).unwrap();
    let seen = rig.look(Detail::Usage);
    let a = gpu(&seen, "GPU-a");
    assert_eq!((a.memory.used, a.taken), (Bytes::gib(20), at(2)));
    assert!(!a.processes.is_clear_of(&[process.pid()].into()));
    assert!(gpu(&seen, "GPU-b").processes.is_clear_of(&[process.pid()].into()));
    process.kill();
    until("the memory is back", || gpu(&rig.look(Detail::Usage), "GPU-a").memory.used == Bytes::ZERO);
    assert!(gpu(&rig.look(Detail::Usage), "GPU-a").processes.is_clear_of(&[process.pid()].into()));
}

#[test]
fn r6_a_list_that_cannot_be_read_is_no_proof() {
    let fault = "[[fault]]\nfunction = \"nvmlDeviceGetComputeRunningProcesses_v3\"\nerror = \"no_permission\"\n";
    let mut rig = Rig::new(&two("", "", fault));
    let seen = rig.full();
    let a = gpu(&seen, "GPU-a");
    assert_eq!((a.health, &a.processes), (GpuHealth::Ok, &ProcessesSeen::Unknown));
    assert!(!a.processes.is_clear_of(&[1].into()));
}

#[test]
fn a_driver_without_the_newer_calls_is_read_with_the_older() {
    let old = "[[fault]]\nfunction = \"nvmlDeviceGetMemoryInfo_v2\"\nerror = \"function_not_found\"\n\
               [[fault]]\nfunction = \"nvmlDeviceGet*RunningProcesses_v3\"\nerror = \"function_not_found\"\n";
    let lines = "memory_reserved = \"1GiB\"\nmemory_used = \"2GiB\"\nprocess = [{ pid = 7, used = \"2GiB\" }]";
    let mut rig = Rig::new(&two(lines, "", old));
    for _ in 0..2 {
        let seen = rig.full();
        let a = gpu(&seen, "GPU-a");
        // What the driver reserves counts as used there: nothing that is taken is ever missed.
        let memory = MemorySeen { total: Bytes::gib(80), reserved: Bytes::ZERO, used: Bytes::gib(3) };
        assert_eq!((a.health, a.memory), (GpuHealth::Ok, memory));
        assert_eq!(a.processes, ProcessesSeen::Listed(vec![ProcessSeen { pid: 7, used: Some(Bytes::gib(2)) }]));
    }
}

#[test]
fn an_older_call_that_fails_is_stale_and_not_zero() {
    let old = "[[fault]]\nfunction = \"nvmlDeviceGetMemoryInfo*\"\nerror = \"function_not_found\"\n";
    let mut rig = Rig::new(&two("memory_used = \"2GiB\"", "", ""));
    rig.full();
    rig.driver.rewrite(&two("memory_used = \"3GiB\"", "", old)).unwrap();
    let seen = rig.full();
    let a = gpu(&seen, "GPU-a");
    assert_eq!((a.health, a.memory.used, a.taken), (GpuHealth::Stale, Bytes::gib(2), at(1)));
    assert!(a.trouble.as_deref().unwrap().contains("memory"), "{:?}", a.trouble);
}

#[test]
fn a_quick_look_reads_memory_and_keeps_the_last_telemetry() {
    let mut rig = Rig::new(&two("temperature = 40\nmemory_used = 1", "", ""));
    rig.full();
    rig.driver.rewrite(&two("temperature = 60\nmemory_used = 2", "", "")).unwrap();
    let quick = rig.look(Detail::Usage);
    let a = gpu(&quick, "GPU-a");
    assert_eq!((a.memory.used, a.telemetry.temperature_celsius), (Bytes::new(2), Some(40)));
    assert_eq!(gpu(&rig.full(), "GPU-a").telemetry.temperature_celsius, Some(60));
}

#[test]
fn g9_indexes_change_and_uuids_stay() {
    let mut rig = Rig::new(&two("index = 0", "index = 1", ""));
    assert_eq!(gpu(&rig.full(), "GPU-a").index, 0);
    rig.driver.rewrite(&two("index = 1", "index = 0", "")).unwrap();
    let seen = rig.full();
    assert_eq!((gpu(&seen, "GPU-a").index, gpu(&seen, "GPU-b").index, seen.gpus.len()), (1, 0, 2));
}

#[test]
fn a_gpu_that_is_added_is_seen_in_the_next_full_look() {
    let mut rig = Rig::new(&two("", "", ""));
    rig.full();
    rig.driver.rewrite(&two("", "", "[[gpu]]\nuuid = \"GPU-c\"\nmemory_total = \"24GiB\"\n")).unwrap();
    assert_eq!(gpu(&rig.full(), "GPU-c").memory.total, Bytes::gib(24));
}
