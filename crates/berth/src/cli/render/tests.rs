//! What people see, as snapshots.

use berth_domain::{
    Bytes, DeviceUuid, Endpoint, GpuCount, GpuName, MachineId, Millicores, ModelName, ModelRevision, Placement,
    Priority, Revision, RunnerId, SlotId, SlotState, Timestamp, WorkloadId, WorkloadKind,
};
use berth_wire as wire;
use uuid::Uuid;

use super::look::Look;
use super::{catalogue, fleet, ledger, records, work};

const NOW: u64 = 1_769_851_800_000;
const LOOK: Look = Look { colour: false, now: Timestamp::from_millis(NOW) };

fn ago(seconds: u64) -> wire::Time {
    wire::Time(Timestamp::from_millis(NOW - seconds * 1000))
}

fn model(name: &str) -> ModelName {
    ModelName::new(name).unwrap()
}

fn runner_id(id: &str) -> RunnerId {
    RunnerId::new(id).unwrap()
}

fn uuid(name: &str) -> DeviceUuid {
    DeviceUuid::new(name).unwrap()
}

fn workload_id(number: u128) -> WorkloadId {
    WorkloadId::new(Uuid::from_u128(0x0193_2c07_0000_7000_8000_0000_0000_0000 + number))
}

fn slot_id(number: u128) -> SlotId {
    SlotId::new(Uuid::from_u128(0x018f_3b1c_7c2e_7d41_0000_0000_0000_0000 + number))
}

/// Gibibytes of one account: capacity, held, releasing, promised, foreign, free.
fn gib([capacity, held, releasing, promised, foreign, free]: [u64; 6]) -> wire::MemoryBalance {
    wire::MemoryBalance {
        capacity_bytes: Bytes::gib(capacity),
        held_bytes: Bytes::gib(held),
        releasing_bytes: Bytes::gib(releasing),
        promised_bytes: Bytes::gib(promised),
        foreign_bytes: Bytes::gib(foreign),
        free_bytes: Bytes::gib(free),
    }
}

fn device(runner: &str, index: u16, balance: wire::MemoryBalance, state: wire::DeviceState) -> wire::DeviceLedger {
    wire::DeviceLedger {
        runner_ids: vec![runner_id(runner)],
        uuid: uuid(&format!("GPU-{runner}-{index}")),
        index: Some(index),
        name: GpuName::new("NVIDIA H100").unwrap(),
        parent_uuid: None,
        replicas: 1,
        balance,
        state,
        overcommitted: state == wire::DeviceState::Overcommitted,
        sizes_differ: false,
        attributed: true,
        claims: vec![wire::DeviceClaim {
            slot_id: slot_id(7),
            phase: wire::ClaimPhase::Held,
            bytes: balance.held_bytes,
        }],
    }
}

fn accounts() -> wire::Ledger {
    let shared = wire::DeviceLedger {
        runner_ids: vec![runner_id("a"), runner_id("b")],
        replicas: 100,
        attributed: false,
        ..device("a", 1, gib([80, 50, 0, 0, 1, 29]), wire::DeviceState::Open)
    };
    let cores = |number| Millicores::new(number);
    let host = wire::HostLedger {
        machine_id: MachineId::new("m1").unwrap(),
        runner_ids: vec![runner_id("a"), runner_id("b")],
        cpu: wire::CpuBalance {
            capacity_millicores: cores(16_000),
            held_millicores: cores(4500),
            free_millicores: cores(11_500),
            ..wire::CpuBalance::default()
        },
        ram: gib([64, 16, 16, 24, 0, 24]),
    };
    wire::Ledger {
        revision: Revision::new(4711),
        devices: vec![
            device("a", 0, gib([80, 0, 60, 40, 0, 20]), wire::DeviceState::Open),
            shared,
            device("c", 0, gib([80, 90, 0, 0, 0, 0]), wire::DeviceState::Overcommitted),
            device("c", 1, gib([80, 0, 0, 0, 0, 0]), wire::DeviceState::Cordoned),
            device("c", 2, gib([80, 20, 0, 0, 0, 0]), wire::DeviceState::Stale),
        ],
        hosts: vec![host],
    }
}

#[test]
fn the_ledger_is_drawn() {
    insta::assert_snapshot!("ledger", ledger::ledger(&accounts(), false, LOOK));
}

