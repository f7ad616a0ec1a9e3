//! What operators see: curl and jq, decisions with their numbers, explanations, logs, the record.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::process::Command;

use berth_tests::service::{Api, FakeAgent, GIB, Server, eventually};
use serde_json::{Value, json};

/// Megabytes, as drivers and people say.
const MB: u64 = 1_000_000;

/// Runs a line of shell with `$B` as the server's address, and reads what it prints as JSON values.
fn shell(api: &Api, line: &str) -> Vec<Value> {
    let output = Command::new("sh").args(["-ec", line]).env("B", api.base()).output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    serde_json::Deserializer::from_str(&text).into_iter::<Value>().map(Result::unwrap).collect()
}

/// The incident of P1: three models in order on two GPUs.
fn incident(api: &Api) -> (FakeAgent, Vec<String>) {
    let mut agent = FakeAgent::new(api, "gpu-box-1", &[80 * GIB, 80 * GIB]).registered();
    let models = [
        ("qwen3:30b", json!(79_982_566_400u64)),
        ("qwen3:8b", json!(15_767_897_088u64)),
        ("qwen2.5-vl", json!("39GiB")),
    ];
    let mut ids = Vec::new();
    for (model, memory) in models {
        api.model(model, json!({ "memory": memory }));
        ids.push(api.lease(model).is(201).id());
        agent.obey_all();
    }
    (agent, ids)
}

#[test]
fn o1_the_lines_of_operators_work_as_they_stand() {
    let server = Server::start();
    let api = server.api();
    let _ = incident(&api);
    let _ = FakeAgent::new(&api, "other", &[8 * GIB]).registered();

    let gpus = &shell(&api, "curl -s $B/api/v1/runners/gpu-box-1/status | jq '.gpus'")[0];
    assert_eq!(gpus.as_array().unwrap().len(), 2);
    assert_eq!(gpus[0]["memory_total_bytes"], 80 * GIB);
    for prefix in ["/api/v1", ""] {
        let decisions = shell(
            &api,
            &format!("curl -s $B{prefix}/scheduler/decisions | jq '.[] | select(.runner_id == \"gpu-box-1\")'"),
        );
        let placed: Vec<&Value> = decisions.iter().filter(|decision| decision["outcome"] == "placed").collect();
        let models: Vec<&str> = placed.iter().map(|decision| decision["model"].as_str().unwrap()).collect();
        assert_eq!(models, ["qwen3:30b", "qwen3:8b", "qwen2.5-vl"]);
        let slots = shell(
            &api,
            &format!(
                "curl -s $B{prefix}/scheduler/slots | jq '.[] | select(.runner_id == \"gpu-box-1\") | {{id, model, gpu_allocation, created}}'"
            ),
        );
        assert_eq!(slots.len(), 3);
        for slot in &slots {
            assert!(["id", "model", "gpu_allocation", "created"].iter().all(|name| !slot[name].is_null()), "{slot}");
            assert_eq!(slot["gpu_allocation"]["gpu_count"], 1);
        }
        let on = |model: &str| {
            let slot = slots.iter().find(|slot| slot["model"] == model).unwrap();
            slot["gpu_allocation"]["gpus"][0]["uuid"].clone()
        };
        assert_ne!(on("qwen3:30b"), on("qwen3:8b"), "P1: the first is alone");
        assert_eq!(on("qwen3:8b"), on("qwen2.5-vl"));
    }
}

#[test]
fn o2_a_decision_shows_every_gpu_that_mattered_before_and_after() {
    let server = Server::start();
    let api = server.api();
    let (_agent, ids) = incident(&api);
    let decisions = api.get(&format!("/scheduler/decisions?workload_id={}", ids[2])).is(200);
    let decision = &decisions.rows()[0];
    assert_eq!((&decision["outcome"], &decision["code"]), (&json!("placed"), &json!("placed")));
    assert_eq!(decision["model"], "qwen2.5-vl");
    assert_eq!(decision["runner_id"], "gpu-box-1");
    let needed = 39 * GIB;
    let counts = decision["gpu_counts"].as_array().unwrap();
    assert_eq!(
        (&counts[0]["count"], &counts[0]["needed_bytes"], &counts[0]["verdict"]),
        (&json!(1), &json!(needed), &json!("chosen"))
    );

    let rows = decision["devices"].as_array().unwrap();
    assert_eq!(rows.len(), 2, "a row for each GPU");
    let row = |held: u64| rows.iter().find(|row| row["before"]["held_bytes"] == held).unwrap();
    let (full, chosen) = (row(79_982_566_400), row(15_767_897_088));
    assert_eq!(chosen["verdict"], "chosen");
    assert_eq!(chosen["needed_bytes"], needed);
    assert_eq!(chosen["before"]["capacity_bytes"], 80 * GIB);
    assert_eq!(chosen["before"]["free_bytes"], 80 * GIB - 15_767_897_088);
    assert_eq!(chosen["after"]["held_bytes"], 15_767_897_088 + needed);
    assert_eq!(chosen["after"]["free_bytes"], 80 * GIB - 15_767_897_088 - needed);
    assert_eq!(full["verdict"], "short", "{full}");
    assert_eq!(full["before"]["free_bytes"], 80 * GIB - 79_982_566_400);
    assert_eq!(full["missing_bytes"], needed - (80 * GIB - 79_982_566_400));
    assert!(full["after"].is_null());
    let text = decision["text"].as_str().unwrap();
    assert!(text.contains("qwen2.5-vl") && text.contains("gpu-box-1"), "{text}");
}

