//! `berth logs WORKLOAD` and `GET /workloads/{id}/logs`: for work that waits, runs or has ended.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use berth_tests::service::{Api, Options, RunnerOptions, Server, berth, cli, eventually};
use serde_json::{Value, json};

fn submitted(api: &Api) -> String {
    api.model("chat", json!({ "runtime": "sh", "memory": "10GiB" }));
    api.lease("chat").is(201).id()
}

fn path(id: &str, query: &str) -> String {
    format!("/api/v1/workloads/{id}/logs{query}")
}

#[track_caller]
fn until(api: &Api, id: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    eventually(&format!("{id}: {}", api.workload(id)), || Some(api.workload(id)).filter(&is_so))
}

const DIES: &str = "echo these are my last words; exit 3";

#[test]
fn the_log_of_work_that_runs_is_that_of_its_slot() {
    let server = Server::start();
    let api = server.api();
    let _runner = RunnerOptions::new("box", "echo hello; exec sleep 600").start(&api);
    let id = submitted(&api);
    until(&api, &id, |row| row["state"] == "running");
    eventually("it wrote", || (api.get(&path(&id, "")).is(200).text == "hello\n").then_some(()));
    let reply = api.get(&path(&id, "?tail_bytes=3")).is(200);
    assert_eq!((reply.text.as_str(), reply.header("content-type")), ("lo\n", Some("text/plain; charset=utf-8")));
    assert_eq!(cli(&api, &["logs", &id]).ok(), "hello\n");
    assert_eq!(api.get(&path(&id, "?lines=5")).is(422).code(), "invalid_field");
    let nobody = uuid::Uuid::from_u128(7).to_string();
    assert_eq!(api.get(&path(&nobody, "")).is(404).code(), "unknown_workload");
    let neither = cli(&api, &["logs", &nobody]);
    assert_eq!(neither.status, 5, "{}", neither.err);
    assert!(neither.err.contains("workload") && neither.err.contains("slot"), "{}", neither.err);
}

#[test]
fn the_log_of_work_that_ended_comes_from_its_agent_also_after_a_restart_of_the_server() {
    let mut server = Options::default().set(&["scheduler.attempts=2", "scheduler.backoff=50ms"]).start();
    let api = server.api();
    let _runner =
        RunnerOptions::new("box", "n=$(ls $1/n* 2>/dev/null | wc -l); : > $1/n$n; echo try $n; exit 3").start(&api);
    let id = submitted(&api);
    until(&api, &id, |row| row["state"] == "failed");
    assert_eq!(cli(&api, &["logs", &id]).ok(), "try 1\n", "of the last attempt");
    assert_eq!(cli(&api, &["logs", &id, "--attempt", "1"]).ok(), "try 0\n");
    assert_eq!(api.get(&path(&id, "?attempt=1")).is(200).text, "try 0\n");
    assert_eq!(api.get(&path(&id, "?attempt=9")).is(404).code(), "no_log");
    assert_eq!(cli(&api, &["logs", &id, "-f"]).ok(), "try 1\n", "there is nothing to wait for");

    let options = server.options().listen(&server.address());
    let _ = server.terminate();
    server.restart_with(options);
    let text = eventually("the agent is back", || {
        let reply = api.get(&path(&id, ""));
        (reply.status == 200).then_some(reply.text)
    });
    assert_eq!(text, "try 1\n");
}

#[test]
fn the_kept_lines_are_shown_where_the_agent_is_not_reachable_and_that_is_said() {
    let server = Options::default().set(&["scheduler.attempts=1", "limits.agent_answer=500ms"]).start();
    let api = server.api();
    let runner = RunnerOptions::new("box", DIES).start(&api);
    let id = submitted(&api);
    until(&api, &id, |row| row["state"] == "failed");
    runner.pause();
    let reply = api.get(&path(&id, "")).is(200);
    let (first, rest) = reply.text.split_once('\n').unwrap();
    assert!(first.starts_with("[berth: ") && first.contains("runner box did not answer"), "{first}");
    assert!(first.contains("kept"), "{first}");
    assert_eq!(rest, "these are my last words\n");
    assert!(cli(&api, &["logs", &id]).ok().ends_with("these are my last words\n"));
}

#[test]
fn work_that_waits_says_why_and_shows_the_end_of_its_attempt_before() {
    let server = Options::default().set(&["scheduler.backoff=10m", "scheduler.backoff_limit=10m"]).start();
    let api = server.api();
    let id = submitted(&api);
    let first = api.get(&path(&id, "")).is(200).text;
    assert!(first.starts_with("[berth: ") && first.contains("no runner has registered"), "{first}");
    assert!(first.contains("nothing"), "it wrote nothing yet: {first}");

    let _runner = RunnerOptions::new("box", DIES).start(&api);
    let row = until(&api, &id, |row| row["attempt"] == 2);
    assert_eq!(row["reason"]["code"], "backing_off", "{row}");
    for text in [api.get(&path(&id, "")).is(200).text, cli(&api, &["logs", &id]).ok()] {
        let (first, rest) = text.split_once('\n').unwrap();
        assert!(first.starts_with("[berth: ") && first.contains("backing_off"), "{first}");
        assert!(first.contains("attempt 1"), "what follows is of the attempt before: {first}");
        assert_eq!(rest, "these are my last words\n");
    }
}

#[test]
fn a_follower_of_waiting_work_reads_its_log_once_it_runs() {
    let server = Server::start();
    let api = server.api();
    let id = submitted(&api);
    let mut command = Command::new(berth());
    command.args(["logs", "-f", &id, "--server", &api.base()]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut following = command.spawn().unwrap();
    let mut waits = String::new();
    BufReader::new(following.stderr.take().unwrap()).read_line(&mut waits).unwrap();
    assert!(waits.contains("waits"), "{waits}");
    let _runner = RunnerOptions::new("box", "echo at last; exec sleep 600").start(&api);
    let mut line = String::new();
    BufReader::new(following.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "at last\n");
    following.kill().unwrap();
    following.wait().unwrap();
}

#[test]
fn logs_and_last_lines_need_permission_to_read_the_workload() {
    let server = Server::with(&["scheduler.attempts=1"]);
    let open = server.api();
    let admin = open.with_token(&open.token("ops", "admin", None));
    let token = admin.token("of-box", "runner", Some("box"));
    let _runner = RunnerOptions::new("box", DIES).token(&token).start(&admin);
    admin.model("chat", json!({ "runtime": "sh", "memory": "10GiB" }));
    let id = admin.lease("chat").is(201).id();
    let row = until(&admin, &id, |row| row["state"] == "failed");
    assert!(row.to_string().contains("these are my last words"), "{row}");
    let viewer = open.with_token(&admin.token("looker", "viewer", None));
    assert_eq!(viewer.get(&path(&id, "")).is(200).text, "these are my last words\n");
    for route in [path(&id, ""), format!("/api/v1/workloads/{id}"), format!("/api/v1/workloads/{id}/explain")] {
        assert_eq!(open.get(&route).is(401).code(), "unauthenticated");
        assert_eq!(open.with_token(&token).get(&route).is(403).code(), "forbidden", "a runner reads no work of others");
    }
    let events = admin.get("/metrics").is(200).text;
    assert!(!events.contains("last words"));
}
