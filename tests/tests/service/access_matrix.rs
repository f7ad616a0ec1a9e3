//! Who may do what: every route, asked by everybody, about an object that is theirs and one that is not.
//!
//! The routes come from the server's own description, and from its source where it does not describe them. A route that
//! [`ROUTES`] does not classify fails the test. [`expected`] has the rules; what it does not allow is denied. The
//! snapshot shows what the server answered.
#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "what these read on the way to a test is there, or the test has failed"
)]

use std::collections::BTreeSet;
use std::fmt::Write as _;

use berth_tests::service::{Api, FakeAgent, GIB, Server, eventually};
use serde_json::json;

/// Who asks. Objects with an owner are those of [`Who::Owner`]; runners are [`Who::Itself`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    NoToken,
    WrongToken,
    Expired,
    Revoked,
    Viewer,
    /// The submitter whose work it is.
    Owner,
    /// A submitter whose work it is not.
    OtherOwner,
    /// The runner that the path names.
    Itself,
    /// A runner that it does not name.
    OtherRunner,
    Join,
    Admin,
}
use Who::{Admin, Expired, Itself, Join, NoToken, OtherOwner, OtherRunner, Owner, Revoked, Viewer, WrongToken};

/// In the order of the table. The admin comes last: what an admin does is done.
const EVERYBODY: [(Who, &str); 11] = [
    (NoToken, "none"),
    (WrongToken, "wrong"),
    (Expired, "expired"),
    (Revoked, "revoked"),
    (Viewer, "viewer"),
    (Owner, "owner"),
    (OtherOwner, "other"),
    (Itself, "itself"),
    (OtherRunner, "runner"),
    (Join, "join"),
    (Admin, "admin"),
];

/// What a route asks of its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    /// Anybody.
    Public,
    /// Whoever reads.
    Read,
    /// Whoever reads; of work, each submitter has its own in it.
    List,
    /// Whoever reads, but no submitter of other work.
    ReadOwn,
    /// The same, of a slot: that it is there is no secret.
    ReadOwnLog,
    /// Whoever submits.
    Submit,
    /// Whoever submitted it.
    ChangeOwn,
    /// Admins.
    Operate,
    /// The runner that the path names.
    OwnRunner,
    /// Whoever has a join token.
    Joining,
}
use Rule::{ChangeOwn, Joining, List, Operate, OwnRunner, Public, Read, ReadOwn, ReadOwnLog, Submit};

/// What the server does about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// 401
    Unauthenticated,
    /// 403
    Forbidden,
    /// 404, as if it had never been
    NotThere,
    /// The request was looked at.
    Allowed,
    /// The same, and the answer shows work that is the owner's.
    Shown,
}
use Outcome::{Allowed, Forbidden, NotThere, Shown, Unauthenticated};

/// The rules. Everything that is not here is forbidden.
const fn expected(rule: Rule, who: Who) -> Outcome {
    match (rule, who) {
        (_, WrongToken | Expired | Revoked) => Unauthenticated,
        (Public, _) => Allowed,
        (_, NoToken) => Unauthenticated,
        (List, Viewer | Owner | Admin) => Shown,
        (Read | List, Viewer | Owner | OtherOwner | Admin)
        | (ReadOwn | ReadOwnLog, Viewer | Owner | Admin)
        | (Submit, Owner | OtherOwner | Admin)
        | (ChangeOwn, Owner | Admin)
        | (Operate, Admin)
        | (OwnRunner, Itself)
        | (Joining, Join) => Allowed,
        (ReadOwn | ChangeOwn, OtherOwner) => NotThere,
        _ => Forbidden,
    }
}

