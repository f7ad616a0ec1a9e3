//! `explain` tells the present first and the history after it; what is of an earlier attempt says so.
#![expect(clippy::panic, reason = "what these read on the way to a test is there, or the test has failed")]

use berth_tests::service::{Api, FakeAgent, GIB, Options, RunnerOptions, Server, cli, eventually};
use serde_json::{Value, json};

#[track_caller]
fn until(api: &Api, id: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    eventually(&format!("{id}: {}", api.workload(id)), || Some(api.workload(id)).filter(&is_so))
}

fn explained(api: &Api, id: &str) -> Value {
    api.get(&format!("/api/v1/workloads/{id}/explain")).is(200).body
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}"))
}

/// Where a text stands in another. The test fails if it is not there.
#[track_caller]
fn place(text: &str, part: &str) -> usize {
    text.find(part).unwrap_or_else(|| panic!("{part:?} is not in\n{text}"))
}

#[test]
fn work_that_backs_off_says_until_when_and_nothing_of_missing_room() {
    let server = Options::default().set(&["scheduler.backoff=10m", "scheduler.backoff_limit=10m"]).start();
    let api = server.api();
    let _runner = RunnerOptions::new("box", "echo bad luck; exit 3").start(&api);
    api.model("chat", json!({ "runtime": "sh", "memory": "10GiB" }));
    let id = api.lease("chat").is(201).id();
    until(&api, &id, |row| row["attempt"] == 2);
    let why = explained(&api, &id);
    assert_eq!((&why["outcome"], &why["code"]), (&json!("waiting"), &json!("backing_off")), "{why}");
    assert_eq!(why["now"]["code"], "backing_off", "{why}");
    assert!(why["now"]["until"].is_string(), "until when: {why}");
    assert_eq!((&why["now"]["failures"], &why["now"]["most_failures"]), (&json!(1), &json!(3)), "{why}");
    // 70 of 80 GiB are free: it is not room that it waits for.
    for untrue in ["no room", "needed", "free"] {
        assert!(!text(&why["text"]).contains(untrue), "{untrue:?} is in {}", why["text"]);
    }
    assert_eq!(why["help"], json!([]), "{why}");
    let said = cli(&api, &["explain", &id]).ok();
    assert!(place(&said, "now:") < place(&said, "attempt 1"), "{said}");
    let now = said.lines().find(|line| line.starts_with("now:")).unwrap();
    assert!(now.contains("backing_off") && now.contains("until") && now.contains("1 of at most 3"), "{now}");
    assert!(now.contains("attempt 2"), "{now}");
}

#[test]
fn work_that_runs_after_a_failed_attempt_says_that_it_runs_and_marks_the_reason_of_that_attempt() {
    let server = Options::default().set(&["scheduler.backoff=50ms"]).start();
    let api = server.api();
    let script = "if mkdir $1/once 2>/dev/null; then echo bad luck; exit 3; fi; exec sleep 600";
    let _runner = RunnerOptions::new("box", script).start(&api);
    api.model("chat", json!({ "runtime": "sh", "memory": "10GiB" }));
    let id = api.lease("chat").is(201).id();
    let row = until(&api, &id, |row| row["state"] == "running" && row["attempt"] == 2);
    // A reason that is not of the present attempt names the attempt that it is of.
    assert_eq!((&row["reason"]["code"], &row["reason"]["attempt"]), (&json!("crashed"), &json!(1)), "{row}");
    assert!(text(&row["reason"]["text"]).starts_with("attempt 1: "), "{row}");
    let listed = cli(&api, &["workloads"]).ok();
    assert!(listed.contains("attempt 1: crashed"), "{listed}");
    let shown = cli(&api, &["workloads", &id]).ok();
    assert!(shown.contains("attempt 1: "), "{shown}");
    let slot = text(&row["slot"]["id"]).to_owned();
    let why = explained(&api, &id);
    assert_eq!(why["now"]["code"], "running", "{why}");
    assert_eq!((&why["now"]["slot_id"], &why["now"]["runner_id"]), (&json!(slot), &json!("box")), "{why}");
    assert_eq!(why["slot_id"], json!(slot), "the decision that holds now: {why}");
    assert_eq!(why["attempts"][0]["attempt"], 1, "{why}");
    let said = cli(&api, &["explain", &id]).ok();
    let now = said.lines().find(|line| line.starts_with("now:")).unwrap();
    assert!(now.contains("runs in slot") && now.contains(&slot) && now.contains("after waiting"), "{now}");
    assert!(place(&said, "now:") < place(&said, "attempt 1: "), "{said}");
    assert!(!said.lines().next().unwrap().contains("crashed"), "{said}");
}

#[test]
fn work_that_runs_after_it_waited_for_room_does_not_say_that_it_waits() {
    let server = Server::start();
    let api = server.api();
    let mut agent = FakeAgent::new(&api, "box", &[80 * GIB]).registered();
    api.model("one", json!({ "memory": "60GiB" }));
    api.model("two", json!({ "memory": "60GiB" }));
    let first = api.lease("one").is(201).id();
    agent.obey_all();
    let second = api.lease("two").is(201).id();
    assert_eq!(explained(&api, &second)["now"]["code"], "full_now");
    let row = api.workload(&first);
    let _ = api.complete(&first, row["attempt"].as_u64().unwrap()).is(200);
    // Its memory is promised while the first slot is stopped, and then it runs.
    let slot = text(&row["slot"]["id"]).to_owned();
    let _ = api.delete(&format!("/api/v1/scheduler/slots/{slot}")).is(202);
    agent.obey_all();
    let row = until(&api, &second, |row| row["state"] == "running");
    let why = explained(&api, &second);
    assert_eq!(why["now"]["code"], "running", "{why}");
    assert!(matches!(text(&why["outcome"]), "placed" | "reused"), "{why}");
    assert_eq!(why["slot_id"], row["slot"]["id"], "{why}");
    assert!(!text(&why["text"]).contains("waiting"), "{why}");
    let said = cli(&api, &["explain", &second]).ok();
    let now = said.lines().find(|line| line.starts_with("now:")).unwrap();
    assert!(now.contains("after waiting"), "{now}");
    // What was decided while it waited is history.
    assert!(place(&said, "now:") < place(&said, "waiting (full_now)"), "{said}");
    assert!(place(&said, "decided before") < place(&said, "waiting (full_now)"), "{said}");
}

#[test]
fn work_that_has_ended_says_how_and_when_first() {
    let server = Server::start();
    let api = server.api();
    let mut agent = FakeAgent::new(&api, "box", &[80 * GIB]).registered();
    api.model("chat", json!({ "memory": "60GiB" }));
    let id = api.lease("chat").is(201).id();
    agent.obey_all();
    let _ = api.complete(&id, 1).is(200);
    let why = explained(&api, &id);
    assert_eq!((&why["outcome"], &why["code"]), (&json!("ended"), &json!("completed")), "{why}");
    assert_eq!(why["attempts"][0]["reason"]["code"], "completed", "{why}");
    let said = cli(&api, &["explain", &id]).ok();
    assert!(place(&said, "now: it succeeded") < place(&said, "decided before"), "{said}");
    // It was taken back before it got a slot: there is no attempt, and still something to say.
    api.model("second", json!({ "memory": "80GiB" }));
    let waits = api.lease("second").is(201).id();
    let _ = api.delete(&format!("/api/v1/workloads/{waits}")).is(200);
    let why = explained(&api, &waits);
    assert_eq!((&why["now"]["code"], &why["attempts"]), (&json!("cancelled"), &json!([])), "{why}");
}
