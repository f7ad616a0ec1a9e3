//! Limits on what one client may use, and on the addresses that it may come from.

use std::process::Command;
use std::time::{Duration, Instant};

use berth_tests::service::{Raw, Server, at_once, eventually, within};
use serde_json::json;

/// A wait of a second ends after a second, and not much later even on a busy machine.
fn about_a_second(took: Option<Duration>) {
    let range = Duration::from_millis(700)..Duration::from_secs(6);
    assert!(took.is_some_and(|took| range.contains(&took)), "{took:?}");
}

#[test]
fn slow_headers_are_cut_however_slow_they_are() {
    let server = Server::with(&["limits.header_timeout=1s"]);
    let address = server.address();
    let beginnings = ["", "GET /healthz HTTP/1.1\r\nHost: localhost\r\n", "PRI * HTTP/2.0\r\n\r\n", "PRI", "G"];
    at_once(beginnings, |beginning| {
        let mut silent = Raw::connect(&address);
        silent.send(beginning);
        about_a_second(silent.closed_after(|_| ()));
    });
    let mut trickling = Raw::connect(&address);
    trickling.send("GET /healthz HTTP/1.1\r\nHost: localhost\r\n");
    about_a_second(trickling.closed_after(|connection| {
        connection.send("X-A: b\r\n");
    }));
    let _ = server.api().get("/healthz").is(200);
}