/// Every operation of the description, and what it asks.
const ROUTES: &[(&str, Rule)] = &[
    ("GET /healthz", Public),
    ("GET /readyz", Public),
    ("GET /metrics", Read),
    ("GET /api/v1/version", Public),
    ("GET /api/v1/workloads", List),
    ("POST /api/v1/workloads", Submit),
    ("GET /api/v1/workloads/{id}", ReadOwn),
    ("DELETE /api/v1/workloads/{id}", ChangeOwn),
    ("GET /api/v1/workloads/{id}/explain", ReadOwn),
    ("GET /api/v1/workloads/{id}/logs", ReadOwn),
    ("POST /api/v1/workloads/{id}/heartbeat", ChangeOwn),
    ("POST /api/v1/workloads/{id}/complete", ChangeOwn),
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
    ("POST /api/v1/join", Joining),
    ("POST /api/v1/machines/judge", Operate),
    ("POST /api/v1/devices/{uuid}/cordon", Operate),
    ("POST /api/v1/devices/{uuid}/uncordon", Operate),
    ("GET /api/v1/scheduler/slots", Read),
    ("GET /api/v1/scheduler/slots/{id}", Read),
    ("GET /api/v1/scheduler/slots/{id}/logs", ReadOwnLog),
    ("DELETE /api/v1/scheduler/slots/{id}", Operate),
    ("POST /api/v1/scheduler/slots/{id}/force-release", Operate),
    ("GET /api/v1/scheduler/decisions", List),
    ("GET /api/v1/scheduler/queue", List),
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

/// Routes that the description leaves out: itself, and the way to the page that shows it.
const UNDESCRIBED: &[(&str, Rule)] = &[("GET /openapi.json", Public), ("GET /", Public)];

/// The scheduler's routes are there without their prefix, too.
fn short(route: &str) -> Option<String> {
    let (method, path) = route.split_once(' ')?;
    let path = path.strip_prefix("/api/v1").filter(|path| path.starts_with("/scheduler/"))?;
    Some(format!("{method} {path}"))
}

/// Every operation, described or not, and what it asks.
fn all_routes() -> Vec<(String, Rule)> {
    let long = ROUTES.iter().chain(UNDESCRIBED).map(|(route, rule)| ((*route).to_owned(), *rule));
    long.chain(ROUTES.iter().filter_map(|(route, rule)| Some((short(route)?, *rule)))).collect()
}

/// The operations that the server describes.
fn described(api: &Api) -> BTreeSet<String> {
    let description = api.get("/openapi.json").is(200).body;
    let mut routes = BTreeSet::new();
    for (path, item) in description["paths"].as_object().expect("paths") {
        let methods = item.as_object().expect("operations").keys();
        let methods = methods.filter(|name| !matches!(name.as_str(), "parameters" | "summary" | "description"));
        routes.extend(methods.map(|method| format!("{} {path}", method.to_uppercase())));
    }
    routes
}

/// The paths that the server's source names beside its description.
fn undescribed_paths() -> BTreeSet<String> {
    let sources = [
        include_str!("../../../crates/server/src/http/router.rs"),
        include_str!("../../../crates/server/src/http/openapi.rs"),
    ];
    let named = sources.into_iter().flat_map(|source| source.split(".route(\"").skip(1));
    named.map(|rest| rest.split('"').next().unwrap_or_default().to_owned()).collect()
}

/// A server with an object of each kind.
struct House {
    server: Server,
    clients: Vec<(Who, Api)>,
    /// A workload of the owner's that runs, and one that waits.
    running: String,
    waiting: String,
    /// The slot of the one that runs.
    slot: String,
    _agent: FakeAgent,
}

impl House {
    fn new() -> Self {
        let server = Server::with(&[
            "limits.agent_answer=50ms",
            "limits.requests_per_second=100000",
            "limits.burst=100000",
            "limits.unauthenticated_per_address=1000",
        ]);
        let open = server.api();
        let admin = open.with_token(&open.token("admin", "admin", None));
        let bearer = |name: &str, role: &str, runner| open.with_token(&admin.token(name, role, runner));
        let (itself, owner) = (bearer("box", "runner", Some("box")), bearer("owner", "submitter", None));
        let mut agent = FakeAgent::new(&itself, "box", &[80 * GIB]).registered();
        admin.model("chat", json!({ "memory": 60 * GIB, "gpu_counts": [1] }));
        let running = owner.lease("chat").is(201).id();
        agent.obey_all();
        let waiting = owner.lease("chat").is(201).id();
        let slot = owner.workload(&running)["slot"]["id"].as_str().expect("a slot").to_owned();
        let clients = vec![
            (NoToken, open.clone()),
            (WrongToken, open.with_token(&format!("berth_{}_{}", "0".repeat(32), "0".repeat(64)))),
            (Expired, expired(&open, &admin)),
            (Revoked, revoked(&open, &admin)),
            (Viewer, bearer("viewer", "viewer", None)),
            (Owner, owner),
            (OtherOwner, bearer("other owner", "submitter", None)),
            (Itself, itself),
            (OtherRunner, bearer("other runner", "runner", Some("other"))),
            (Join, bearer("join", "join", None)),
            (Admin, admin),
        ];
        Self { server, clients, running, waiting, slot, _agent: agent }
    }

    fn api(&self, who: Who) -> &Api {
        &self.clients.iter().find(|(one, _)| *one == who).expect("everybody has a client").1
    }

    /// The path of a route, about an object that is there. What is deleted is made for it.
    fn fill(&self, method: &str, path: &str) -> String {
        let spare = || {
            let made = self.api(Admin).post("/api/v1/tokens", &json!({ "name": spare_name(), "role": "viewer" }));
            made.is(201).body["id"].as_str().expect("an id").to_owned()
        };
        let id = match path {
            _ if !path.contains("{id}") => String::new(),
            _ if path.contains("/runners/") => "box".to_owned(),
            _ if path.contains("/slots/") => self.slot.clone(),
            _ if path.contains("/tokens/") => spare(),
            _ if method == "DELETE" => self.api(Owner).lease("chat").is(201).id(),
            _ => self.running.clone(),
        };
        let name = if method == "DELETE" { "spare" } else { "chat" };
        let path = path.replace("{request_id}", "01932c07-3a5b-7cc2-b7d1-58a1f7f4a922");
        path.replace("{id}", &id).replace("{uuid}", "GPU-box-0").replace("{name}", name)
    }

    /// Asks as somebody.
    fn ask(&self, who: Who, route: &str, rule: Rule) -> Outcome {
        let (method, path) = route.split_once(' ').expect("a method and a path");
        if path.contains("{name}") && method == "DELETE" {
            self.api(Admin).model("spare", json!({ "memory": GIB }));
        }
        let path = self.fill(method, path);
        let mut ask = self.api(who).ask(method, &path);
        if matches!(method, "POST" | "PUT") {
            // The body is wrong on purpose: who may pass changes nothing, and who may not is stopped before it is read.
            // Whose work it is, is looked at after the body: that one is about an attempt that never was.
            let is_about_work = rule == ChangeOwn;
            ask = ask.json(&if is_about_work { json!({ "attempt": 999 }) } else { json!({ "no_such_field": 1 }) });
        }
        if path.ends_with("/events") || path.ends_with("/backup") {
            return outcome(ask.status(), "", &path);
        }
        let reply = ask.send();
        let is_shown = rule == List && (reply.text.contains(&self.running) || reply.text.contains(&self.waiting));
        match outcome(reply.status, reply.code(), &path) {
            Allowed if is_shown => Shown,
            outcome => outcome,
        }
    }
}

fn spare_name() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("spare {}", NEXT.fetch_add(1, Ordering::Relaxed))
}

