//! Levels of the server's log: what an operator should look at is a warning or an error, and a lease is one line.
#![expect(clippy::unwrap_used, reason = "tests")]
#![expect(clippy::panic, reason = "tests")]

use berth_tests::service::{Api, FakeAgent, GIB, Options, Server, eventually};
use serde_json::{Value, json};

/// The lines of the log, as JSON.
fn lines(server: &Server) -> Vec<Value> {
    let log = server.log();
    log.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}"))).collect()
}

/// The first line of the log about an event of this kind, once there is one.
#[track_caller]
fn line_of(server: &Server, kind: &str) -> Value {
    eventually(&format!("a line about {kind}"), || lines(server).into_iter().find(|line| line["kind"] == kind))
}

/// Asserts that the line about an event has this level and names these things.
#[track_caller]
fn assert_line(server: &Server, kind: &str, level: &str, names: &[&str]) {
    let line = line_of(server, kind);
    assert_eq!(line["level"], level, "{line}");
    let message = line["message"].as_str().unwrap();
    for name in names {
        assert!(message.contains(name), "{kind} does not name {name}: {message}");
    }
}

fn server(settings: &[&str]) -> Server {
    Options::default().set(&["log.format=json"]).set(settings).start()
}

/// A runner with two GPUs and a ready slot of `chat` with one lease; also the lease's and the slot's id.
fn serving(api: &Api) -> (FakeAgent, String, String) {
    let mut agent = FakeAgent::new(api, "box", &[80 * GIB, 80 * GIB]).registered();
    api.model("chat", json!({ "memory": "20GiB", "gpu_counts": [1], "concurrency": 4 }));
    let lease = api.lease("chat").is(201).id();
    agent.obey_all();
    let slot = agent.slots.keys().next().unwrap().clone();
    (agent, lease, slot)
}

#[test]
fn an_ordinary_lease_is_one_line_at_info() {
    let server = server(&["log.filter=debug"]);
    let open = server.api();
    // What an admin's token does is audited, and still one line.
    let api = open.with_token(&open.token("ops", "admin", None));
    let runner = open.with_token(&api.token("box", "runner", Some("box")));
    let mut agent = FakeAgent::new(&runner, "box", &[80 * GIB]).registered();
    api.model("chat", json!({ "memory": "20GiB", "gpu_counts": [1] }));
    let first = api.lease("chat").is(201).id();
    agent.obey_all();
    let _ = api.complete(&first, 1).is(200);
    let is_end = |line: &Value| line["workload"] == *first && line["kind"] == "workload_ended";
    eventually("the slot is idle, and the log says so", || lines(&server).iter().any(is_end).then_some(()));
    let before = lines(&server).len();
    let bound = api.lease("chat").is(201).id();
    let _ = api.complete(&bound, 1).is(200);
    let log = eventually("its end is in the log", || {
        let log = lines(&server).split_off(before);
        log.iter().any(|line| line["workload"] == *bound && line["kind"] == "workload_ended").then_some(log)
    });
    let info: Vec<&Value> = log.iter().filter(|line| line["level"] == "INFO").collect();
    assert_eq!(info.len(), 1, "{info:#?}");
    assert_eq!((&info[0]["workload"], &info[0]["outcome"]), (&json!(bound), &json!("reused")), "{info:#?}");
    let story: Vec<&str> = log
        .iter()
        .filter(|line| line["workload"] == *bound)
        .map(|line| line["kind"].as_str().or(line["outcome"].as_str()).unwrap())
        .collect();
    assert_eq!(story, ["workload_submitted", "reused", "workload_assigned", "workload_ended"], "at debug, all of it");
}

