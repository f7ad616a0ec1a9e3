//! What slots wrote, read through their agents; and requests to agents in general.
#![expect(clippy::unwrap_used, reason = "what these read on the way to a test is there, or the test has failed")]

use std::io::{Read, Write};
use std::process::Command;
use std::time::{Duration, Instant};

use berth_tests::service::{Api, FakeAgent, GIB, Options, RunnerOptions, Server, berth, eventually};
use serde_json::{Value, json};

/// Submits a lease on a model whose slots run the script, and waits for the slot.
fn slot_of(api: &Api) -> (String, String) {
    api.model("chat", json!({ "runtime": "sh", "memory": "10GiB" }));
    let id = api.lease("chat").is(201).id();
    let slot = eventually("it runs", || {
        let workload = api.workload(&id);
        (workload["state"] == "running").then(|| workload["slot"]["id"].as_str().unwrap().to_owned())
    });
    (id, slot)
}

fn path(slot: &str, query: &str) -> String {
    format!("/api/v1/scheduler/slots/{slot}/logs{query}")
}

fn bytes(api: &Api, slot: &str, query: &str) -> Vec<u8> {
    let mut all = Vec::new();
    api.ask("GET", &path(slot, query)).reader().read_to_end(&mut all).unwrap();
    all
}

/// Reads until the text has come, whatever comes after it.
fn read_until(reader: &mut impl Read, wanted: &str) {
    let mut seen = Vec::new();
    let mut buffer = [0; 4096];
    while !String::from_utf8_lossy(&seen).contains(wanted) {
        let count = reader.read(&mut buffer).unwrap();
        assert!(count > 0, "it ended before {wanted:?}: {:?}", String::from_utf8_lossy(&seen));
        seen.extend_from_slice(&buffer[..count]);
    }
}

/// Both streams, bytes that are no text, and then nothing but waiting.
const TALKS: &str = "echo out; echo err >&2; printf 'raw\\000\\377\\n'; exec sleep 600";
const SAID: &[u8] = b"out\nerr\nraw\x00\xff\n";

fn talked(api: &Api, slot: &str) {
    eventually("it has written everything", || (bytes(api, slot, "") == SAID).then_some(()));
}

#[test]
fn both_streams_come_byte_by_byte_and_from_the_end_as_far_back_as_asked() {
    let server = Server::start();
    let api = server.api();
    let _runner = RunnerOptions::new("box", TALKS).start(&api);
    let (workload, slot) = slot_of(&api);
    talked(&api, &slot);
    let reply = api.get(&path(&slot, "")).is(200);
    assert_eq!(reply.header("content-type"), Some("text/plain; charset=utf-8"));
    assert_eq!(bytes(&api, &slot, "?tail_bytes=6"), b"raw\x00\xff\n");
    assert_eq!(bytes(&api, &slot, "?tail_bytes=0"), b"");
    assert_eq!(bytes(&api, &slot, "?follow=false&tail_bytes=999999999999"), SAID);
    let short = api.get(&format!("/scheduler/slots/{slot}/logs?tail_bytes=4")).is(200);
    assert!(short.text.ends_with('\n'));
    assert_eq!(api.get(&path(&slot, "?lines=5")).is(422).code(), "invalid_field");
    assert_eq!(api.get(&path(&slot, "?follow=maybe")).is(422).code(), "invalid_field");

    // The command line writes the same bytes, by the slot's id or by its workload's.
    for id in [&slot, &workload] {
        let output = Command::new(berth()).args(["logs", id, "--server", &api.base()]).output().unwrap();
        assert_eq!(output.stdout, SAID, "{}", String::from_utf8_lossy(&output.stderr));
    }
    let tail = Command::new(berth()).args(["logs", &slot, "--tail", "2B", "--server", &api.base()]).output().unwrap();
    assert_eq!(tail.stdout, b"\xff\n", "{}", String::from_utf8_lossy(&tail.stderr));
}

#[test]
fn a_follower_reads_what_is_written_later_and_the_end_of_the_slot() {
    let server = Server::start();
    let api = server.api();
    let script = "echo first; while [ ! -e $1/go ]; do sleep 0.05; done; echo second; exec sleep 600";
    let runner = RunnerOptions::new("box", script).start(&api);
    let (_, slot) = slot_of(&api);
    let mut reader = api.ask("GET", &path(&slot, "?follow")).reader();
    read_until(&mut reader, "first\n");
    std::fs::write(runner.path("go"), "").unwrap();
    read_until(&mut reader, "second\n");
    let _ = api.delete(&format!("/api/v1/scheduler/slots/{slot}")).is(202);
    let mut rest = Vec::new();
    reader.read_to_end(&mut rest).expect("a slot that is gone is an end, not an error");
    assert_eq!(rest, b"");
}