fn expired(open: &Api, admin: &Api) -> Api {
    let body = json!({ "name": "short", "role": "viewer", "expires_in": "1ms" });
    let api = open.with_token(&admin.token_with(&body));
    eventually("it expires", || (api.get("/api/v1/workloads").code() == "token_expired").then_some(()));
    api
}

fn revoked(open: &Api, admin: &Api) -> Api {
    let made = admin.post("/api/v1/tokens", &json!({ "name": "gone", "role": "admin" })).is(201).body;
    let api = open.with_token(made["token"].as_str().expect("a secret"));
    let _ = api.get("/api/v1/tokens").is(200);
    let _ = admin.delete(&format!("/api/v1/tokens/{}", made["id"].as_str().expect("an id"))).is(204);
    api
}

/// What a status means. Behind the door a log that nobody sends is a 504, and a request that nobody made a 404.
fn outcome(status: u16, code: &str, path: &str) -> Outcome {
    match (status, code) {
        (401, _) => Unauthenticated,
        (403, _) => Forbidden,
        (404, "unknown_request") | (504, "runner_silent") => Allowed,
        (404, _) => NotThere,
        (500.., _) => panic!("{path}: {status} {code}"),
        _ => Allowed,
    }
}

#[test]
fn every_route_is_open_to_those_who_may_and_to_nobody_else() {
    let house = House::new();
    let classified: BTreeSet<String> = ROUTES.iter().map(|(route, _)| (*route).to_owned()).collect();
    assert_eq!(classified.len(), ROUTES.len(), "each route is classified once");
    assert_eq!(described(&house.server.api()), classified, "every route of the description is classified");
    let path = |route: &str| route.split_once(' ').expect("a path").1.to_owned();
    let beside = UNDESCRIBED.iter().map(|(route, _)| path(route));
    let beside = beside.chain(ROUTES.iter().filter_map(|(route, _)| Some(path(&short(route)?))));
    assert_eq!(undescribed_paths(), beside.collect(), "every other route of the server is classified");

    let routes = all_routes();
    let mut seen = vec![Vec::new(); routes.len()];
    let mut wrong = Vec::new();
    for (who, name) in EVERYBODY {
        // What is deleted is deleted last.
        let (last, first): (Vec<usize>, Vec<usize>) =
            (0..routes.len()).partition(|at| routes[*at].0.starts_with("DELETE"));
        for at in first.into_iter().chain(last) {
            let (route, rule) = &routes[at];
            let (found, wanted) = (house.ask(who, route, *rule), expected(*rule, who));
            if found != wanted {
                wrong.push(format!("{name} at {route}: {found:?}, and not {wanted:?}"));
            }
            seen[at].push(found);
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    insta::assert_snapshot!("who_may_do_what", table(&routes, &seen));
}

/// The whole matrix for people.
fn table(routes: &[(String, Rule)], seen: &[Vec<Outcome>]) -> String {
    let mut text = format!("{:<52}", "");
    for (_, name) in EVERYBODY {
        write!(text, "{name:<8}").expect("a string takes all");
    }
    for ((route, _), outcomes) in routes.iter().zip(seen) {
        text.truncate(text.trim_end().len());
        write!(text, "\n{route:<52}").expect("a string takes all");
        for outcome in outcomes {
            let shown = match outcome {
                Unauthenticated => "401",
                Forbidden => "403",
                NotThere => "404",
                Allowed => "yes",
                Shown => "shows",
            };
            write!(text, "{shown:<8}").expect("a string takes all");
        }
    }
    text.trim_end().to_owned()
}
