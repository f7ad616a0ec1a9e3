//! Files that only their owner may read, and where a client may send its token.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use berth_tests::service::{Options, Server, berth, cli};
use serde_json::Value;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// Everything below a directory, and the directory itself.
fn tree(directory: &Path) -> Vec<PathBuf> {
    let mut found = vec![directory.to_owned()];
    let mut at = 0;
    while let Some(path) = found.get(at).cloned() {
        if path.is_dir() {
            found.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
        }
        at += 1;
    }
    found
}

#[test]
fn the_data_directory_of_a_server_is_its_own_and_an_open_one_is_closed() {
    let mut server = Server::start();
    let token = server.api().token("ops", "admin", None);
    let _ = server.api().with_token(&token).get("/api/v1/workloads").is(200);
    assert!(server.terminate().success());
    let all = tree(server.data_dir());
    assert!(all.len() > 4, "{all:?}");
    let is_closed = |path: &PathBuf| {
        let wanted = if path.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(mode(path), wanted, "{}", path.display());
    };
    all.iter().for_each(is_closed);

    // As a careless copy, or a version before this one, would have left it.
    all.iter().for_each(|path| set_mode(path, if path.is_dir() { 0o755 } else { 0o644 }));
    server.restart();
    all.iter().filter(|path| path.exists()).for_each(is_closed);
    let log = server.log();
    assert!(log.contains("closed to other users") && log.contains("755"), "{log}");
    assert!(log.contains("files and directories that other users could have read"), "{log}");
    let _ = server.api().with_token(&token).get("/api/v1/workloads").is(200);
}

#[test]
fn a_world_writable_directory_is_refused_as_data_directory() {
    let home = tempfile::tempdir().unwrap();
    let shared = home.path().join("shared");
    fs::create_dir(&shared).unwrap();
    set_mode(&shared, 0o1777);
    let refused = Options::default().data_dir(&shared).try_start().unwrap_err();
    assert!(refused.log.contains("shared with other users (mode 1777)"), "{}", refused.log);
    assert_eq!((mode(&shared), fs::read_dir(&shared).unwrap().count()), (0o1777, 0));
}

#[test]
fn a_tls_key_that_others_can_read_is_warned_about() {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let home = tempfile::tempdir().unwrap();
    let (cert, key) = (home.path().join("cert.pem"), home.path().join("key.pem"));
    fs::write(&cert, made.cert.pem()).unwrap();
    fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let settings = [format!("tls.cert={}", cert.display()), format!("tls.key={}", key.display())];
    for (mode, is_loose) in [(0o644, true), (0o660, true), (0o600, false), (0o640, false)] {
        set_mode(&key, mode);
        let options = Options::default().trusting(&made.cert.pem()).set(&[&settings[0], &settings[1]]);
        let log = options.start().log();
        let warned = log.lines().any(|line| line.contains("WARN") && line.contains("key.pem"));
        assert_eq!(warned, is_loose, "{mode:o}: {log}");
    }
}

#[test]
fn the_secret_of_a_token_goes_into_a_file_of_its_own() {
    let server = Server::start();
    let api = server.api();
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("ops.token");
    let out = file.to_str().unwrap();
    // A umask that closes nothing must not matter.
    let words = ["-c", "umask 000; exec \"$@\"", "sh", berth().to_str().unwrap(), "--server", &api.base()];
    let made =
        Command::new("sh").args(words).args(["token", "create", "ops", "--role", "admin", "--out", out]).output();
    let made = made.unwrap();
    let err = String::from_utf8(made.stderr).unwrap();
    assert!(made.status.success() && made.stdout.is_empty(), "{err}");
    assert!(err.contains(out), "{err}");
    assert_eq!(mode(&file), 0o600);
    let secret = fs::read_to_string(&file).unwrap();
    assert!(!err.contains(secret.trim()), "{err}");
    let admin = api.with_token(secret.trim());
    let tokens = || admin.get("/api/v1/tokens").is(200).rows().len();
    assert_eq!(tokens(), 1);

    // A file that is there stays as it is, and no token is made whose secret would be lost.
    let ask = |args: &[&str]| cli(&api, &[&["--token-file", out], args].concat());
    let refused = ask(&["token", "create", "two", "--role", "viewer", "--out", out]);
    assert_eq!(refused.status, 2, "{}", refused.err);
    assert!(refused.err.contains("--force"), "{}", refused.err);
    let nowhere = ask(&["token", "create", "two", "--role", "viewer", "--out", "/nowhere/x.token"]);
    assert!(nowhere.status == 2 && nowhere.err.contains("/nowhere/x.token"), "{}", nowhere.err);
    assert_eq!((fs::read_to_string(&file).unwrap(), tokens()), (secret.clone(), 1));
    let unknown = ask(&["token", "rotate", "01932c07-3a5b-7cc2-b7d1-58a1f7f4a921", "--out", out, "--force"]);
    assert_eq!((unknown.status, fs::read_to_string(&file).unwrap()), (5, secret.clone()), "{}", unknown.err);

    // Replaced as a whole: also a file that others could read is private then.
    set_mode(&file, 0o644);
    let id = admin.get("/api/v1/tokens").rows()[0]["id"].as_str().unwrap().to_owned();
    let rotated = ask(&["token", "rotate", &id, "--out", out, "--force"]);
    assert_eq!((rotated.status, rotated.out.as_str(), mode(&file)), (0, "", 0o600), "{}", rotated.err);
    assert!(rotated.err.contains("chmod 600"), "a token file that others can read is warned about: {}", rotated.err);
    assert_ne!(fs::read_to_string(&file).unwrap(), secret);

    let join = home.path().join("join.token");
    let made = ask(&["--output", "json", "join-token", "create", "rack", "--out", join.to_str().unwrap()]);
    assert!(!made.err.contains("chmod 600"), "{}", made.err);
    let about: Value = serde_json::from_str(&made.ok()).unwrap();
    assert_eq!((about["name"].as_str(), about.get("token"), mode(&join)), (Some("rack"), None, 0o600));
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 2, "nothing is left over");
}

