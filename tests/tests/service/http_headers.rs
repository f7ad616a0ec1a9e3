//! Headers for browsers, and output that is safe for browsers and terminals.

use std::os::unix::fs::symlink;
use std::process::Command;

use berth_tests::service::{CertificateFiles, Options, RunnerOptions, Server, berth, eventually, write_gguf};
use serde_json::json;

#[test]
fn every_answer_tells_browsers_what_they_must_not_do() {
    let server = Server::start();
    let api = server.api();
    let answers = [
        ("/api/v1/workloads", 200),
        ("/nothing", 404),
        ("/healthz", 200),
        ("/openapi.json", 200),
        ("/docs/", 200),
        ("/docs/swagger-ui.css", 200),
    ];
    for (path, status) in answers {
        let reply = api.get(path).is(status);
        assert_eq!(reply.header("x-content-type-options"), Some("nosniff"), "{path}");
        assert_eq!(reply.header("x-frame-options"), Some("DENY"), "{path}");
        assert_eq!(reply.header("referrer-policy"), Some("no-referrer"), "{path}");
        let policy = reply.header("content-security-policy").unwrap_or_else(|| panic!("no policy at {path}"));
        assert!(policy.starts_with("default-src 'none'") && policy.contains("frame-ancestors 'none'"), "{policy}");
        assert_eq!(policy.contains("script-src 'self'"), path.starts_with("/docs"), "{path}: {policy}");
        assert!(!policy.contains("script-src 'unsafe") && !policy.contains('*'), "{policy}");
        assert_eq!(reply.header("strict-transport-security"), None, "it is not encrypted");
    }
    let wrong = api.ask("PATCH", "/api/v1/workloads").send();
    assert!(wrong.status == 405 && wrong.header("content-security-policy").is_some());
    // The page has no script and no style of its own text, which the policy would not let run.
    let page = api.get("/docs/").is(200).text;
    assert!(page.contains("swagger-ui-bundle.js") && !page.contains("<script>") && !page.contains("<style"), "{page}");
}

#[test]
fn an_encrypted_server_asks_browsers_to_stay_encrypted() {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let files = CertificateFiles::below(directory.path());
    std::fs::write(&files.cert, made.cert.pem()).unwrap();
    std::fs::write(&files.key, made.signing_key.serialize_pem()).unwrap();
    let settings = files.settings();
    let server = Options::default().trusting(&made.cert.pem()).set(&[&settings[0], &settings[1]]).start();
    for path in ["/healthz", "/docs/", "/nothing"] {
        let reply = server.api().get(path);
        assert!(reply.header("strict-transport-security").is_some_and(|age| age.contains("max-age=")), "{path}");
    }
}

#[test]
fn an_origin_is_read_as_a_url() {
    let server = Server::start();
    let open = server.api();
    let ask = |header: &str, value: &str| open.ask("GET", "/api/v1/workloads").header(header, value).send().status;
    for origin in [
        "http://localhost:x@evil.example",
        "http://localhost:80@evil.example",
        "http://localhost:evil.example",
        "http://localhost/",
        "http://localhost#evil.example",
        "http://127.0.0.1:80:evil.example",
        "localhost",
        "evil://localhost",
        "http://localhost, http://evil.example",
        "null",
        "",
    ] {
        assert_eq!(ask("Origin", origin), 403, "{origin}");
    }
    for host in ["localhost:evil.example", "localhost:80@evil.example", "user@localhost"] {
        assert_ne!(ask("Host", host), 200, "{host}");
    }
    assert_eq!(ask("Origin", "https://localhost:8443"), 200);
    let twice = open.ask("GET", "/api/v1/workloads").header("Origin", "http://localhost");
    assert_eq!(twice.header("Origin", "http://evil.example").send().status, 403, "the second one counts, too");
}