#[test]
fn a_slot_that_crashed_shows_its_last_words_even_after_the_server_forgot_it() {
    let mut server = Options::default().set(&["scheduler.attempts=1"]).start();
    let api = server.api();
    let _runner = RunnerOptions::new("box", "echo these are my last words >&2; exit 3").start(&api);
    api.model("chat", json!({ "runtime": "sh", "memory": "10GiB" }));
    let id = api.lease("chat").is(201).id();
    eventually("it fails", || (api.state(&id) == "failed").then_some(()));
    let decisions = api.get(&format!("/api/v1/scheduler/decisions?workload_id={id}")).is(200);
    let placed = decisions.rows().iter().find_map(|row| row["slot_id"].as_str());
    let slot = placed.unwrap_or_else(|| panic!("{}", decisions.text)).to_owned();
    eventually("the slot is no more", || {
        (api.get(&format!("/api/v1/scheduler/slots/{slot}")).status == 404).then_some(())
    });
    assert_eq!(bytes(&api, &slot, ""), b"these are my last words\n");
    assert_eq!(bytes(&api, &slot, "?follow=true"), b"these are my last words\n", "there is nothing to wait for");

    // A server that was started anew does not know the slot; with the id of the runner its log can be read all the same.
    let options = server.options().listen(&server.address());
    let _ = server.terminate();
    server.restart_with(options);
    let reply = api.get(&path(&slot, "")).is(404);
    assert_eq!(reply.code(), "unknown_slot");
    assert!(reply.text.contains("runner_id"), "it says what to do: {}", reply.text);
    assert_eq!(bytes(&api, &slot, "?runner_id=box"), b"these are my last words\n");
    let other = uuid::Uuid::from_u128(7).to_string();
    assert_eq!(api.get(&path(&other, "?runner_id=box")).is(404).code(), "no_log");
    assert_eq!(api.get(&path(&other, "?runner_id=nobody")).is(404).code(), "unknown_runner");
}

#[test]
fn a_big_log_is_cut_at_the_limits_of_its_files_and_ends_with_the_last_line() {
    let server = Server::start();
    let api = server.api();
    let script = "i=0; while [ $i -lt 20000 ]; do echo \"$i ...............................................\"; i=$((i+1)); done; sleep 3; echo \"$i .\"; exec sleep 600";
    let limits = "[logs]\nring = '4KiB'\nfile = '128KiB'\ncopies = 1\n";
    let _runner = RunnerOptions::new("box", script).more(limits).start(&api);
    let (_, slot) = slot_of(&api);
    // Where a file cannot be cut in its middle, what is written at that very moment may be missing; what comes later is not.
    let text = eventually("the last line", || {
        let text = String::from_utf8(bytes(&api, &slot, "")).unwrap();
        text.contains("\n20000 .").then_some(text)
    });
    assert!(text.len() > 64 << 10, "more than memory holds comes from the files: {}", text.len());
    assert!(text.len() <= (128 + 256 + 64) << 10, "{} bytes of a log of a megabyte", text.len());
    let numbers: Vec<u32> = text.lines().skip(1).filter_map(|line| line.split(' ').next()?.parse().ok()).collect();
    assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "in order, and nothing twice");
    assert_eq!(bytes(&api, &slot, "?tail_bytes=100").len(), 100);
}

#[test]
fn a_reader_that_leaves_makes_room_for_the_next() {
    let server = Server::with(&["limits.agent_requests=1"]);
    let api = server.api();
    let _runner = RunnerOptions::new("box", TALKS).start(&api);
    let (_, slot) = slot_of(&api);
    talked(&api, &slot);
    let mut first = api.ask("GET", &path(&slot, "?follow=true")).reader();
    read_until(&mut first, "err\n");
    let refused = api.get(&path(&slot, "")).is(429);
    assert_eq!(refused.code(), "runner_busy");
    assert!(refused.header("retry-after").is_some());
    drop(first);
    eventually("there is room again", || (api.get(&path(&slot, "")).status == 200).then_some(()));
}