#[test]
fn o3_an_explanation_names_memory_first_with_all_its_numbers() {
    let server = Server::start();
    let api = server.api();
    let mut agent = FakeAgent::new(&api, "slices", &[]);
    let replica = |number: u64| json!({ "uuid": format!("GPU-one::{number}"), "index": 0, "name": "NVIDIA L40S", "memory_total_bytes": 32_600 * MB });
    agent.about["gpus"] = (0..100).map(replica).collect();
    let mut agent = agent.registered();
    api.model("eight", json!({ "memory": "8000MB" }));
    let ids: Vec<String> = (0..5).map(|_| api.job("eight").is(201).id()).collect();
    agent.obey_all();
    let states: Vec<String> = ids.iter().map(|id| api.state(id)).collect();
    assert_eq!(states, ["running", "running", "running", "running", "queued"], "a replica is a name, not memory");

    let why = api.get(&format!("/api/v1/workloads/{}/explain", ids[4])).is(200).body;
    assert_eq!((&why["outcome"], &why["code"], &why["position"]), (&json!("waiting"), &json!("full_now"), &json!(1)));
    let row = &why["devices"][0];
    assert_eq!(row["uuid"], "GPU-one");
    assert_eq!(row["before"]["capacity_bytes"], 32_600 * MB);
    assert_eq!(row["before"]["held_bytes"], 32_000 * MB);
    assert_eq!(row["before"]["free_bytes"], 600 * MB);
    assert_eq!(
        (&row["needed_bytes"], &row["verdict"], &row["missing_bytes"]),
        (&json!(8000 * MB), &json!("short"), &json!(7400 * MB))
    );
    let claims = row["claims"].as_array().unwrap();
    assert_eq!(claims.len(), 4);
    for claim in claims {
        assert_eq!(
            (&claim["model"], &claim["bytes"], &claim["busy"]),
            (&json!("eight"), &json!(8000 * MB), &json!(true))
        );
    }
    assert_eq!(why["counts"], json!({ "gpu_memory": 1 }));
    let text = why["text"].as_str().unwrap();
    let first = text.lines().next().unwrap();
    assert!(first.contains("memory"), "memory comes first: {first}");
    assert!(!why["help"].as_array().unwrap().is_empty(), "it says what would help: {why}");
    assert_eq!(why["decisions"].as_array().unwrap().len(), 1);
}

/// The lines of a log that speak of something, without their time.
fn lines<'a>(log: &'a str, about: &str) -> Vec<&'a str> {
    log.lines().filter(|line| line.contains(about)).collect()
}

#[test]
fn o4_the_log_tells_the_story_of_a_workload_in_order() {
    let server = Server::with(&["log.filter=debug"]);
    let api = server.api();
    let mut agent = FakeAgent::new(&api, "box", &[80 * GIB, 80 * GIB]).registered();
    api.model("big", json!({ "memory": "60GiB", "max_replicas": 1 }));
    let first = api.lease("big").is(201).id();
    agent.obey_all();
    let story = api.lease("big").is(201).id();
    let _ = api.complete(&first, 1).is(200);
    let _ = api.complete(&story, 1).is(200);
    let job = api.job("big").is(201).id();
    let log = eventually("all of it is in the log", || {
        let log = server.log();
        let has = |id: &str, what: &str| lines(&log, id).iter().any(|line| line.contains(what));
        (has(&story, "succeeded") && has(&job, "outcome=\"")).then_some(log)
    });
    let told = lines(&log, &story);
    let at = |what: &str| {
        told.iter().position(|line| line.contains(what)).unwrap_or_else(|| panic!("no {what} in {told:#?}"))
    };
    assert!(at("replica_limit") < at("reused") && at("reused") < at("succeeded"), "{told:#?}");
    // One line at info for each decision that gives work a slot, and for each about a job.
    let decisions: Vec<&str> =
        lines(&log, "berth::decision").into_iter().filter(|line| line.contains("outcome=")).collect();
    assert_eq!(decisions.len(), 4, "one line for each decision: {decisions:#?}");
    for line in &decisions {
        let level = if line.contains("replica_limit") { " DEBUG " } else { "  INFO " };
        assert!(line.contains(level), "{line}");
    }
    let rows: Vec<&str> = log.lines().filter(|line| line.contains("capacity=")).collect();
    assert!(!rows.is_empty() && rows.iter().all(|line| line.contains(" DEBUG ")), "rows are for those who debug");
}

