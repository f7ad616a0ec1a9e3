//! Ownership of work: a gateway sees and ends its own work only, within its limits.

use berth_tests::service::{Api, FakeAgent, GIB, Options, Server};
use serde_json::{Value, json};

/// A server with tokens, one GPU, and a model that fits it once.
struct House {
    server: Server,
    admin: Api,
    agent: FakeAgent,
}

impl House {
    fn new(settings: &[&str]) -> Self {
        let server = Options::default().set(settings).start();
        let admin = server.api().with_token(&server.api().token("ops", "admin", None));
        let secret = admin.token("box", "runner", Some("box"));
        let mut agent = FakeAgent::new(&server.api().with_token(&secret), "box", &[80 * GIB]);
        agent.about["runtimes"] = json!(["vllm", "trainer"]);
        agent.about["runtime_kinds"] = json!({ "trainer": "job" });
        let agent = agent.registered();
        admin.model("chat", json!({ "memory": 60 * GIB, "gpu_counts": [1] }));
        admin.model("train", json!({ "memory": 60 * GIB, "gpu_counts": [1], "runtime": "trainer" }));
        Self { server, admin, agent }
    }

    /// A gateway with a token as the body says.
    fn gateway(&self, name: &str, mut body: Value) -> Api {
        body["name"] = json!(name);
        body["role"] = json!("submitter");
        self.server.api().with_token(&self.admin.token_with(&body))
    }

    fn viewer(&self) -> Api {
        self.server.api().with_token(&self.admin.token("screen", "viewer", None))
    }
}

/// Everything that can be asked about one workload: a method, a path and a body.
fn routes_of(id: &str) -> Vec<(&'static str, String, Option<Value>)> {
    let path = |rest: &str| format!("/api/v1/workloads/{id}{rest}");
    vec![
        ("GET", path(""), None),
        ("GET", path("?wait=1ms"), None),
        ("GET", path("/explain"), None),
        ("GET", path("/logs"), None),
        ("POST", path("/heartbeat"), Some(json!({ "attempt": 1 }))),
        ("POST", path("/complete"), Some(json!({ "attempt": 1 }))),
        ("DELETE", path(""), None),
    ]
}

fn ask(api: &Api, (method, path, body): &(&str, String, Option<Value>)) -> berth_tests::service::Reply {
    let ask = api.ask(method, path);
    body.as_ref().map_or(ask.clone(), |body| ask.json(body)).send()
}

#[test]
fn a_gateway_reaches_no_work_of_another_by_any_route() {
    let mut house = House::new(&[]);
    let (own, other) = (house.gateway("own", json!({})), house.gateway("other", json!({})));
    let running = own.lease("chat").is(201).id();
    house.agent.obey_all();
    let waiting = own.lease("train");
    assert_eq!(waiting.status, 422, "a lease on a job runtime: {}", waiting.text);
    let waiting = own.job("train").is(201).id();
    assert_eq!((own.state(&running).as_str(), own.state(&waiting).as_str()), ("running", "queued"));
    let nothing = "01932c07-3a5b-7cc2-b7d1-58a1f7f4a921";
    for id in [&running, &waiting] {
        for route in routes_of(id) {
            let refused = ask(&other, &route);
            assert_eq!((refused.status, refused.code()), (404, "unknown_workload"), "{route:?}: {}", refused.text);
            let absent = routes_of(nothing)
                .into_iter()
                .find(|(m, p, _)| (*m, p.replace(nothing, id)) == (route.0, route.1.clone()));
            let absent = ask(&other, &absent.unwrap());
            let same = |text: &str, id: &str| text.replace(id, "ID");
            assert_eq!(same(&refused.text, id), same(&absent.text, nothing), "nobody learns that it is there");
        }
        assert!(matches!(house.admin.state(id).as_str(), "running" | "queued"), "nothing happened to it");
    }
    // Nor by listings, decisions, the queue, a slot's log or events.
    let lists = ["/api/v1/workloads", "/api/v1/scheduler/decisions", "/api/v1/scheduler/queue"];
    for path in lists {
        let seen = other.get(path).is(200).text;
        assert!(!seen.contains(&running) && !seen.contains(&waiting), "{path}: {seen}");
        assert!(own.get(path).is(200).text.contains(&waiting), "{path}");
    }
    let slot = own.workload(&running)["slot"]["id"].as_str().unwrap().to_owned();
    for path in [format!("/api/v1/scheduler/slots/{slot}/logs"), format!("/scheduler/slots/{slot}/logs")] {
        assert_eq!(other.get(&path).is(403).code(), "forbidden");
    }
    assert!(other.get("/scheduler/slots").is(200).text.contains(&slot), "slots are facts of the fleet");
    // With the same key another gateway has a workload of its own.
    let keyed = |api: &Api| {
        api.ask("POST", "/api/v1/workloads").header("Idempotency-Key", "k").json(&json!({ "model": "chat" })).send()
    };
    assert_ne!(keyed(&own).is(201).id(), keyed(&other).is(201).id());
}