#[test]
fn an_agent_that_stands_still_is_504_and_its_reader_is_told_what_to_do() {
    let server = Server::with(&["limits.agent_answer=1s"]);
    let api = server.api();
    let runner = RunnerOptions::new("box", TALKS).start(&api);
    let (_, slot) = slot_of(&api);
    talked(&api, &slot);
    runner.pause();
    let begun = Instant::now();
    let silent = api.get(&path(&slot, "")).is(504);
    assert_eq!(silent.code(), "runner_silent");
    assert!(silent.text.contains("berth runners box"), "{}", silent.text);
    assert!(begun.elapsed() < Duration::from_secs(10));
}

#[test]
fn a_stop_of_the_server_ends_followed_logs() {
    let mut server = Server::start();
    let api = server.api();
    let _runner = RunnerOptions::new("box", TALKS).start(&api);
    let (_, slot) = slot_of(&api);
    let mut reader = api.ask("GET", &path(&slot, "?follow=true")).reader();
    read_until(&mut reader, "err\n");
    let begun = Instant::now();
    assert!(server.terminate().success());
    assert!(begun.elapsed() < Duration::from_secs(8), "it waited for a reader that never ends");
    assert!(reader.read_to_end(&mut Vec::new()).is_err(), "a stream that broke off is no end");
}

/// A slot on an agent that the test plays.
fn played(api: &Api, agents: &Api, id: &str) -> (FakeAgent, String) {
    let mut agent = FakeAgent::new(agents, id, &[80 * GIB]).registered();
    api.model("chat", json!({ "memory": "60GiB" }));
    let workload = api.lease("chat").is(201).id();
    agent.obey_all();
    let slot = api.workload(&workload)["slot"]["id"].as_str().unwrap().to_owned();
    agent.forget_what_was_desired();
    let _ = agent.desired("0s").is(200);
    (agent, slot)
}

/// Reads a log on a thread of its own, and returns the first request that the agent hears.
fn asked(api: &Api, agent: &mut FakeAgent, slot: &str) -> (std::thread::JoinHandle<(u16, String)>, Value) {
    let (api, path) = (api.clone(), path(slot, "?tail_bytes=77"));
    let reading = std::thread::spawn(move || {
        let reply = api.get(&path);
        let status = reply.status;
        (status, if status == 200 { reply.text } else { reply.code().to_owned() })
    });
    let desired = agent.desired("20s").is(200);
    (reading, desired.body["requests"][0].clone())
}

fn answer(agent: &FakeAgent, request: &Value, media_type: &str, body: &str) -> u16 {
    let path = format!("/api/v1/runners/{}/requests/{}", agent.id, request["id"].as_str().unwrap());
    agent.api.ask("POST", &path).bytes(media_type, body.as_bytes().to_vec()).send().status
}

#[test]
fn a_request_wakes_the_poll_of_its_runner_once_and_does_not_spin() {
    let server = Server::start();
    let api = server.api();
    let (mut agent, slot) = played(&api, &api, "box");
    let begun = Instant::now();
    let (reading, request) = asked(&api, &mut agent, &slot);
    assert!(begun.elapsed() < Duration::from_secs(10), "the poll was not woken");
    assert_eq!((&request["kind"], &request["slot_id"]), (&json!("logs"), &json!(slot)));
    assert_eq!((&request["tail_bytes"], &request["follow"]), (&json!(77), &json!(false)));
    let begun = Instant::now();
    let again = agent.desired("700ms").is(200);
    assert!(begun.elapsed() >= Duration::from_millis(600), "it was told again at once");
    assert_eq!(again.body["requests"].as_array().unwrap().len(), 1, "until it is taken it is told with every answer");
    let begun = Instant::now();
    let _ = agent.desired("20s").is(200);
    assert!(begun.elapsed() < Duration::from_secs(10), "an answer that was lost is made good");
    assert_eq!(answer(&agent, &request, "application/octet-stream", "hello"), 204);
    assert_eq!(reading.join().unwrap(), (200, "hello".to_owned()));
    assert!(agent.desired("0s").is(200).body["requests"].as_array().unwrap().is_empty());
    assert_eq!(answer(&agent, &request, "application/octet-stream", "hello"), 404, "nobody waits any more");
}

