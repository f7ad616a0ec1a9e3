//! Drivers that fail: calls that hang, GPUs that are lost, errors, and what the inventory reports of them.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use berth_domain::{Bytes, GpuHealth, Span};
use berth_runner::inventory::{Detail, DriverStatus, GpusSeen, InventorySettings, NvmlGpus};

use crate::{Rig, at, gpu, two, until};

const HANG: &str = "[[fault]]\nfunction = \"nvmlDeviceGetMemoryInfo_v2\"\ngpu = \"GPU-a\"\nhang = \"until_change\"\n";

fn xid(id: u64, xid: u64) -> String {
    format!("[[event]]\nid = {id}\ngpu = \"GPU-a\"\nxid = {xid}\n")
}

fn healths(seen: &GpusSeen) -> [GpuHealth; 2] {
    ["GPU-a", "GPU-b"].map(|uuid| gpu(seen, uuid).health)
}

fn why_absent(seen: &GpusSeen) -> &str {
    match &seen.driver {
        DriverStatus::Absent(why) => why,
        other => panic!("the driver is {other:?}"),
    }
}

#[test]
fn n13_a_gpu_whose_call_hangs_is_stale_and_the_other_is_not() {
    let deadline = Span::from_secs(2);
    let mut rig = Rig::with(&two("memory_used = \"5GiB\"", "", ""), deadline, Span::from_secs(3600));
    assert_eq!(healths(&rig.full()), [GpuHealth::Ok, GpuHealth::Ok]);
    rig.driver.rewrite(&two("memory_used = \"7GiB\"", "memory_used = \"9GiB\"", HANG)).unwrap();
    let begun = Instant::now();
    let seen = rig.full();
    assert!(begun.elapsed() < Duration::from_secs(6), "it took {:?}", begun.elapsed());
    assert_eq!(healths(&seen), [GpuHealth::Stale, GpuHealth::Ok]);
    let a = gpu(&seen, "GPU-a");
    assert_eq!((a.memory.used, a.taken), (Bytes::gib(5), at(1)), "the last numbers, and their age");
    assert!(a.trouble.as_deref().unwrap().contains("reading memory"), "{:?}", a.trouble);
    assert_eq!((gpu(&seen, "GPU-b").memory.used, gpu(&seen, "GPU-b").taken), (Bytes::gib(9), at(2)));
    assert_eq!(a.report().health, GpuHealth::Stale);

    // It is not waited for again.
    let begun = Instant::now();
    let looks = 20;
    for _ in 0..looks {
        assert_eq!(healths(&rig.full()), [GpuHealth::Stale, GpuHealth::Ok]);
    }
    assert!(begun.elapsed() < Duration::from_secs(10), "{looks} looks took {:?}", begun.elapsed());

    rig.driver.rewrite(&two("memory_used = \"8GiB\"", "", "")).unwrap();
    until("the GPU is fresh again", || gpu(&rig.full(), "GPU-a").health == GpuHealth::Ok);
    assert_eq!(gpu(&rig.full(), "GPU-a").memory.used, Bytes::gib(8));
}

#[test]
fn n13_an_answer_that_comes_late_is_not_taken_for_news() {
    let mut rig = Rig::with(&two("memory_used = \"5GiB\"", "", ""), Span::from_secs(2), Span::from_secs(3600));
    rig.full();
    // Memory is read before it hangs, an error is told, and all of it changes before the thread comes back.
    let hang =
        "[[fault]]\nfunction = \"nvmlDeviceGetComputeRunningProcesses_v3\"\ngpu = \"GPU-a\"\nhang = \"until_change\"\n";
    rig.driver.rewrite(&two("memory_used = \"6GiB\"", "", &format!("{hang}{}", xid(1, 31)))).unwrap();
    assert_eq!(healths(&rig.full()), [GpuHealth::Stale, GpuHealth::Ok]);
    rig.driver.rewrite(&two("memory_used = \"8GiB\"", "", "")).unwrap();
    let mut now = 2;
    until("the GPU is fresh again", || {
        now += 1;
        let seen = rig.full();
        let a = gpu(&seen, "GPU-a");
        if a.health == GpuHealth::Ok {
            assert_eq!((a.memory.used, a.taken), (Bytes::gib(8), at(now)));
            assert_eq!(a.telemetry.last_xid, Some(31), "it was told only once");
        }
        a.health == GpuHealth::Ok
    });
}

#[test]
fn n12_an_error_that_arrives_while_a_call_hangs_is_not_forgotten() {
    let mut rig = Rig::with(&two("", "", ""), Span::from_secs(2), Span::from_secs(3600));
    rig.full();
    rig.driver.rewrite(&two("", "", &format!("{HANG}{}", xid(1, 79)))).unwrap();
    assert_eq!(healths(&rig.full()), [GpuHealth::Stale, GpuHealth::Ok]);
    rig.driver.rewrite(&two("", "", "")).unwrap();
    until("the GPU is read again", || gpu(&rig.full(), "GPU-a").taken > at(2));
    assert_eq!(healths(&rig.full()), [GpuHealth::Lost, GpuHealth::Ok]);
}

