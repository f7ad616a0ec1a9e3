//! What other programs build on: the JSON of answers, and its description.
#![expect(clippy::unwrap_used, reason = "tests")]

use berth_domain::{
    Bytes, DecisionId, DeviceUuid, Endpoint, Generation, GpuCount, GpuName, MachineId, Millicores, ModelName,
    ModelRevision, Placement, Revision, RunnerId, SlotId, SlotState, Timestamp, WorkloadId,
};
use berth_wire as wire;
use serde_json::Value;
use utoipa::OpenApi;
use uuid::Uuid;

fn time(seconds: u64) -> wire::Time {
    wire::Time(Timestamp::from_millis(1_769_851_800_000 + seconds * 1000))
}

fn slot_id() -> SlotId {
    SlotId::new(Uuid::from_u128(7))
}

fn runner() -> RunnerId {
    RunnerId::new("gpu-box-1").unwrap()
}

fn device() -> DeviceUuid {
    DeviceUuid::new("GPU-a").unwrap()
}

fn model() -> ModelName {
    ModelName::new("qwen3:8b").unwrap()
}

fn balance() -> wire::MemoryBalance {
    wire::MemoryBalance {
        capacity_bytes: Bytes::gib(80),
        held_bytes: Bytes::gib(60),
        free_bytes: Bytes::gib(20),
        ..wire::MemoryBalance::default()
    }
}

/// Prints a body, after it came back the same.
fn shown<T>(body: &T) -> String
where
    T: serde::Serialize + serde::de::DeserializeOwned + PartialEq + std::fmt::Debug,
{
    let text = serde_json::to_string_pretty(body).unwrap();
    assert_eq!(serde_json::from_str::<T>(&text).unwrap(), *body);
    text
}

#[test]
fn a_slot_as_operators_read_it() {
    let gpu = wire::SlotGpu {
        uuid: device(),
        index: Some(0),
        bytes: Bytes::gib(60),
        phase: wire::ClaimPhase::Held,
        observed_bytes: Some(Bytes::gib(59)),
    };
    let slot = wire::Slot {
        id: slot_id(),
        generation: Generation::new(1),
        model: Some(model()),
        model_revision: ModelRevision::new(2),
        runner_id: runner(),
        state: SlotState::Ready,
        since: time(9),
        gpu_allocation: wire::GpuAllocation::new(vec![gpu]),
        endpoint: Some(Endpoint::new("10.0.0.7:41001").unwrap()),
        active: 0,
        concurrency: 4,
        created: time(0),
        idle_since: Some(time(30)),
        reason: None,
        stalled: false,
    };
    insta::assert_snapshot!("slot", shown(&slot));
}

#[test]
fn a_ledger_as_operators_read_it() {
    let device = wire::DeviceLedger {
        runner_ids: vec![runner()],
        uuid: device(),
        index: Some(0),
        name: GpuName::new("H100").unwrap(),
        parent_uuid: None,
        replicas: 1,
        balance: balance(),
        state: wire::DeviceState::Open,
        overcommitted: false,
        sizes_differ: false,
        attributed: true,
        claims: vec![wire::DeviceClaim { slot_id: slot_id(), phase: wire::ClaimPhase::Held, bytes: Bytes::gib(60) }],
    };
    let host = wire::HostLedger {
        machine_id: MachineId::new("m1").unwrap(),
        runner_ids: vec![runner()],
        cpu: wire::CpuBalance {
            capacity_millicores: Millicores::new(8000),
            free_millicores: Millicores::new(8000),
            ..wire::CpuBalance::default()
        },
        ram: wire::MemoryBalance::default(),
    };
    let ledger = wire::Ledger { revision: Revision::new(17), devices: vec![device], hosts: vec![host] };
    insta::assert_snapshot!("ledger", shown(&ledger));
}

fn judgement() -> wire::Judgement {
    wire::Judgement {
        model: model(),
        outcome: wire::Outcome::Waiting,
        code: "full_now".to_owned(),
        text: "waiting (full_now): too little GPU memory is free now".to_owned(),
        runner_id: None,
        slot_id: None,
        placement: Placement::Spread,
        gpu_counts: vec![wire::CountTried {
            count: GpuCount::new(1),
            needed_bytes: Bytes::gib(40),
            whole: false,
            verdict: "no_room".to_owned(),
            text: None,
        }],
        devices: vec![wire::DeviceRow {
            uuid: device(),
            runner_id: runner(),
            index: 0,
            before: balance(),
            after: None,
            needed_bytes: Bytes::gib(40),
            whole: false,
            verdict: "short".to_owned(),
            missing_bytes: Some(Bytes::gib(20)),
            claims: vec![],
        }],
        evictions: vec![],
        counts: [("gpu_memory".to_owned(), 1)].into(),
        lacks: vec![],
        runners: 1,
        examined: 1,
        help: vec!["slot 7 qwen3:8b ends and gives back 60 GiB".to_owned()],
    }
}

#[test]
fn a_decision_as_operators_read_it() {
    let decision = wire::Decision {
        id: DecisionId::new(3),
        time: time(1),
        revision: Revision::new(18),
        workload_id: Some(WorkloadId::new(Uuid::from_u128(9))),
        judgement: judgement(),
        duration_us: 41,
    };
    insta::assert_snapshot!("decision", shown(&decision));
}