#[test]
fn a_lease_that_waits_is_one_line_at_info() {
    let server = server(&["log.filter=debug"]);
    let api = server.api();
    let mut agent = FakeAgent::new(&api, "box", &[80 * GIB]).registered();
    api.model("chat", json!({ "memory": "20GiB", "gpu_counts": [1], "max_replicas": 1 }));
    let first = api.lease("chat").is(201).id();
    agent.obey_all();
    let waits = api.lease("chat").is(201).id();
    let _ = api.complete(&first, 1).is(200);
    let _ = api.complete(&waits, 1).is(200);
    let about = eventually("its end is in the log", || {
        let log: Vec<Value> = lines(&server).into_iter().filter(|line| line["workload"] == *waits).collect();
        log.iter().any(|line| line["kind"] == "workload_ended").then_some(log)
    });
    let info: Vec<&Value> = about.iter().filter(|line| line["level"] == "INFO").collect();
    assert_eq!(info.len(), 1, "{info:#?}");
    assert_eq!(info[0]["outcome"], "reused");
    assert!(about.iter().any(|line| line["code"] == "replica_limit"), "the wait is told at debug: {about:#?}");
}

#[test]
fn a_crash_is_a_warning_that_names_slot_model_and_runner() {
    let server = server(&[]);
    let (mut agent, _lease, slot) = serving(&server.api());
    agent.slots.get_mut(&slot).unwrap().reason = Some("crashed".to_owned());
    agent.say(&slot, "failed");
    let _ = agent.report().is(200);
    assert_line(&server, "slot_failed", "WARN", &[&slot, "chat", "box"]);
    let line = line_of(&server, "slot_failed");
    assert_eq!((&line["slot"], &line["model"], &line["runner"]), (&json!(slot), &json!("chat"), &json!("box")));
}

#[test]
fn a_stray_is_a_warning() {
    let server = server(&[]);
    let mut agent = FakeAgent::new(&server.api(), "box", &[80 * GIB]).registered();
    let stray = "0193aaaa-0000-7000-8000-000000000001";
    agent.about["slots"] = json!([{
        "id": stray, "generation": 1, "state": "ready",
        "claims": [{ "uuid": agent.uuid(0), "bytes": 10 * GIB }],
    }]);
    let _ = agent.report_as_is().is(200);
    assert_line(&server, "stray_found", "WARN", &[stray, "box"]);
}

#[test]
fn a_gpu_that_is_stale_or_lost_is_a_warning_or_an_error_that_names_gpu_and_runner() {
    let server = server(&[]);
    let mut agent = FakeAgent::new(&server.api(), "box", &[80 * GIB, 80 * GIB, 80 * GIB]).registered();
    for (index, health) in [(0, "stale"), (1, "lost"), (2, "failed")] {
        agent.about["gpus"][index]["health"] = json!(health);
    }
    let _ = agent.report().is(200);
    let about = |index: usize| {
        let uuid = agent.uuid(index);
        let found = || {
            let mut log = lines(&server).into_iter();
            log.find(|line| line["kind"] == "device_health_changed" && line["device"] == *uuid)
        };
        let line = eventually("a line about a GPU's health", found);
        assert!(line["message"].as_str().unwrap().contains(&uuid), "{line}");
        assert_eq!(line["runner"], "box", "{line}");
        line["level"].as_str().unwrap().to_owned()
    };
    assert_eq!([about(0), about(1), about(2)], ["WARN", "ERROR", "ERROR"]);
}

#[test]
fn a_dispute_is_an_error() {
    let server = server(&[]);
    let api = server.api();
    let _owner = FakeAgent::new(&api, "box", &[80 * GIB]).registered();
    let mut other = FakeAgent::new(&api, "other", &[80 * GIB]);
    other.about["gpus"][0]["uuid"] = json!("GPU-box-0");
    let _ = other.report().is(200);
    assert_line(&server, "device_disputed", "ERROR", &["GPU-box-0", "other"]);
}

