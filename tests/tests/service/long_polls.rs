//! Long polls: they wake when something changes, and end when their time is over.

use std::time::{Duration, Instant};

use berth_tests::service::{AgentThread, FakeAgent, GIB, Server, eventually};
use serde_json::json;

/// Far less than the waits of these tests, far more than a busy machine needs.
const SOON: Duration = Duration::from_secs(15);

#[test]
fn one_call_gets_a_bound_endpoint() {
    let server = Server::start();
    let api = server.api();
    let _agent = AgentThread::start(FakeAgent::new(&api, "box", &[80 * GIB]).registered());
    api.model("chat", json!({ "memory": "20GiB" }));
    let lease = api.post("/api/v1/workloads?wait=30s", &json!({ "model": "chat" })).is(201);
    assert_eq!(lease.body["state"], "running");
    assert_eq!(lease.body["slot"]["endpoint"], "http://127.0.0.1:9");
}

#[test]
fn a_wait_for_a_change_wakes_at_each_change_and_not_before() {
    let server = Server::start();
    let api = server.api();
    let mut agent = FakeAgent::new(&api, "box", &[80 * GIB]).registered();
    api.model("chat", json!({ "memory": "20GiB" }));
    let submitted = api.lease("chat").is(201);
    let (id, revision) = (submitted.id(), submitted.body["revision"].as_u64().unwrap());

    let begun = Instant::now();
    let nothing = api.get(&format!("/api/v1/workloads/{id}?wait=300ms&after={revision}")).is(200);
    assert!(begun.elapsed() >= Duration::from_millis(300), "nothing happened: it waited");
    assert_eq!(nothing.body["revision"], revision);

    let begun = Instant::now();
    let woken = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| api.get(&format!("/api/v1/workloads/{id}?wait=60s&after={revision}")).is(200));
        agent.obey_all();
        waiting.join().unwrap()
    });
    assert!(begun.elapsed() < SOON);
    assert_eq!(woken.body["state"], "running");
    assert!(woken.body["revision"].as_u64().unwrap() > revision);

    let begun = Instant::now();
    assert_eq!(api.get(&format!("/api/v1/workloads/{id}?wait=60s&after={revision}")).is(200).body, woken.body);
    assert!(begun.elapsed() < SOON, "what is newer already is answered at once");
}

#[test]
fn a_poll_of_an_agent_wakes_when_it_should_do_something_else() {
    let server = Server::start();
    let api = server.api();
    let mut agent = FakeAgent::new(&api, "box", &[80 * GIB]).registered();
    let mut other = FakeAgent::new(&api, "other", &[8 * GIB]).registered();
    api.model("chat", json!({ "memory": "20GiB" }));
    let before = agent.desired("0s").is(200).body;
    assert_eq!(before["slots"], json!([]));
    let _ = other.desired("0s").is(200);

    let begun = Instant::now();
    let (woken, asleep) = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| agent.desired("60s").is(200).body);
        let asleep = scope.spawn(|| {
            let begun = Instant::now();
            (other.desired("1s").is(200).body, begun.elapsed())
        });
        let _ = api.lease("chat").is(201);
        (waiting.join().unwrap(), asleep.join().unwrap())
    });
    assert!(begun.elapsed() < SOON);
    assert_eq!(woken["slots"][0]["action"], "run");
    assert_eq!(woken["slots"][0]["gpus"], json!([{ "uuid": agent.uuid(0), "memory_bytes": 20 * GIB }]));
    assert!(asleep.1 >= Duration::from_secs(1), "another runner's news wakes nobody");
    assert_eq!(asleep.0["slots"], json!([]));
}

#[test]
fn n7_a_newer_agent_ends_the_poll_of_the_older_one() {
    let server = Server::start();
    let api = server.api();
    let mut older = FakeAgent::new(&api, "box", &[80 * GIB]).registered();
    let _ = older.desired("0s").is(200);
    let begun = Instant::now();
    let told = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| older.desired("60s"));
        eventually("it waits", || api.get("/metrics").text.contains("berth_long_polls 1").then_some(()));
        let _ = FakeAgent::new(&api, "box", &[80 * GIB]).registered();
        waiting.join().unwrap()
    });
    assert!(begun.elapsed() < SOON);
    assert_eq!(told.is(409).code(), "superseded");
}

#[test]
fn a_wait_is_never_longer_than_the_server_allows() {
    let server = Server::with(&["limits.wait=500ms"]);
    let api = server.api();
    let mut agent = FakeAgent::new(&api, "box", &[8 * GIB]).registered();
    api.model("chat", json!({ "memory": "8GiB" }));
    let _ = api.lease("chat").is(201);
    let begun = Instant::now();
    let id = api.post("/api/v1/workloads?wait=1h", &json!({ "model": "chat" })).is(201).id();
    let _ = api.get(&format!("/api/v1/workloads/{id}?wait=1h")).is(200);
    let _ = agent.desired("1h").is(200);
    let _ = agent.desired("1h").is(200);
    let took = begun.elapsed();
    assert!(took >= Duration::from_millis(1500) && took < SOON, "{took:?}");
}
