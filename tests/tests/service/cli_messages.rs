//! What commands of people say about work that waits, about work that can never run, and about GPUs that offer nothing.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::process::Command;

use berth_tests::service::{Api, FakeAgent, GIB, Server, berth};
use serde_json::json;

/// How a command ended, what it said, and what it said beside that.
fn run(api: &Api, words: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(berth());
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("BERTH_")) {
        command.env_remove(name);
    }
    let output = command.args(["--server", &api.base()]).args(words).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

#[test]
fn the_command_line_says_stays_queued_only_of_queued_work() {
    let server = Server::start();
    let api = server.api();
    let mut agent = FakeAgent::new(&api, "box", &[80 * GIB]).registered();
    agent.starts_at_once = false;
    api.model("slow", json!({ "memory": "60GiB", "gpu_counts": [1], "min_run": "0s" }));
    api.model("next", json!({ "memory": "60GiB", "gpu_counts": [1] }));

    // Its slot starts, and goes on doing so.
    agent.obey_all();
    let (status, out, err) = run(&api, &["submit", "slow", "--wait", "200ms"]);
    assert_eq!(status, 6, "{err}");
    assert!(out.contains("assigned") && !err.contains("queued"), "{out}{err}");
    assert!(err.contains("is starting") && err.contains("on runner box"), "{err}");
    let started = api.get("/api/v1/workloads").is(200).rows()[0].clone();
    let (id, slot) = (started["id"].as_str().unwrap(), started["slot"]["id"].as_str().unwrap());
    assert!(err.contains(slot) && err.contains(&format!("berth cancel {id}")), "{err}");

    // The same for one that is looked at.
    let (status, _, err) = run(&api, &["workloads", id, "--wait", "200ms"]);
    assert_eq!(status, 6);
    assert!(err.contains("is starting") && !err.contains("queued"), "{err}");

    // This one is queued, and where and why is said.
    let (status, out, err) = run(&api, &["submit", "next", "--wait", "200ms"]);
    assert_eq!(status, 6);
    assert!(out.contains("queued"), "{out}");
    assert!(err.contains("it stays queued, at position 1: too little GPU memory is free now"), "{err}");

    // Memory that others still release is promised to it: it has a slot, and is not queued.
    agent.starts_at_once = true;
    agent.proves_at_once = false;
    agent.obey_all();
    let queued = api.get("/scheduler/queue").is(200).rows()[0]["workload_id"].as_str().unwrap().to_owned();
    let _ = api.complete(id, 1).is(200);
    agent.obey_all();
    let (status, _, err) = run(&api, &["workloads", &queued, "--wait", "200ms"]);
    assert_eq!(status, 6, "{err}");
    assert!(err.contains("waits for memory that others still release") && !err.contains("queued"), "{err}");

    // And once it has ended, nothing is said about waiting.
    let _ = api.cancel(&queued).is(200);
    let (status, _, err) = run(&api, &["workloads", &queued, "--wait", "200ms"]);
    assert_eq!((status, err.as_str()), (1, ""));
}

#[test]
fn fit_and_submit_name_what_is_missing() {
    let server = Server::start();
    let api = server.api();
    let mut agent = FakeAgent::new(&api, "box", &[80 * GIB]);
    agent.about["runtimes"] = json!(["llama-server"]);
    agent.about["labels"] = json!({ "zone": "a" });
    let _agent = agent.registered();
    let model = |name: &str, about: serde_json::Value| {
        let mut entry =
            json!({ "memory": "10GiB", "gpu_counts": [1], "runtime": "llama-server", "args": ["-m", "m.gguf"] });
        entry.as_object_mut().unwrap().extend(about.as_object().unwrap().clone());
        api.model(name, entry);
    };
    model("runtime", json!({ "runtime": "vllm", "args": [] }));
    model("label", json!({ "labels": { "zone": "b" } }));
    model("pool", json!({ "pool": "gpu-large" }));
    model("pin", json!({ "gpu_uuids": ["GPU-gone"] }));
    model("large", json!({ "memory": "500GiB" }));
    for (name, code, says) in [
        ("runtime", "runtime_missing", "no runner has runtime vllm; runners have: llama-server (1)"),
        ("label", "no_matching_runner", "no runner has label zone=b; runners have: zone=a (1)"),
        ("pool", "no_matching_runner", "pool gpu-large has no runner; pools: default (1)"),
        ("pin", "no_matching_runner", "no runner has the GPU GPU-gone that it is pinned to"),
        ("large", "never_fits", "it needs 500 GiB on one GPU; the largest is 80 GiB"),
    ] {
        let (status, out, _) = run(&api, &["fit", name]);
        assert_eq!(status, 1, "{out}");
        let first = out.lines().next().unwrap();
        assert_eq!(first, format!("refused ({code}): {name} can never run here: {says}"));
        assert!(!out.contains("no runner is that large"), "{out}");
        let (status, _, err) = run(&api, &["submit", name]);
        assert_eq!(status, 1, "{err}");
        assert_eq!(err, format!("error: model {name} can never run here: {says} ({code})\n"));
    }
}

#[test]
fn a_gpu_that_offers_nothing_is_drawn_so() {
    let server = Server::start();
    let api = server.api();
    let mut agent = FakeAgent::new(&api, "box", &[80 * GIB]).registered();
    agent.about["gpus"][0]["health"] = json!("stale");
    let _ = agent.report().is(200);
    let (status, out, _) = run(&api, &["ledger"]);
    assert_eq!(status, 0);
    let bar = out.lines().find(|line| line.contains("of 80 GiB")).unwrap();
    assert!(bar.contains("held 0 B, free 0 B of 80 GiB"), "{bar}");
    assert!(!bar.contains('.'), "nothing looks free: {bar}");
    let (_, out, _) = run(&api, &["runners", "box"]);
    let row = out.lines().find(|line| line.contains("GPU-box-0")).unwrap();
    assert!(row.trim_end().ends_with("0 B"), "{row}");
}

#[test]
fn demand_and_decisions_say_a_whole_gpu() {
    let server = Server::start();
    let api = server.api();
    let mut agent = FakeAgent::new(&api, "box", &[80 * GIB]).registered();
    api.model("small", json!({ "memory": "10GiB", "gpu_counts": [1] }));
    api.model("alone", json!({ "exclusive": true, "gpu_counts": [1] }));
    api.model("large", json!({ "exclusive": true, "memory": "48GiB", "gpu_counts": [1] }));
    let _ = api.job("small").is(201);
    agent.obey_all();
    let _ = (api.job("alone").is(201), api.job("large").is(201));
    let (_, out, _) = run(&api, &["demand"]);
    assert!(out.contains("1 x a whole GPU\n"), "{out}");
    assert!(out.contains("1 x a whole GPU of at least 48 GiB\n"), "{out}");
    let (_, out, _) = run(&api, &["decisions", "--model", "alone"]);
    assert!(out.contains("a whole GPU needed"), "{out}");
    let (_, out, _) = run(&api, &["queue"]);
    assert!(out.contains("no whole GPU is free now"), "{out}");
}
