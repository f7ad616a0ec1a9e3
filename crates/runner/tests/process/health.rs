//! Readiness, liveness and ports, with real servers.

use std::net::{Ipv4Addr, TcpListener};
use std::time::{Duration, Instant};

use crate::support::{Agent, PATIENCE, stop};
use berth_domain::{FailureReason, Span, Timestamp};
use berth_runner::process::{Exit, HealthChange, HealthState, Ports, Probed, UnexpectedEnd, classify, probe};
use berth_runner::runtime::{Launch, Live, ModelQuestion, Question, Ready, RuntimeConfig};

/// Answers what a file says, or not at all.
const SERVER: &str = "
import http.server, os, sys, time
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        try: code = int(open(sys.argv[2]).read())
        except (OSError, ValueError): code = 503
        if code == 0: time.sleep(1000)
        self.send_response(code if self.path == '/health' else 404)
        self.end_headers()
    def log_message(self, *args): pass
http.server.ThreadingHTTPServer(('127.0.0.1', int(sys.argv[1])), Answer).serve_forever()
";

fn question(path: &str) -> Question {
    Question { path: path.to_owned(), model: None }
}

fn checks(deadline: Span) -> RuntimeConfig {
    RuntimeConfig {
        ready: Some(Ready { path: "/health".into(), model_path: None, every: Span::from_millis(50), deadline }),
        live: Some(Live { path: "/health".into(), every: Span::from_millis(20), failures: 3 }),
        ..RuntimeConfig::default()
    }
}

/// The first change of health, seen as an agent would see it.
fn first_change(health: &mut HealthState, launch: &Launch, clock: Instant) -> HealthChange {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        loop {
            assert!(clock.elapsed() < PATIENCE, "nothing changed");
            let now = || Timestamp::from_millis(u64::try_from(clock.elapsed().as_millis()).unwrap());
            let probed = match health.due(now()) {
                Some(question) => Some(probe(launch.probe, &question, Duration::from_millis(500)).await),
                None => None,
            };
            let change = probed.and_then(|probed| health.observe(now(), probed)).or_else(|| health.tick(now()));
            if let Some(change) = change {
                return change;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
}

#[test]
fn a_server_is_ready_when_it_says_so_and_dead_when_it_hangs() {
    let agent = Agent::with_sessions();
    let port = Ports::new(21_000..=21_999).lease().unwrap();
    let answer = agent.path("answer");
    let command = ["python3", "-c", SERVER, "{port}", "{args}"];
    let launch = agent.launch_at(&checks(Span::from_secs(60)), &command, &[answer.to_str().unwrap()], port);
    let slot = agent.start_launch(launch);
    let clock = Instant::now();
    let mut health = HealthState::starting(&slot.launch, Timestamp::from_millis(0));
    std::fs::write(&answer, "200").unwrap();
    assert_eq!(first_change(&mut health, &slot.launch, clock), HealthChange::Ready);
    assert!(health.is_ready());
    // It takes connections and says nothing.
    std::fs::write(&answer, "0").unwrap();
    assert_eq!(first_change(&mut health, &slot.launch, clock), HealthChange::Dead);
    assert_eq!(slot.process.poll_exit(), None, "it runs all the same");
    stop(slot.tree(), 5_000);
}

#[test]
fn n9_a_slot_that_hangs_at_start_is_never_ready_and_can_be_ended() {
    let agent = Agent::with_sessions();
    let port = Ports::new(22_000..=22_999).lease().unwrap();
    let slot = agent.start_launch(agent.launch_at(&checks(Span::from_millis(400)), &["sleep", "1000"], &[], port));
    let clock = Instant::now();
    let mut health = HealthState::starting(&slot.launch, Timestamp::from_millis(0));
    assert_eq!(first_change(&mut health, &slot.launch, clock), HealthChange::NeverReady);
    assert!(clock.elapsed() >= Duration::from_millis(400));
    stop(slot.tree(), 5_000);
}

#[test]
fn n9_a_port_that_was_taken_after_all_is_classified_and_chosen_anew() {
    let agent = Agent::with_sessions();
    let mut ports = Ports::new(23_000..=23_999);
    let port = ports.lease().unwrap();
    let thief = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
    let command = ["python3", "-c", SERVER, "{port}", "nothing"];
    let slot = agent.start_launch(agent.launch_at(&checks(Span::from_secs(60)), &command, &[], port));
    assert_eq!(slot.exit(), Exit::Code(1));
    let log = slot.log.tail(16 << 10).unwrap();
    let death = UnexpectedEnd { exit: slot.exit(), log: &log, oom_kills: 0 };
    assert_eq!(classify(&death), FailureReason::PortTaken, "{}", String::from_utf8_lossy(&log));
    ports.release(port);
    assert_ne!(ports.lease().unwrap(), port);
    drop(thief);
}

#[test]
fn every_kind_of_answer_is_told_apart() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let answers = [
        ("HTTP/1.1 200 OK\r\n\r\n", Probed::Healthy),
        ("HTTP/1.0 204 No Content\r\n\r\n", Probed::Healthy),
        ("HTTP/1.1 503 Service Unavailable\r\n\r\n", Probed::Unhealthy(Some(503))),
        ("HTTP/1.1 301 Moved\r\n\r\n", Probed::Unhealthy(Some(301))),
        ("SSH-2.0-OpenSSH_9\r\n", Probed::Unhealthy(None)),
        ("HTTP/1.1", Probed::Silent),
    ];
    for (answer, wanted) in answers {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 1024];
            let read = std::io::Read::read(&mut stream, &mut request).unwrap();
            std::io::Write::write_all(&mut stream, answer.as_bytes()).unwrap();
            String::from_utf8_lossy(&request[..read]).into_owned()
        });
        assert_eq!(runtime.block_on(probe(address, &question("/a/b?c"), PATIENCE)), wanted, "{answer:?}");
        assert!(server.join().unwrap().starts_with("GET /a/b?c HTTP/1.1\r\n"));
        assert_eq!(
            runtime.block_on(probe(address, &question("/"), PATIENCE)),
            Probed::Silent,
            "nobody is there any more"
        );
    }
}