#[test]
fn admins_and_viewers_see_all_work_and_only_admins_end_it() {
    let mut house = House::new(&[]);
    let own = house.gateway("own", json!({}));
    let id = own.lease("chat").is(201).id();
    house.agent.obey_all();
    let viewer = house.viewer();
    assert_eq!(viewer.state(&id), "running");
    assert_eq!(viewer.cancel(&id).status, 403);
    let shown = house.admin.workload(&id);
    assert!(shown["owner"].as_str().unwrap().starts_with("token:"), "{shown}");
    let _ = house.admin.cancel(&id).is(200);
    assert_eq!(own.state(&id), "cancelled", "its owner sees what became of it");
}

#[test]
fn events_of_another_gateways_work_are_not_heard() {
    let mut house = House::new(&[]);
    let (own, other) = (house.gateway("own", json!({})), house.gateway("other", json!({})));
    let mut heard = other.ask("GET", "/api/v1/scheduler/events").stream();
    let theirs = own.lease("chat").is(201).id();
    house.agent.obey_all();
    let _ = own.cancel(&theirs).is(200);
    let mine = other.lease("chat").is(201).id();
    // The own one comes last: whatever was to be heard of the others' was heard before it.
    let mut seen = String::new();
    while !seen.contains(&mine) {
        seen += &heard.next().expect("the stream goes on").data.to_string();
    }
    assert!(!seen.contains(&theirs), "{seen}");
}

#[test]
fn tokens_of_one_tenant_share_their_work_and_name_no_other_tenant() {
    let house = House::new(&[]);
    let [one, two] = ["one", "two"].map(|name| house.gateway(name, json!({ "tenant": "acme" })));
    let stranger = house.gateway("stranger", json!({}));
    let id = one.lease("chat").is(201).id();
    assert_eq!(two.workload(&id)["tenant"], "acme");
    assert_eq!(stranger.get(&format!("/api/v1/workloads/{id}")).status, 404);
    for (api, tenant) in [(&one, "other"), (&stranger, "acme")] {
        let refused = api.post("/api/v1/workloads", &json!({ "model": "chat", "tenant": tenant }));
        assert_eq!((refused.status, refused.code()), (403, "over_limit"), "{}", refused.text);
        assert_eq!(refused.body["field"], "tenant");
    }
    let _ = two.cancel(&id).is(200);
}

#[test]
fn a_gateway_has_no_more_than_it_may() {
    let mut house = House::new(&["tokens.queued=3"]);
    let limits = json!({ "limits": { "running": 1, "priority": 5, "job_args_bytes": 8 } });
    let (usual, limited) = (house.gateway("usual", json!({})), house.gateway("limited", limits));
    let submit = |api: &Api, body: Value| api.post("/api/v1/workloads", &body);
    // Priorities: 0 unless the token says more; less is always fine.
    for (api, priority, status) in
        [(&usual, i32::MAX, 403), (&usual, 1, 403), (&usual, -7, 201), (&limited, 6, 403), (&limited, 5, 429)]
    {
        if status == 429 {
            house.agent.obey_all();
        }
        let reply = submit(api, json!({ "model": "chat", "priority": priority }));
        if status == 429 {
            // It is placed or waits by what else is there; what counts is that its priority was no reason.
            assert!(matches!(reply.status, 201 | 429), "{}", reply.text);
        } else {
            assert_eq!(reply.status, status, "{priority}: {}", reply.text);
        }
    }
    let job = |args: &[&str]| json!({ "model": "train", "kind": "job", "job": { "args": args } });
    let refused = submit(&limited, job(&["123456789"]));
    assert_eq!((refused.status, refused.code(), &refused.body["field"]), (403, "over_limit", &json!("job.args")));

    // The queue: three wait, the fourth is refused, and another gateway notices nothing.
    let mut waiting = Vec::new();
    let refused = loop {
        let reply = submit(&usual, json!({ "model": "chat" }));
        if reply.status != 201 {
            break reply;
        }
        waiting.push(reply.id());
        assert!(waiting.len() < 10, "there is no end to it");
    };
    assert_eq!((refused.status, refused.code()), (429, "owner_limit"), "{}", refused.text);
    assert!(refused.header("retry-after").is_some());
    assert!(refused.text.contains('3'), "{}", refused.text);
    assert_eq!(submit(&house.gateway("third", json!({})), json!({ "model": "chat" })).status, 201);
    assert_eq!(
        submit(&house.admin, json!({ "model": "chat", "priority": i32::MAX })).status,
        201,
        "admins have no limits"
    );
    // What ends makes room again.
    let _ = usual.cancel(waiting.last().unwrap()).is(200);
    let _ = submit(&usual, json!({ "model": "chat" })).is(201);
}

#[test]
fn limits_count_after_a_restart_too() {
    let mut house = House::new(&["tokens.queued=2"]);
    let gateway = house.gateway("gateway", json!({}));
    let ids: Vec<String> = (0..3).map(|_| gateway.lease("chat").is(201).id()).collect();
    assert_eq!(gateway.lease("chat").is(429).code(), "owner_limit");
    house.server.kill();
    house.server.restart();
    assert_eq!(gateway.lease("chat").is(429).code(), "owner_limit", "after a replay");
    let _ = gateway.cancel(&ids[2]).is(200);
    let _ = gateway.lease("chat").is(201);
    assert_eq!(gateway.lease("chat").is(429).code(), "owner_limit");
}
