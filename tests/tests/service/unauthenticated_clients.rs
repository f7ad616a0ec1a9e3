//! Clients without a token cannot keep other clients out for long. Real sockets, with and without TLS.
#![expect(clippy::unwrap_used, reason = "what these read on the way to a test is there, or the test has failed")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use berth_tests::service::{
    Api, CertificateFiles, Frame, Http2, Options, Raw, Server, connect_tls, eventually, within,
};
use serde_json::json;
use tempfile::TempDir;

/// Reads and writes: a bare connection, or an encrypted one.
trait Socket: Read + Write + Send {}
impl<S: Read + Write + Send> Socket for S {}

/// A server with a token, and how to reach it.
struct Target {
    server: Server,
    admin: Api,
    token: String,
    certificate: Option<String>,
    _directory: TempDir,
}

impl Target {
    fn new(encrypted: bool, settings: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut options = Options::default().set(settings);
        let mut certificate = None;
        if encrypted {
            let made = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
            let files = CertificateFiles::below(directory.path());
            std::fs::write(&files.cert, made.cert.pem()).unwrap();
            std::fs::write(&files.key, made.signing_key.serialize_pem()).unwrap();
            let settings = files.settings();
            options = options.trusting(&made.cert.pem()).set(&[&settings[0], &settings[1]]);
            certificate = Some(made.cert.pem());
        }
        let server = options.start();
        let token = server.api().token("ops", "admin", None);
        let admin = server.api().with_token(&token);
        Self { server, admin, token, certificate, _directory: directory }
    }

    /// A connection that has said nothing yet, after the handshake if there is one.
    fn connect(&self, protocol: &str) -> Box<dyn Socket> {
        let address = self.server.address();
        match &self.certificate {
            Some(certificate) => Box::new(connect_tls(&address, certificate, protocol).unwrap()),
            None => {
                let stream = TcpStream::connect(address).unwrap();
                stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
                Box::new(stream)
            }
        }
    }

    /// What the process has in memory, in MiB.
    fn memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.server.pid())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
    }

    /// How many sockets the process has.
    fn sockets(&self) -> usize {
        let fds = std::fs::read_dir(format!("/proc/{}/fd", self.server.pid())).unwrap();
        let is_socket = |path: std::path::PathBuf| {
            std::fs::read_link(path).is_ok_and(|to| to.to_string_lossy().starts_with("socket:"))
        };
        fds.filter(|fd| is_socket(fd.as_ref().unwrap().path())).count()
    }

    /// A client that behaves is served soon on a new connection.
    fn serves_others(&self) {
        let begun = Instant::now();
        let reply = self.admin.on_new_connections().get("/api/v1/workloads").is(200);
        assert!(reply.body.is_array());
        assert!(begun.elapsed() < Duration::from_secs(8), "it waited for {:?}", begun.elapsed());
    }
}

/// Whether the other end closes within the patience of a test, and after how long.
fn closes(mut stream: Box<dyn Socket>) -> Option<Duration> {
    let begun = Instant::now();
    let mut buffer = [0; 4096];
    while begun.elapsed() < Duration::from_secs(20) {
        match stream.read(&mut buffer) {
            Ok(0) => return Some(begun.elapsed()),
            Ok(_) => {}
            Err(error) if matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {}
            Err(_) => return Some(begun.elapsed()),
        }
    }
    None
}

#[test]
fn a_silent_connection_is_closed_at_every_stage_of_http_1_and_2() {
    for encrypted in [false, true] {
        let target = Target::new(encrypted, &["limits.header_timeout=1s"]);
        let begun = |protocol: &str, bytes: &[u8]| {
            let mut stream = target.connect(protocol);
            stream.write_all(bytes).unwrap();
            stream.flush().unwrap();
            stream
        };
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00";
        let half_headers = [preface.as_slice(), b"\x00\x00\x40\x01\x04\x00\x00\x00\x01\x82"].concat();
        let streams = [
            ("nothing at all", begun("http/1.1", b"")),
            ("half a head", begun("http/1.1", b"GET / HTTP/1.1\r\nHost: local")),
            ("nothing in HTTP/2", begun("h2", b"")),
            ("the preface alone", begun("h2", preface)),
            ("half of the headers", begun("h2", &half_headers)),
        ];
        for (what, stream) in streams {
            let closed = closes(stream).unwrap_or_else(|| panic!("{what} was never cut (encrypted: {encrypted})"));
            assert!(closed < Duration::from_secs(10), "{what}: {closed:?}");
        }
        target.serves_others();
    }
}

