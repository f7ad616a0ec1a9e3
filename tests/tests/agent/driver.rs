//! Drivers in trouble and memory that other programs use: nothing new is placed there, and no process is killed for it.

use std::time::{Duration, Instant};

use berth_tests::fleet::{Charge, Fleet, Machine, Model};
use berth_tests::service::{GIB, eventually, ledgers};

#[test]
fn n11_foreign_memory_is_not_offered_and_nothing_is_killed_when_it_grows() {
    let fleet = Fleet::start();
    let machine = Machine::new(&[80]);
    let agent = machine.agent(&fleet);
    let uuid = machine.uuid(0);
    machine.gpu(0, |gpu| gpu.foreign = 30 * GIB);
    let charge = fleet.until_charge(&uuid, "it is seen", |charge| charge.foreign == 30);
    assert_eq!(charge.free, 50);
    fleet.model(&Model::new("large", 55));
    fleet.model(&Model::new("chat", 45));
    let large = fleet.lease("large");
    assert_eq!(fleet.api.state(&large), "queued");
    let chat = fleet.run("chat");
    assert_eq!(fleet.charge(&uuid).free, 5);
    let alive = machine.living();

    machine.gpu(0, |gpu| gpu.foreign = 40 * GIB);
    eventually("it is flagged", || {
        let ledger = fleet.api.get("/scheduler/ledger").body;
        (ledgers::device(&ledger, &uuid)["overcommitted"] == true).then_some(())
    });
    fleet.model(&Model::new("tiny", 1));
    let tiny = fleet.lease("tiny");
    fleet.until_heard_again(&agent);
    assert_eq!(fleet.api.state(&tiny), "queued", "nothing new");
    assert_eq!(machine.living(), alive, "nobody is killed for it");
    assert_eq!(fleet.api.state(&chat.workload), "running");

    machine.gpu(0, |gpu| gpu.foreign = 0);
    let _ = fleet.running(&tiny);
}

#[test]
fn n12_a_gpu_off_the_bus_takes_its_slots_with_it_until_it_is_back() {
    let fleet = Fleet::start();
    let machine = Machine::new(&[80]);
    let _agent = machine.agent(&fleet);
    let uuid = machine.uuid(0);
    fleet.model(&Model::new("chat", 60));
    let chat = fleet.run("chat");
    machine.gpu(0, |gpu| gpu.lost = true);
    fleet.until_device(&uuid, "lost");
    assert_ne!(fleet.slot_state(&chat.slot), "ready");
    eventually("its process is ended", || machine.living().is_empty().then_some(()));
    fleet.until_slot(&chat.slot, "released");
    assert_eq!(fleet.api.state(&chat.workload), "queued", "nothing new there");
    machine.gpu(0, |gpu| gpu.lost = false);
    let again = fleet.running(&chat.workload);
    assert_ne!(again.slot, chat.slot);
    assert_eq!(fleet.charge(&uuid).used(), 60);
}

#[test]
fn n13_a_call_that_hangs_makes_its_gpu_stale_and_stops_nothing() {
    let fleet = Fleet::start();
    let machine = Machine::new(&[80, 80]);
    let agent = machine.plan(&fleet).see("deadline = \"300ms\"").start(&fleet);
    fleet.model(&Model::new("chat", 50));
    let chat = fleet.run("chat");
    let on = text(&fleet.slot(&chat.slot).unwrap()["gpu_allocation"]["gpus"][0]["uuid"]);
    let (busy, idle) = if on == machine.uuid(0) { (0, 1) } else { (1, 0) };
    machine.gpu(idle, |gpu| gpu.hangs = true);
    fleet.until_device(&machine.uuid(idle), "stale");
    fleet.until_heard_again(&agent);
    assert_eq!(fleet.slot_state(&chat.slot), "ready");
    // It would go to the empty one; that one takes nothing.
    fleet.model(&Model::new("small", 20));
    fleet.model(&Model::new("large", 70));
    let small = fleet.run("small");
    assert_eq!(fleet.slot(&small.slot).unwrap()["gpu_allocation"]["gpus"][0]["uuid"], machine.uuid(busy).as_str());
    let large = fleet.lease("large");
    fleet.until_heard_again(&agent);
    assert_eq!(fleet.api.state(&large), "queued");
    machine.gpu(idle, |gpu| gpu.hangs = false);
    let large = fleet.running(&large);
    assert_eq!(fleet.slot(&large.slot).unwrap()["gpu_allocation"]["gpus"][0]["uuid"], machine.uuid(idle).as_str());
}

#[test]
fn n13_a_slot_on_a_gpu_that_hangs_is_not_proven_gone() {
    let fleet = Fleet::start();
    let machine = Machine::new(&[80]);
    let agent = machine.plan(&fleet).see("deadline = \"300ms\"").start(&fleet);
    fleet.model(&Model::new("chat", 50));
    let chat = fleet.run("chat");
    machine.gpu(0, |gpu| gpu.hangs = true);
    fleet.until_device(&machine.uuid(0), "stale");
    fleet.stop(&chat);
    eventually("its tree is gone", || machine.living().is_empty().then_some(()));
    fleet.until_heard_again(&agent);
    assert_eq!(fleet.charge(&machine.uuid(0)).used(), 50, "the driver has not said that it is clear");
    machine.gpu(0, |gpu| gpu.hangs = false);
    fleet.until_slot(&chat.slot, "released");
    assert_eq!(fleet.charge(&machine.uuid(0)).used(), 0);
}

#[test]
fn n15_too_little_memory_at_the_start_is_refused_with_what_was_seen() {
    let fleet = Fleet::with(&["scheduler.backoff=2s", "scheduler.backoff_limit=2s"]);
    let machine = Machine::new(&[80]);
    // It reports changes at once, and what others use only now and then.
    let agent = machine.plan(&fleet).set("report_every = \"1h\"").start(&fleet);
    let uuid = machine.uuid(0);
    fleet.until_charge(&uuid, "it is known", |charge| charge.free == 80);
    machine.gpu(0, |gpu| gpu.foreign = 60 * GIB);
    fleet.model(&Model::new("chat", 40));
    let begun = Instant::now();
    let chat = fleet.lease("chat");
    let refused = |charge: Charge| charge.foreign == 60 && charge.used() == 0;
    let charge = fleet.until_charge(&uuid, "what it saw is known, and it is proof of not started", refused);
    assert_eq!(charge.free, 20);
    assert!(machine.diary().is_empty(), "nothing was started");
    assert!(agent.log().contains("too little free memory"));
    assert_eq!(fleet.api.state(&chat), "queued");

    // The device is not tried again at once, though a smaller one would fit.
    machine.gpu(0, |gpu| gpu.foreign = 0);
    fleet.model(&Model::new("small", 10));
    let small = fleet.run("small");
    assert!(begun.elapsed() >= Duration::from_secs(2), "it was tried after {:?}", begun.elapsed());
    assert_eq!(machine.starts_of(&small.slot), 1);
}

fn text(value: &serde_json::Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}")).to_owned()
}
