//! SIGHUP: what may change while the server runs does, and nothing of it ends the server.
#![expect(clippy::unwrap_used, reason = "what these read on the way to a test is there, or the test has failed")]

use std::path::PathBuf;

use berth_tests::service::{CertificateFiles, Options, Server, at_once, connect_tls, eventually};
use rustix::process::Signal;
use serde_json::json;
use tempfile::TempDir;

/// A server with a configuration file that the test may change.
struct Configured {
    server: Server,
    file: PathBuf,
    _directory: TempDir,
}

impl Configured {
    fn new(config: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("berth.toml");
        std::fs::write(&file, config).unwrap();
        let server = Options::default().config(&file).start();
        Self { server, file, _directory: directory }
    }

    /// Changes the file, and waits until the server has read it. Returns what it said since.
    fn reload(&self, config: &str) -> String {
        std::fs::write(&self.file, config).unwrap();
        reload(&self.server)
    }
}

/// Sends the signal, and returns what the server said until it was done with it.
fn reload(server: &Server) -> String {
    let before = server.log().len();
    server.signal(Signal::HUP);
    eventually("it is done with reloading", || {
        let said = server.log()[before..].to_owned();
        said.contains("action=\"reload\"").then_some(said)
    })
}

#[test]
fn limits_and_the_log_filter_change_and_a_wrong_file_changes_nothing() {
    let running = Configured::new("[log]\nfilter = \"info\"\n");
    let open = running.server.api();
    let admin = open.with_token(&open.token("ops", "admin", None));
    let large = json!({ "model": "x".repeat(200) });
    assert_eq!(admin.post("/api/v1/workloads", &large).code(), "unknown_model");
    let said = running.reload(
        "[log]\nfilter = \"info,berth_server=debug\"\n[limits]\nbody = 100\nrequests_per_second = 3\nburst = 3\n",
    );
    assert!(said.contains("everything"), "{said}");
    assert_eq!(admin.get("/api/v1/log-level").is(200).body["filter"], "berth_server=debug,info");
    assert_eq!(admin.post("/api/v1/workloads", &large).status, 413, "the new limit of bodies");
    let statuses = at_once(0..20, |_| admin.get("/api/v1/workloads").status);
    assert!(statuses.contains(&429), "the new rate: {statuses:?}");

    for wrong in ["[limits]\nbody = \"huge\"\n", "[limits\n", "[limits]\nconnections = 0\n", "[nonsense]\n"] {
        let said = running.reload(wrong);
        assert!(said.contains("ERROR") && said.contains("goes on with what it had"), "{wrong}: {said}");
        assert!(said.contains("berth.toml") || said.contains("limits"), "it names what is wrong: {said}");
    }
    std::fs::remove_file(&running.file).unwrap();
    assert!(reload(&running.server).contains("goes on with what it had"));
    eventually("the old limits are in force", || {
        let status = admin.post("/api/v1/workloads", &large).status;
        assert!(matches!(status, 413 | 429), "{status}");
        (status == 413).then_some(())
    });
}

#[test]
fn what_needs_a_restart_is_named_and_left() {
    let running = Configured::new("");
    let said = running.reload("[server]\nlisten = \"127.0.0.1:1\"\n[scheduler]\nkeep_alive = \"5m\"\n");
    // The listening address comes from a flag here, which goes before the file.
    assert!(said.contains("scheduler") && said.contains("started again"), "{said}");
    let _ = running.server.api().get("/healthz").is(200);
}

#[test]
fn tokens_are_read_again_and_a_file_without_any_is_refused() {
    let mut server = Server::start();
    let open = server.api();
    let admin = open.with_token(&open.token("ops", "admin", None));
    let viewer = open.with_token(&admin.token("view", "viewer", None));
    let mut events = viewer.ask("GET", "/api/v1/scheduler/events").stream();
    let file = server.data_dir().join("tokens.json");
    let both = std::fs::read_to_string(&file).unwrap();
    let mut rows: serde_json::Value = serde_json::from_str(&both).unwrap();
    rows.as_array_mut().unwrap().retain(|row| row["name"] == "ops");
    for wrong in ["[]", "not JSON", "", "[{}]"] {
        std::fs::write(&file, wrong).unwrap();
        let said = reload(&server);
        assert!(said.contains("tokens.json") && said.contains("goes on with what it had"), "{said}");
        assert_eq!(viewer.get("/api/v1/workloads").status, 200);
        assert_eq!(open.get("/api/v1/workloads").status, 401, "it is no open server");
    }
    std::fs::remove_file(&file).unwrap();
    assert!(reload(&server).contains("goes on with what it had"));
    assert_eq!(open.get("/api/v1/workloads").status, 401, "it is no open server");
    std::fs::write(&file, rows.to_string()).unwrap();
    let _ = reload(&server);
    assert_eq!(viewer.get("/api/v1/workloads").status, 401, "a token that is not in the file counts no more");
    assert_eq!(events.next(), None, "and its streams end");
    assert_eq!(admin.get("/api/v1/workloads").status, 200);
    std::fs::write(&file, both).unwrap();
    let _ = reload(&server);
    assert_eq!(viewer.get("/api/v1/workloads").status, 200);
    assert!(server.terminate().success());
}

#[test]
fn a_certificate_is_replaced_and_a_wrong_one_is_not() {
    let make = || rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let files = CertificateFiles::below(directory.path());
    let write = |made: &rcgen::CertifiedKey<rcgen::KeyPair>| {
        std::fs::write(&files.cert, made.cert.pem()).unwrap();
        std::fs::write(&files.key, made.signing_key.serialize_pem()).unwrap();
    };
    let (old, new) = (make(), make());
    write(&old);
    let settings = files.settings();
    let server = Options::default().trusting(&old.cert.pem()).set(&[&settings[0], &settings[1]]).start();
    let is_served = |made: &rcgen::CertifiedKey<rcgen::KeyPair>| {
        connect_tls(&server.address(), &made.cert.pem(), "http/1.1").is_ok()
    };
    let _ = server.api().get("/healthz").is(200);
    assert!(is_served(&old) && !is_served(&new));
    for wrong in ["", "no certificate"] {
        std::fs::write(&files.cert, wrong).unwrap();
        let said = reload(&server);
        assert!(said.contains("cert.pem") && said.contains("goes on with what it had"), "{said}");
        assert!(is_served(&old));
    }
    // A certificate without its key.
    std::fs::write(&files.cert, new.cert.pem()).unwrap();
    assert!(reload(&server).contains("do not go together"));
    assert!(is_served(&old));
    write(&new);
    let said = reload(&server);
    assert!(said.contains("certificate is reloaded"), "{said}");
    assert!(is_served(&new) && !is_served(&old));
    assert_eq!(server.api().get("/healthz").status, 200, "a connection that is open stays open");
}

#[test]
fn many_reload_signals_do_not_end_the_server() {
    let mut server = Server::start();
    let open = server.api();
    let admin = open.with_token(&open.token("ops", "admin", None));
    let mut events = admin.ask("GET", "/api/v1/scheduler/events").stream();
    for _ in 0..50 {
        server.signal(Signal::HUP);
    }
    let _ = reload(&server);
    admin.model("chat", json!({ "memory": "1GiB" }));
    assert!(events.next().is_some(), "a stream goes on over it");
    assert!(server.terminate().success());
}
