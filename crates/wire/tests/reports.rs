//! Reports of agents: read leniently, with safe defaults.
#![expect(clippy::unwrap_used, reason = "tests")]

use berth_domain::{
    Bytes, DesiredAction, DeviceUuid, Evidence, ExitStatus, FailureReason, GpuHealth, ReasonText, ReportedState,
    RunnerId, RunnerReport, RuntimeKind, RuntimeName, Sequence, SlotEnd, WorkloadKind,
};
use berth_wire::body::read;
use berth_wire::{Desired, Invalid, PROTOCOL, ReportRequest};
use serde_json::{Value, json};

fn taken(body: &Value) -> Result<RunnerReport, Invalid> {
    read::<ReportRequest>(body.to_string().as_bytes()).unwrap().into_report(RunnerId::new("r1").unwrap())
}

fn slot(fields: &Value) -> Value {
    let mut slot = json!({"id": "018f3b1c-7c2e-7d41-0000-000000000007"});
    slot.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    json!({"machine_id": "m1", "boot_id": "b1", "slots": [slot]})
}

fn state(fields: &Value) -> ReportedState {
    taken(&slot(fields)).unwrap().slots.remove(0).state
}

#[test]
fn the_least_that_an_agent_can_say_is_taken() {
    let report = taken(&json!({"machine_id": "m1", "boot_id": "b1"})).unwrap();
    assert_eq!((report.incarnation, report.cluster, report.sequence), (None, None, Sequence::new(0)));
    assert_eq!(report.pool.as_str(), "default");
    assert!(report.gpus.is_empty() && report.slots.is_empty());
}

#[test]
fn b2_what_is_unknown_in_a_report_is_ignored() {
    let report = taken(&json!({
        "machine_id": "m1", "boot_id": "b1", "weather": "fine", "host": {"cpu_millicores": 8000, "swap_bytes": 1},
        "gpus": [{"uuid": "GPU-a", "name": "H100", "memory_total_bytes": 80, "fans": [1, 2]}],
        "slots": [{"id": "018f3b1c-7c2e-7d41-0000-000000000007", "state": "ready", "mood": "good"}],
    }))
    .unwrap();
    assert_eq!(report.host.cpu.get(), 8000);
    assert_eq!((report.gpus.len(), report.slots.len()), (1, 1));
}

#[test]
fn g1_a_replica_is_its_physical_device() {
    let gpus: Vec<Value> = (0..3)
        .map(|n| json!({"uuid": format!("GPU-a::{n}"), "name": "H100", "memory_total_bytes": "80GiB", "index": 0}))
        .collect();
    let report = taken(&json!({
        "machine_id": "m1", "boot_id": "b1", "gpus": gpus,
        "slots": [{"id": "018f3b1c-7c2e-7d41-0000-000000000007", "state": "ready",
            "claims": [{"uuid": "GPU-a::2", "bytes": 5}], "memory": [{"uuid": "GPU-a::1", "used_bytes": 7}]}],
    }))
    .unwrap();
    let physical = DeviceUuid::new("GPU-a").unwrap();
    assert!(report.gpus.iter().all(|gpu| gpu.uuid == physical && gpu.memory_total == Bytes::gib(80)));
    assert_eq!(report.slots[0].claims[0].uuid, physical);
    assert_eq!(report.slots[0].memory[0].uuid, physical);
    assert_eq!(report.slots[0].memory[0].peak, Bytes::new(7), "the peak is at least what is used");
}

#[test]
fn every_state_of_a_slot_is_told() {
    assert_eq!(state(&json!({"state": "starting"})), ReportedState::Starting);
    assert_eq!(state(&json!({"state": "refused"})), ReportedState::Refused);
    assert_eq!(state(&json!({"state": "exited", "exit_code": 3})), ReportedState::Exited { code: 3 });
    let failed = |why| ReportedState::Failed(why);
    assert_eq!(state(&json!({"state": "failed", "reason": "out_of_memory"})), failed(FailureReason::OutOfMemory));
    assert_eq!(state(&json!({"state": "failed", "reason": "something_new"})), failed(FailureReason::Crashed));
    assert_eq!(state(&json!({"state": "failed"})), failed(FailureReason::Crashed));
    let unknown = |why: &str| ReportedState::Unknown { why: ReasonText::new(why).unwrap() };
    assert_eq!(state(&json!({"state": "unknown", "detail": "another namespace"})), unknown("another namespace"));
    assert_eq!(state(&json!({"state": "unknown"})), unknown("the agent does not say why"));
    assert_eq!(state(&json!({"state": "asleep"})), unknown("the agent does not say why"), "a word of a later version");
}

