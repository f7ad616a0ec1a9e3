//! N: agents that pause, die, come back, or are not alone; drivers in trouble; servers that go away.

use std::time::{Duration, Instant};

use berth_tests::fleet::{Charge, Fleet, Machine, Model, Relay};
use berth_tests::service::{GIB, eventually, ledgers};
use serde_json::json;

#[test]
fn n1_an_agent_that_paused_comes_back_to_what_it_had() {
    let fleet = Fleet::with(&["scheduler.suspect_after=1s", "scheduler.lost_after=1m"]);
    let machine = Machine::new(&[80]);
    let agent = machine.agent(&fleet);
    fleet.model(&Model::new("chat", 60));
    let chat = fleet.run("chat");
    let before = machine.living();
    agent.pause();
    eventually("it is suspected", || (fleet.runner_state(&agent) == "suspect").then_some(()));
    // Nothing new goes there, and nothing there is given up.
    fleet.model(&Model::new("small", 5));
    let small = fleet.lease("small");
    assert_eq!(fleet.api.state(&small), "queued");
    assert_eq!(fleet.api.workload(&chat.workload)["state"], "running");
    agent.resume();
    let small = fleet.running(&small);
    assert_eq!(fleet.runner_state(&agent), "ready");
    assert_eq!(machine.living_of(&chat.slot), before, "the same process");
    assert_eq!((machine.starts_of(&chat.slot), machine.starts_of(&small.slot)), (1, 1));
    assert_eq!(fleet.api.workload(&chat.workload)["attempt"], 1);
    assert_eq!(fleet.charge(&machine.uuid(0)).held, 65, "nothing is charged twice");
}

#[test]
fn n2_of_a_silent_agent_leases_move_and_ledgers_stay() {
    let fleet = Fleet::with(&["scheduler.suspect_after=500ms", "scheduler.lost_after=1500ms"]);
    let machine = Machine::new(&[80]);
    let mut agent = machine.agent(&fleet);
    fleet.model(&Model::new("chat", 60));
    let chat = fleet.run("chat");
    let alive = machine.living();
    agent.kill();
    eventually("it is lost", || (fleet.runner_state(&agent) == "lost").then_some(()));
    let other = Machine::new(&[80]);
    let _other_agent = other.agent(&fleet);
    let moved = eventually("the lease runs elsewhere", || {
        let row = fleet.api.workload(&chat.workload);
        (row["state"] == "running" && row["slot"]["id"] != chat.slot.as_str()).then_some(row)
    });
    assert_eq!(moved["attempt"], 2);
    assert_eq!(fleet.slot_state(&chat.slot), "unknown");
    assert_eq!(fleet.charge(&machine.uuid(0)).used(), 60, "what may still run is charged");
    assert_eq!(machine.living(), alive);

    // It comes back, and finds what it left.
    agent.restart();
    eventually("it is back", || (fleet.runner_state(&agent) == "ready").then_some(()));
    fleet.until_slot(&chat.slot, "ready");
    assert_eq!(machine.living(), alive, "adopted, not started again");
    assert_eq!(fleet.charge(&machine.uuid(0)).used(), 60, "nothing is charged twice");
}

#[test]
fn n3_a_restarted_agent_adopts_what_lives() {
    let fleet = Fleet::start();
    let machine = Machine::new(&[80, 80]);
    let mut agent = machine.agent(&fleet);
    for name in ["one", "two"] {
        fleet.model(&Model::new(name, 60));
    }
    let slots = [fleet.run("one"), fleet.run("two")];
    let before = machine.living();
    assert_eq!(before.len(), 2);
    for gentle in [false, true] {
        if gentle {
            assert!(agent.terminate().success());
        } else {
            agent.kill();
        }
        assert_eq!(machine.living(), before, "slots outlive their agent");
        agent.restart();
        fleet.until_heard_again(&agent);
        assert_eq!(machine.living(), before, "the same processes");
        for slot in &slots {
            assert_eq!(fleet.slot_state(&slot.slot), "ready");
            assert_eq!(machine.starts_of(&slot.slot), 1);
            assert_eq!(fleet.api.workload(&slot.workload)["attempt"], 1);
        }
    }
    // What was adopted can be ended, and is proven gone.
    fleet.stop(&slots[0]);
    fleet.until_slot(&slots[0].slot, "released");
    assert_eq!(machine.living().len(), 1);
    let uuid = text(&fleet.slot(&slots[1].slot).unwrap()["gpu_allocation"]["gpus"][0]["uuid"]);
    let free = if uuid == machine.uuid(0) { machine.uuid(1) } else { machine.uuid(0) };
    assert_eq!((fleet.charge(&free).used(), fleet.charge(&uuid).used()), (0, 60));
}

