//! Backups over HTTP, and what runners show of what they obeyed.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use berth_tests::service::{FakeAgent, GIB, Options, Server, berth};
use serde_json::json;
use tempfile::TempDir;

fn command(server: &Server, words: &[&str]) -> Output {
    Command::new(berth()).args(["--server", &server.api().base()]).args(words).output().unwrap()
}

fn text(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned()).concat()
}

fn backup(server: &Server, to: &Path) -> Output {
    command(server, &["backup", to.to_str().unwrap()])
}

fn restore(server: &Server, from: &Path, to: &Path) -> Output {
    command(server, &["restore", from.to_str().unwrap(), "--data-dir", to.to_str().unwrap()])
}

#[test]
fn a_backup_holds_what_was_acknowledged_before_it_and_is_private() {
    let here = TempDir::new().unwrap();
    let file = here.path().join("one.backup");
    let server = Server::start();
    let api = server.api();
    api.model("m", json!({ "memory": GIB }));
    let workload = api.lease("m").is(201).id();
    let done = backup(&server, &file);
    assert!(done.status.success(), "{}", text(&done));
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let again = backup(&server, &file);
    assert_eq!(again.status.code(), Some(2), "{}", text(&again));
    assert!(text(&again).contains("--force"));

    let (data_dir, later) = (here.path().join("restored"), api.lease("m").is(201).id());
    assert!(restore(&server, &file, &data_dir).status.success());
    let mode = |name: &str| std::fs::metadata(data_dir.join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(""), mode("cluster.key"), mode("tokens.json")), (0o700, 0o600, 0o600));
    let restored = Options::default().data_dir(&data_dir).start();
    assert_eq!(restored.api().state(&workload), "queued");
    assert_eq!(restored.api().get(&format!("/api/v1/workloads/{later}")).status, 404, "it came after the backup");
}

#[test]
fn tokens_and_the_cluster_are_the_same_after_a_restore() {
    let here = TempDir::new().unwrap();
    let (file, data_dir) = (here.path().join("one.backup"), here.path().join("restored"));
    let server = Server::start();
    let secret = server.api().token("ops", "admin", None);
    let api = server.api().with_token(&secret);
    let token_file = here.path().join("token");
    std::fs::write(&token_file, &secret).unwrap();
    let refused = backup(&server, &file);
    assert_eq!(refused.status.code(), Some(4), "a backup holds secrets: {}", text(&refused));
    assert!(!file.exists());
    let words = ["--token-file", token_file.to_str().unwrap(), "backup", file.to_str().unwrap()];
    assert!(command(&server, &words).status.success());
    assert!(restore(&server, &file, &data_dir).status.success());
    let restored = Options::default().data_dir(&data_dir).start();
    let again = restored.api().with_token(&secret);
    assert_eq!(again.get("/api/v1/version").body["cluster_id"], api.get("/api/v1/version").body["cluster_id"]);
    assert_eq!(again.get("/api/v1/tokens").is(200).rows().len(), 1);
    assert_eq!(restored.api().get("/api/v1/tokens").status, 401);
}

#[test]
fn an_incomplete_backup_or_a_used_directory_is_refused_with_a_reason() {
    let here = TempDir::new().unwrap();
    let file = here.path().join("one.backup");
    let server = Server::start();
    assert!(backup(&server, &file).status.success());
    let whole = std::fs::read(&file).unwrap();
    let into = |name: &str| here.path().join(name);

    let cut = here.path().join("cut.backup");
    std::fs::write(&cut, &whole[..whole.len() - 10]).unwrap();
    let refused = restore(&server, &cut, &into("a"));
    assert!(!refused.status.success() && text(&refused).contains("is damaged"), "{}", text(&refused));
    assert!(!into("a").exists(), "nothing is made of a damaged backup");
    std::fs::write(&cut, "something else").unwrap();
    let refused = restore(&server, &cut, &into("a"));
    assert!(text(&refused).contains("is no backup"), "{}", text(&refused));

    std::fs::create_dir(into("b")).unwrap();
    std::fs::write(into("b").join("mine"), "").unwrap();
    let refused = restore(&server, &file, &into("b"));
    assert!(text(&refused).contains("is not empty"), "{}", text(&refused));
    assert_eq!(std::fs::read_dir(into("b")).unwrap().count(), 1, "what is there is left alone");
    let refused = restore(&server, &file, server.data_dir());
    assert!(text(&refused).contains("is not empty"), "{}", text(&refused));

    // A restore that was interrupted: no server starts on it, and it can be done again.
    assert!(restore(&server, &file, &into("c")).status.success());
    std::fs::write(into("c").join("RESTORE-UNFINISHED"), "").unwrap();
    let refused = Options::default().data_dir(&into("c")).try_start().expect_err("it starts on half a backup");
    assert!(refused.log.contains("was not finished"), "{}", refused.log);
    assert!(restore(&server, &file, &into("c")).status.success());
    drop(Options::default().data_dir(&into("c")).start());
}

#[test]
fn a_wrong_code_closes_the_runner_that_sent_it_and_no_other() {
    let server = Server::start();
    let api = server.api();
    api.model("m", json!({ "memory": 10 * GIB }));
    let mut honest = FakeAgent::new(&api, "honest", &[80 * GIB]).registered();
    let mut evil = FakeAgent::new(&api, "evil", &[80 * GIB]).registered();
    let code = honest.desired("0s").is(200).body["code"].as_str().unwrap().to_owned();
    let epoch: u64 = code.split('.').next().unwrap().parse().unwrap();
    let forged = [
        code.replacen(&epoch.to_string(), &(epoch + 5).to_string(), 1),
        "not a code".to_owned(),
        format!("{code}0"),
        String::new(),
    ];
    let barred = |id: &str| api.get(&format!("/api/v1/runners/{id}")).is(200).body["barred"]["code"].clone();
    for wrong in forged {
        evil.about["obeyed"] = json!(wrong);
        let _ = evil.report().is(200);
        assert_eq!(barred("evil"), "invalid_code", "{wrong}");
        assert!(barred("honest").is_null());
        assert_eq!(api.get("/readyz").status, 200, "no runner's word makes the server doubt itself");
        // Work goes to the other one.
        let lease = api.lease("m").is(201).id();
        honest.obey_all();
        assert_eq!(api.workload(&lease)["slot"]["runner_id"], "honest");
        let _ = api.complete(&lease, 1).is(200);
        // A right code, even of another runner, is no reason to keep it closed.
        evil.about["obeyed"] = json!(code);
        let _ = evil.report().is(200);
        assert!(barred("evil").is_null());
    }
}

#[test]
fn a_wrong_code_in_a_poll_counts_too() {
    let server = Server::start();
    let api = server.api();
    let mut evil = FakeAgent::new(&api, "evil", &[80 * GIB]).registered();
    let _ = evil.desired("0s").is(200);
    let _ = api.get("/api/v1/runners/evil/desired?incarnation=1&obeyed=7.0.7.00").is(200);
    assert_eq!(api.get("/api/v1/runners/evil").body["barred"]["code"], "invalid_code");
}
