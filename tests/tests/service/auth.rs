//! Authorisation (B4) with strange paths, methods, names and tokens. `access_matrix` asks every route as every role.

use std::os::unix::fs::PermissionsExt;

use berth_tests::service::{Api, FakeAgent, GIB, Server};
use serde_json::json;

/// A caller: a name for messages, whether the server knows it, and whether it may read.
struct Caller {
    name: &'static str,
    api: Api,
    known: bool,
    reads: bool,
}

/// A server with tokens, a runner `box`, and one caller of each kind.
fn server_with_callers() -> (Server, Vec<Caller>) {
    let server = Server::start();
    let open = server.api();
    let _ = FakeAgent::new(&open, "box", &[80 * GIB]).registered();
    let admin = open.with_token(&open.token("admin", "admin", None));
    let bearer = |name: &str, role: &str, runner| open.with_token(&admin.token(name, role, runner));
    let submitter = bearer("gateway", "submitter", None);
    let viewer = bearer("screen", "viewer", None);
    let own = bearer("box", "runner", Some("box"));
    let other = bearer("other", "runner", Some("other"));
    let newcomer = bearer("newcomer", "join", None);
    let wrong = open.with_token(&format!("berth_{}_{}", "0".repeat(32), "0".repeat(64)));
    let caller = |name, api: &Api, known, reads| Caller { name, api: api.clone(), known, reads };
    let callers = vec![
        caller("nobody", &open, false, false),
        caller("a wrong token", &wrong, false, false),
        caller("a viewer", &viewer, true, true),
        caller("a submitter", &submitter, true, true),
        caller("another runner", &other, true, false),
        caller("the runner itself", &own, true, false),
        caller("a machine that joins", &newcomer, true, false),
        caller("an admin", &admin, true, true),
    ];
    (server, callers)
}

#[test]
fn b4_an_unknown_path_is_404_only_for_callers_who_may_read() {
    let (_server, callers) = server_with_callers();
    let strange = [
        ("GET", "/nothing"),
        ("POST", "/api/v1"),
        ("GET", "/api/v2/workloads"),
        ("GET", "/api/v1/nothing"),
        ("DELETE", "/scheduler/nothing"),
        ("GET", "/api/v1//workloads"),
        ("GET", "/api/v1/workloads/"),
        ("GET", "/API/V1/workloads"),
        ("GET", "/api/v1/../v1/workloads"),
        ("GET", "/api/v1/scheduler/slots/../../tokens"),
        ("GET", "/workloads"),
        ("GET", "/runners"),
    ];
    for (method, path) in strange {
        for caller in &callers {
            let reply = caller.api.ask(method, path).send();
            let expected = match (caller.known, caller.reads) {
                (false, _) => 401,
                (true, false) => 403,
                (true, true) => 404,
            };
            assert_eq!(reply.status, expected, "{} at {method} {path}: {}", caller.name, reply.text);
            assert!(reply.header("berth-revision").is_some(), "{method} {path}");
        }
    }
}

#[test]
fn b4_a_wrong_method_is_405_only_for_callers_who_may_read() {
    let (_server, callers) = server_with_callers();
    for (method, path) in [("PATCH", "/api/v1/workloads"), ("DELETE", "/scheduler/ledger"), ("PUT", "/api/v1/tokens")] {
        for caller in &callers {
            let reply = caller.api.ask(method, path).send();
            let expected = match (caller.known, caller.reads) {
                (false, _) => &[401][..],
                (true, false) => &[403],
                (true, true) => &[403, 405],
            };
            assert!(expected.contains(&reply.status), "{} at {method} {path}: {}", caller.name, reply.status);
        }
    }
}

