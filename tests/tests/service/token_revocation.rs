//! What is under way for a token ends when the token does.
#![expect(clippy::unwrap_used, reason = "what these read on the way to a test is there, or the test has failed")]

use std::io::Read;
use std::thread::spawn;
use std::time::{Duration, Instant};

use berth_tests::service::{Api, FakeAgent, GIB, RunnerOptions, Server, eventually};
use serde_json::json;

/// Soon, on a machine that has much else to do.
const SOON: Duration = Duration::from_secs(8);

/// The id of the token of this name.
fn id_of(admin: &Api, name: &str) -> String {
    let tokens = admin.get("/api/v1/tokens").is(200);
    tokens.rows().iter().find(|token| token["name"] == name).unwrap()["id"].as_str().unwrap().to_owned()
}

fn revoke(admin: &Api, name: &str) -> Instant {
    let id = id_of(admin, name);
    let _ = admin.delete(&format!("/api/v1/tokens/{id}")).is(204);
    Instant::now()
}

#[test]
fn event_streams_end_with_their_token_and_others_go_on() {
    let server = Server::start();
    let open = server.api();
    let admin = open.with_token(&open.token("ops", "admin", None));
    let leaver = open.with_token(&admin.token("leaver", "viewer", None));
    let mut left = leaver.ask("GET", "/api/v1/scheduler/events").stream();
    let mut stays = admin.ask("GET", "/api/v1/scheduler/events").stream();
    admin.model("first", json!({ "memory": "1GiB" }));
    assert!(left.next().is_some() && stays.next().is_some());
    let revoked = revoke(&admin, "leaver");
    assert_eq!(left.next(), None, "nothing comes after it");
    assert!(revoked.elapsed() < SOON, "it took {:?}", revoked.elapsed());
    admin.model("second", json!({ "memory": "1GiB" }));
    assert!(stays.next().is_some());
    let _ = leaver.get("/api/v1/scheduler/events").is(401);
}

#[test]
fn long_polls_end_with_their_token() {
    let server = Server::start();
    let open = server.api();
    let admin = open.with_token(&open.token("ops", "admin", None));
    let submitter = open.with_token(&admin.token("gateway", "submitter", None));
    let runner = open.with_token(&admin.token("box", "runner", Some("box")));
    let mut agent = FakeAgent::new(&runner, "box", &[80 * GIB]).registered();
    admin.model("chat", json!({ "memory": "60GiB" }));
    let first = submitter.lease("chat").is(201).id();
    agent.obey_all();
    assert_eq!(submitter.state(&first), "running");
    let queued = submitter.lease("chat").is(201).id();
    let revision = submitter.workload(&queued)["revision"].as_u64().unwrap();

    let waits = {
        let submitter = submitter.clone();
        spawn(move || submitter.get(&format!("/api/v1/workloads/{queued}?wait=60s&after={revision}")).status)
    };
    let submits = spawn(move || submitter.post("/api/v1/workloads?wait=60s", &json!({ "model": "chat" })).status);
    let polls = spawn(move || {
        agent.forget_what_was_desired();
        let _ = agent.desired("0s").is(200);
        agent.desired("60s").status
    });
    eventually("the third waits in line", || (admin.get("/api/v1/workloads").rows().len() == 3).then_some(()));
    let revoked = revoke(&admin, "gateway");
    assert_eq!((waits.join().unwrap(), submits.join().unwrap()), (401, 401));
    assert!(revoked.elapsed() < SOON, "it took {:?}", revoked.elapsed());
    assert_eq!(admin.get("/api/v1/workloads").rows().len(), 3, "what was taken in stays");
    let revoked = revoke(&admin, "box");
    assert_eq!(polls.join().unwrap(), 401);
    assert!(revoked.elapsed() < SOON, "it took {:?}", revoked.elapsed());
}

#[test]
fn a_log_that_is_followed_breaks_off_with_its_token() {
    let server = Server::start();
    let open = server.api();
    let admin = open.with_token(&open.token("ops", "admin", None));
    let runner = admin.token("box", "runner", Some("box"));
    let _runner = RunnerOptions::new("box", "echo first; exec sleep 600").token(&runner).start(&open);
    admin.model("chat", json!({ "runtime": "sh", "memory": "10GiB" }));
    let id = admin.lease("chat").is(201).id();
    eventually("it runs", || (admin.state(&id) == "running").then_some(()));
    let leaver = open.with_token(&admin.token("leaver", "admin", None));
    for path in ["workloads", "scheduler/slots"] {
        let name = format!("leaver of {path}");
        let leaver = open.with_token(&admin.token(&name, "admin", None));
        let which = match path {
            "workloads" => id.clone(),
            _ => admin.workload(&id)["slot"]["id"].as_str().unwrap().to_owned(),
        };
        let mut reader = leaver.ask("GET", &format!("/api/v1/{path}/{which}/logs?follow=true")).reader();
        let mut seen = [0; 6];
        reader.read_exact(&mut seen).unwrap();
        assert_eq!(&seen, b"first\n");
        let revoked = revoke(&admin, &name);
        assert!(reader.read_to_end(&mut Vec::new()).is_err(), "a stream that broke off is no end");
        assert!(revoked.elapsed() < SOON, "it took {:?}", revoked.elapsed());
    }
    assert_eq!(leaver.get("/api/v1/workloads").status, 200, "another one's token counts on");
}

#[test]
fn a_stream_ends_when_its_token_expires() {
    let server = Server::start();
    let open = server.api();
    let admin = open.with_token(&open.token("ops", "admin", None));
    let short = admin.post("/api/v1/tokens", &json!({ "name": "short", "role": "viewer", "expires_in": "2s" })).is(201);
    let short = open.with_token(short.body["token"].as_str().unwrap());
    let mut events = short.ask("GET", "/api/v1/scheduler/events").stream();
    let begun = Instant::now();
    assert_eq!(events.next(), None);
    assert!(begun.elapsed() < SOON + Duration::from_secs(2), "it took {:?}", begun.elapsed());
}
