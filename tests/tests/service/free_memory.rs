//! Free memory in listings: a GPU that takes nothing new offers none. Refusals carry their numbers.
#![expect(clippy::unwrap_used, reason = "tests")]

use berth_tests::service::{Api, FakeAgent, GIB, Options, Server, eventually};
use serde_json::{Value, json};

/// What each listing says is free on a GPU of the runner `box`: the ledger, the status, and the metrics.
fn free(api: &Api, uuid: &str) -> [(u64, String); 3] {
    let ledger = api.get("/scheduler/ledger").is(200).body;
    let device = ledger["devices"].as_array().unwrap().iter().find(|row| row["uuid"] == *uuid).unwrap().clone();
    let status = api.get("/api/v1/runners/box/status").is(200).body;
    let gpu = status["gpus"].as_array().unwrap().iter().find(|row| row["uuid"] == *uuid).unwrap().clone();
    let metrics = api.get("/metrics").is(200).text;
    let wanted = format!("berth_device_memory_bytes{{uuid=\"{uuid}\",part=\"free\"}} ");
    let number = metrics.lines().find_map(|line| line.strip_prefix(&wanted)).unwrap().parse().unwrap();
    let state = |row: &Value| row["state"].as_str().unwrap().to_owned();
    [
        (device["free_bytes"].as_u64().unwrap(), state(&device)),
        (gpu["ledger"]["free_bytes"].as_u64().unwrap(), state(&gpu)),
        (number, state(&device)),
    ]
}

fn everywhere(bytes: u64, state: &str) -> [(u64, String); 3] {
    [0; 3].map(|_| (bytes, state.to_owned()))
}

#[test]
fn a_gpu_that_takes_nothing_new_offers_nothing_in_any_listing() {
    let server = Server::start();
    let api = server.api();
    let mut agent = FakeAgent::new(&api, "box", &[80 * GIB]).registered();
    let uuid = agent.uuid(0);
    assert_eq!(free(&api, &uuid), everywhere(80 * GIB, "open"));
    for (health, state) in [("stale", "stale"), ("lost", "lost"), ("failed", "quarantined")] {
        agent.about["gpus"][0]["health"] = json!(health);
        let _ = agent.report().is(200);
        assert_eq!(free(&api, &uuid), everywhere(0, state));
        api.model("m", json!({ "memory": "10GiB", "gpu_counts": [1] }));
        let fit = api.post("/api/v1/models/m/fit", &json!(null)).is(200).body;
        assert_eq!(fit["devices"][0]["before"]["free_bytes"], 0, "{fit}");
        assert_eq!(fit["devices"][0]["verdict"], state, "{fit}");
    }
    agent.about["gpus"][0]["health"] = json!("ok");
    let _ = agent.report().is(200);
    assert_eq!(free(&api, &uuid), everywhere(80 * GIB, "open"));
    let _ = api.ask("POST", &format!("/api/v1/devices/{uuid}/cordon")).send().is(200);
    assert_eq!(free(&api, &uuid), everywhere(0, "cordoned"));
    let _ = api.ask("POST", &format!("/api/v1/devices/{uuid}/uncordon")).send().is(200);
    let _ = api.ask("POST", "/api/v1/runners/box/cordon").send().is(200);
    assert_eq!(free(&api, &uuid), everywhere(0, "runner_closed"));
    let _ = api.ask("POST", "/api/v1/runners/box/uncordon").send().is(200);
    assert_eq!(free(&api, &uuid), everywhere(80 * GIB, "open"));
}

#[test]
fn a_gpu_of_a_lost_runner_offers_nothing_in_any_listing() {
    let server = Options::default().set(&["scheduler.suspect_after=100ms", "scheduler.lost_after=200ms"]).start();
    let api = server.api();
    let agent = FakeAgent::new(&api, "box", &[80 * GIB]).registered();
    let uuid = agent.uuid(0);
    let mut others: Vec<FakeAgent> =
        ["a", "b", "c"].iter().map(|id| FakeAgent::new(&api, id, &[8 * GIB]).registered()).collect();
    eventually("box is lost", || {
        others.iter_mut().for_each(|agent| drop(agent.report()));
        (api.get("/api/v1/runners/box").is(200).body["state"] == "lost").then_some(())
    });
    assert_eq!(free(&api, &uuid), everywhere(0, "runner_closed"));
}

