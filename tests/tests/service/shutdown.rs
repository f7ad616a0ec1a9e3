//! How the server ends: politely with everything answered, or at once when it can keep nothing more.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use berth_tests::service::{FakeAgent, GIB, Options, Server, at_once, eventually};
use serde_json::json;

#[test]
fn a_server_asked_to_stop_answers_every_request_and_exits_with_0() {
    let mut server = Server::start();
    let api = server.api();
    let mut agent = FakeAgent::new(&api, "box", &[8 * GIB]).registered();
    api.model("chat", json!({ "memory": "8GiB" }));
    let _ = api.lease("chat").is(201);
    let waiting = api.lease("chat").is(201).id();
    let _ = agent.desired("0s").is(200);
    let mut events = api.ask("GET", "/scheduler/events?after=0").stream();
    assert!(events.next().is_some());

    let acknowledged = Mutex::new(Vec::new());
    let begun = std::thread::scope(|scope| {
        let lease = scope.spawn(|| api.get(&format!("/api/v1/workloads/{waiting}?wait=60s")).is(200));
        let submit = scope.spawn(|| api.post("/api/v1/workloads?wait=60s", &json!({ "model": "chat" })).is(201));
        let poll = scope.spawn(|| agent.desired("60s").is(200));
        for _ in 0..4 {
            scope.spawn(|| {
                // Until it takes no more: what it acknowledged on the way counts.
                loop {
                    match api.ask("POST", "/api/v1/workloads").json(&json!({ "model": "chat" })).try_send() {
                        Ok(reply) if reply.status == 201 => acknowledged.lock().unwrap().push(reply.id()),
                        Ok(reply) => assert_eq!((reply.status, reply.code()), (503, "stopping"), "{}", reply.text),
                        Err(_) => return,
                    }
                }
            });
        }
        eventually("the waits are there", || {
            (api.get("/metrics").text.contains("berth_long_polls 1") && acknowledged.lock().unwrap().len() > 20)
                .then_some(())
        });
        let begun = Instant::now();
        server.ask_to_stop();
        assert_eq!(lease.join().unwrap().body["state"], "queued");
        assert_eq!(submit.join().unwrap().body["state"], "queued");
        assert_eq!(poll.join().unwrap().body["slots"].as_array().unwrap().len(), 1);
        begun
    });
    assert_eq!(events.last().map(|last| last.kind.is_empty()), Some(false), "the stream ends between two events");
    assert_eq!(server.ended().code(), Some(0), "{}", server.log());
    assert!(begun.elapsed() < Duration::from_secs(9), "well before patience is over: {:?}", begun.elapsed());
    assert!(!server.log().contains("did not finish in time"), "{}", server.log());

    server.restart();
    let acknowledged = acknowledged.into_inner().unwrap();
    assert!(acknowledged.len() > 20);
    acknowledged.iter().for_each(|id| assert_eq!(api.state(id), "queued"));
}

#[test]
fn a_server_told_to_stop_as_soon_as_it_serves_exits_with_0() {
    for _ in 0..10 {
        let mut server = Server::start();
        assert_eq!(server.terminate().code(), Some(0), "{}", server.log());
    }
}

#[test]
fn a_client_that_never_finishes_does_not_hold_up_a_shutdown() {
    let mut server = Server::with(&["limits.shutdown=1s"]);
    // One sends half a request, one never reads what it asked for.
    let mut half = TcpStream::connect(server.address()).unwrap();
    let head = "POST /api/v1/workloads HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{";
    half.write_all(head.as_bytes()).unwrap();
    let mut deaf = TcpStream::connect(server.address()).unwrap();
    deaf.write_all(b"GET /scheduler/events?after=0 HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut first = [0; 12];
    deaf.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"HTTP/1.1 200");
    let _ = server.api().get("/healthz").is(200);

    let begun = Instant::now();
    assert_eq!(server.terminate().code(), Some(0), "{}", server.log());
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}: {}", begun.elapsed(), server.log());
}

/// A server on which writes can be made to fail: its limit on files can be lowered, and passing it is only an error.
fn breakable() -> Server {
    Options::default().through(&["sh", "-c", "trap '' XFSZ; exec \"$@\"", "sh"]).start()
}

fn break_writes(server: &Server) {
    let pid = format!("--pid={}", server.pid());
    let limited = Command::new("prlimit").args([&pid, "--fsize=4096:4096"]).status().unwrap();
    assert!(limited.success());
}

#[test]
fn a_failed_journal_write_ends_the_server_and_no_request_is_answered() {
    let mut server = breakable();
    let api = server.api();
    api.model("chat", json!({ "memory": "8GiB" }));
    // Past the first 4 KiB of the journal, so that the next write is beyond the limit.
    let mut acknowledged: Vec<String> = (0..40).map(|_| api.lease("chat").is(201).id()).collect();
    for round in 0..5 {
        break_writes(&server);
        let _ = api.get("/api/v1/workloads").is(200);
        let submit = |_| api.ask("POST", "/api/v1/workloads").json(&json!({ "model": "chat" })).try_send();
        for answer in at_once(0..24, submit) {
            // A refusal would be a lie: what was being written may be there after the next start.
            assert!(answer.is_err(), "round {round}: somebody was answered: {answer:?}");
        }
        assert_eq!(server.ended().code(), Some(70), "{}", server.log());
        eventually("the log says why", || server.log().contains("the journal cannot be written").then_some(()));

        server.restart();
        let kept = api.get("/api/v1/workloads").is(200);
        let kept: Vec<&str> = kept.rows().iter().map(|row| row["id"].as_str().unwrap()).collect();
        assert_eq!(kept, acknowledged, "everything acknowledged is there, and nothing else");
        acknowledged.push(api.lease("chat").is(201).id());
    }
}