#[test]
fn the_ledger_shows_its_claims() {
    let text = ledger::ledger(&accounts(), true, LOOK);
    assert!(text.contains("slot 018f3b1c-7c2e-7d41-0000-000000000007  held  50 GiB"), "{text}");
}

#[test]
fn colours_change_nothing_but_colours() {
    let coloured = ledger::ledger(&accounts(), false, Look { colour: true, ..LOOK });
    insta::assert_snapshot!("ledger_in_colour", coloured.replace('\x1b', "ESC"));
}

#[test]
fn an_empty_ledger_says_so() {
    let text = ledger::ledger(&wire::Ledger::default(), false, LOOK);
    assert!(text.contains("no runner has registered"), "{text}");
}

fn workload(number: u128, state: wire::WorkloadState) -> wire::Workload {
    wire::Workload {
        may_run_twice: false,
        id: workload_id(number),
        kind: WorkloadKind::Lease,
        model: model("Qwen/Qwen2.5-VL-7B-Instruct"),
        state,
        attempt: berth_domain::Attempt::new(1),
        priority: Priority::new(0),
        tenant: None,
        owner: None,
        position: None,
        slot: None,
        reason: None,
        created: ago(75),
        revision: Revision::new(17),
        reserved_gpus: vec![],
        attempts: vec![],
    }
}

fn attempt(number: u32, lines: &[&str]) -> wire::PastAttempt {
    wire::PastAttempt {
        attempt: berth_domain::Attempt::new(number),
        slot_id: slot_id(u128::from(number)),
        generation: berth_domain::Generation::new(1),
        runner_id: runner_id("gpu-box-1"),
        began: ago(60),
        ran: (number == 1).then(|| ago(50)),
        ended: ago(45),
        reason: wire::Reason::new("crashed", "its slot failed: it ended by itself, signal 11 (SIGSEGV)"),
        exit: Some(berth_domain::ExitStatus::Signal(11).into()),
        last_lines: lines.iter().map(|line| (*line).to_owned()).collect(),
        hint: Some("read what it wrote: `berth logs ...`".to_owned()),
    }
}

#[test]
fn a_workload_that_failed_says_why_and_what_to_do() {
    let attempts = vec![attempt(1, &["first"]), attempt(2, &["loading", "assertion \x1b[31m failed"])];
    let failed = wire::Workload {
        attempt: berth_domain::Attempt::new(2),
        reason: Some(attempts[1].reason.clone()),
        attempts: attempts.clone(),
        ..workload(1, wire::WorkloadState::Failed)
    };
    insta::assert_snapshot!("workload_failed", work::workload(&failed, LOOK));
    let running = wire::Workload {
        attempt: berth_domain::Attempt::new(3),
        reason: Some(attempts[1].reason.clone().of_attempt(berth_domain::Attempt::new(2))),
        ..wire::Workload { state: wire::WorkloadState::Running, ..failed }
    };
    insta::assert_snapshot!("workloads_after_a_failure", work::workloads(&[running], LOOK));
    let mut explanation = explanation();
    explanation.attempts = vec![attempt(1, &[]), attempt(2, &["loading"])];
    insta::assert_snapshot!("explanation_after_failures", work::explanation(&explanation, LOOK));
    explanation.state = wire::WorkloadState::Failed;
    explanation.position = None;
    explanation.now.text = "it failed at ... (crashed): its slot failed".to_owned();
    insta::assert_snapshot!("explanation_of_a_failure", work::explanation(&explanation, LOOK));
}

#[test]
fn workloads_are_listed() {
    let slot = wire::WorkloadSlot {
        id: slot_id(7),
        runner_id: runner_id("gpu-box-1"),
        endpoint: Some(Endpoint::new("10.0.0.7:41001").unwrap()),
        gpus: vec![uuid("GPU-a"), uuid("GPU-b")],
    };
    let running = wire::Workload { slot: Some(slot), ..workload(1, wire::WorkloadState::Running) };
    let queued = wire::Workload {
        position: Some(12),
        priority: Priority::new(-5),
        kind: WorkloadKind::Job,
        model: model("trainer"),
        reason: Some(wire::Reason::new("full_now", "too little GPU memory is free now")),
        ..workload(2, wire::WorkloadState::Queued)
    };
    insta::assert_snapshot!("workloads", work::workloads(&[running.clone(), queued.clone()], LOOK));
    insta::assert_snapshot!("workload_running", work::workload(&running, LOOK));
    insta::assert_snapshot!("workload_queued", work::workload(&queued, LOOK));
    assert_eq!(work::workloads(&[], LOOK), "no workloads\n");
}