/// A program that uses the machine's own certificate authorities, which here are those of a file.
fn with_system_ca(system: &Path, args: &[&str]) -> (bool, String) {
    let mut command = Command::new(berth());
    command.args(args).env("SSL_CERT_FILE", system).env_remove("SSL_CERT_DIR").env_remove("BERTH_CA");
    let output = command.output().unwrap();
    (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn a_ca_that_is_given_is_the_only_one_that_is_trusted() {
    let home = tempfile::tempdir().unwrap();
    let authority = |name: &str| {
        let mut params = rcgen::CertificateParams::new(vec![]).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        let key = rcgen::KeyPair::generate().unwrap();
        let file = home.path().join(name);
        fs::write(&file, params.self_signed(&key).unwrap().pem()).unwrap();
        (rcgen::Issuer::new(params, key), file)
    };
    let ((issuer, public), (_, own)) = (authority("public"), authority("own"));
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &issuer).unwrap().pem();
    let (cert, key_file) = (home.path().join("cert.pem"), home.path().join("key.pem"));
    fs::write(&cert, &certificate).unwrap();
    fs::write(&key_file, key.serialize_pem()).unwrap();
    let settings = [format!("tls.cert={}", cert.display()), format!("tls.key={}", key_file.display())];
    let options = Options::default().trusting(&fs::read_to_string(&public).unwrap());
    let server = options.set(&[&settings[0], &settings[1]]).start();
    let url = server.api().base();

    let (trusted, err) = with_system_ca(&public, &["--server", &url, "slots"]);
    assert!(trusted, "the machine's own authorities count where none is given: {err}");
    let ca = own.to_str().unwrap();
    let (trusted, err) = with_system_ca(&public, &["--server", &url, "--ca", ca, "slots"]);
    assert!(!trusted && err.contains("no safe connection"), "{err}");
}

#[test]
fn a_token_is_not_sent_to_another_machine_in_the_clear() {
    let home = tempfile::tempdir().unwrap();
    let token = home.path().join("token");
    fs::write(&token, "berth_s3cret").unwrap();
    set_mode(&token, 0o600);
    // No host has the address 192.0.2.1: without the refusal the program would try to connect.
    let said = |more: &[&str]| {
        let mut command = Command::new("timeout");
        command.arg("20").arg(berth()).args(["--server", "http://192.0.2.1:8080"]).args(more);
        for name in ["BERTH_TOKEN", "BERTH_TOKEN_FILE", "BERTH_ALLOW_TOKEN_OVER_HTTP"] {
            command.env_remove(name);
        }
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let file = token.to_str().unwrap();
    let config = home.path().join("runner.toml");
    fs::write(&config, format!("[agent]\nid = \"box\"\ndata_dir = {:?}\n", home.path().join("data"))).unwrap();
    let config = config.to_str().unwrap();
    for (way, status) in [
        (vec!["--token-file", file, "slots"], 2),
        (vec!["--token", "berth_s3cret", "slots"], 2),
        (vec!["runner", "--config", config, "--join", "berth_s3cret"], 1),
    ] {
        let (code, err) = said(&way);
        assert_eq!(code, Some(status), "{way:?}: {err}");
        assert!(
            err.contains("http://192.0.2.1:8080 is plain http") && err.contains("--allow-token-over-http"),
            "{err}"
        );
        assert!(!err.contains("s3cret"), "{err}");
    }
    let (code, err) = said(&["--token-file", file, "--allow-token-over-http", "slots"]);
    assert!(code != Some(2) && !err.contains("is plain http"), "{err}");
}
