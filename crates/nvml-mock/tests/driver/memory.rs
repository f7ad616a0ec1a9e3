//! Memory and processes.

use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use berth_domain::Bytes;
use berth_nvml_mock::{CLAIMS_VARIABLE, EXAMPLE};
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::struct_wrappers::device::ProcessInfo;
use nvml_wrapper::{Device, Nvml};

use crate::{A, GIB, Rig, Sleeper, one_gpu, until};

fn gpu(nvml: &Nvml) -> Device<'_> {
    nvml.device_by_uuid(A).unwrap()
}

fn used(nvml: &Nvml) -> u64 {
    gpu(nvml).memory_info().unwrap().used
}

fn pids(nvml: &Nvml) -> Vec<u32> {
    gpu(nvml).running_compute_processes().unwrap().iter().map(|process| process.pid).collect()
}

#[test]
fn reserved_memory_is_reported_separately() {
    let rig = Rig::new(&one_gpu("memory_reserved = \"512MiB\"\nmemory_used = \"30GiB\""));
    let nvml = rig.load();
    let memory = gpu(&nvml).memory_info().unwrap();
    assert_eq!((memory.total, memory.reserved, memory.used), (80 * GIB, GIB / 2, 30 * GIB));
    assert_eq!(memory.free, 80 * GIB - GIB / 2 - 30 * GIB);
}

#[test]
fn more_in_use_than_there_is_shows() {
    let rig = Rig::new(&one_gpu("memory_used = \"90GiB\""));
    let nvml = rig.load();
    let memory = gpu(&nvml).memory_info().unwrap();
    assert_eq!((memory.used, memory.free), (90 * GIB, 0));
}

#[test]
fn processes_are_listed_by_kind_with_what_they_use() {
    let rig = Rig::new(&one_gpu(
        "memory_used = \"7GiB\"\n\
         process = [{ pid = 4000000, used = \"3GiB\" }, { pid = 4000001 },\n\
         { pid = 4000002, used = \"1GiB\", kind = \"graphics\" }, { pid = 4000003, used = 1, kind = \"mps\" }]",
    ));
    let nvml = rig.load();
    let gpu = gpu(&nvml);
    let tell = |list: Vec<ProcessInfo>| -> Vec<(u32, Option<u64>)> {
        let amount = |used| match used {
            UsedGpuMemory::Used(bytes) => Some(bytes),
            UsedGpuMemory::Unavailable => None,
        };
        list.into_iter().map(|process| (process.pid, amount(process.used_gpu_memory))).collect()
    };
    let computing = vec![(4_000_000, Some(3 * GIB)), (4_000_001, None)];
    assert_eq!(tell(gpu.running_compute_processes().unwrap()), computing);
    assert_eq!(tell(gpu.running_compute_processes_v2().unwrap()), computing);
    assert_eq!(tell(gpu.running_graphics_processes().unwrap()), [(4_000_002, Some(GIB))]);
    assert_eq!(tell(gpu.running_graphics_processes_v2().unwrap()), [(4_000_002, Some(GIB))]);
    assert_eq!(tell(gpu.mps_running_compute_processes().unwrap()), [(4_000_003, Some(1))]);
    // Stated as it stands: nobody looks whether these pids live.
    assert_eq!(gpu.memory_info().unwrap().used, 7 * GIB);
}

#[test]
fn many_processes_fit_into_the_list() {
    let list: Vec<String> = (0..100).map(|n| format!("{{ pid = {}, used = {n} }}", 4_000_000 + n)).collect();
    let rig = Rig::new(&one_gpu(&format!("process = [{}]", list.join(", "))));
    let nvml = rig.load();
    assert_eq!(pids(&nvml), (4_000_000..4_000_100).collect::<Vec<u32>>());
}

#[test]
fn the_memory_of_a_dead_process_is_back() {
    let mut process = Sleeper::start();
    let rig = Rig::new(&one_gpu(&format!(
        "memory_used = \"1GiB\"\nused_follows_processes = true\nprocess = [{{ pid = {}, used = \"20GiB\" }}]",
        process.pid()
    )));
    let nvml = rig.load();
    assert_eq!((used(&nvml), pids(&nvml)), (21 * GIB, vec![process.pid()]));
    // It becomes a zombie, and nobody buries it: the driver does not mind.
    process.kill();
    until("the process is no longer listed", || pids(&nvml).is_empty());
    assert_eq!(used(&nvml), GIB);
}

#[test]
fn a_program_claims_memory_by_a_file_and_loses_it_with_its_life() {
    let rig = Rig::new(&one_gpu(""));
    let nvml = rig.load();
    // A program of its own that knows nothing but the variable.
    let mut program = Command::new("sh")
        .args(["-c", "echo 10GiB > \"$BERTH_NVML_CLAIMS/$$.GPU-a\"; exec sleep 600"])
        .env(CLAIMS_VARIABLE, rig.driver.claims())
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    until("the claim is seen", || used(&nvml) == 10 * GIB);
    assert_eq!(pids(&nvml), [program.id()]);
    rig.driver.claim(program.id(), A, Bytes::gib(12)).unwrap();
    assert_eq!(used(&nvml), 12 * GIB);
    program.kill().unwrap();
    until("the memory is back", || used(&nvml) == 0);
    assert_eq!(pids(&nvml), [0u32; 0]);
    program.wait().unwrap();
}