#[test]
fn an_unused_connection_is_closed() {
    let server = Server::with(&["limits.header_timeout=1s"]);
    let mut idle = Raw::connect(&server.address());
    idle.send("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(idle.read_some().starts_with("HTTP/1.1 200"));
    assert!(idle.closed_after(|_| ()).is_some());
}

#[test]
fn a_slow_body_is_408() {
    let server = Server::with(&["limits.body_timeout=1s"]);
    let mut slow = Raw::connect(&server.address());
    slow.send("POST /api/v1/workloads HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{");
    let begun = Instant::now();
    let answer = slow.read_some();
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    about_a_second(Some(begun.elapsed()));
}

#[test]
fn a_refusal_does_not_end_the_connection_unannounced() {
    let server = Server::start();
    let _ = server.api().token("ops", "admin", None);
    for media_type in ["application/json", "text/plain"] {
        let mut kept = Raw::connect(&server.address());
        kept.send(format!(
            "POST /api/v1/workloads HTTP/1.1\r\nHost: localhost\r\nContent-Type: {media_type}\r\nContent-Length: 2\r\n\r\n"
        ));
        // The body comes a little later, as it does over a real network.
        std::thread::sleep(Duration::from_millis(100));
        kept.send("{}");
        let answer = kept.read_some();
        assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
        if !answer.to_lowercase().contains("connection: close") {
            kept.send("GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
            let next = kept.read_to_end();
            assert!(next.contains("HTTP/1.1 200"), "it was kept open, they said, and then: {next:?}");
        }
    }
}

#[test]
fn headers_without_end_are_refused() {
    let server = Server::start();
    let mut large = Raw::connect(&server.address());
    large.send("GET /healthz HTTP/1.1\r\nHost: localhost\r\n");
    let line = format!("X-Large: {}\r\n", "x".repeat(4000));
    let sent = (0..100).take_while(|_| large.send(&line)).count();
    assert!(sent < 100 || large.read_to_end().starts_with("HTTP/1.1 431"), "400 kB of headers were taken");
    let _ = server.api().get("/healthz").is(200);
}

#[test]
fn a_client_that_comes_when_all_connections_are_taken_waits() {
    let server = Server::with(&["limits.connections=3"]);
    let taken: Vec<Raw> = (0..3)
        .map(|_| {
            let mut raw = Raw::connect(&server.address());
            raw.send("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
            assert!(raw.read_some().starts_with("HTTP/1.1 200"));
            raw
        })
        .collect();
    let api = server.api();
    let asking = std::thread::spawn(move || api.get("/healthz").is(200));
    let early = within(Duration::from_millis(500), || asking.is_finished().then_some(()));
    assert!(early.is_none(), "a fourth was let in");
    drop(taken);
    let _ = asking.join().unwrap();
}

#[test]
fn too_many_requests_are_429_with_a_time_to_try_again() {
    let server = Server::with(&["limits.requests_per_second=5", "limits.burst=5"]);
    let api = server.api();
    let replies = at_once(0..30, |_| api.get("/api/v1/workloads"));
    let (passed, stopped): (Vec<_>, Vec<_>) = replies.into_iter().partition(|reply| reply.status == 200);
    assert!((5..20).contains(&passed.len()), "{} of 30 passed", passed.len());
    for reply in stopped {
        let reply = reply.is(429);
        assert_eq!(reply.code(), "rate_limited");
        assert!(reply.header("retry-after").unwrap().parse::<u64>().unwrap() >= 1);
    }
    eventually("it may again", || (api.get("/api/v1/workloads").status == 200).then_some(()));
}

#[test]
fn each_token_has_its_own_rate_and_guessing_has_one_too() {
    let server = Server::with(&["limits.requests_per_second=2", "limits.burst=20"]);
    let open = server.api();
    let admin = open.with_token(&open.token("ops", "admin", None));
    let greedy = open.with_token(&admin.token("greedy", "viewer", None));
    let modest = open.with_token(&admin.token("modest", "viewer", None));
    let statuses = at_once(0..60, |_| greedy.get("/api/v1/workloads").status);
    assert!(statuses.contains(&429), "{statuses:?}");
    assert_eq!(modest.get("/api/v1/workloads").status, 200, "another's greed is not its fault");
    let guess = open.with_token(&format!("berth_{}_{}", "1".repeat(32), "2".repeat(64)));
    let statuses = at_once(0..80, |_| guess.get("/api/v1/workloads").status);
    assert!(statuses.contains(&401) && statuses.contains(&429), "guesses without end: {statuses:?}");
}

#[test]
fn without_tokens_only_requests_to_loopback_names_are_answered() {
    let server = Server::start();
    let open = server.api();
    let ask = |header: &str, value: &str| open.ask("GET", "/api/v1/workloads").header(header, value).send();
    for host in ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost.evil.example", "10.0.0.1"] {
        assert_eq!(ask("Host", host).is(403).code(), "not_loopback", "{host}");
        let origin = format!("http://{host}");
        assert_eq!(ask("Origin", &origin).is(403).code(), "not_loopback", "{origin}");
    }
    assert_eq!(ask("Origin", "null").status, 403);
    for host in ["localhost", "127.0.0.1:8080", "[::1]:8080"] {
        assert_eq!(ask("Host", host).status, 200, "{host}");
        assert_eq!(ask("Origin", &format!("http://{host}")).status, 200, "{host}");
    }
    let health = open.ask("GET", "/healthz").header("Host", "evil.example").send();
    assert_eq!(health.status, 403, "not even what is public");
    // HTTP/2 has no Host header: the same is said elsewhere.
    let url = format!("{}/api/v1/workloads", open.base());
    let http2 = |host: &str| {
        let arguments = ["-s", "-o", "/dev/null", "-w", "%{http_code}", "--http2-prior-knowledge", "-H", host, &url];
        String::from_utf8(Command::new("curl").args(arguments).output().unwrap().stdout).unwrap()
    };
    assert_eq!(http2("Host: localhost"), "200");
    assert_eq!(http2("Host: evil.example"), "403");

    let admin = open.with_token(&open.token("ops", "admin", None));
    let known = admin.ask("GET", "/api/v1/workloads").header("Host", "berth.example").send();
    assert_eq!(known.status, 200, "with a token the name does not matter");
    assert_eq!(ask("Host", "localhost").status, 401);
    let _ = admin.post("/api/v1/workloads", &json!({})).is(422);
}