#[test]
fn n13_a_list_that_hangs_stops_no_gpu() {
    let mut rig = Rig::with(&two("", "", ""), Span::from_secs(2), Span::from_secs(3600));
    rig.full();
    let hang = "[[fault]]\nfunction = \"nvmlDeviceGetCount_v2\"\nhang = \"until_change\"\n";
    rig.driver.rewrite(&two("memory_used = \"4GiB\"", "", hang)).unwrap();
    let seen = rig.full();
    assert_eq!(healths(&seen), [GpuHealth::Ok, GpuHealth::Ok]);
    assert_eq!(gpu(&seen, "GPU-a").memory.used, Bytes::gib(4));
    assert!(why_absent(&seen).contains("listing GPUs"), "{}", why_absent(&seen));
    rig.driver.rewrite(&two("", "", "")).unwrap();
    until("the list is back", || matches!(rig.full().driver, DriverStatus::Present { .. }));
}

#[test]
fn n13_a_driver_that_hangs_when_it_is_opened_does_not_stop_the_agent() {
    let hang = "[[fault]]\nfunction = \"nvmlInit*\"\nhang = \"until_change\"\n";
    let mut rig = Rig::with(&two("", "", hang), Span::from_millis(200), Span::from_secs(3600));
    let begun = Instant::now();
    let seen = rig.full();
    assert!(begun.elapsed() < Duration::from_secs(5), "it took {:?}", begun.elapsed());
    assert!(seen.gpus.is_empty());
    assert!(why_absent(&seen).contains("opening the driver"), "{}", why_absent(&seen));
    rig.driver.rewrite(&two("", "", "")).unwrap();
    until("the driver is open", || rig.full().gpus.len() == 2);
}

#[test]
fn n13_a_gpu_that_hangs_from_the_start_is_noted_and_not_made_up() {
    let mut rig = Rig::with(&two("", "", HANG), Span::from_secs(2), Span::from_secs(3600));
    let seen = rig.full();
    assert_eq!(seen.gpus.len(), 1);
    assert!(seen.notes.iter().any(|note| note.starts_with("GPU-a: ")), "{:?}", seen.notes);
    rig.driver.rewrite(&two("", "", "")).unwrap();
    until("the GPU is there", || rig.full().gpus.len() == 2);
}

#[test]
fn n12_a_lost_gpu_is_lost_with_its_last_numbers_until_it_is_back() {
    let mut rig = Rig::new(&two("memory_used = \"5GiB\"", "", ""));
    rig.full();
    rig.driver.rewrite(&two("lost = true", "", "")).unwrap();
    let seen = rig.full();
    assert_eq!(healths(&seen), [GpuHealth::Lost, GpuHealth::Ok]);
    assert_eq!((gpu(&seen, "GPU-a").memory.used, gpu(&seen, "GPU-a").taken), (Bytes::gib(5), at(1)));
    rig.driver.rewrite(&two("", "", "")).unwrap();
    assert_eq!(healths(&rig.full()), [GpuHealth::Ok, GpuHealth::Ok]);
}

#[test]
fn n12_instances_are_lost_with_their_gpu() {
    let mig = "[[gpu.mig.instance]]\nuuid = \"MIG-x\"\nmemory_total = \"10GiB\"\n";
    let mut rig = Rig::new(&two(mig, "", ""));
    assert_eq!(gpu(&rig.full(), "MIG-x").health, GpuHealth::Ok);
    rig.driver.rewrite(&two(&format!("lost = true\n{mig}"), "", "")).unwrap();
    assert_eq!(gpu(&rig.full(), "MIG-x").health, GpuHealth::Lost);
}

#[test]
fn n12_a_gpu_that_is_no_longer_listed_is_lost() {
    let mut rig = Rig::new(&two("", "", ""));
    rig.full();
    rig.driver.rewrite("[[gpu]]\nuuid = \"GPU-b\"\nmemory_total = \"80GiB\"\n").unwrap();
    let seen = rig.full();
    assert_eq!(healths(&seen), [GpuHealth::Lost, GpuHealth::Ok]);
}

#[test]
fn n12_a_gpu_that_needs_a_reset_is_lost() {
    let mut rig = Rig::new(&two("", "", ""));
    rig.full();
    let reset = "[[fault]]\nfunction = \"nvmlDevice*\"\ngpu = \"GPU-a\"\nerror = \"reset_required\"\n";
    rig.driver.rewrite(&two("", "", reset)).unwrap();
    assert_eq!(healths(&rig.full()), [GpuHealth::Lost, GpuHealth::Ok]);
}