#[test]
fn n3_what_ended_while_there_was_no_agent_is_proven_gone() {
    let fleet = Fleet::start();
    let machine = Machine::new(&[80]);
    let mut agent = machine.agent(&fleet);
    fleet.model(&Model::new("chat", 60));
    let chat = fleet.run("chat");
    agent.kill();
    machine.end_all();
    assert_eq!(fleet.charge(&machine.uuid(0)).used(), 60, "nobody has proven anything");
    agent.restart();
    fleet.until_slot(&chat.slot, "released");
    let again = fleet.running(&chat.workload);
    assert_ne!(again.slot, chat.slot);
    assert_eq!(fleet.charge(&machine.uuid(0)).used(), 60);
}

#[test]
fn n4_a_reboot_is_proof_and_the_old_boot_is_refused() {
    let fleet = Fleet::start();
    let machine = Machine::new(&[80]);
    let mut agent = machine.plan(&fleet).booted("boot-1").start(&fleet);
    fleet.model(&Model::new("chat", 60));
    let chat = fleet.run("chat");
    agent.kill();
    machine.end_all();
    agent.restart_as(agent.plan().booted("boot-2"));
    fleet.until_slot(&chat.slot, "released");
    let again = fleet.running(&chat.workload);
    assert_eq!(fleet.api.workload(&chat.workload)["attempt"], 2);
    assert_eq!(fleet.charge(&machine.uuid(0)).used(), 60, "the old claim went with the old boot");

    // Somebody of the old boot speaks up: nothing changes.
    let alive = machine.living();
    let late = machine.plan(&fleet).id(agent.id()).booted("boot-1").launch();
    eventually("it is refused", || late.log().contains("old_boot").then_some(()));
    let status = fleet.api.get(&format!("/api/v1/runners/{}/status", agent.id())).body;
    assert_eq!(status["boot_id"], "boot-2");
    assert_eq!(fleet.slot_state(&again.slot), "ready");
    assert_eq!(machine.living(), alive);
    assert_eq!(fleet.charge(&machine.uuid(0)).used(), 60);
}

#[test]
fn n5_a_slot_that_the_server_does_not_know_is_charged_stopped_and_freed_on_proof() {
    let fleet = Fleet::start();
    let machine = Machine::new(&[80]);
    let agent = machine.plan(&fleet).set("stop_grace = \"1s\"").start(&fleet);
    fleet.model(&Model::new("chat", 60).args(&["--ignore-term"]));
    let chat = fleet.run("chat");
    fleet.complete(&chat.workload);
    // An operator is wrong about it: the process lives, and nobody has it on the books.
    agent.pause();
    let path = format!("/scheduler/slots/{}/force-release", chat.slot);
    let reply = fleet.api.post(&path, &json!({ "reason": "I thought it was gone" }));
    assert!(reply.status < 300, "{}", reply.text);
    assert_eq!(fleet.charge(&machine.uuid(0)).used(), 0);
    agent.resume();
    fleet.until_charge(&machine.uuid(0), "it is charged again", |charge| charge.used() == 60);
    assert_eq!(machine.living_of(&chat.slot).len(), 1, "it has not ended yet");
    fleet.until_charge(&machine.uuid(0), "it is free", |charge| charge.used() == 0);
    assert!(machine.living().is_empty(), "it was freed on proof");
    assert_eq!(machine.starts_of(&chat.slot), 1);
}

