//! The runner protocol as the core sees it: polls, late registrations, and the desired state of a runner.

#![expect(clippy::expect_used, reason = "a test that cannot set its scene has failed")]

use std::collections::BTreeMap;

use berth_core::{Answer, Cause, Command, Liveness, Refusal, Settings, State, step};
use berth_domain::*;
use uuid::Uuid;

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_millis(1_000_000 + seconds * 1000)
}

fn started() -> State {
    let mut state = State::new(Settings::default());
    let cluster = ClusterId::new(Uuid::from_u128(7));
    step(&mut state, &Command::Start { cluster, tag: EpochTag::default() }, at(0)).answer.expect("it starts");
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
        obeyed: None,
        shares_machine: true,
        sequence: Sequence::new(sequence),
        machine: MachineId::new("machine").expect("a name"),
        boot: BootId::new(boot).expect("a name"),
        version: ReasonText::new("1").expect("a text"),
        address: ReasonText::new("127.0.0.1").expect("a text"),
        pool: PoolName::default_pool(),
        labels: BTreeMap::new(),
        allowed: BTreeMap::new(),
        engines: BTreeMap::new(),
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
    step(state, &Command::Submit { workload, submission, limits: None }, at(seconds)).answer.expect("it is taken");
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
        exit: None,
        endpoint: None,
        claims: Vec::new(),
        memory: Vec::new(),
    }
}

#[test]
fn n9_every_attempt_is_kept_with_where_it_was_and_how_its_program_ended() {
    let mut state = started();
    send(&mut state, report(None, 1, "boot-1"), 0).expect("registered");
    submit(&mut state, 1);
    let id = WorkloadId::new(Uuid::from_u128(1));
    let mut sequence = 1;
    let mut fails = |state: &mut State, exit: Option<ExitStatus>, seconds: u64| {
        sequence += 1;
        let mut slot = said(state, ReportedState::Failed(FailureReason::Crashed));
        slot.exit = exit;
        let first = slot.id;
        send(state, RunnerReport { slots: vec![slot.clone()], ..report(Some(1), sequence, "boot-1") }, seconds)
            .expect("taken");
        // What is said again of the same end changes nothing.
        slot.exit = Some(ExitStatus::Code(99));
        sequence += 1;
        send(state, RunnerReport { slots: vec![slot.clone()], ..report(Some(1), sequence, "boot-1") }, seconds)
            .expect("taken");
        let why = SlotEnd::Failed(FailureReason::Crashed);
        slot.state = ReportedState::Gone { why, evidence: Evidence::COMPLETE };
        sequence += 1;
        send(state, RunnerReport { slots: vec![slot], ..report(Some(1), sequence, "boot-1") }, seconds).expect("taken");
        first
    };
    let first = fails(&mut state, Some(ExitStatus::Signal(9)), 2);
    let view = state.workload(id).expect("it is known");
    assert_eq!((view.state, view.failures, view.not_before), (WorkloadState::Queued, 1, Some(at(3))));
    step(&mut state, &Command::Tick, at(3));
    let second = fails(&mut state, None, 4);
    let view = state.workload(id).expect("it is known");
    let kept: Vec<_> =
        view.attempts.iter().map(|past| (past.attempt.get(), past.slot, past.exit, past.began, past.ended)).collect();
    let expected = [(1, first, Some(ExitStatus::Signal(9)), at(1), at(2)), (2, second, None, at(3), at(4))];
    assert_eq!(kept, expected);
    let crashed = Cause::SlotFailed(FailureReason::Crashed);
    assert!(view.attempts.iter().all(|past| past.runner == runner() && past.cause == crashed && past.ran.is_none()));
    // The state that a snapshot is restored to knows as much.
    state.begin_snapshot();
    let snapshot = state.continue_snapshot(usize::MAX).expect("it is whole");
    let restored = State::restore(Settings::default(), snapshot).expect("it is sound");
    assert_eq!(restored.workload(id).expect("it is known").attempts, view.attempts);
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
        let poll = Command::Poll { runner: runner(), incarnation: Incarnation::new(1), obeyed: None };
        let refusal = step(&mut state, &poll, at(second)).answer.expect_err("it was taken");
        assert_eq!(refusal.code(), "superseded");
    }
    assert_eq!(state.runner(&runner()).expect("known").liveness, Liveness::Ready);
    step(&mut state, &Command::Tick, at(30)).answer.expect("time passes");
    assert_eq!(state.runner(&runner()).expect("known").liveness, Liveness::Suspect);

    // The newer one's poll is.
    let poll = Command::Poll { runner: runner(), incarnation: Incarnation::new(2), obeyed: None };
    step(&mut state, &poll, at(31)).answer.expect("it is taken");
    assert_eq!(state.runner(&runner()).expect("known").liveness, Liveness::Ready);

    // One that never registered is told to do so.
    let poll = Command::Poll { runner: runner(), incarnation: Incarnation::new(3), obeyed: None };
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
