//! Process trees that resist their end (N10). The whole tree ends, and only then is the memory free.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use berth_tests::fleet::{Fleet, LedgerWatch, Machine, Model};
use berth_tests::service::eventually;

/// Runs a slot with these arguments, stops it, and checks that it is charged while any of its processes lives.
fn ends_whole(args: &[&str]) {
    let fleet = Fleet::start();
    let machine = Machine::new(&[80]);
    let _agent = machine.agent(&fleet);
    let uuid = machine.uuid(0);
    fleet.model(&Model::new("chat", 60).args(args));
    let chat = fleet.run("chat");
    let watch = LedgerWatch::of(&machine, &fleet, 1);
    assert!(!machine.used(&uuid).is_empty());
    fleet.stop(&chat);
    eventually("it is released", || {
        let alive = !machine.living_of(&chat.slot).is_empty();
        let used = fleet.charge(&uuid).used();
        // A process that lived before the ledger was read is charged there, or has ended since.
        assert!(used == 60 || !alive || machine.living_of(&chat.slot).is_empty(), "{used} GiB for a living tree");
        (used == 0).then_some(())
    });
    assert!(machine.living().is_empty());
    assert_eq!(machine.starts_of(&chat.slot), 1);
    watch.saw_nothing_wrong();
}

#[test]
fn n10_a_process_that_ignores_term_is_killed() {
    ends_whole(&["--ignore-term"]);
}

#[test]
fn n10_a_child_that_survives_its_parent_is_ended_too() {
    ends_whole(&["--child"]);
}

#[test]
fn n10_a_process_that_daemonises_is_found_and_ended() {
    let fleet = Fleet::with(&["scheduler.attempts=1"]);
    let machine = Machine::new(&[80]);
    let _agent = machine.agent(&fleet);
    let watch = LedgerWatch::of(&machine, &fleet, 1);
    // Its first process ends at once: to the agent that is the end of the slot, and what lives on is ended.
    fleet.model(&Model::new("chat", 60).args(&["--daemonise"]));
    let chat = fleet.lease("chat");
    fleet.until(&chat, "failed");
    fleet.until_charge(&machine.uuid(0), "its memory is free", |charge| charge.used() == 0);
    assert!(machine.living().is_empty());
    watch.saw_nothing_wrong();
}

#[test]
fn n10_a_process_that_forks_all_the_time_is_ended() {
    let fleet = Fleet::with(&["scheduler.attempts=1"]);
    let machine = Machine::new(&[80]);
    let _agent = machine.agent(&fleet);
    let watch = LedgerWatch::of(&machine, &fleet, 1);
    fleet.model(&Model::new("chat", 60).args(&["--forks"]));
    let chat = fleet.lease("chat");
    fleet.until(&chat, "failed");
    fleet.until_charge(&machine.uuid(0), "its memory is free", |charge| charge.used() == 0);
    assert!(machine.living().is_empty());
    watch.saw_nothing_wrong();
}

#[test]
fn n10_an_unkillable_process_quarantines_its_device() {
    let fleet = Fleet::start();
    let machine = Machine::new(&[80]);
    let agent = machine.plan(&fleet).set("unkillable_after = \"700ms\"").start(&fleet);
    let uuid = machine.uuid(0);
    fleet.model(&Model::new("chat", 60));
    fleet.model(&Model::new("small", 10));
    let chat = fleet.run("chat");
    let pid = machine.living_of(&chat.slot)[0].pid;
    // A debugger holds it at the moment of its exit. It is neither there nor gone, and no signal changes that.
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("hold_at_exit.py");
    let mut holder = Command::new("python3")
        .arg(script)
        .arg(pid.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(holder.stdout.take().unwrap()).lines();
    assert_eq!(said.next().unwrap().unwrap(), "held");

    fleet.stop(&chat);
    assert_eq!(said.next().unwrap().unwrap(), "at its exit");
    fleet.until_device(&uuid, "quarantined");
    assert_eq!(fleet.charge(&uuid).used(), 60, "its memory stays charged");
    assert_eq!(fleet.reported(&agent, &chat.slot).unwrap()["reason"], "unkillable");
    let small = fleet.lease("small");
    fleet.until_heard_again(&agent);
    assert_eq!(fleet.api.state(&small), "queued", "nothing new comes here");
    assert!(!machine.living_of(&chat.slot).is_empty(), "it is still there");

    // It ends after all: proven, and the device is in order again.
    drop(holder.stdin.take());
    assert!(holder.wait().unwrap().success());
    fleet.until_slot(&chat.slot, "released");
    fleet.until_device(&uuid, "open");
    let _ = fleet.running(&small);
}

#[test]
fn n10_a_pid_that_the_driver_keeps_listing_quarantines_its_device() {
    let fleet = Fleet::start();
    let machine = Machine::new(&[80, 80]);
    let agent = machine.plan(&fleet).set("driver_after = \"700ms\"").start(&fleet);
    fleet.model(&Model::new("chat", 60));
    let chat = fleet.run("chat");
    let uuid = fleet.slot(&chat.slot).unwrap()["gpu_allocation"]["gpus"][0]["uuid"].as_str().unwrap().to_owned();
    let index = if uuid == machine.uuid(0) { 0 } else { 1 };
    let pid = machine.living_of(&chat.slot)[0].pid;
    machine.gpu(index, |gpu| gpu.listed.push((pid, 0)));
    fleet.stop(&chat);
    fleet.until_device(&uuid, "quarantined");
    assert_eq!(fleet.charge(&uuid).used(), 60, "its memory stays charged");
    assert_eq!(fleet.reported(&agent, &chat.slot).unwrap()["reason"], "unkillable");
    // The other one goes on, and nothing new comes here.
    fleet.model(&Model::new("small", 10));
    fleet.model(&Model::new("large", 75));
    let small = fleet.run("small");
    assert_ne!(fleet.slot(&small.slot).unwrap()["gpu_allocation"]["gpus"][0]["uuid"], uuid.as_str());
    let large = fleet.lease("large");
    fleet.until_heard_again(&agent);
    assert_eq!(fleet.api.state(&large), "queued");
    // It comes to its senses after all.
    machine.gpu(index, |gpu| gpu.listed.clear());
    fleet.until_slot(&chat.slot, "released");
    fleet.until_device(&uuid, "open");
    let _ = fleet.running(&large);
}
