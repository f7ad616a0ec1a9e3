//! Runners that fall silent or come back, slots that the server does not know, and two agents with one runner id.

use berth_tests::fleet::{Fleet, Machine, Model, Relay};
use berth_tests::service::eventually;
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
fn n5_a_slot_that_the_server_does_not_know_is_charged_stopped_and_freed_on_proof() {
    let fleet = Fleet::start();
    let machine = Machine::new(&[80]);
    let agent = machine.plan(&fleet).set("stop_grace = \"1s\"").start(&fleet);
    fleet.model(&Model::new("chat", 60).args(&["--ignore-term"]));
    let chat = fleet.run("chat");
    fleet.complete(&chat.workload);
    // An operator is wrong about it: the process lives, and no ledger has its memory.
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
    // It knows nothing yet: neither its cluster, nor what it started.
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
fn n8_an_older_desired_state_that_comes_late_is_ignored() {
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
fn n8_the_same_desired_state_again_and_again_is_one_process() {
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
