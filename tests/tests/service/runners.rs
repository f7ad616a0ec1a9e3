//! Runners that fall silent, come back, or were rebooted, with a real clock.

use berth_tests::service::{AgentThread, FakeAgent, GIB, Server, eventually, ledgers};
use serde_json::{Value, json};

#[test]
fn n2_a_silent_runner_loses_its_leases_and_keeps_its_ledger() {
    let server = Server::with(&["scheduler.suspect_after=1s", "scheduler.lost_after=3s"]);
    let api = server.api();
    let mut silent = FakeAgent::new(&api, "silent", &[80 * GIB]).registered();
    api.model("chat", json!({ "memory": "60GiB" }));
    let id = api.lease("chat").is(201).id();
    silent.obey_all();
    assert_eq!(api.workload(&id)["slot"]["runner_id"], "silent");
    let other = AgentThread::start(FakeAgent::new(&api, "other", &[80 * GIB]).registered());

    let state = || api.get("/api/v1/runners/silent").is(200).body["state"].clone();
    eventually("it is suspected first", || (state() == "suspect").then_some(()));
    assert_eq!(api.workload(&id)["slot"]["runner_id"], "silent", "a missed heartbeat moves nothing");
    eventually("it is lost", || (state() == "lost").then_some(()));
    let moved = eventually("its lease runs elsewhere", || {
        let workload = api.workload(&id);
        (workload["slot"]["runner_id"] == "other" && workload["state"] == "running").then_some(workload)
    });
    assert_eq!(moved["attempt"], 2);
    assert_eq!(api.complete(&id, 1).is(409).code(), "stale_attempt");
    let ledger = ledgers::checked(&api);
    let device = ledgers::device(&ledger, &silent.uuid(0));
    assert_eq!(ledgers::number(&device["held_bytes"]) + ledgers::number(&device["releasing_bytes"]), 60 * GIB);

    // It comes back with its process alive: nothing is charged twice, and what is gone is free only once it is proven.
    let _ = silent.report().is(200);
    assert_eq!(state(), "ready");
    let _ = ledgers::checked(&api);
    let _ = api.complete(&id, 2).is(200);
    let _ = other.stop();
}

#[test]
fn n4_a_reboot_is_proof_and_the_old_boot_is_refused() {
    let server = Server::start();
    let api = server.api();
    let mut before = FakeAgent::new(&api, "box", &[80 * GIB]).registered();
    api.model("chat", json!({ "memory": "60GiB" }));
    let id = api.lease("chat").is(201).id();
    before.obey_all();
    let mut after = FakeAgent::new(&api, "box", &[80 * GIB]);
    after.about["boot_id"] = json!("boot-2");
    let mut after = after.registered();
    assert_eq!(before.report().is(409).code(), "old_boot");
    eventually("the lease is tried again", || {
        after.obey();
        (api.state(&id) == "running").then_some(())
    });
    assert_eq!(api.workload(&id)["attempt"], 2);
    assert_eq!(before.started.len() + after.started.len(), 2);
    let ledger = ledgers::checked(&api);
    assert_eq!(
        ledgers::device(&ledger, &after.uuid(0))["held_bytes"],
        60 * GIB,
        "the old claim went with the old boot"
    );
}

/// A server and an agent of different protocols say so in words, and nothing is stopped.
#[test]
fn an_agent_of_another_protocol_is_refused_in_words_and_its_slots_stay() {
    let server = Server::start();
    let api = server.api();
    let mut agent = FakeAgent::new(&api, "box", &[80 * GIB]).registered();
    api.model("chat", json!({ "memory": "60GiB" }));
    let id = api.lease("chat").is(201).id();
    agent.obey_all();
    assert_eq!(api.state(&id), "running");

    for (protocol, whom) in [(1, "upgrade the agent"), (99, "upgrade the server")] {
        agent.about["protocol"] = json!(protocol);
        // What this version does not know must not keep it from saying so.
        agent.about["host"] = json!({ "cpu_millicores": [1, 2, 3] });
        let refused = agent.report().is(409);
        assert_eq!(refused.code(), "protocol_mismatch");
        let detail = refused.body["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains(&format!("protocol {protocol}")) && detail.contains("protocol 2"), "{detail}");
        assert!(detail.contains(whom), "{detail}");
        eventually("the server logs it too", || server.log().contains(whom).then_some(()));
    }
    assert_eq!(api.state(&id), "running", "nothing was stopped");
    assert_eq!(ledgers::device(&ledgers::checked(&api), &agent.uuid(0))["held_bytes"], 60 * GIB);

    agent.about["protocol"] = json!(2);
    agent.about["host"] = json!({ "cpu_millicores": 1000 });
    let _ = agent.report().is(200);
}

/// A slot that its agent lost the record of is asked about, and its memory comes back once the agent has looked.
#[test]
fn r8_an_unknown_slot_is_accounted_for() {
    let server = Server::start();
    let api = server.api();
    let mut agent = FakeAgent::new(&api, "box", &[80 * GIB]).registered();
    api.model("chat", json!({ "memory": "60GiB" }));
    let id = api.lease("chat").is(201).id();
    agent.obey_all();
    let slot = agent.slots.keys().next().unwrap().clone();
    // The data directory is gone, and so is the process.
    agent.slots.clear();
    let _ = agent.report().is(200);
    let shown = api.get(&format!("/scheduler/slots/{slot}")).is(200).body;
    assert_eq!((shown["state"].as_str(), shown["reason"]["code"].as_str()), (Some("unknown"), Some("not_mentioned")));
    let incarnation = agent.incarnation.unwrap();
    let desired = api.get(&format!("/api/v1/runners/box/desired?incarnation={incarnation}")).is(200).body;
    let asked = &desired["slots"][0];
    assert_eq!((asked["id"].as_str(), asked["action"].as_str()), (Some(slot.as_str()), Some("account")), "{desired}");
    assert!(asked.get("model").is_none(), "an agent that only looks needs no model: {asked}");
    assert_eq!(desired["protocol"], 2);

    // It cannot tell, and says why.
    let say = |state: Value| {
        json!([{ "id": slot, "generation": 1, "state": state["state"], "detail": state["detail"],
        "reason": state["reason"], "evidence": state["evidence"] }])
    };
    agent.about["slots"] = say(json!({ "state": "unknown", "detail": "another pid namespace" }));
    let _ = agent.report_as_is().is(200);
    let shown = api.get(&format!("/scheduler/slots/{slot}")).is(200).body;
    assert_eq!(shown["reason"]["code"], "cannot_tell");
    assert!(shown["reason"]["text"].as_str().unwrap().contains("another pid namespace"), "{shown}");
    assert_eq!(ledgers::device(&ledgers::checked(&api), &agent.uuid(0))["held_bytes"], 60 * GIB);

    // It looked everywhere: there is no trace of it.
    let evidence = json!({ "tree_gone": true, "driver_clear": true });
    agent.about["slots"] = say(json!({ "state": "gone", "reason": "no_trace", "evidence": evidence }));
    let _ = agent.report_as_is().is(200);
    let _ = api.get(&format!("/scheduler/slots/{slot}")).is(404);
    agent.about.as_object_mut().unwrap().remove("slots");
    eventually("the lease runs again", || {
        agent.obey();
        (api.state(&id) == "running").then_some(())
    });
    assert_eq!(api.workload(&id)["attempt"], 2);
}
