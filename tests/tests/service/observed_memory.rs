//! What slots use beside what their model is charged.

use berth_tests::service::{Api, FakeAgent, GIB, Options, Server, eventually};
use serde_json::{Value, json};

fn memory(api: &Api, model: &str) -> Value {
    api.get(&format!("/api/v1/models/{model}")).is(200).body["charged"][0].clone()
}

/// A server that judges at once, and a runner with one lease of `model` that uses so much of its claim.
fn one_slot(model: Value, percent: u64) -> (Server, FakeAgent) {
    let server = Options::default().set(&["scheduler.judge_after=0s", "scheduler.backoff=10ms"]).start();
    let api = server.api();
    let mut agent = FakeAgent::new(&api, "box", &[80 * GIB]).registered();
    agent.uses_percent = percent;
    api.model("m", model);
    let _ = api.lease("m").is(201);
    agent.obey_all();
    let _ = agent.report().is(200);
    agent.uses_percent = 100;
    (server, agent)
}

#[test]
fn a_claim_that_is_too_low_is_shown_and_nothing_is_done() {
    let (server, mut agent) = one_slot(json!({ "memory": "20GiB", "gpu_counts": [1] }), 120);
    let api = server.api();
    let seen = memory(&api, "m");
    assert_eq!(seen["gpu_bytes"], json!([20 * GIB]));
    assert_eq!(seen["observed"]["peak_bytes"], json!([20 * GIB / 100 * 120]));
    assert_eq!(
        (&seen["observed"]["verdict"], &seen["observed"]["drift_percent"]),
        (&json!("under_estimated"), &json!(20))
    );
    assert!(seen["observed"]["offered_bytes"][0].as_u64().unwrap() > 25 * GIB);
    let metrics = api.get("/metrics").is(200).text;
    assert!(
        metrics.contains("berth_model_memory_verdict{model=\"m\",gpus=\"1\",verdict=\"under_estimated\"} 1"),
        "{metrics}"
    );
    assert!(metrics.contains("berth_model_memory_bytes{model=\"m\",gpus=\"1\",part=\"peak\"}"), "{metrics}");
    for _ in 0..20 {
        let _ = agent.report().is(200);
    }
    let lines = || server.log().matches("m on one GPU is under_estimated").count();
    eventually("a warning", || (lines() > 0).then_some(()));
    assert_eq!(lines(), 1, "one line when the verdict changes, not one for each report");
}

#[test]
fn a_claim_that_is_too_high_is_learned_from_only_where_the_model_says_so() {
    for (learn, charged) in [(false, 20 * GIB), (true, 21 * GIB / 2)] {
        let model = json!({ "memory": { "total": "20GiB", "learn": learn }, "gpu_counts": [1] });
        let (server, _agent) = one_slot(model, 50);
        let seen = memory(&server.api(), "m");
        let now = seen["gpu_bytes"][0].as_u64().unwrap();
        assert!(now.abs_diff(charged) < 1000, "{seen}");
        assert_eq!(seen["observed"]["verdict"], if learn { "fits" } else { "over_estimated" });
        assert_eq!(seen["source"], if learn { "learned" } else { "stated" });
        let ledger = server.api().get("/scheduler/ledger").is(200).body;
        assert_eq!(ledger["devices"][0]["held_bytes"], 20 * GIB, "the claim that exists stays as it is");
    }
}

#[test]
fn out_of_memory_raises_the_next_claim_and_survives_a_kill() {
    let (mut server, mut agent) = one_slot(json!({ "memory": "20GiB", "gpu_counts": [1] }), 100);
    let api = server.api();
    for slot in agent.slots.values_mut() {
        (slot.state, slot.reason) = ("failed".to_owned(), Some("out_of_memory".to_owned()));
    }
    let _ = agent.report().is(200);
    let raised = memory(&api, "m");
    assert_eq!((&raised["gpu_bytes"], &raised["entry_bytes"]), (&json!([22 * GIB]), &json!([20 * GIB])));
    assert_eq!(raised["source"], "out_of_memory");
    server.kill();
    server.restart();
    assert_eq!(memory(&api, "m")["gpu_bytes"], json!([22 * GIB]), "it is in the journal");
    eventually("the next slot", || {
        agent.obey();
        let next = agent.slots.values().any(|slot| slot.claims.first().is_some_and(|claim| claim.1 == 22 * GIB));
        next.then_some(())
    });
    api.model("m", json!({ "memory": "21GiB", "gpu_counts": [1] }));
    assert_eq!(memory(&api, "m")["gpu_bytes"], json!([21 * GIB]), "a new revision begins anew");
}