#[test]
fn names_do_not_look_like_other_names() {
    let server = Server::start();
    let api = server.api();
    for letter in ["%E2%80%AE", "%E2%81%A6", "%E2%80%8F", "%E2%80%A8", "%E2%80%A9", "%D8%9C"] {
        let path = format!("/api/v1/models/safe{letter}name");
        let reply = api.put(&path, &json!({ "runtime": "vllm", "memory": "1GiB" })).is(422);
        assert_eq!(reply.code(), "invalid_field", "{letter}");
    }
    for name in ["a\u{202e}b", "a\u{2028}b"] {
        let _ = api.post("/api/v1/tokens", &json!({ "name": name, "role": "admin" })).is(422);
        let _ = api.post("/api/v1/workloads", &json!({ "model": "m", "tenant": name })).is(422);
    }
}

#[test]
fn what_a_program_wrote_cannot_talk_to_the_terminal_that_shows_it() {
    let server = Server::start();
    let api = server.api();
    let script = "printf 'red\\033[31m bell\\007 line\\r\\n'; exec sleep 600";
    let _runner = RunnerOptions::new("box", script).start(&api);
    api.model("chat", json!({ "runtime": "sh", "memory": "10GiB" }));
    let id = api.lease("chat").is(201).id();
    eventually("it runs", || (api.state(&id) == "running").then_some(()));
    let logs = |more: &str| format!("{} logs {id} --server {} {more}", berth().display(), api.base());
    // `script` gives a command a terminal.
    let shown = |command: &str| {
        let output = Command::new("script").args(["-qec", command, "/dev/null"]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    eventually("it has written", || shown(&logs("")).contains("red").then_some(()));
    let terminal = shown(&logs(""));
    assert!(terminal.contains("red\\u{1b}[31m bell\\u{7} line"), "{terminal:?}");
    assert!(!terminal.contains('\u{1b}') && !terminal.contains('\u{7}'), "{terminal:?}");
    assert!(shown(&logs("--raw")).contains("red\u{1b}[31m"), "as it is, for who wants it so");
    let pipe = Command::new("sh").args(["-c", &logs("")]).output().unwrap();
    assert_eq!(pipe.stdout, b"red\x1b[31m bell\x07 line\r\n", "a pipe gets every byte");
}

#[test]
fn errors_do_not_reveal_which_files_exist_outside_of_the_model_directories() {
    let directory = tempfile::tempdir().unwrap();
    let (models, secret) = (directory.path().join("models"), directory.path().join("secret"));
    std::fs::create_dir_all(&models).unwrap();
    std::fs::create_dir_all(&secret).unwrap();
    let _ = write_gguf(&secret, "there.gguf", 1 << 20);
    std::fs::write(secret.join("text"), "no model").unwrap();
    symlink(&secret, models.join("link")).unwrap();
    symlink(secret.join("there.gguf"), models.join("to-a-file.gguf")).unwrap();
    symlink(secret.join("gone.gguf"), models.join("to-nothing.gguf")).unwrap();
    symlink("loop.gguf", models.join("loop.gguf")).unwrap();
    let setting = format!("estimate.model_dirs={}", models.display());
    let server = Server::with(&[&setting]);
    let api = server.api();
    let asked = |path: String| {
        let reply = api.post("/api/v1/estimate", &json!({ "file": path })).is(422);
        reply.body["detail"].as_str().unwrap().replace(&path, "PATH")
    };
    let (models, secret) = (models.display(), secret.display());
    let missing = asked(format!("{models}/missing.gguf"));
    assert!(missing.contains("PATH") && missing.contains("model_dirs"), "{missing}");
    for path in [
        format!("{secret}/there.gguf"),
        format!("{secret}/gone.gguf"),
        format!("{secret}"),
        format!("{models}/link/there.gguf"),
        format!("{models}/link/gone.gguf"),
        format!("{models}/link/text"),
        format!("{models}/link/text/below"),
        format!("{models}/link"),
        format!("{models}/to-a-file.gguf"),
        format!("{models}/to-nothing.gguf"),
        format!("{models}/loop.gguf"),
        "/etc/shadow".to_owned(),
        "/root/nothing".to_owned(),
    ] {
        assert_eq!(asked(path.clone()), missing, "{path}");
    }
}
