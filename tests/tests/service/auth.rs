//! Authorisation (B4): each route admits its roles and no others. The cases come from the server's own OpenAPI
//! description: a route that this file does not
//! know fails the test.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;

use berth_tests::service::{Api, FakeAgent, GIB, Server};
use serde_json::json;

/// What a route asks of its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    Public,
    Read,
    Submit,
    Operate,
    OwnRunner,
    Join,
}
use Access::{Join, Operate, OwnRunner, Public, Read, Submit};

/// Every operation, and the permission that it needs.
const ROUTES: &[(&str, Access)] = &[
    ("GET /healthz", Public),
    ("GET /readyz", Public),
    ("GET /metrics", Read),
    ("GET /api/v1/version", Public),
    ("GET /api/v1/workloads", Read),
    ("POST /api/v1/workloads", Submit),
    ("GET /api/v1/workloads/{id}", Read),
    ("DELETE /api/v1/workloads/{id}", Submit),
    ("GET /api/v1/workloads/{id}/explain", Read),
    ("GET /api/v1/workloads/{id}/logs", Read),
    ("POST /api/v1/workloads/{id}/heartbeat", Submit),
    ("POST /api/v1/workloads/{id}/complete", Submit),
    ("GET /api/v1/models", Read),
    ("GET /api/v1/models/{name}", Read),
    ("PUT /api/v1/models/{name}", Operate),
    ("DELETE /api/v1/models/{name}", Operate),
    ("POST /api/v1/models/{name}/fit", Read),
    ("POST /api/v1/estimate", Submit),
    ("GET /api/v1/runners", Read),
    ("GET /api/v1/runners/{id}", Read),
    ("DELETE /api/v1/runners/{id}", Operate),
    ("GET /api/v1/runners/{id}/status", Read),
    ("POST /api/v1/runners/{id}/cordon", Operate),
    ("POST /api/v1/runners/{id}/uncordon", Operate),
    ("POST /api/v1/runners/{id}/drain", Operate),
    ("PUT /api/v1/runners/{id}/report", OwnRunner),
    ("GET /api/v1/runners/{id}/desired", OwnRunner),
    ("POST /api/v1/runners/{id}/requests/{request_id}", OwnRunner),
    ("POST /api/v1/runners/{id}/token", OwnRunner),
    ("POST /api/v1/join", Join),
    ("POST /api/v1/machines/judge", Operate),
    ("POST /api/v1/devices/{uuid}/cordon", Operate),
    ("POST /api/v1/devices/{uuid}/uncordon", Operate),
    ("GET /api/v1/scheduler/slots", Read),
    ("GET /api/v1/scheduler/slots/{id}", Read),
    ("GET /api/v1/scheduler/slots/{id}/logs", Read),
    ("DELETE /api/v1/scheduler/slots/{id}", Operate),
    ("POST /api/v1/scheduler/slots/{id}/force-release", Operate),
    ("GET /api/v1/scheduler/decisions", Read),
    ("GET /api/v1/scheduler/queue", Read),
    ("GET /api/v1/scheduler/ledger", Read),
    ("GET /api/v1/scheduler/demand", Read),
    ("GET /api/v1/scheduler/events", Read),
    ("GET /api/v1/tokens", Operate),
    ("POST /api/v1/tokens", Operate),
    ("DELETE /api/v1/tokens/{id}", Operate),
    ("POST /api/v1/tokens/{id}/rotate", Operate),
    ("GET /api/v1/audit", Operate),
    ("GET /api/v1/backup", Operate),
    ("GET /api/v1/history", Read),
    ("POST /api/v1/history/continue", Operate),
    ("GET /api/v1/log-level", Operate),
    ("PUT /api/v1/log-level", Operate),
];

/// A caller: a name for messages, and its permissions.
struct Caller {
    name: &'static str,
    api: Api,
    may: &'static [Access],
    known: bool,
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
    let caller = |name, api: &Api, may, known| Caller { name, api: api.clone(), may, known };
    let callers = vec![
        caller("nobody", &open, &[Public], false),
        caller("a wrong token", &wrong, &[], false),
        caller("a viewer", &viewer, &[Public, Read], true),
        caller("a submitter", &submitter, &[Public, Read, Submit], true),
        caller("another runner", &other, &[Public], true),
        caller("the runner itself", &own, &[Public, OwnRunner], true),
        caller("a machine that joins", &newcomer, &[Public, Join], true),
        caller("an admin", &admin, &[Public, Read, Submit, Operate], true),
    ];
    (server, callers)
}

/// A path of the description with names that exist or could.
fn filled(path: &str) -> String {
    let id = if path.contains("/runners/") { "box" } else { "01932c07-3a5b-7cc2-b7d1-58a1f7f4a921" };
    let path = path.replace("{request_id}", "01932c07-3a5b-7cc2-b7d1-58a1f7f4a922");
    path.replace("{id}", id).replace("{uuid}", "GPU-box-0").replace("{name}", "no-such-model")
}

#[track_caller]
fn assert_access(caller: &Caller, method: &str, path: &str, access: Access) {
    // The body is wrong on purpose: an allowed caller changes nothing, and another is refused before the body is read.
    let mut ask = caller.api.ask(method, path);
    if matches!(method, "POST" | "PUT") {
        ask = ask.json(&json!({ "no_such_field": 1 }));
    }
    let status = ask.status();
    let passes = caller.may.contains(&access);
    let stopped = if caller.known { 403 } else { 401 };
    if passes {
        assert!(!matches!(status, 401 | 403 | 500..), "{} is stopped at {method} {path}: {status}", caller.name);
    } else {
        assert_eq!(status, stopped, "{} at {method} {path}", caller.name);
    }
}

#[test]
fn b4_every_route_admits_exactly_the_roles_that_may_use_it() {
    let (_server, callers) = server_with_callers();
    let description = callers[0].api.get("/openapi.json").is(200).body;
    let mut described = BTreeSet::new();
    for (path, item) in description["paths"].as_object().unwrap() {
        for method in item.as_object().unwrap().keys() {
            if ["get", "put", "post", "delete", "patch", "head", "options"].contains(&method.as_str()) {
                described.insert(format!("{} {path}", method.to_uppercase()));
            }
        }
    }
    let known: BTreeSet<String> = ROUTES.iter().map(|(route, _)| (*route).to_owned()).collect();
    assert_eq!(known.len(), ROUTES.len());
    assert_eq!(described, known, "the description and the table of this test name the same routes");

    // Nothing that an admin does here may change the tokens of the others, so the admin comes last.
    for caller in &callers {
        for (route, access) in ROUTES {
            let (method, path) = route.split_once(' ').unwrap();
            let path = filled(path);
            assert_access(caller, method, &path, *access);
            if let Some(short) = path.strip_prefix("/api/v1").filter(|short| short.starts_with("/scheduler")) {
                assert_access(caller, method, short, *access);
            }
        }
    }
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
            let expected = match (caller.known, caller.may.contains(&Read)) {
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
            let expected = match (caller.known, caller.may.contains(&Read)) {
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