#[test]
fn an_agent_may_say_why_not_and_nonsense_is_502() {
    let server = Server::start();
    let api = server.api();
    let (mut agent, slot) = played(&api, &api, "box");
    for (media_type, body, status, code) in [
        (
            "application/problem+json",
            r#"{"type":"x","title":"x","status":404,"detail":"none","code":"no_log"}"#,
            404,
            "no_log",
        ),
        (
            "application/problem+json",
            r#"{"type":"x","title":"x","status":200,"detail":"I will not","code":"whim"}"#,
            502,
            "runner_refused",
        ),
        ("application/problem+json", "{", 502, "bad_answer"),
        ("application/json", "[]", 502, "bad_answer"),
    ] {
        let (reading, request) = asked(&api, &mut agent, &slot);
        let _ = answer(&agent, &request, media_type, body);
        assert_eq!(reading.join().unwrap(), (status, code.to_owned()), "{body}");
    }
    let (reading, request) = asked(&api, &mut agent, &slot);
    assert_eq!(answer(&agent, &request, "text/html", "<p>"), 415, "and it is still open:");
    assert_eq!(answer(&agent, &request, "application/octet-stream", "x"), 204);
    assert_eq!(reading.join().unwrap().0, 200);
}

#[test]
fn only_the_runner_that_was_asked_can_answer() {
    let server = Server::start();
    let open = server.api();
    let admin = open.with_token(&open.token("ops", "admin", None));
    let runner = |id: &str| open.with_token(&admin.token(&format!("token-{id}"), "runner", Some(id)));
    let (mut agent, slot) = played(&admin, &runner("box"), "box");
    let thief = FakeAgent::new(&runner("thief"), "thief", &[]).registered();
    let (reading, request) = asked(&admin, &mut agent, &slot);
    let mut pretending = thief.clone();
    pretending.id = "box".to_owned();
    let bytes = "application/octet-stream";
    assert_eq!(answer(&pretending, &request, bytes, "lies"), 403, "with another's token");
    assert_eq!(answer(&thief, &request, bytes, "lies"), 404, "with its own token, another's request");
    pretending.api = admin.clone();
    assert_eq!(answer(&pretending, &request, bytes, "lies"), 403, "not even an admin");
    assert_eq!(answer(&agent, &request, bytes, "the truth"), 204);
    assert_eq!(reading.join().unwrap(), (200, "the truth".to_owned()));
    let path = path(&slot, "");
    assert_eq!(agent.api.get(&path).is(403).code(), "forbidden", "a runner reads no logs of others");
    assert_eq!(open.get(&path).is(401).code(), "unauthenticated");
}

#[test]
fn a_request_is_answered_once_and_an_upload_without_end_is_read_no_faster_than_its_reader() {
    let server = Server::start();
    let api = server.api();
    let (mut agent, slot) = played(&api, &api, "box");
    let reading = {
        let path = path(&slot, "?follow=true");
        std::thread::spawn(move || api.ask("GET", &path).reader())
    };
    let desired = agent.desired("20s").is(200);
    let id = desired.body["requests"][0]["id"].as_str().unwrap().to_owned();
    // An agent that sends as fast as it can, to a reader that does not read.
    let mut upload = std::net::TcpStream::connect(server.address()).unwrap();
    upload.set_write_timeout(Some(Duration::from_secs(2))).unwrap();
    write!(
        upload,
        "POST /api/v1/runners/box/requests/{id} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/octet-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    .unwrap();
    let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
    let sent = (0..2000).take_while(|_| upload.write_all(chunk.as_bytes()).is_ok()).count();
    assert!(sent < 1000, "{sent} pieces of 64 KiB were taken for a reader that does not read");
    assert_eq!(answer(&agent, &json!({ "id": id }), "application/octet-stream", "me too"), 409, "it is taken");
    // The reader leaves: the upload ends.
    drop(reading.join().unwrap());
    let mut rest = String::new();
    upload.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let _ = upload.read_to_string(&mut rest);
    assert!(rest.is_empty() || rest.contains("reader_left"), "{rest}");
    eventually("it is closed", || {
        (answer(&agent, &json!({ "id": id }), "application/octet-stream", "me too") == 404).then_some(())
    });
}

#[test]
fn a_lost_runner_and_a_slot_that_never_was_have_answers_of_their_own() {
    let server = Server::with(&["scheduler.suspect_after=1s", "scheduler.lost_after=2s"]);
    let api = server.api();
    let (_agent, slot) = played(&api, &api, "box");
    eventually("it is lost", || (api.get("/api/v1/runners/box").is(200).body["state"] == "lost").then_some(()));
    let lost = api.get(&path(&slot, "")).is(503);
    assert_eq!(lost.code(), "runner_lost");
    assert!(lost.text.contains("box"), "{}", lost.text);
    let nobody = uuid::Uuid::from_u128(7).to_string();
    assert_eq!(api.get(&path(&nobody, "")).is(404).code(), "unknown_slot");
    assert_eq!(api.get(&path("no-id", "")).is(422).code(), "invalid_field");
}