/// Answers one request after the other with these texts, and says what was asked.
fn answers(texts: Vec<&'static str>) -> (std::net::SocketAddr, std::thread::JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let answer = move |text: &'static str| {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0; 1024];
        let read = std::io::Read::read(&mut stream, &mut request).unwrap();
        std::io::Write::write_all(&mut stream, text.as_bytes()).unwrap();
        String::from_utf8_lossy(&request[..read]).lines().next().unwrap_or_default().to_owned()
    };
    (address, std::thread::spawn(move || texts.into_iter().map(answer).collect()))
}

#[test]
fn a_healthy_program_is_asked_for_the_model_and_must_name_it() {
    const YES: &str = "HTTP/1.1 200 OK\r\n\r\n";
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let model = ModelQuestion { path: "/v1/models/a%2Fb".into(), names: vec!["a/b".into()] };
    let question = Question { path: "/health".into(), model: Some(model) };
    let cases = [
        ("HTTP/1.0 200 OK\r\nA: b\r\n\r\n{\"data\":[{\"id\":\"a/b\"}]}", Probed::Healthy),
        ("HTTP/1.0 200 OK\r\n\r\n{\"data\":[{\"id\":\"other\"}]}", Probed::WithoutModel(None)),
        ("HTTP/1.0 200 OK\r\n\r\n<html>a/b</html>", Probed::WithoutModel(None)),
        ("HTTP/1.0 404 Not Found\r\n\r\n{\"id\":\"a/b\"}", Probed::WithoutModel(Some(404))),
        ("", Probed::Silent),
    ];
    for (answer, wanted) in cases {
        let (address, server) = answers(vec![YES, answer]);
        assert_eq!(runtime.block_on(probe(address, &question, PATIENCE)), wanted, "{answer:?}");
        assert_eq!(server.join().unwrap(), ["GET /health HTTP/1.1", "GET /v1/models/a%2Fb HTTP/1.0"]);
    }
    let (address, server) = answers(vec!["HTTP/1.1 503 Loading\r\n\r\n"]);
    assert_eq!(runtime.block_on(probe(address, &question, PATIENCE)), Probed::Unhealthy(Some(503)));
    assert_eq!(server.join().unwrap().len(), 1, "a program that is not healthy is not asked for its models");
}