#[test]
fn a_connection_that_only_answers_pings_is_closed() {
    let target = Target::new(false, &["limits.header_timeout=1s", "limits.keep_alive=200ms"]);
    let mut idle = Http2::begin(target.connect("h2"), 65_535);
    let begun = Instant::now();
    // Pings are answered on the way.
    while let Some(frame) = idle.frame() {
        assert!(begun.elapsed() < Duration::from_secs(15), "it is still open, and says {frame:?}");
    }
    assert!(begun.elapsed() < Duration::from_secs(15), "it is still open");
}

#[test]
fn silent_connections_do_not_shut_other_clients_out() {
    for encrypted in [false, true] {
        // Patience alone would not help here: all places are taken for a minute.
        let target = Target::new(encrypted, &["limits.connections=48", "limits.header_timeout=1m"]);
        let silent: Vec<_> = (0..60).map(|_| target.connect("h2")).collect();
        target.serves_others();
        assert!(target.sockets() < 60, "there are more connections than may be");
        drop(silent);
    }
}

/// The same page again and again, never read: more than the kernel buffers.
fn ask_and_never_read(mut stream: Box<dyn Socket>, token: Option<&str>) -> Box<dyn Socket> {
    let token = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
    let request = format!("GET /docs/swagger-ui-bundle.js HTTP/1.1\r\nHost: localhost\r\n{token}\r\n");
    let _ = stream.write_all(request.repeat(60).as_bytes());
    let _ = stream.flush();
    stream
}

#[test]
fn clients_that_never_read_do_not_shut_others_out_and_take_no_memory() {
    for encrypted in [false, true] {
        let target = Target::new(encrypted, &["limits.connections=48", "limits.write_timeout=1m"]);
        target.serves_others();
        let before = target.memory();
        let deaf: Vec<_> = (0..60).map(|_| ask_and_never_read(target.connect("http/1.1"), None)).collect();
        target.serves_others();
        let after = target.memory();
        assert!(after < before + 64, "{before} MiB before and {after} MiB after (encrypted: {encrypted})");
        drop(deaf);
    }
}

#[test]
fn a_client_that_reads_nothing_is_disconnected_even_with_a_token() {
    let target = Target::new(false, &["limits.write_timeout=1s"]);
    let mut deaf = ask_and_never_read(target.connect("http/1.1"), Some(&target.token));
    eventually("it was let go", || deaf.write_all(b" ").err());
}

#[test]
fn a_connection_that_authenticated_does_not_count_and_the_oldest_other_makes_room() {
    let target = Target::new(false, &["limits.unauthenticated_per_address=4", "limits.header_timeout=1m"]);
    let ask =
        format!("GET /api/v1/workloads HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n\r\n", target.token);
    let answers = |raw: &mut Raw| {
        raw.send(&ask);
        let mut answer = String::new();
        while !answer.ends_with("[]") {
            answer.push_str(&raw.read_some());
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer:?}");
        }
    };
    let connected = || {
        let mut raw = Raw::connect(&target.server.address());
        answers(&mut raw);
        raw
    };
    // As a reverse proxy keeps connections open for clients of all kinds, from one address.
    let mut known: Vec<Raw> = (0..6).map(|_| connected()).collect();
    let strangers: Vec<Raw> = (0..20).map(|_| Raw::connect(&target.server.address())).collect();
    known.iter_mut().for_each(answers);
    // A connection of a client with a token gets in behind all of them.
    known.push(connected());
    let mut left = strangers;
    let open = || within(Duration::from_secs(10), || (target.sockets() <= 6 + 4 + 8).then_some(()));
    assert!(open().is_some(), "{} sockets are open", target.sockets());
    assert!(left[0].closed_after(|_| ()).is_some(), "the oldest made room");
    known.iter_mut().for_each(answers);
}