#[test]
fn o4_the_level_is_changed_while_it_runs() {
    let server = Server::with(&["log.format=json"]);
    let api = server.api();
    let mut agent = FakeAgent::new(&api, "box", &[80 * GIB, 80 * GIB]).registered();
    api.model("big", json!({ "memory": "60GiB" }));
    assert_eq!(api.get("/api/v1/log-level").is(200).body["filter"], "info");
    let quiet = api.lease("big").is(201).id();
    agent.obey_all();
    let set = api.put("/api/v1/log-level", &json!({ "filter": "info,berth::decision=debug" })).is(200);
    assert!(set.body["filter"].as_str().unwrap().contains("berth::decision=debug"));
    let loud = api.lease("big").is(201).id();
    let rows = |id: &str| -> Vec<Value> {
        let log = server.log();
        let parsed = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap_or_else(|_| panic!("{line}")));
        parsed.filter(|line| line["workload"] == id && !line["device"].is_null()).collect()
    };
    let seen = eventually("the rows of a decision", || Some(rows(&loud)).filter(|rows| rows.len() == 2));
    let chosen = seen.iter().find(|row| row["verdict"] == "chosen").unwrap();
    assert_eq!(chosen["level"], "DEBUG");
    assert_eq!(
        (&chosen["capacity"], &chosen["free"], &chosen["needed"]),
        (&json!(80 * GIB), &json!(80 * GIB), &json!(60 * GIB))
    );
    assert_eq!(chosen["free_after"], 20 * GIB);
    assert_eq!(rows(&quiet).len(), 0, "before that there were none");
    let _ = api.put("/api/v1/log-level", &json!({ "filter": "berth=nonsense" })).is(422);
}

#[test]
fn every_change_by_a_person_is_on_record() {
    let mut server = Server::start();
    let open = server.api();
    let admin = open.with_token(&open.token("ops", "admin", None));
    let agent = |id: &str| {
        let token = admin.token(id, "runner", Some(id));
        FakeAgent::new(&open.with_token(&token), id, &[80 * GIB]).registered()
    };
    let (mut worker, mut old) = (agent("box"), agent("old-box"));
    admin.model("chat", json!({ "memory": "20GiB" }));
    let _ = admin.lease("chat").is(201);
    worker.obey_all();
    let slot = worker.slots.keys().next().unwrap().clone();
    let post = |path: &str, status: u16| drop(admin.ask("POST", path).send().is(status));
    post("/api/v1/runners/box/cordon", 200);
    post("/api/v1/runners/box/uncordon", 200);
    post("/api/v1/devices/GPU-box-0/cordon", 200);
    post("/api/v1/devices/GPU-box-0/uncordon", 200);
    post("/api/v1/runners/nobody/cordon", 404);
    let _ = admin.delete(&format!("/scheduler/slots/{slot}")).is(202);
    let reason = json!({ "reason": "I pulled the plug" });
    let _ = admin.post(&format!("/scheduler/slots/{slot}/force-release"), &reason).is(204);
    post("/api/v1/runners/old-box/drain?deadline=1s", 200);
    eventually("old-box is drained", || {
        old.obey();
        (admin.get("/api/v1/runners/old-box").body["admission"] == "drained").then_some(())
    });
    let _ = admin.ask("DELETE", "/api/v1/runners/old-box").json(&json!({ "reason": "sold" })).send().is(204);
    let _ = admin.put("/api/v1/log-level", &json!({ "filter": "debug" })).is(200);
    let _ = admin.delete("/api/v1/models/chat").is(204);
    let token = admin.post("/api/v1/tokens", &json!({ "name": "brief", "role": "viewer" })).is(201);
    let _ = admin.delete(&format!("/api/v1/tokens/{}", token.id())).is(204);

    let record = admin.get("/api/v1/audit").is(200);
    let told: Vec<String> = record
        .rows()
        .iter()
        .map(|row| {
            ["by", "action", "target", "outcome", "reason"].map(|name| row[name].as_str().unwrap_or("-")).join(" | ")
        })
        .collect();
    let expected = [
        "local | create_token | admin ops | done | -".to_owned(),
        "ops | create_token | runner box | done | -".to_owned(),
        "ops | create_token | runner old-box | done | -".to_owned(),
        "ops | put_model | chat | done | -".to_owned(),
        "ops | submit | chat | done | -".to_owned(),
        "ops | cordon | box | done | -".to_owned(),
        "ops | uncordon | box | done | -".to_owned(),
        "ops | cordon_device | GPU-box-0 | done | -".to_owned(),
        "ops | uncordon_device | GPU-box-0 | done | -".to_owned(),
        "ops | cordon | nobody | unknown_runner | -".to_owned(),
        format!("ops | stop_slot | {slot} | done | -"),
        format!("ops | force_release | {slot} | done | I pulled the plug"),
        "ops | drain | old-box | done | -".to_owned(),
        "ops | forget_runner | old-box | done | sold".to_owned(),
        "ops | set_log_level | debug | done | -".to_owned(),
        "ops | delete_model | chat | done | -".to_owned(),
        "ops | create_token | viewer brief | done | -".to_owned(),
        format!("ops | revoke_token | {} | done | -", token.id()),
    ];
    assert_eq!(told, expected);
    server.kill();
    server.restart();
    assert_eq!(admin.get("/api/v1/audit").is(200).body, record.body, "it outlives the server");
}
