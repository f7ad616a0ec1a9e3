//! Cases about runners that a scenario file cannot say: polls, late registrations, and what a runner is told.

#![expect(clippy::expect_used, reason = "a test that cannot set its scene has failed")]

use std::collections::BTreeMap;

use berth_core::{Answer, Command, Liveness, Refusal, Settings, State, step};
use berth_domain::*;
use uuid::Uuid;

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_millis(1_000_000 + seconds * 1000)
}

fn started() -> State {
    let mut state = State::new(Settings::default());
    let cluster = ClusterId::new(Uuid::from_u128(7));
    step(&mut state, &Command::Start { cluster }, at(0)).answer.expect("it starts");
    let memory = MemorySource::stated(Memory::Total(Bytes::gib(60)));
    let spec = ModelSpec::new(model(), RuntimeName::new("vllm").expect("a name"), memory);
    step(&mut state, &Command::PutModel { spec: Box::new(spec) }, at(0)).answer.expect("a model");
    state
}

fn model() -> ModelName {
    ModelName::new("m").expect("a name")
}

fn runner() -> RunnerId {
    RunnerId::new("r1").expect("a name")
}

/// A report of `r1`, with one GPU of 80 GiB and no slots.
fn report(incarnation: Option<u64>, sequence: u64, boot: &str) -> RunnerReport {
    let gpu = GpuReport {
        uuid: DeviceUuid::new("r1/0").expect("a name"),
        index: 0,
        name: GpuName::new("H100").expect("a name"),
        memory_total: Bytes::gib(80),
        memory_used: Bytes::ZERO,
        memory_reserved: Bytes::ZERO,
        parent: None,
        health: GpuHealth::Ok,
    };
    RunnerReport {
        runner: runner(),
        incarnation: incarnation.map(Incarnation::new),
        cluster: None,
        sequence: Sequence::new(sequence),
        machine: MachineId::new("machine").expect("a name"),
        boot: BootId::new(boot).expect("a name"),
        version: ReasonText::new("1").expect("a text"),
        address: ReasonText::new("127.0.0.1").expect("a text"),
        pool: PoolName::default_pool(),
        labels: BTreeMap::new(),
        runtimes: BTreeMap::from([(RuntimeName::new("vllm").expect("a name"), RuntimeKind::Both)]),
        host: HostReport { cpu: Millicores::new(64_000), ram: Bytes::gib(512) },
        gpus: vec![gpu],
        slots: Vec::new(),
    }
}

fn send(state: &mut State, report: RunnerReport, seconds: u64) -> Result<Answer, Refusal> {
    step(state, &Command::Report(Box::new(report)), at(seconds)).answer
}

fn submit(state: &mut State, seconds: u64) {
    let workload = WorkloadId::new(Uuid::from_u128(1));
    let submission = Submission::lease(model());
    step(state, &Command::Submit { workload, submission }, at(seconds)).answer.expect("it is taken");
}

/// The one slot that `r1` is told of, as it would report it.
fn said(state: &State, reported: ReportedState) -> SlotReport {
    let told = state.desired(&runner());
    assert_eq!(told.len(), 1, "{told:?}");
    SlotReport {
        id: told[0].id,
        generation: told[0].generation,
        model: Some(model()),
        state: reported,
        endpoint: None,
        claims: Vec::new(),
        memory: Vec::new(),
    }
}

fn desired_revision(state: &State) -> Revision {
    state.runner(&runner()).expect("it is known").desired
}

#[test]
fn n4_an_agent_of_a_superseded_boot_cannot_register() {
    let mut state = started();
    send(&mut state, report(None, 1, "boot-1"), 0).expect("registered");
    submit(&mut state, 1);
    send(&mut state, report(None, 1, "boot-2"), 2).expect("registered after its reboot");
    let before = state.fingerprint();
    for late in [report(None, 1, "boot-1"), report(Some(1), 2, "boot-1"), report(Some(2), 9, "boot-1")] {
        let refusal = send(&mut state, late, 2).expect_err("it was taken");
        assert_eq!(refusal.code(), "old_boot");
    }
    assert_eq!(state.fingerprint(), before, "a refused report changed something");
}

#[test]
fn n7_a_poll_of_the_older_agent_is_refused_and_is_no_sign_of_life() {
    let mut state = started();
    send(&mut state, report(None, 1, "boot-1"), 0).expect("registered");
    send(&mut state, report(None, 1, "boot-1"), 0).expect("registered again");
    for second in 1..30 {
        let poll = Command::Poll { runner: runner(), incarnation: Incarnation::new(1) };
        let refusal = step(&mut state, &poll, at(second)).answer.expect_err("it was taken");
        assert_eq!(refusal.code(), "superseded");
    }
    assert_eq!(state.runner(&runner()).expect("known").liveness, Liveness::Ready);
    step(&mut state, &Command::Tick, at(30)).answer.expect("time passes");
    assert_eq!(state.runner(&runner()).expect("known").liveness, Liveness::Suspect);

    // The newer one's poll is.
    let poll = Command::Poll { runner: runner(), incarnation: Incarnation::new(2) };
    step(&mut state, &poll, at(31)).answer.expect("it is taken");
    assert_eq!(state.runner(&runner()).expect("known").liveness, Liveness::Ready);

    // One that never registered is told to do so.
    let poll = Command::Poll { runner: runner(), incarnation: Incarnation::new(3) };
    let refusal = step(&mut state, &poll, at(31)).answer.expect_err("it was taken");
    assert_eq!(refusal.code(), "not_registered");
}

#[test]
fn n8_what_a_runner_is_told_changes_only_with_its_revision() {
    let mut state = started();
    send(&mut state, report(None, 1, "boot-1"), 0).expect("registered");
    submit(&mut state, 1);
    let (told, revision) = (state.desired(&runner()), desired_revision(&state));
    assert_eq!(told.len(), 1);
    assert!(told[0].should_run(), "{told:?}");

    // Asked again, and after every report that says nothing new: the same.
    for sequence in 2..20 {
        let mut next = report(Some(1), sequence, "boot-1");
        next.slots = vec![said(&state, ReportedState::Starting)];
        send(&mut state, next, sequence).expect("taken");
        assert_eq!(state.desired(&runner()), told);
        assert_eq!(desired_revision(&state), revision, "nothing that it must do has changed");
    }

    // What it must do changes: so does the revision.
    step(&mut state, &Command::StopSlot { slot: told[0].id }, at(30)).answer.expect("taken");
    let stop: Vec<_> = state.desired(&runner()).into_iter().filter(|slot| slot.id == told[0].id).collect();
    assert_eq!(stop.len(), 1);
    assert_eq!((&stop[0].action, stop[0].generation), (&DesiredAction::Stop, told[0].generation));
    assert!(desired_revision(&state) > revision, "an agent that waits for news must hear of it");
}

#[test]
fn n8_a_slot_that_is_ready_already_is_not_news_to_its_runner() {
    let mut state = started();
    send(&mut state, report(None, 1, "boot-1"), 0).expect("registered");
    submit(&mut state, 1);
    let told = state.desired(&runner());
    let mut next = report(Some(1), 2, "boot-1");
    next.slots = vec![said(&state, ReportedState::Ready)];
    send(&mut state, next.clone(), 2).expect("taken");
    assert_eq!(state.desired(&runner()), told, "a slot that runs is told to run, in the same words");

    // The same report once more arrives late: refused, and nothing happens.
    let before = state.fingerprint();
    assert_eq!(send(&mut state, next, 2).expect_err("it was taken").code(), "old_report");
    assert_eq!(state.fingerprint(), before);
}