#[test]
fn n12_an_xid_that_means_gone_is_lost_even_while_the_driver_answers() {
    let mut rig = Rig::new(&two("", "", ""));
    rig.full();
    rig.driver.rewrite(&two("", "", &xid(1, 79))).unwrap();
    let seen = rig.look(Detail::Usage);
    assert_eq!(healths(&seen), [GpuHealth::Lost, GpuHealth::Ok]);
    let a = gpu(&seen, "GPU-a");
    assert!(a.trouble.as_deref().unwrap().contains("Xid 79"), "{:?}", a.trouble);
    assert_eq!(a.telemetry.last_xid, Some(79));
    // That the driver answers for it is no sign that it is back; that it was silent in between is.
    assert_eq!(healths(&rig.full()), [GpuHealth::Lost, GpuHealth::Ok]);
    rig.driver.rewrite(&two("lost = true", "", &xid(1, 79))).unwrap();
    assert_eq!(healths(&rig.full()), [GpuHealth::Lost, GpuHealth::Ok]);
    rig.driver.rewrite(&two("", "", &xid(1, 79))).unwrap();
    assert_eq!(healths(&rig.full()), [GpuHealth::Ok, GpuHealth::Ok]);
}

#[test]
fn an_xid_of_a_process_is_noted_and_the_gpu_is_in_order() {
    let mut rig = Rig::new(&two("", "", ""));
    rig.full();
    rig.driver.rewrite(&two("", "", &format!("{}{}", xid(1, 13), xid(2, 43)))).unwrap();
    let seen = rig.full();
    assert_eq!((gpu(&seen, "GPU-a").health, gpu(&seen, "GPU-a").telemetry.last_xid), (GpuHealth::Ok, Some(43)));
}

#[test]
fn n12_the_driver_is_opened_anew_when_a_gpu_is_lost_and_no_call_hangs() {
    let mut rig = Rig::with(&two("", "", ""), Span::from_secs(10), Span::ZERO);
    rig.full();
    // Opening it anew shows: it no longer can be.
    let refused = "[[fault]]\nfunction = \"nvmlInit*\"\nerror = \"lib_rm_version_mismatch\"\n";
    rig.driver.rewrite(&two("lost = true", "", refused)).unwrap();
    assert_eq!(healths(&rig.full()), [GpuHealth::Lost, GpuHealth::Ok], "this look still has it open");
    let seen = rig.full();
    assert_eq!(healths(&seen), [GpuHealth::Lost, GpuHealth::Stale]);
    assert!(why_absent(&seen).contains("restart the machine"), "{}", why_absent(&seen));
    rig.driver.rewrite(&two("", "", "")).unwrap();
    assert_eq!(healths(&rig.full()), [GpuHealth::Ok, GpuHealth::Ok]);
}

#[test]
fn a_gpu_that_may_not_be_read_is_stale_with_the_reason() {
    let mut rig = Rig::new(&two("", "", ""));
    rig.full();
    let fault = "[[fault]]\nfunction = \"nvmlDeviceGetMemoryInfo_v2\"\ngpu = \"GPU-b\"\nerror = \"no_permission\"\n";
    rig.driver.rewrite(&two("", "", fault)).unwrap();
    let seen = rig.full();
    assert_eq!(healths(&seen), [GpuHealth::Ok, GpuHealth::Stale]);
    assert!(gpu(&seen, "GPU-b").trouble.as_deref().unwrap().contains("permission"));
}

#[test]
fn a_gpu_that_is_lost_from_the_start_is_noted() {
    let mut rig = Rig::new(&two("lost = true", "", ""));
    let seen = rig.full();
    assert_eq!(seen.gpus.len(), 1);
    assert!(seen.notes[0].starts_with("GPU 0 cannot be named"), "{:?}", seen.notes);
}

#[test]
fn a_driver_that_does_not_fit_or_is_not_there_is_told_in_words() {
    let refused = "[[fault]]\nfunction = \"nvmlInit*\"\nerror = \"lib_rm_version_mismatch\"\n";
    let mut rig = Rig::new(&two("", "", refused));
    assert!(why_absent(&rig.full()).contains("restart the machine"));
    // It is tried again with every look.
    rig.driver.rewrite(&two("", "", "")).unwrap();
    assert_eq!(rig.full().gpus.len(), 2);

    let library = Some(PathBuf::from("/nowhere/libnvidia-ml.so.1"));
    let mut nowhere = NvmlGpus::new(InventorySettings { library, ..InventorySettings::default() });
    let seen = nowhere.look(at(1), Detail::Full);
    assert!(why_absent(&seen).contains("inventory.simulated"), "{}", why_absent(&seen));
}
