//! N: runners that fall silent, come back, or were rebooted, with a real clock.

use berth_tests::service::{FakeAgent, GIB, Obeying, Server, eventually, ledgers};
use serde_json::json;

#[test]
fn n2_a_silent_runner_loses_its_leases_and_keeps_its_ledger() {
    let server = Server::with(&["scheduler.suspect_after=1s", "scheduler.lost_after=3s"]);
    let api = server.api();
    let mut silent = FakeAgent::new(&api, "silent", &[80 * GIB]).registered();
    api.model("chat", json!({ "memory": "60GiB" }));
    let id = api.lease("chat").is(201).id();
    silent.obey_all();
    assert_eq!(api.workload(&id)["slot"]["runner_id"], "silent");
    let other = Obeying::start(FakeAgent::new(&api, "other", &[80 * GIB]).registered());

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