#[test]
fn n7_of_two_agents_with_one_id_the_newer_wins_and_the_older_ends() {
    let fleet = Fleet::start();
    let machine = Machine::new(&[80]);
    let mut older = machine.agent(&fleet);
    fleet.model(&Model::new("chat", 60));
    let chat = fleet.run("chat");
    let alive = machine.living();
    let mut newer = machine.plan(&fleet).id(older.id()).launch();
    assert!(!older.ended().success(), "it is told, and does not register again");
    assert!(older.log().contains("registered by another agent"), "{}", older.log());
    fleet.until_heard_again(&newer);
    assert!(newer.runs());
    assert_eq!(machine.living(), alive, "nobody ended or started anything");
    let charge = fleet.charge(&machine.uuid(0));
    assert_eq!((charge.used(), charge.foreign), (60, 0), "charged, and once");
    assert_eq!(fleet.slot_state(&chat.slot), "ready", "the newer one found it");
    let runner = fleet.api.get(&format!("/api/v1/runners/{}", newer.id())).body;
    assert_eq!(runner["incarnation"], 2);

    // And it can be ended.
    fleet.stop(&chat);
    fleet.until_slot(&chat.slot, "released");
    assert!(machine.living().is_empty());
}

#[test]
fn n7_a_frozen_agent_that_thaws_behind_a_partition_starts_nothing_that_its_successor_started() {
    let fleet = Fleet::start();
    let relay = Relay::patient(&fleet);
    let machine = Machine::new(&[80]);
    let mut older = machine.plan(&fleet).server(&relay.url()).start(&fleet);
    fleet.model(&Model::new("chat", 30));
    // It is handed the wish to start a slot, and does not get to read it.
    relay.until_polled();
    older.pause();
    // Its poll may have been answered just before it was paused.
    while !relay.is_polled() {
        older.resume();
        relay.until_polled();
        older.pause();
    }
    let chat = fleet.lease("chat");
    let slot = eventually("it has a slot", || fleet.api.workload(&chat)["slot"]["id"].as_str().map(str::to_owned));
    relay.until_handed(&slot);
    relay.cut();
    let newer = machine.plan(&fleet).id(older.id()).launch();
    let running = fleet.running(&chat);
    assert_eq!((&running.slot, machine.starts_of(&slot)), (&slot, 1));
    let alive = machine.living();
    older.resume();
    eventually("it looked, and found what the other one started", || {
        older.record_of(&slot).filter(|record| record["process"]["pid"] == alive[0].pid)
    });
    fleet.until_heard_again(&newer);
    assert_eq!((machine.living(), machine.starts_of(&slot)), (alive, 1), "nothing was started a second time");
    assert!(older.runs(), "nobody could tell it that it was replaced");
}

#[test]
fn n7_an_agent_of_the_same_name_that_serves_another_cluster_is_left_alone() {
    let (fleet, others) = (Fleet::start(), Fleet::start());
    let machine = Machine::new(&[80]);
    let agent = machine.agent(&fleet);
    fleet.model(&Model::new("chat", 30));
    let chat = fleet.run("chat");
    let alive = machine.living();
    // It knows nothing yet: neither whom it obeys, nor what it started.
    let mut other = machine.plan(&others).id(agent.id()).start(&others);
    others.model(&Model::new("chat", 20));
    let theirs = others.run("chat");
    others.until_heard_again(&other);
    fleet.until_heard_again(&agent);
    assert_eq!(machine.living_of(&chat.slot), alive, "somebody else's");
    assert_eq!(other.lives(), [(theirs.slot, "ready".to_owned())], "only its own is on its record");
    other.kill();
    other.restart();
    others.until_heard_again(&other);
    assert_eq!(machine.living_of(&chat.slot), alive);
    assert_eq!(fleet.slot_state(&chat.slot), "ready");
    assert_eq!(fleet.charge(&machine.uuid(0)).foreign, 20, "each is foreign to the other");
    assert_eq!(others.charge(&machine.uuid(0)).foreign, 30);
}