#[test]
fn a_refused_report_is_a_warning_that_names_the_runner_and_the_reason_and_does_not_flood() {
    let server = server(&[]);
    let api = server.api();
    let mut first = FakeAgent::new(&api, "box", &[80 * GIB]).registered();
    let _second = FakeAgent::new(&api, "box", &[80 * GIB]).registered();
    for _ in 0..20 {
        assert_eq!(first.report().is(409).code(), "superseded");
    }
    let warnings = || -> Vec<Value> {
        let is_one = |line: &Value| line["level"] == "WARN" && line["runner"] == "box" && line["code"] == "superseded";
        lines(&server).into_iter().filter(is_one).collect()
    };
    eventually("a warning about the report", || (!warnings().is_empty()).then_some(()));
    assert_eq!(warnings().len(), 1, "the same refusal again and again is one line");
    let message = warnings()[0]["message"].as_str().unwrap().to_owned();
    assert!(message.contains("refused") && message.contains("box") && message.contains("incarnation"), "{message}");
    // A report that makes no sense, and one that is no report.
    first.incarnation = None;
    first.about["gpus"][0]["memory_total_bytes"] = json!("much");
    assert_eq!(first.report().status, 422);
    let found = || lines(&server).into_iter().find(|line| line["level"] == "WARN" && line["code"] == "invalid_field");
    eventually("a warning about nonsense", found);
}

#[test]
fn a_lost_runner_and_its_slots_are_warnings() {
    let settings = ["scheduler.suspect_after=100ms", "scheduler.lost_after=300ms", "scheduler.backoff=10ms"];
    let server = server(&settings);
    let api = server.api();
    // Most of the fleet must be heard, or the server suspects itself.
    let quiet = FakeAgent::new(&api, "quiet", &[80 * GIB]).registered();
    let mut others: Vec<FakeAgent> =
        ["a", "b", "c"].iter().map(|id| FakeAgent::new(&api, id, &[8 * GIB]).registered()).collect();
    eventually("quiet is lost", || {
        others.iter_mut().for_each(|agent| drop(agent.report()));
        (api.get("/api/v1/runners/quiet").is(200).body["state"] == "lost").then_some(())
    });
    assert_line(&server, "runner_suspected", "WARN", &["quiet"]);
    assert_line(&server, "runner_lost", "ERROR", &["quiet"]);
    drop(quiet);
}

#[test]
fn a_gpu_that_others_fill_is_a_warning_with_the_numbers() {
    let server = server(&[]);
    let (mut agent, _lease, slot) = serving(&server.api());
    let uuid = agent.slots[&slot].claims[0].0.clone();
    let index = usize::from(uuid.ends_with('1'));
    agent.about["gpus"][index]["memory_used_bytes"] = json!(70 * GIB);
    let _ = agent.report().is(200);
    let found = || {
        let mut log = lines(&server).into_iter();
        log.find(|line| line["kind"] == "foreign_changed" && line["level"] == "WARN")
    };
    let line = eventually("a warning about an overcommitted GPU", found);
    let message = line["message"].as_str().unwrap();
    for part in [uuid.as_str(), "box", "overcommitted", "20 GiB", "70 GiB", "80 GiB"] {
        assert!(message.contains(part), "no {part} in {message}");
    }
}

#[test]
fn ordinary_turns_are_info_and_details_are_debug() {
    let server = server(&["log.filter=debug"]);
    let api = server.api();
    let (mut agent, lease, slot) = serving(&api);
    let _ = api.complete(&lease, 1).is(200);
    let _ = api.delete(&format!("/scheduler/slots/{slot}")).is(202);
    agent.obey_all();
    let name = format!("slot {slot} of chat on runner box");
    for (kind, level) in [
        ("runner_registered", "INFO"),
        ("model_put", "INFO"),
        ("slot_ready", "INFO"),
        ("slot_stopping", "INFO"),
        ("slot_released", "INFO"),
        ("slot_placed", "DEBUG"),
        ("workload_ended", "DEBUG"),
    ] {
        let names: &[&str] = if kind.starts_with("slot") { &[&name] } else { &[] };
        assert_line(&server, kind, level, names);
    }
    let loud = lines(&server).into_iter().filter(|line| line["level"] == "WARN" || line["level"] == "ERROR");
    assert_eq!(loud.collect::<Vec<_>>(), Vec::<Value>::new(), "nothing is wrong");
}