#[test]
fn b4_a_runner_token_is_for_its_own_id_however_the_id_is_written() {
    let (_server, callers) = server_with_callers();
    let api = |name: &str| callers.iter().find(|caller| caller.name == name).unwrap().api.clone();
    let (own, other, admin) = (api("the runner itself"), api("another runner"), api("an admin"));
    for path in ["other", "box%2F..%2Fother", "BOX", "box%00", "box%20", "box%2Freport", "."] {
        let reply = own.put(&format!("/api/v1/runners/{path}/report"), &json!({}));
        assert!(matches!(reply.status, 403 | 404), "{path}: {}", reply.text);
    }
    let mut agent = FakeAgent::new(&other, "box", &[80 * GIB]);
    assert_eq!(agent.report().is(403).code(), "forbidden", "a runner cannot speak for another");
    agent.api = admin.clone();
    assert_eq!(agent.report().is(403).code(), "forbidden", "nor can an admin");
    agent.api = own;
    agent.incarnation = None;
    assert_eq!(agent.report().is(200).body["incarnation"], 2);
    assert_eq!(admin.get("/api/v1/runners/other").is(404).code(), "unknown_runner", "nobody was made by trying");
}

#[test]
fn b4_only_a_whole_unexpired_bearer_token_counts() {
    let (server, callers) = server_with_callers();
    let admin = &callers.last().unwrap().api;
    let open = server.api();
    let made = admin.post("/api/v1/tokens", &json!({ "name": "short-lived", "role": "viewer" })).is(201).body;
    let secret = made["token"].as_str().unwrap();
    let with = |value: &str| open.ask("GET", "/api/v1/workloads").header("Authorization", value).send().status;
    assert_eq!(with(&format!("Bearer {secret}")), 200);
    assert_eq!(with(&format!("bearer {secret}")), 200, "the scheme's case does not matter");
    let nearly = [
        secret.to_owned(),
        format!("Basic {secret}"),
        format!("Bearer {}", &secret[..secret.len() - 1]),
        format!("Bearer {secret}0"),
        format!("Bearer {}", secret.to_uppercase()),
        "Bearer ".to_owned(),
        "Bearer".to_owned(),
        String::new(),
        format!("Bearer {}", made["id"].as_str().unwrap()),
    ];
    for value in nearly {
        assert_eq!(with(&value), 401, "{value:?}");
    }
    assert_eq!(open.get(&format!("/api/v1/workloads?token={secret}")).status, 401, "a token in a URL ends up in logs");
    let refused = open.get("/api/v1/workloads").is(401);
    assert_eq!(refused.header("www-authenticate"), Some("Bearer"));
    assert_eq!(refused.header("content-type"), Some("application/problem+json"));

    let listed = admin.get("/api/v1/tokens").is(200);
    assert!(!listed.text.contains(secret), "secrets are shown once");
    let _ = admin.delete(&format!("/api/v1/tokens/{}", made["id"].as_str().unwrap())).is(204);
    assert_eq!(with(&format!("Bearer {secret}")), 401, "revoked");
}

#[test]
fn b4_the_first_and_the_last_token_are_admin_tokens() {
    let mut server = Server::start();
    let open = server.api();
    let refused = open.post("/api/v1/tokens", &json!({ "name": "screen", "role": "viewer" })).is(409);
    assert_eq!(refused.code(), "no_admin_left");
    assert_eq!(open.get("/api/v1/workloads").status, 200, "without a token everybody on this machine may");
    let secret = open.token("ops", "admin", None);
    assert_eq!(open.get("/api/v1/workloads").status, 401, "from the first token on everybody needs one");
    let admin = open.with_token(&secret);
    let tokens = admin.get("/api/v1/tokens").is(200);
    let id = tokens.rows()[0]["id"].as_str().unwrap().to_owned();
    assert_eq!(admin.delete(&format!("/api/v1/tokens/{id}")).is(409).code(), "no_admin_left");
    assert_eq!(
        admin.post("/api/v1/tokens", &json!({ "name": "box", "role": "runner" })).status,
        422,
        "for which runner?"
    );
    assert_eq!(admin.post("/api/v1/tokens", &json!({ "name": "ops", "role": "admin" })).is(409).code(), "name_taken");
    server.kill();
    server.restart();
    assert_eq!(open.get("/api/v1/workloads").status, 401, "after a restart, too");
    assert_eq!(admin.get("/api/v1/workloads").status, 200);
    let kept = std::fs::read_to_string(server.data_dir().join("tokens.json")).unwrap();
    assert!(!kept.contains(&secret), "only hashes are kept");
    let mode = |name: &str| std::fs::metadata(server.data_dir().join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("."), mode("tokens.json"), mode("audit.jsonl")), (0o700, 0o600, 0o600), "for nobody else to read");
}
