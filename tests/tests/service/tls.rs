//! Encryption, the addresses that a server may listen on, and secrets that stay secret.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::path::PathBuf;
use std::process::Command;

use berth_tests::service::{FakeAgent, GIB, Options, Raw, Server};
use serde_json::json;
use tempfile::TempDir;

/// A certificate for this machine, in files.
struct Certificate {
    pem: String,
    cert: PathBuf,
    key: PathBuf,
    _directory: TempDir,
}

impl Certificate {
    fn new() -> Self {
        let names = ["localhost", "127.0.0.1", "0.0.0.0"].map(str::to_owned);
        let made = rcgen::generate_simple_self_signed(names).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let (cert, key) = (directory.path().join("cert.pem"), directory.path().join("key.pem"));
        std::fs::write(&cert, made.cert.pem()).unwrap();
        std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
        Self { pem: made.cert.pem(), cert, key, _directory: directory }
    }

    fn on(&self, options: Options) -> Options {
        let (cert, key) = (format!("tls.cert={}", self.cert.display()), format!("tls.key={}", self.key.display()));
        options.trusting(&self.pem).set(&[&cert, &key])
    }
}

#[test]
fn https_works_and_plain_http_on_its_port_does_not() {
    let certificate = Certificate::new();
    let server = certificate.on(Options::default()).start();
    let api = server.api();
    assert!(api.base().starts_with("https://"));
    let mut agent = FakeAgent::new(&api, "box", &[80 * GIB]).registered();
    api.model("chat", json!({ "memory": "20GiB" }));
    let id = api.lease("chat").is(201).id();
    agent.obey_all();
    assert_eq!(api.state(&id), "running");

    let curl = |version: &str| {
        let ca = certificate.cert.to_str().unwrap();
        let url = format!("{}/healthz", api.base());
        let arguments = ["-s", version, "--cacert", ca, "-o", "/dev/null", "-w", "%{http_version} %{http_code}", &url];
        String::from_utf8(Command::new("curl").args(arguments).output().unwrap().stdout).unwrap()
    };
    assert_eq!(curl("--http2"), "2 200");
    assert_eq!(curl("--http1.1"), "1.1 200");

    let mut plain = Raw::connect(&server.address());
    plain.send("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(!plain.read_to_end().contains("200"), "nothing is said in the clear");
    let _ = api.get("/healthz").is(200);
}

#[test]
fn an_invalid_certificate_file_is_refused_by_name() {
    let (one, other) = (Certificate::new(), Certificate::new());
    let refused = |cert: &str, key: &str| {
        let set = [format!("tls.cert={cert}"), format!("tls.key={key}")];
        let refused = Options::default().set(&[&set[0], &set[1]]).try_start().unwrap_err();
        assert!(!refused.status.success());
        refused.log
    };
    let (cert, key) = (one.cert.to_str().unwrap(), one.key.to_str().unwrap());
    assert!(refused("/nowhere/cert.pem", key).contains("/nowhere/cert.pem"));
    assert!(refused(cert, "/nowhere/key.pem").contains("/nowhere/key.pem"));
    assert!(refused(key, key).contains(key), "a key is no certificate");
    assert!(refused(cert, other.key.to_str().unwrap()).contains("do not go together"));
    let only = Options::default().set(&[&format!("tls.cert={cert}")]).try_start().unwrap_err();
    assert!(only.log.contains("tls"), "{}", only.log);
}

#[test]
fn a_listener_beyond_loopback_needs_tokens_and_tls() {
    let certificate = Certificate::new();
    let mut server = Server::start();
    let own = server.options();
    let everywhere = |options: &Options| options.clone().listen("0.0.0.0:0");
    let refused = |options: Options| {
        let refused = options.try_start().unwrap_err();
        assert!(!refused.status.success() && refused.log.contains("0.0.0.0"), "{}", refused.log);
        refused.log
    };
    assert!(server.terminate().success());
    let log = refused(everywhere(&own));
    assert!(log.contains("tokens") && log.contains("TLS"), "{log}");
    let log = refused(certificate.on(everywhere(&own)));
    assert!(log.contains("tokens") && !log.contains("needs TLS"), "{log}");

    server.restart();
    let secret = server.api().token("ops", "admin", None);
    assert!(server.terminate().success());
    let log = refused(everywhere(&own));
    assert!(log.contains("TLS") && !log.contains("needs tokens"), "{log}");
    let server = certificate.on(everywhere(&own)).start();
    assert_eq!(server.api().get("/api/v1/workloads").status, 401);
    assert_eq!(server.api().with_token(&secret).get("/api/v1/workloads").status, 200);
}

#[test]
fn secrets_are_in_no_log_and_in_no_file() {
    let mut server = Server::with(&["log.filter=trace"]);
    let open = server.api();
    let secret = open.token("ops", "admin", None);
    let admin = open.with_token(&secret);
    let runner = admin.token("box", "runner", Some("box"));
    let mut agent = FakeAgent::new(&open.with_token(&runner), "box", &[80 * GIB]).registered();
    let _ = agent.desired("0s").is(200);
    let last = if secret.ends_with('0') { '1' } else { '0' };
    let wrong = format!("{}{last}", &secret[..secret.len() - 1]);
    assert_eq!(open.with_token(&wrong).get("/api/v1/workloads").status, 401);
    let _ = admin.put("/api/v1/log-level", &json!({ "filter": "trace" })).is(200);
    let _ = admin.post("/api/v1/workloads", &json!({ "model": "none" })).is(422);
    let bearer = format!("Authorization: Bearer {secret}");
    let url = format!("{}/api/v1/workloads", open.base());
    let curl = Command::new("curl").args(["-sf", "--http2-prior-knowledge", "-H", &bearer, &url]).output().unwrap();
    assert!(curl.status.success());
    assert!(server.terminate().success());

    let log = server.log();
    assert!(log.contains("TRACE"), "there is something to look through");
    let mut texts = vec![("the log".to_owned(), log)];
    let mut directories = vec![server.data_dir().to_owned()];
    while let Some(directory) = directories.pop() {
        for path in std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()) {
            match path.is_dir() {
                true => directories.push(path),
                false => texts
                    .push((path.display().to_string(), String::from_utf8_lossy(&std::fs::read(&path).unwrap()).into())),
            }
        }
    }
    for (name, text) in texts {
        for (whose, secret) in [("the admin's", &secret), ("the runner's", &runner), ("a wrong one", &wrong)] {
            // The first part of a token is its id, which is no secret.
            let tail = secret.rsplit('_').next().unwrap();
            assert!(!text.contains(tail) && !text.contains(&tail[..32]), "{whose} is in {name}");
        }
    }
}