#[test]
fn an_end_is_told_in_one_report() {
    let seen = json!({"tree_gone": true, "driver_clear": true});
    let gone = |why| ReportedState::Gone { why, evidence: Evidence::COMPLETE };
    for (fields, why) in [
        (json!({}), SlotEnd::Asked),
        (json!({"reason": "asked"}), SlotEnd::Asked),
        (json!({"reason": "no_trace"}), SlotEnd::NoTrace),
        (json!({"reason": "out_of_memory"}), SlotEnd::Failed(FailureReason::OutOfMemory)),
        (json!({"reason": "something_new"}), SlotEnd::Failed(FailureReason::Crashed)),
        (json!({"exit_code": 0}), SlotEnd::Exited(0)),
        (json!({"exit_code": 3, "reason": "crashed"}), SlotEnd::Exited(3)),
    ] {
        let mut body = json!({"state": "gone", "evidence": seen});
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        assert_eq!(state(&body), gone(why), "{body}");
    }
}

#[test]
fn what_a_runtime_is_for_is_told_and_both_where_it_is_not() {
    let report = taken(&json!({
        "machine_id": "m1", "boot_id": "b1", "runtimes": ["a", "b", "c", "d"],
        "runtime_kinds": {"a": "server", "b": "job", "c": "something_new", "e": "job"},
    }))
    .unwrap();
    let name = |text| RuntimeName::new(text).unwrap();
    let expected = [
        (name("a"), RuntimeKind::Server),
        (name("b"), RuntimeKind::Job),
        (name("c"), RuntimeKind::Both),
        (name("d"), RuntimeKind::Both),
    ];
    assert_eq!(report.runtimes, expected.into());
}

#[test]
fn r6_gone_without_evidence_is_no_proof() {
    let seen = |fields: Value| match state(&fields) {
        gone @ ReportedState::Gone { .. } => gone.is_proof(),
        other => unreachable!("{other:?}"),
    };
    assert!(!seen(json!({"state": "gone"})));
    assert!(!seen(json!({"state": "gone", "evidence": {}})));
    assert!(!seen(json!({"state": "gone", "evidence": {"tree_gone": true}})));
    assert!(seen(json!({"state": "gone", "evidence": {"tree_gone": true, "driver_clear": true}})));
}

#[test]
fn what_cannot_be_meant_names_its_field() {
    let field = |body: &Value| taken(body).unwrap_err().field;
    assert_eq!(field(&slot(&json!({"state": "exited"}))), "slots[0].exit_code");
    assert_eq!(
        field(&slot(&json!({"state": "ready", "claims": [{"uuid": "::3", "bytes": 1}]}))),
        "slots[0].claims[0].uuid"
    );
    let gpu = |gpu: Value| json!({"machine_id": "m1", "boot_id": "b1", "gpus": [gpu]});
    let sized = |uuid: &str| json!({"uuid": uuid, "name": "H100", "memory_total_bytes": 1});
    assert_eq!(field(&gpu(sized("../x"))), "gpus[0].uuid");
    assert_eq!(field(&json!({"machine_id": "m1", "boot_id": "b1", "version": "a\nb"})), "version");
    let negative = gpu(json!({"uuid": "GPU-a", "name": "H100", "memory_total_bytes": -1})).to_string();
    let said = read::<ReportRequest>(negative.as_bytes()).unwrap_err().to_string();
    assert!(said.starts_with("gpus[0].memory_total_bytes: "), "{said}");
}

#[test]
fn n13_a_health_that_nobody_knows_takes_nothing() {
    let gpu = json!({"uuid": "GPU-a", "name": "H100", "memory_total_bytes": 1, "health": "row_remapping"});
    let report = taken(&json!({"machine_id": "m1", "boot_id": "b1", "gpus": [gpu]})).unwrap();
    assert_eq!(report.gpus[0].health, GpuHealth::Stale);
}

