//! Restarts of agents, machines and servers: what lives is adopted, what is gone is proven gone, nothing expires unheard.

use std::time::Duration;

use berth_tests::fleet::{Fleet, Machine, Model};
use berth_tests::service::eventually;

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

    // An agent of the old boot reports: nothing changes.
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
fn n17_a_server_with_an_empty_data_directory_stops_nothing() {
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

fn text(value: &serde_json::Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}")).to_owned()
}