#[test]
fn a_refusal_says_what_is_needed_and_what_there_is_and_its_code_once() {
    let server = Server::start();
    let api = server.api();
    let _agent = FakeAgent::new(&api, "box", &[80 * GIB]).registered();
    let refused = |name: &str, about: Value| {
        api.model(name, about);
        let reply = api.lease(name).is(422);
        (reply.code().to_owned(), reply.body["detail"].as_str().unwrap().to_owned())
    };
    let huge = refused("huge", json!({ "memory": "500GiB", "gpu_counts": [1] }));
    let text = "model huge can never run here: it needs 500 GiB on one GPU; the largest is 80 GiB";
    assert_eq!(huge, ("never_fits".to_owned(), text.to_owned()));
    let whole = refused("whole", json!({ "memory": "100GiB", "exclusive": true, "gpu_counts": [1] }));
    assert!(whole.1.ends_with("it needs a whole GPU of at least 100 GiB; the largest is 80 GiB"), "{whole:?}");
    let runtime = refused("tgi", json!({ "memory": "5GiB", "runtime": "tgi" }));
    assert_eq!(runtime.0, "runtime_missing");
    assert!(runtime.1.ends_with("no runner has runtime tgi; runners have: vllm (1)"), "{runtime:?}");
    let pool = refused("pooled", json!({ "memory": "5GiB", "pool": "gpu-large" }));
    assert_eq!(pool.0, "no_matching_runner");
    assert!(pool.1.ends_with("pool gpu-large has no runner; pools: default (1)"), "{pool:?}");
    for (code, text) in [huge, whole, runtime, pool] {
        assert!(!text.contains(&code), "the code is a field of its own: {text}");
    }
    let fit = api.post("/api/v1/models/tgi/fit", &json!(null)).is(200).body;
    assert_eq!(
        fit["lacks"],
        json!([{
            "what": "runtime", "wanted": ["tgi"], "there": { "vllm": 1 },
            "text": "no runner has runtime tgi; runners have: vllm (1)",
        }])
    );
    let fit = api.post("/api/v1/models/huge/fit", &json!(null)).is(200).body;
    assert_eq!(
        (&fit["lacks"][0]["needed_bytes"], &fit["lacks"][0]["largest_bytes"]),
        (&json!(500 * GIB), &json!(80 * GIB))
    );
}

#[test]
fn work_that_waits_for_a_whole_gpu_is_told_so() {
    let server = Server::start();
    let api = server.api();
    let mut agent = FakeAgent::new(&api, "box", &[80 * GIB]).registered();
    api.model("small", json!({ "memory": "10GiB", "gpu_counts": [1] }));
    api.model("alone", json!({ "exclusive": true, "gpu_counts": [1] }));
    let _ = api.job("small").is(201);
    agent.obey_all();
    let waits = api.job("alone").is(201);
    assert_eq!(waits.body["reason"], json!({ "code": "full_now", "text": "no whole GPU is free now" }));
    let queue = api.get("/scheduler/queue").is(200).body;
    assert_eq!(queue[0]["reason"]["text"], "no whole GPU is free now");
    let demand = api.get("/scheduler/demand").is(200).body;
    assert_eq!(demand[0]["reason"]["text"], "no whole GPU is free now");
    assert_eq!(demand[0]["needs"], json!([{ "gpu_count": 1, "gpu_bytes": [], "whole": true }]));
    let why = api.get(&format!("/api/v1/workloads/{}/explain", waits.id())).is(200).body;
    let text = why["text"].as_str().unwrap();
    assert!(
        text.starts_with("waiting (full_now): no whole GPU is free now; a whole GPU needed, and the nearest"),
        "{text}"
    );
    assert_eq!((&why["devices"][0]["whole"], &why["gpu_counts"][0]["whole"]), (&json!(true), &json!(true)));
}
