//! What operators change while work runs: a drained runner and a changed model.

use berth_tests::fleet::{Fleet, Machine, Model};
use berth_tests::service::eventually;
use serde_json::json;

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
