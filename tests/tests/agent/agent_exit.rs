//! Slots whose agent exits: kept for the next agent, or ended with it.

use berth_tests::fleet::{Fleet, Machine, Model};
use berth_tests::service::eventually;

#[test]
fn an_agent_that_is_asked_to_end_leaves_its_slots_for_the_next() {
    let fleet = Fleet::start();
    let machine = Machine::new(&[80]);
    let mut agent = machine.agent(&fleet);
    fleet.model(&Model::new("chat", 60));
    let chat = fleet.run("chat");
    let alive = machine.living();
    assert!(agent.terminate().success());
    assert_eq!(machine.living(), alive);
    assert_eq!(fleet.charge(&machine.uuid(0)).used(), 60);
    agent.restart();
    fleet.until_heard_again(&agent);
    assert_eq!((machine.living(), machine.starts_of(&chat.slot)), (alive, 1));
    assert_eq!(fleet.slot_state(&chat.slot), "ready");
}

#[test]
fn an_agent_that_drains_ends_its_slots_and_proves_it_before_it_ends() {
    let fleet = Fleet::start();
    let machine = Machine::new(&[80]);
    let mut agent = machine.plan(&fleet).set("drain_on_sigterm = true").start(&fleet);
    fleet.model(&Model::new("chat", 60).args(&["--ignore-term"]));
    let chat = fleet.run("chat");
    assert!(agent.terminate().success());
    assert!(machine.living().is_empty(), "it stayed until they were gone");
    // Its last words were heard, or are said again by the next one.
    agent.restart();
    fleet.until_slot(&chat.slot, "released");
    let _ = fleet.running(&chat.workload);
    assert_eq!(fleet.charge(&machine.uuid(0)).used(), 60);
}

#[test]
fn with_kill_slots_end_with_their_agent_and_the_next_one_proves_it() {
    let fleet = Fleet::start();
    let machine = Machine::new(&[80, 80]);
    let mut agent = machine.plan(&fleet).set("on_agent_exit = \"kill\"").start(&fleet);
    fleet.model(&Model::new("chat", 60));
    fleet.model(&Model::new("deaf", 50).args(&["--ignore-term"]));
    let (chat, deaf) = (fleet.run("chat"), fleet.run("deaf"));
    agent.kill();
    eventually("who hears it ends", || machine.living_of(&chat.slot).is_empty().then_some(()));
    assert_eq!(machine.living_of(&deaf.slot).len(), 1, "who does not lives on");
    let charged = |index| fleet.charge(&machine.uuid(index)).used();
    assert_eq!(charged(0) + charged(1), 110, "nobody has proven anything");
    agent.restart();
    fleet.until_slot(&chat.slot, "released");
    let _ = fleet.running(&chat.workload);
    // A process that missed the signal is ended by the next agent, or adopted: it is one process or none.
    eventually("the other is ended or adopted", || {
        let alive = machine.living_of(&deaf.slot).len();
        let state = fleet.slot_state(&deaf.slot);
        ((alive == 1 && state == "ready") || (alive == 0 && state == "released")).then_some(())
    });
}