#[test]
fn n8_an_older_wish_that_comes_late_is_ignored() {
    let fleet = Fleet::start();
    let relay = Relay::to(&fleet);
    let machine = Machine::new(&[80]);
    let agent = machine.plan(&fleet).server(&relay.url()).start(&fleet);
    fleet.model(&Model::new("first", 20));
    fleet.model(&Model::new("second", 20));
    let first = fleet.run("first");
    let run_first = relay.last_with(&first.slot).unwrap();
    assert!(run_first.contains("\"action\":\"run\""), "{run_first}");
    let second = fleet.run("second");
    fleet.stop(&first);
    fleet.until_slot(&first.slot, "released");
    let stop_first = relay.last_with(&first.slot).unwrap();
    assert!(stop_first.contains("\"action\":\"stop\""), "{stop_first}");
    let alive = machine.living();

    // It says that the first should run, and nothing of the second.
    relay.hand_out(run_first);
    fleet.until_heard_again(&agent);
    assert_eq!(machine.starts_of(&first.slot), 1, "what was stopped is not started again");
    relay.hand_out(stop_first);
    fleet.until_heard_again(&agent);
    assert_eq!(machine.living(), alive);
    assert_eq!(fleet.slot_state(&second.slot), "ready");
    assert_eq!(agent.lives(), [(second.slot, "ready".to_owned())], "nothing else is on its record");
}

#[test]
fn n8_the_same_wish_again_and_again_is_one_process() {
    let mut fleet = Fleet::start();
    let machine = Machine::new(&[80]);
    let mut agent = machine.agent(&fleet);
    fleet.model(&Model::new("chat", 60));
    let chat = fleet.run("chat");
    let alive = machine.living();
    for _ in 0..3 {
        // A new start of the server says everything again, and a new start of the agent asks for everything again.
        fleet.server.kill();
        fleet.restart();
        agent.kill();
        agent.restart();
        agent.is_heard(&fleet);
        fleet.until_heard_again(&agent);
        assert_eq!(machine.living(), alive);
    }
    assert_eq!(machine.starts_of(&chat.slot), 1);
    assert_eq!(fleet.slot_state(&chat.slot), "ready");
}