#[test]
fn a_workload_as_gateways_read_it() {
    let workload = wire::Workload {
        may_run_twice: false,
        id: WorkloadId::new(Uuid::from_u128(9)),
        kind: berth_domain::WorkloadKind::Lease,
        model: model(),
        state: wire::WorkloadState::Queued,
        attempt: berth_domain::Attempt::new(1),
        priority: berth_domain::Priority::new(0),
        tenant: None,
        owner: None,
        position: Some(2),
        slot: None,
        reason: Some(wire::Reason::new("full_now", "too little GPU memory is free now")),
        created: time(0),
        revision: Revision::new(18),
        reserved_gpus: vec![],
        attempts: vec![],
    };
    insta::assert_snapshot!("workload", shown(&workload));
    let reason = wire::Reason::new("crashed", "its slot failed: it ended by itself, signal 11 (SIGSEGV)");
    let attempt = wire::PastAttempt {
        attempt: berth_domain::Attempt::new(1),
        slot_id: slot_id(),
        generation: Generation::new(1),
        runner_id: runner(),
        began: time(1),
        ran: Some(time(2)),
        ended: time(5),
        reason: reason.clone(),
        exit: Some(berth_domain::ExitStatus::Signal(11).into()),
        last_lines: vec!["loading".to_owned(), "assertion failed".to_owned()],
        hint: Some("look at the last lines".to_owned()),
    };
    let running = wire::Workload {
        state: wire::WorkloadState::Running,
        attempt: berth_domain::Attempt::new(2),
        position: None,
        reason: Some(reason.of_attempt(berth_domain::Attempt::new(1))),
        attempts: vec![attempt],
        ..workload
    };
    insta::assert_snapshot!("workload_after_a_failure", shown(&running));
}

#[test]
fn a_problem_as_programs_read_it() {
    let problem = wire::Problem::new(429, "queue_full", "Too Many Requests", "the queue is full: 10000 workloads wait")
        .with_retry_after_ms(1000);
    insta::assert_snapshot!("problem", shown(&problem));
}

#[test]
fn a_new_token_hides_its_secret_from_logs() {
    let about = wire::Token {
        id: wire::TokenId(Uuid::from_u128(5)),
        name: "gateway".parse().unwrap(),
        role: wire::Role::Submitter,
        runner_id: None,
        grant: None,
        tenant: None,
        limits: None,
        uses_left: None,
        expires: None,
        created: time(0),
        last_used: None,
    };
    let token = wire::NewToken { token: "berth_s3cret".to_owned(), about };
    assert!(shown(&token).contains("\"token\": \"berth_s3cret\""));
    assert!(!format!("{token:?}").contains("s3cret"));
}

#[test]
fn every_state_word_is_the_word_in_json() {
    for word in ["open", "mig_parent", "backing_off", "disputed"] {
        let state = wire::DeviceState::of_word(word).unwrap();
        assert_eq!(serde_json::to_value(state).unwrap(), word);
    }
    assert_eq!(wire::DeviceState::of_word("fine"), None);
    for state in [wire::WorkloadState::Queued, wire::WorkloadState::Cancelled] {
        assert_eq!(serde_json::to_value(state).unwrap(), state.as_str());
    }
}

#[derive(OpenApi)]
#[openapi(components(schemas(
    wire::SubmitRequest,
    wire::Workload,
    wire::HeartbeatRequest,
    wire::CompleteRequest,
    wire::ModelRequest,
    wire::Model,
    wire::ReportRequest,
    wire::ReportAnswer,
    wire::Desired,
    wire::Runner,
    wire::RunnerStatus,
    wire::ForgetRequest,
    wire::Slot,
    wire::ForceReleaseRequest,
    wire::Ledger,
    wire::Decision,
    wire::Fit,
    wire::Explanation,
    wire::QueueEntry,
    wire::Demand,
    wire::StreamEvent,
    wire::TokenRequest,
    wire::Token,
    wire::NewToken,
    wire::AuditEntry,
    wire::Health,
    wire::Ready,
    wire::Version,
    wire::LogLevel,
    wire::Problem,
)))]
struct Description;

/// Every `$ref` in the description.
fn references(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                if let (true, Some(text)) = (key == "$ref", value.as_str()) {
                    found.push(text.to_owned());
                }
                references(value, found);
            }
        }
        Value::Array(list) => list.iter().for_each(|value| references(value, found)),
        _ => {}
    }
}

#[test]
fn the_description_is_whole() {
    let description = serde_json::to_value(Description::openapi()).unwrap();
    let schemas = &description["components"]["schemas"];
    let mut found = Vec::new();
    references(&description, &mut found);
    assert!(found.len() > 50);
    for reference in found {
        let name = reference.strip_prefix("#/components/schemas/").unwrap();
        assert!(schemas.get(name).is_some(), "{name} is referred to and not described");
    }
    for (name, schema) in schemas.as_object().unwrap() {
        assert!(schema.get("description").is_some() || schema.get("allOf").is_some(), "{name} is not described");
    }
    assert_eq!(schemas["SubmitRequest"]["additionalProperties"], false, "requests are strict");
    assert_eq!(schemas["ModelName"]["maxLength"], 256);
    assert_eq!(schemas["SlotState"]["enum"][0], "promised");
    insta::assert_snapshot!("submit_schema", serde_json::to_string_pretty(&schemas["SubmitRequest"]).unwrap());
    insta::assert_snapshot!("memory_schema", serde_json::to_string_pretty(&schemas["ModelMemory"]).unwrap());
}