#[test]
fn an_unauthenticated_connection_has_a_bounded_lifetime_whatever_it_does() {
    let target = Target::new(false, &["limits.unauthenticated_lifetime=2s"]);
    let mut busy = Raw::connect(&target.server.address());
    let closed = busy.closed_after(|raw| {
        raw.send("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
    });
    assert!(closed.is_some_and(|closed| closed < Duration::from_secs(15)), "{closed:?}");
    target.serves_others();
}

#[test]
fn http_2_windows_of_zero_cost_little_memory_and_delay_no_other_client() {
    for (encrypted, window, path) in [
        (false, 0, "/openapi.json"),
        (true, 0, "/openapi.json"),
        (false, 1, "/openapi.json"),
        (false, 0, "/docs/swagger-ui-bundle.js"),
    ] {
        let target = Target::new(encrypted, &["limits.write_timeout=1m"]);
        target.serves_others();
        let before = target.memory();
        let mut attackers: Vec<_> = (0..12).map(|_| Http2::begin(target.connect("h2"), window)).collect();
        for attacker in &mut attackers {
            for _ in 0..250 {
                let _ = attacker.get(path, None);
            }
        }
        target.serves_others();
        assert!(target.memory() < before + 64, "{before} MiB before, {} MiB after", target.memory());
        // The last requests were looked at when refusals of some are there.
        for attacker in &mut attackers {
            let refused = (0..)
                .map_while(|_| attacker.frame())
                .find(|frame| frame.kind == Frame::RESET && frame.payload == Frame::REFUSED);
            assert!(refused.is_some(), "so many requests are taken from somebody without a token");
        }
        target.serves_others();
        let after = target.memory();
        assert!(after < before + 64, "{before} MiB before, {after} MiB after: {path}, {window}, {encrypted}");
    }
}

#[test]
fn a_stream_that_its_client_does_not_read_is_reset_and_the_others_go_on() {
    let target = Target::new(false, &["limits.write_timeout=1s"]);
    let mut client = Http2::begin(target.connect("h2"), 0);
    let before = target.memory();
    let stalled: Vec<u32> = (0..100).map(|_| client.get("/openapi.json", Some(&target.token))).collect();
    let mut reset = 0;
    let begun = Instant::now();
    while reset < stalled.len() {
        let frame = client.frame().expect("the connection stays");
        reset += usize::from(frame.kind == Frame::RESET && stalled.contains(&frame.stream));
        assert!(begun.elapsed() < Duration::from_secs(20), "{reset} of {} were reset", stalled.len());
    }
    assert!(target.memory() < before + 48, "{} MiB after {before}", target.memory());
    // The same connection still serves a stream that is taken.
    let taken = client.get("/healthz", Some(&target.token));
    client.send(8, 0, taken, &65_535u32.to_be_bytes());
    let data = (0..).map_while(|_| client.frame()).find(|frame| frame.stream == taken && frame.kind == Frame::DATA);
    assert!(data.is_some_and(|data| String::from_utf8_lossy(&data.payload).contains("ok")));
}

#[test]
fn a_stream_that_only_waits_is_not_stalled() {
    let target = Target::new(false, &["limits.write_timeout=500ms", "limits.idle_timeout=500ms"]);
    target.admin.model("chat", json!({ "memory": "1GiB" }));
    let mut client = Http2::begin(target.connect("h2"), 65_535);
    let events = client.get("/api/v1/scheduler/events", Some(&target.token));
    let first = (0..).map_while(|_| client.frame()).find(|frame| frame.kind == Frame::HEADERS);
    assert_eq!(first.map(|frame| frame.stream), Some(events));
    // Nothing happens for much longer than a client may stall; then something does.
    std::thread::sleep(Duration::from_secs(3));
    target.admin.model("other", json!({ "memory": "1GiB" }));
    let event = (0..).map_while(|_| client.frame()).find(|frame| frame.kind != 8);
    assert!(event.is_some_and(|event| event.stream == events && event.kind == Frame::DATA));
}

#[test]
fn a_burst_with_a_token_on_a_new_connection_is_served_as_a_whole() {
    let target = Target::new(false, &[]);
    let mut client = Http2::begin(target.connect("h2"), 1 << 20);
    let asked: Vec<u32> = (0..60).map(|_| client.get("/api/v1/workloads", Some(&target.token))).collect();
    let mut served = 0;
    while served < asked.len() {
        let frame = client.frame().expect("an answer to each");
        assert_ne!(frame.kind, Frame::RESET, "{frame:?}");
        served += usize::from(frame.kind == Frame::HEADERS);
    }
}
