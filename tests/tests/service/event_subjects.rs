//! Each event names the runner, slot, workload or model that it is about, in their text and in their fields.
#![expect(clippy::unwrap_used, reason = "tests")]

use berth_tests::service::{FakeAgent, GIB, Server, StreamedEvent};
use serde_json::json;

/// Everything that happens in the life of leases and a job whose slots crash, with a stray, a GPU that grows stale, and a
/// drain.
fn told() -> Vec<StreamedEvent> {
    let server = Server::with(&["scheduler.backoff=10ms"]);
    let api = server.api();
    let mut agent = FakeAgent::new(&api, "box", &[80 * GIB, 80 * GIB]).registered();
    api.model("chat", json!({ "memory": "20GiB", "gpu_counts": [1], "max_replicas": 1 }));
    api.model("train", json!({ "memory": "30GiB", "gpu_counts": [1] }));
    let first = api.lease("chat").is(201).id();
    let second = api.lease("chat").is(201).id();
    let job = api.job("train").is(201).id();
    agent.obey_all();
    let _ = api.complete(&first, 1).is(200);
    let _ = api.complete(&second, 1).is(200);
    let third = api.lease("chat").is(201).id();
    for workload in [&job, &third] {
        let slot = api.workload(workload)["slot"]["id"].as_str().unwrap().to_owned();
        agent.slots.get_mut(&slot).unwrap().reason = Some("crashed".to_owned());
        agent.say(&slot, "failed");
    }
    let _ = agent.report().is(200);
    agent.obey_all();
    agent.about["gpus"][1]["health"] = json!("stale");
    agent.about["gpus"][0]["memory_used_bytes"] = json!(5 * GIB);
    let _ = agent.report().is(200);
    agent.about["slots"] = json!([{
        "id": "0193aaaa-0000-7000-8000-000000000001", "generation": 1, "state": "ready",
        "claims": [{ "uuid": agent.uuid(0), "bytes": GIB }],
    }]);
    let _ = agent.report_as_is().is(200);
    let _ = api.ask("POST", "/api/v1/devices/GPU-box-0/cordon").send().is(200);
    let _ = api.ask("POST", "/api/v1/runners/box/drain?deadline=1h").send().is(200);
    agent.obey_all();
    let last: u64 = api.get("/healthz").header("berth-revision").unwrap().parse().unwrap();
    let mut events = api.ask("GET", "/scheduler/events?after=0").stream();
    events.by_ref().take(usize::try_from(last).unwrap()).collect()
}

#[test]
fn every_event_names_its_subject() {
    let events = told();
    let field = |event: &StreamedEvent, name: &str| event.data[name].as_str().unwrap_or_default().to_owned();
    for event in &events {
        let text = field(event, "text");
        let subjects = ["workload_id", "slot_id", "runner_id", "device_uuid", "model", "machine_id"];
        let named: Vec<String> = subjects.iter().map(|name| field(event, name)).filter(|id| !id.is_empty()).collect();
        assert!(event.kind == "started" || !named.is_empty(), "about nobody: {}", event.data);
        for id in &named {
            assert!(text.contains(id.as_str()), "{}: {id} is not in {text:?}", event.kind);
        }
        for word in ["it ", "its "] {
            assert!(!text.starts_with(word), "{}: who is {word:?} in {text:?}", event.kind);
        }
    }
    // A slot's events name its model and runner, to its end; a workload's events name its model.
    let is_released = |event: &&StreamedEvent| event.kind == "slot_released";
    for event in events.iter().filter(is_released) {
        let text = field(event, "text");
        assert!(text.starts_with(&format!("slot {} of ", field(event, "slot_id"))), "{text}");
    }
    for event in events.iter().filter(|event| event.kind.starts_with("slot_")) {
        assert_eq!(field(event, "runner_id"), "box", "{}", event.data);
        assert!(["chat", "train"].contains(&field(event, "model").as_str()), "{}", event.data);
    }
    for event in events.iter().filter(|event| event.kind.starts_with("workload_")) {
        assert!(["chat", "train"].contains(&field(event, "model").as_str()), "{}", event.data);
    }
    for event in events.iter().filter(|event| event.kind.starts_with("device_") || event.kind == "foreign_changed") {
        assert_eq!(field(event, "runner_id"), "box", "{}", event.data);
        assert!(field(event, "device_uuid").starts_with("GPU-box-"), "{}", event.data);
    }
    let kinds = [
        "slot_ready",
        "slot_failed",
        "slot_released",
        "workload_waits",
        "workload_assigned",
        "workload_ended",
        "workload_requeued",
        "device_health_changed",
        "foreign_changed",
        "device_cordoned",
        "stray_found",
    ];
    for kind in kinds {
        assert!(events.iter().any(|event| event.kind == kind), "no {kind} among {:?}", kinds_of(&events));
    }
}

fn kinds_of(events: &[StreamedEvent]) -> Vec<&str> {
    events.iter().map(|event| event.kind.as_str()).collect()
}