#[test]
fn two_processes_on_one_gpu_add_up_and_other_gpus_do_not_count() {
    let (one, other) = (Sleeper::start(), Sleeper::start());
    let rig = Rig::new(&one_gpu("memory_used = \"1GiB\""));
    let nvml = rig.load();
    rig.driver.claim(one.pid(), A, Bytes::gib(5)).unwrap();
    rig.driver.claim(other.pid(), A, Bytes::gib(6)).unwrap();
    rig.driver.claim(other.pid(), "GPU-b", Bytes::gib(7)).unwrap();
    assert_eq!(used(&nvml), 12 * GIB);
    rig.driver.unclaim(other.pid(), A).unwrap();
    assert_eq!((used(&nvml), pids(&nvml)), (6 * GIB, vec![one.pid()]));
}

#[test]
fn a_file_without_a_size_is_a_process_that_uses_nothing() {
    let process = Sleeper::start();
    let rig = Rig::new(&one_gpu(""));
    let nvml = rig.load();
    std::fs::write(rig.driver.claims().join(format!("{}.{A}", process.pid())), "").unwrap();
    std::fs::write(rig.driver.claims().join("no claim"), "5").unwrap();
    assert_eq!((used(&nvml), pids(&nvml)), (0, vec![process.pid()]));
}

#[test]
fn r6_memory_may_come_back_later_than_the_process_is_gone() {
    for listed in [true, false] {
        let mut process = Sleeper::start();
        let delay = Duration::from_millis(800);
        let rig = Rig::new(&format!("release_delay_ms = 800\nrelease_listed = {listed}\n{}", one_gpu("")));
        let nvml = rig.load();
        rig.driver.claim(process.pid(), A, Bytes::gib(5)).unwrap();
        assert_eq!(used(&nvml), 5 * GIB);
        process.kill();
        process.0.wait().unwrap();
        let dead = Instant::now();
        // This call is the first to find it dead; the delay begins here.
        assert_eq!(used(&nvml), 5 * GIB);
        assert_eq!(pids(&nvml), if listed { vec![process.pid()] } else { vec![] });
        until("the memory is back", || used(&nvml) == 0);
        assert!(dead.elapsed() >= delay, "back after {:?}", dead.elapsed());
        assert_eq!(pids(&nvml), [0u32; 0]);
    }
}

#[test]
fn a_driver_may_hide_the_processes_that_use_memory() {
    let process = Sleeper::start();
    let rig = Rig::new(&one_gpu("attribution = \"pids\""));
    let nvml = rig.load();
    rig.driver.claim(process.pid(), A, Bytes::gib(5)).unwrap();
    let listed = gpu(&nvml).running_compute_processes().unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].used_gpu_memory, UsedGpuMemory::Unavailable);
    rig.driver.rewrite(&one_gpu("attribution = \"none\"")).unwrap();
    assert_eq!((used(&nvml), pids(&nvml)), (5 * GIB, vec![]));
}

#[test]
fn g11_two_scripts_with_the_same_claims_show_one_gpu() {
    let process = Sleeper::start();
    let one = Rig::new(&one_gpu(""));
    let claims = one.driver.claims();
    let other = Rig::new(&format!("claims = {:?}\n{}", claims.to_str().unwrap(), one_gpu("")));
    let (first, second) = (one.load(), other.load());
    one.driver.claim(process.pid(), A, Bytes::gib(50)).unwrap();
    assert_eq!((used(&first), used(&second)), (50 * GIB, 50 * GIB));
}

#[test]
fn the_environment_names_script_and_claims_in_a_process_of_its_own() {
    let rig = Rig::new(&one_gpu(""));
    let process = Sleeper::start();
    let claims = rig.path().join("elsewhere");
    std::fs::create_dir(&claims).unwrap();
    std::fs::write(claims.join(format!("{}.GPU-json", process.pid())), "3GiB").unwrap();
    let script = rig.path().join("other.json");
    std::fs::write(&script, r#"{"gpu": [{"uuid": "GPU-json", "memory_total": "8GiB"}]}"#).unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "memory::print_what_the_environment_says", "--nocapture", "--ignored"])
        .env("BERTH_NVML_SCRIPT", &script)
        .env(CLAIMS_VARIABLE, &claims)
        .env("TEST_LIBRARY", rig.driver.library())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("GPU-json uses 3221225472 of 8589934592"), "{said}");
}

#[test]
#[ignore = "started by the test above, with an environment of its own"]
fn print_what_the_environment_says() {
    let library = std::env::var_os("TEST_LIBRARY").unwrap();
    let nvml = crate::load(library.as_ref()).unwrap();
    let gpu = nvml.device_by_index(0).unwrap();
    let memory = gpu.memory_info().unwrap();
    println!("{} uses {} of {}", gpu.uuid().unwrap(), memory.used, memory.total);
}

#[test]
fn reading_while_the_script_is_replaced_never_sees_half_of_it() {
    let rig = Rig::new(EXAMPLE);
    let nvml = rig.load();
    let stop = std::sync::atomic::AtomicBool::new(false);
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                rig.driver.rewrite(EXAMPLE).unwrap();
                rig.driver.rewrite(&EXAMPLE.replace("memory_used = \"1GiB\"", "memory_used = \"3GiB\"")).unwrap();
            }
        });
        let gpu = nvml.device_by_index(0).unwrap();
        let mut seen = [0, 0];
        until("both scripts were seen, often", || {
            match gpu.memory_info().unwrap().used / GIB {
                3 => seen[0] += 1,
                5 => seen[1] += 1,
                other => panic!("{other} GiB are in use"),
            }
            seen[0] > 100 && seen[1] > 100
        });
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        writer.join().unwrap();
    });
}