fn judgement() -> wire::Judgement {
    wire::Judgement {
        model: model("trainer"),
        outcome: wire::Outcome::Waiting,
        code: "full_now".to_owned(),
        text:
            "waiting (full_now): too little GPU memory is free now; 7.45 GiB needed\nGPU counts: 1 x 7.45 GiB no room;"
                .to_owned(),
        runner_id: None,
        slot_id: None,
        placement: Placement::Spread,
        gpu_counts: vec![],
        devices: vec![wire::DeviceRow {
            uuid: uuid("GPU-a"),
            runner_id: runner_id("gpu-box-1"),
            index: 0,
            before: gib([80, 60, 0, 0, 0, 20]),
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
        help: vec![],
    }
}

fn decision(id: u64) -> wire::Decision {
    wire::Decision {
        id: berth_domain::DecisionId::new(id),
        time: ago(9),
        revision: Revision::new(18),
        workload_id: Some(workload_id(2)),
        judgement: judgement(),
        duration_us: 41,
    }
}

#[test]
fn o3_an_explanation_begins_with_the_reason() {
    insta::assert_snapshot!("explanation", work::explanation(&explanation(), LOOK));
}

fn explanation() -> wire::Explanation {
    let text = "it waits (full_now): too little GPU memory is free now; it has waited for 1m 15s";
    wire::Explanation {
        workload_id: workload_id(2),
        state: wire::WorkloadState::Queued,
        position: Some(3),
        created: ago(75),
        now: wire::Now {
            code: "full_now".to_owned(),
            text: text.to_owned(),
            since: ago(75),
            until: None,
            attempt: berth_domain::Attempt::new(1),
            slot_id: None,
            runner_id: None,
            waited_ms: 75_000,
            failures: 0,
            most_failures: 3,
        },
        judgement: judgement(),
        attempts: vec![],
        decisions: vec![decision(1), decision(2)],
    }
}

#[test]
fn decisions_are_listed_with_their_numbers() {
    let placed = wire::Decision {
        judgement: wire::Judgement {
            outcome: wire::Outcome::Placed,
            code: "placed".to_owned(),
            runner_id: Some(runner_id("gpu-box-1")),
            slot_id: Some(slot_id(7)),
            ..judgement()
        },
        ..decision(12)
    };
    insta::assert_snapshot!("decisions", records::decisions(&[decision(1), placed.clone()], LOOK));
    insta::assert_snapshot!("decisions_in_full", records::decisions_in_full(&[decision(1), placed]));
    assert_eq!(records::decisions_in_full(&[]), "no decisions on record\n");
}

#[test]
fn slots_are_listed() {
    let gpu = |index: u16| wire::SlotGpu {
        uuid: uuid(&format!("GPU-{index}")),
        index: Some(index),
        bytes: Bytes::gib(37),
        phase: wire::ClaimPhase::Releasing,
        observed_bytes: (index == 0).then_some(Bytes::gib(36)),
    };
    let slot = wire::Slot {
        id: slot_id(7),
        generation: berth_domain::Generation::new(1),
        model: Some(model("qwen3:30b")),
        model_revision: ModelRevision::new(2),
        runner_id: runner_id("gpu-box-1"),
        state: SlotState::Stopping,
        since: ago(5),
        gpu_allocation: wire::GpuAllocation::new(vec![gpu(0), gpu(1)]),
        endpoint: None,
        active: 0,
        concurrency: 4,
        created: ago(7_380),
        idle_since: Some(ago(600)),
        reason: Some(wire::Reason::new("evicted", "others need its memory")),
        stalled: true,
    };
    let stray = wire::Slot { model: None, gpu_allocation: wire::GpuAllocation::default(), ..slot.clone() };
    insta::assert_snapshot!("slots", fleet::slots(&[slot.clone(), stray], LOOK));
    insta::assert_snapshot!("slot", fleet::slot(&slot, LOOK));
}

fn engine(version: Option<&str>, missing: &[&str]) -> wire::EngineReport {
    let missing = missing.iter().map(|&option| option.to_owned()).collect();
    wire::EngineReport { version: version.map(ToOwned::to_owned), missing, note: None }
}

fn runner() -> wire::Runner {
    wire::Runner {
        runtime_kinds: std::collections::BTreeMap::new(),
        allowed_args: std::collections::BTreeMap::new(),
        engines: [
            ("vllm".parse().unwrap(), engine(Some("0.32.0"), &[])),
            ("ollama".parse().unwrap(), engine(Some("0.1.2"), &["OLLAMA_KV_CACHE_TYPE"])),
        ]
        .into(),
        id: runner_id("gpu-box-1"),
        machine_id: MachineId::new("m1").unwrap(),
        incarnation: berth_domain::Incarnation::new(3),
        state: wire::RunnerState::Ready,
        admission: wire::RunnerAdmission::Draining,
        pool: berth_domain::PoolName::default_pool(),
        labels: [("zone".parse().unwrap(), "eu-1".parse().unwrap())].into(),
        runtimes: ["vllm".parse().unwrap(), "llama.cpp".parse().unwrap()].into(),
        version: "0.1.0 \x1b[31m".to_owned(),
        address: "10.0.0.7".to_owned(),
        host: wire::Host { cpu_millicores: Millicores::new(16_000), ram_bytes: Bytes::gib(64) },
        reported: true,
        barred: None,
        last_seen: Some(ago(3)),
        gpus: vec![uuid("GPU-0")],
        disputed: vec![],
        slots: vec![slot_id(7)],
        deadline: Some(ago(0)),
        desired_revision: Revision::new(3),
    }
}

#[test]
fn runners_are_listed() {
    let silent = wire::Runner {
        id: runner_id("b"),
        reported: false,
        admission: wire::RunnerAdmission::Open,
        last_seen: None,
        ..runner()
    };
    insta::assert_snapshot!("runners", fleet::runners(&[runner(), silent], LOOK));
    let status = wire::RunnerStatus {
        id: runner_id("gpu-box-1"),
        machine_id: MachineId::new("m1").unwrap(),
        boot_id: berth_domain::BootId::new("b1").unwrap(),
        incarnation: berth_domain::Incarnation::new(3),
        sequence: berth_domain::Sequence::new(99),
        received: ago(3),
        age_ms: 3000,
        state: wire::RunnerState::Ready,
        version: "0.1.0".to_owned(),
        host: wire::Host::default(),
        gpus: vec![wire::StatusGpu {
            uuid: uuid("GPU-0"),
            index: 0,
            name: GpuName::new("NVIDIA H100").unwrap(),
            replicas: 1,
            memory_total_bytes: Bytes::gib(80),
            memory_used_bytes: Bytes::gib(61),
            memory_reserved_bytes: Bytes::mib(500),
            utilization_percent: Some(37),
            parent_uuid: None,
            health: wire::GpuHealth::Ok,
            telemetry: wire::GpuTelemetry { temperature_celsius: Some(54), ..wire::GpuTelemetry::default() },
            ledger: Some(gib([80, 60, 0, 0, 1, 19])),
            state: wire::DeviceState::Open,
        }],
        links: vec![],
        slots: vec![],
    };
    insta::assert_snapshot!("runner", fleet::runner(&runner(), Some(&status), LOOK));
}

#[test]
fn memory_that_is_not_what_was_charged_is_noted() {
    let request = wire::ModelRequest {
        memory: Some(berth_domain::Memory::Total(Bytes::gib(20)).into()),
        gpu_counts: [1, 2].map(GpuCount::new).into(),
        ..wire::ModelRequest::new(berth_domain::RuntimeName::new("vllm").unwrap())
    };
    let mut row = wire::Model::of(&request.into_spec(model("m")).unwrap(), ModelRevision::new(1));
    row.charged[0].observed = Some(wire::ObservedMemory {
        peak_bytes: vec![Bytes::gib(24)],
        drift_percent: Some(20),
        verdict: "under_estimated".to_owned(),
        offered_bytes: Some(vec![Bytes::mib(25_805)]),
    });
    row.charged[1].entry_bytes = row.charged[1].gpu_bytes.replace(vec![Bytes::gib(11); 2]);
    row.charged[1].source = Some("out_of_memory".to_owned());
    let text = format!("{}\n{}", catalogue::models(std::slice::from_ref(&row), LOOK), catalogue::model(&row, LOOK));
    insta::assert_snapshot!("noted_memory", text);
}

#[test]
fn models_are_listed() {
    let read = |name: &str, text: &str| {
        let request: wire::ModelRequest = serde_json::from_str(text).unwrap();
        wire::Model::of(&request.into_spec(model(name)).unwrap(), ModelRevision::new(1))
    };
    let rows = [
        read("qwen3:8b", r#"{"runtime": "vllm", "memory": "14.685GiB", "concurrency": 8, "gpu_counts": [1, 2]}"#),
        read("wide", r#"{"runtime": "vllm", "memory": {"per_gpu": {"1": "74GiB", "2": ["44GiB", "40GiB"]}}}"#),
        read("half", r#"{"runtime": "vllm", "memory": {"fraction": 0.5}}"#),
        read("whole", r#"{"runtime": "vllm", "exclusive": true}"#),
        read("nobody-knows", r#"{"runtime": "vllm", "gpu_counts": [1]}"#),
        read("cpu", r#"{"runtime": "py", "gpu_counts": [0], "cpu_millicores": 500, "ram": "1GiB"}"#),
    ];
    insta::assert_snapshot!("models", catalogue::models(&rows, LOOK));
    insta::assert_snapshot!("model", catalogue::model(&rows[1], LOOK));
}

#[test]
fn the_queue_and_what_the_fleet_lacks_are_listed() {
    let entry = wire::QueueEntry {
        position: 1,
        workload_id: workload_id(2),
        model: model("trainer"),
        kind: WorkloadKind::Job,
        priority: Priority::new(10),
        tenant: None,
        attempt: berth_domain::Attempt::new(1),
        reason: wire::Reason::new("full_now", "too little GPU memory is free now"),
        created: ago(75),
        age_ms: 75_000,
    };
    insta::assert_snapshot!("queue", work::queue(&[entry], LOOK));
    let need = |count, bytes: &[u64]| wire::DemandNeed {
        gpu_count: GpuCount::new(count),
        gpu_bytes: bytes.iter().map(|gib| Bytes::gib(*gib)).collect(),
        whole: false,
    };
    let whole = |count, bytes: &[u64]| wire::DemandNeed { whole: true, ..need(count, bytes) };
    let demand = wire::Demand {
        model: model("trainer"),
        kind: WorkloadKind::Job,
        reason: wire::Reason::new("full_now", "too little GPU memory is free now"),
        waiting: 3,
        oldest: ago(4000),
        oldest_age_ms: 4_000_000,
        needs: vec![need(1, &[74]), need(2, &[44, 40]), need(4, &[]), whole(1, &[]), whole(2, &[24, 24])],
    };
    insta::assert_snapshot!("demand", work::demand(&[demand], LOOK));
}

#[test]
fn tokens_audit_and_events_are_listed() {
    let token = wire::Token {
        id: wire::TokenId(Uuid::from_u128(5)),
        name: "gpu-box-1".parse().unwrap(),
        role: wire::Role::Runner,
        runner_id: Some(runner_id("gpu-box-1")),
        grant: Some(wire::RunnerGrant {
            labels: [("zone".parse().unwrap(), "a".parse().unwrap())].into(),
            address: Some("10.7.0.0/16".parse().unwrap()),
            ..wire::RunnerGrant::default()
        }),
        tenant: None,
        limits: None,
        uses_left: None,
        created: ago(600),
        expires: Some(ago(0)),
        last_used: None,
    };
    insta::assert_snapshot!("tokens", records::tokens(&[token], "none", LOOK));
    let entry = wire::AuditEntry {
        time: ago(60),
        by: "ops".to_owned(),
        role: Some(wire::Role::Admin),
        action: "force_release".to_owned(),
        target: slot_id(7).to_string(),
        outcome: "done".to_owned(),
        revision: Some(Revision::new(40)),
        reason: Some("killed by hand".to_owned()),
    };
    insta::assert_snapshot!("audit", records::audit(&[entry], LOOK));
    let event = wire::StreamEvent {
        revision: Revision::new(41),
        time: ago(1),
        kind: "slot_released".to_owned(),
        workload_id: None,
        slot_id: Some(slot_id(7)),
        runner_id: None,
        device_uuid: None,
        model: None,
        machine_id: None,
        text: "slot 7 is proven gone\x1b]0;".to_owned(),
    };
    assert_eq!(
        records::event(&event),
        "41  2026-01-31T09:29:59.000Z  slot_released  slot 7 is proven gone\\u{1b}]0;\n"
    );
}