#[test]
fn n11_what_others_use_is_not_offered_and_nobody_is_killed_when_it_grows() {
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
fn n13_a_call_that_hangs_makes_its_gpu_stale_and_stops_nobody() {
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
fn n14_a_drained_runner_lets_leases_finish_and_then_is_empty() {
    let fleet = Fleet::start();
    let machine = Machine::new(&[80]);
    let agent = machine.agent(&fleet);
    fleet.model(&Model::new("chat", 30));
    let chat = fleet.run("chat");
    fleet.order(&agent, "drain");
    let admission = || text(&fleet.api.get(&format!("/api/v1/runners/{}", agent.id())).body["admission"]);
    fleet.model(&Model::new("other", 10));
    let other = fleet.lease("other");
    fleet.until_heard_again(&agent);
    assert_eq!((admission().as_str(), fleet.api.state(&other).as_str()), ("draining", "queued"));
    assert_eq!(fleet.api.state(&chat.workload), "running");
    fleet.complete(&chat.workload);
    eventually("it says drained", || (admission() == "drained").then_some(()));
    assert!(machine.living().is_empty());
    assert_eq!(fleet.charge(&machine.uuid(0)).used(), 0);
    fleet.order(&agent, "uncordon");
    let _ = fleet.running(&other);
}

#[test]
fn n14_a_drain_with_a_deadline_waits_no_longer() {
    let fleet = Fleet::start();
    let machine = Machine::new(&[80]);
    let agent = machine.agent(&fleet);
    fleet.model(&Model::new("chat", 30));
    let chat = fleet.run("chat");
    fleet.order(&agent, "drain?deadline=500ms");
    eventually("it says drained", || {
        (fleet.api.get(&format!("/api/v1/runners/{}", agent.id())).body["admission"] == "drained").then_some(())
    });
    assert!(machine.living().is_empty());
    assert_eq!(fleet.api.state(&chat.workload), "queued", "it is tried again elsewhere");
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

#[test]
fn n16_a_server_that_was_away_loses_nothing_and_places_nothing_unheard() {
    let mut fleet = Fleet::with(&["scheduler.suspect_after=1s", "scheduler.lost_after=2s", "scheduler.lease_ttl=3s"]);
    let machine = Machine::new(&[80]);
    let agent = machine.agent(&fleet);
    fleet.model(&Model::new("chat", 40));
    fleet.model(&Model::new("next", 30));
    let chat = fleet.run("chat");
    let alive = machine.living();
    fleet.server.kill();
    std::thread::sleep(Duration::from_millis(3500));
    agent.pause();
    fleet.restart();
    assert_eq!(fleet.api.state(&chat.workload), "running", "no lease expires at once");
    assert_ne!(fleet.runner_state(&agent), "lost", "no runner is lost at once");
    let next = fleet.lease("next");
    assert_eq!(fleet.api.state(&next), "queued", "nothing is placed before the first report");
    assert_eq!(fleet.charge(&machine.uuid(0)).used(), 40);
    agent.resume();
    let _ = fleet.running(&next);
    assert_eq!(machine.living_of(&chat.slot), alive);
    assert_eq!(fleet.charge(&machine.uuid(0)).used(), 70);
}

#[test]
fn n16_a_server_that_was_paused_loses_nothing() {
    let fleet = Fleet::with(&[
        "scheduler.suspect_after=1s",
        "scheduler.lost_after=2s",
        "scheduler.lease_ttl=2s",
        "scheduler.pause_after=1s",
    ]);
    let machine = Machine::new(&[80]);
    let _agent = machine.agent(&fleet);
    fleet.model(&Model::new("chat", 40));
    let chat = fleet.run("chat");
    let alive = machine.living();
    fleet.server.signal(rustix::process::Signal::STOP);
    std::thread::sleep(Duration::from_secs(3));
    fleet.server.signal(rustix::process::Signal::CONT);
    assert_eq!(fleet.api.state(&chat.workload), "running");
    assert_eq!(fleet.slot_state(&chat.slot), "ready");
    assert_eq!(machine.living(), alive);
}

#[test]
fn n17_a_server_with_nothing_on_its_books_stops_nothing() {
    let mut fleet = Fleet::start();
    let machine = Machine::new(&[80]);
    let agent = machine.agent(&fleet);
    fleet.model(&Model::new("chat", 60));
    let _ = fleet.run("chat");
    let alive = machine.living();
    let address = fleet.server.address();
    fleet.server.kill();
    std::fs::remove_dir_all(fleet.server.data_dir()).unwrap();
    fleet.server.restart_with(fleet.server.options().listen(&address));
    agent.is_heard(&fleet);
    fleet.until_charge(&machine.uuid(0), "what runs is charged", |charge| charge.used() == 60);
    fleet.model(&Model::new("other", 10));
    let other = fleet.lease("other");
    for _ in 0..3 {
        fleet.until_heard_again(&agent);
    }
    assert_eq!(machine.living(), alive, "nothing is stopped, and nothing started");
    assert_ne!(fleet.api.state(&other), "running");
    assert!(agent.log().contains("another cluster"));
}

#[test]
fn n18_new_leases_go_to_the_new_revision_and_the_old_one_finishes() {
    let fleet = Fleet::start();
    let machine = Machine::new(&[80]);
    let _agent = machine.agent(&fleet);
    fleet.model(&Model::new("chat", 30).with("concurrency", json!(4)));
    let old = fleet.run("chat");
    fleet.model(&Model::new("chat", 20).with("concurrency", json!(4)));
    let new = fleet.run("chat");
    assert_ne!(old.slot, new.slot);
    assert_eq!(fleet.api.state(&old.workload), "running");
    assert_eq!(fleet.charge(&machine.uuid(0)).held, 50);
    fleet.complete(&old.workload);
    fleet.until_slot(&old.slot, "released");
    assert_eq!(machine.living().len(), 1);
    assert_eq!(fleet.charge(&machine.uuid(0)).used(), 20);
}

fn text(value: &serde_json::Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}")).to_owned()
}