#[test]
fn a_report_survives_the_way_out_and_in() {
    let mut report = taken(&json!({
        "incarnation": 3, "cluster_id": "018f3b1c-7c2e-7d41-9a55-0b8f6f1c2d3e", "machine_id": "m1", "boot_id": "b1",
        "sequence": 9, "version": "0.1", "address": "10.0.0.7", "pool": "big", "labels": {"zone": "eu-1"},
        "runtimes": ["train", "vllm"], "runtime_kinds": {"train": "job", "vllm": "server"}, "host": {"cpu_millicores": 8000, "ram_bytes": 1024},
        "gpus": [{"uuid": "MIG-1", "index": 2, "name": "1g.10gb", "memory_total_bytes": 10, "memory_used_bytes": 2,
            "memory_reserved_bytes": 1, "parent_uuid": "GPU-a", "health": "stale"}],
        "slots": [{"id": "018f3b1c-7c2e-7d41-0000-000000000007", "generation": 2, "model": "m", "state": "ready",
            "endpoint": "10.0.0.7:4001", "claims": [{"uuid": "MIG-1", "bytes": 5}],
            "memory": [{"uuid": "MIG-1", "used_bytes": 4, "peak_bytes": 6}]}],
    }))
    .unwrap();
    let states = [
        ReportedState::Starting,
        ReportedState::Ready,
        ReportedState::Stopping,
        ReportedState::Failed(FailureReason::PortTaken),
        ReportedState::Exited { code: -9 },
        ReportedState::Refused,
        ReportedState::Gone { why: SlotEnd::Asked, evidence: Evidence { tree_gone: true, driver_clear: false } },
        ReportedState::Gone { why: SlotEnd::Exited(0), evidence: Evidence::COMPLETE },
        ReportedState::Gone { why: SlotEnd::Failed(FailureReason::DeviceLost), evidence: Evidence::COMPLETE },
        ReportedState::Gone { why: SlotEnd::NoTrace, evidence: Evidence::COMPLETE },
        ReportedState::Unknown { why: ReasonText::new("/proc cannot be read").unwrap() },
    ];
    for state in states {
        report.slots[0].state = state;
        let body = serde_json::to_value(ReportRequest::from(report.clone())).unwrap();
        assert_eq!(body["protocol"], PROTOCOL, "every report says which protocol it is in");
        assert_eq!(taken(&body).unwrap(), report);
    }
    for exit in [ExitStatus::Code(-1), ExitStatus::Signal(9)] {
        report.slots[0].exit = Some(exit);
        let body = serde_json::to_value(ReportRequest::from(report.clone())).unwrap();
        assert_eq!(taken(&body).unwrap(), report);
    }
}

#[test]
fn how_a_program_ended_is_told_apart_or_by_the_exit_code_of_a_job() {
    let exit = |fields: Value| taken(&slot(&fields)).unwrap().slots[0].exit_status();
    let failed = |exit: Value| json!({"state": "failed", "reason": "crashed", "exit": exit});
    assert_eq!(exit(failed(json!({"code": 3}))), Some(ExitStatus::Code(3)));
    assert_eq!(exit(failed(json!({"signal": 9, "core": true}))), Some(ExitStatus::Signal(9)));
    assert_eq!(exit(failed(json!({}))), None);
    assert_eq!(exit(json!({"state": "failed"})), None);
    assert_eq!(exit(json!({"state": "exited", "exit_code": 4})), Some(ExitStatus::Code(4)));
    assert_eq!(exit(json!({"state": "gone", "exit_code": 4})), Some(ExitStatus::Code(4)));
    assert_eq!(exit(json!({"state": "gone"})), None);
}

#[test]
fn n8_an_agent_reads_what_a_newer_server_says() {
    let text = json!({
        "cluster_id": "018f3b1c-7c2e-7d41-9a55-0b8f6f1c2d3e", "epoch": 1, "revision": 9, "hint": "new",
        "slots": [{"id": "018f3b1c-7c2e-7d41-0000-000000000007", "generation": 1, "action": "run", "model": "m",
            "runtime": "vllm", "gpus": [{"uuid": "GPU-a", "memory_bytes": 5, "nvlink": 1}], "nice": 3}],
        "requests": [{"id": "018f3b1c-7c2e-7d41-0000-000000000009", "kind": "dance", "steps": [1, 2]}],
    });
    let desired: Desired = serde_json::from_value(text).unwrap();
    assert_eq!(desired.protocol, 1, "a server that does not say it speaks the first one");
    let slot: berth_domain::DesiredSlot = desired.slots[0].clone().into();
    assert_eq!(slot.gpus[0].memory_bytes, Bytes::new(5));
    assert_eq!(slot.run_spec().unwrap().kind, WorkloadKind::Lease);
    assert_eq!(berth_wire::DesiredSlot::from(slot), desired.slots[0]);
}

#[test]
fn a_stop_and_an_account_need_no_model_and_an_action_that_nobody_knows_is_refused() {
    let body = |action: &str| {
        json!({
            "cluster_id": "018f3b1c-7c2e-7d41-9a55-0b8f6f1c2d3e", "epoch": 1, "revision": 9, "protocol": PROTOCOL,
            "slots": [{"id": "018f3b1c-7c2e-7d41-0000-000000000007", "generation": 1, "action": action,
                "gpus": [{"uuid": "GPU-a", "memory_bytes": 5}]}],
        })
    };
    for (action, expected) in [("stop", DesiredAction::Stop), ("account", DesiredAction::Account)] {
        let desired: Desired = serde_json::from_value(body(action)).unwrap();
        let slot: berth_domain::DesiredSlot = desired.slots[0].clone().into();
        assert_eq!((&slot.action, slot.gpus.len()), (&expected, 1));
        let back = serde_json::to_value(berth_wire::DesiredSlot::from(slot)).unwrap();
        assert_eq!(back, body(action)["slots"][0]);
    }
    assert!(serde_json::from_value::<Desired>(body("dance")).is_err());
    assert!(serde_json::from_value::<Desired>(body("run")).is_err(), "what should run says how");
}
