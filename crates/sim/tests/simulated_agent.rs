//! What a simulated agent does about desired slots, and what it reports.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;

use berth_domain::{
    Bytes, DesiredAction, DesiredGpu, DesiredSlot, DeviceUuid, FailureReason, Generation, GpuHealth, GpuReport,
    HostReport, ModelName, PoolName, ReasonText, ReportedState, RunSpec, RunnerReport, RuntimeName, Sequence, SlotEnd,
    SlotId, SlotReport, Timestamp, WorkloadKind,
};
use berth_sim::{Pace, Record, SimulatedAgent};
use uuid::Uuid;

const CLAIM: Bytes = Bytes::gib(40);

fn uuid() -> DeviceUuid {
    DeviceUuid::new("GPU-a").unwrap()
}

/// An agent with one GPU of 80 GiB.
fn agent(pace: Pace) -> SimulatedAgent {
    let gpu = GpuReport {
        uuid: uuid(),
        index: 0,
        name: "H100".parse().unwrap(),
        memory_total: Bytes::gib(80),
        memory_used: Bytes::ZERO,
        memory_reserved: Bytes::ZERO,
        parent: None,
        health: GpuHealth::Ok,
    };
    let mut agent = SimulatedAgent::new(RunnerReport {
        runner: "r1".parse().unwrap(),
        incarnation: None,
        cluster: None,
        obeyed: None,
        shares_machine: true,
        sequence: Sequence::default(),
        machine: "m1".parse().unwrap(),
        boot: "b1".parse().unwrap(),
        version: ReasonText::new("").unwrap(),
        address: ReasonText::new("").unwrap(),
        pool: PoolName::default_pool(),
        labels: BTreeMap::new(),
        runtimes: BTreeMap::new(),
        allowed: BTreeMap::new(),
        engines: BTreeMap::new(),
        host: HostReport::default(),
        gpus: vec![gpu],
        slots: Vec::new(),
    });
    (agent.starts, agent.stops) = (pace, pace);
    agent
}

fn desired(generation: u32, action: DesiredAction) -> DesiredSlot {
    DesiredSlot {
        id: SlotId::new(Uuid::from_u128(1)),
        generation: Generation::new(generation),
        gpus: vec![DesiredGpu { uuid: uuid(), memory_bytes: CLAIM }],
        action,
    }
}

fn run(generation: u32) -> DesiredSlot {
    let spec = RunSpec {
        model: ModelName::new("chat").unwrap(),
        runtime: RuntimeName::new("vllm").unwrap(),
        kind: WorkloadKind::Lease,
        args: Vec::new(),
        model_args: 0,
        cpu_millicores: Default::default(),
        ram_bytes: Bytes::ZERO,
        concurrency: 1,
    };
    desired(generation, DesiredAction::Run(Box::new(spec)))
}

fn stop(generation: u32) -> DesiredSlot {
    desired(generation, DesiredAction::Stop)
}

/// The one slot that the next report mentions.
fn reported(agent: &SimulatedAgent) -> Option<SlotReport> {
    let mut slots = agent.report(|uuid| agent.uses(uuid)).slots;
    assert!(slots.len() <= 1);
    slots.pop()
}

fn state(agent: &SimulatedAgent) -> Option<ReportedState> {
    reported(agent).map(|slot| slot.state)
}

#[test]
fn a_slot_is_started_once_for_each_generation() {
    let mut agent = agent(Pace::AtOnce);
    assert!(agent.is_new(&run(1)) && agent.follow(&run(1)));
    assert!(!agent.is_new(&run(1)) && !agent.follow(&run(1)), "the same again is no news");
    assert_eq!(agent.uses(&uuid()), CLAIM);
    assert!(agent.is_new(&run(2)) && agent.follow(&run(2)));
    assert!(!agent.follow(&run(1)), "an older start is not made");
    assert_eq!(reported(&agent).unwrap().generation, Generation::new(2));
    assert_eq!(agent.uses(&uuid()), CLAIM, "the newer start takes the place of the older");
}

#[test]
fn in_steps_a_slot_is_starting_then_ready_then_stopping_then_gone() {
    let mut agent = agent(Pace::InSteps);
    let mut seen = Vec::new();
    for desired in [run(1), run(1), run(1), stop(1), stop(1), stop(1)] {
        let is_news = agent.follow(&desired);
        seen.push((state(&agent).unwrap(), is_news, agent.uses(&uuid()).get() / Bytes::gib(1).get()));
    }
    use ReportedState::{Ready, Starting, Stopping};
    let expected = [
        (Starting, true, 20),
        (Ready, true, 40),
        (Ready, false, 40),
        (Stopping, true, 40),
        (ReportedState::STOPPED, true, 0),
        (ReportedState::STOPPED, false, 0),
    ];
    assert_eq!(seen, expected);
}

#[test]
fn when_told_nothing_happens_by_itself() {
    let mut agent = agent(Pace::WhenTold);
    agent.follow(&run(1));
    assert!(!agent.follow(&run(1)));
    assert_eq!(state(&agent), Some(ReportedState::Starting));
    agent.set_starts(Pace::AtOnce);
    assert_eq!(state(&agent), Some(ReportedState::Ready), "what is starting comes up");
    agent.follow(&stop(1));
    assert!(!agent.follow(&stop(1)));
    assert_eq!((state(&agent), agent.uses(&uuid())), (Some(ReportedState::Stopping), CLAIM));
}

#[test]
fn an_end_keeps_its_reason_and_is_forgotten_once_it_is_acknowledged() {
    let mut agent = agent(Pace::AtOnce);
    agent.follow(&run(1));
    agent.slots.values_mut().for_each(|slot| slot.state = ReportedState::Failed(FailureReason::Crashed));
    assert_eq!(agent.uses(&uuid()), CLAIM, "a failed slot has its memory until it is stopped");
    assert!(agent.forget_acknowledged().is_empty(), "nothing is proven yet");
    agent.follow(&stop(1));
    let Some(ReportedState::Gone { why, evidence }) = state(&agent) else { unreachable!("{:?}", state(&agent)) };
    assert!(why == SlotEnd::Failed(FailureReason::Crashed) && evidence.is_proof());
    assert_eq!(agent.forget_acknowledged().len(), 1);
    assert_eq!((state(&agent), agent.uses(&uuid())), (None, Bytes::ZERO));
    agent.follow(&stop(1));
    assert_eq!(state(&agent), Some(ReportedState::STOPPED), "a slot that the agent does not have is gone");
}

#[test]
fn a_slot_without_a_record_is_neither_reported_nor_stopped_until_the_server_asks() {
    let mut agent = agent(Pace::AtOnce);
    agent.follow(&run(1));
    agent.slots.values_mut().for_each(|slot| slot.record = Record::Lost);
    assert!(!agent.follow(&stop(1)) && !agent.follow(&run(1)));
    assert_eq!((state(&agent), agent.uses(&uuid())), (None, CLAIM), "its process runs on");
    assert!(agent.follow(&desired(1, DesiredAction::Account)));
    assert!(matches!(state(&agent), Some(ReportedState::Unknown { .. })));
    agent.slots.clear();
    agent.follow(&desired(1, DesiredAction::Account));
    let Some(ReportedState::Gone { why, .. }) = state(&agent) else { unreachable!("{:?}", state(&agent)) };
    assert_eq!(why, SlotEnd::NoTrace);
}

#[test]
fn a_report_has_an_entry_for_each_replica_and_the_next_number() {
    let mut agent = agent(Pace::AtOnce);
    agent.gpus[0].replicas = 3;
    agent.follow(&run(1));
    let report = agent.report(|uuid| agent.uses(uuid).saturating_add(Bytes::gib(1)));
    assert_eq!(report.gpus.len(), 3);
    assert!(report.gpus.iter().all(|gpu| gpu.uuid == uuid() && gpu.memory_used == Bytes::gib(41)));
    assert_eq!(report.sequence, Sequence::new(1));
    let now = Timestamp::from_millis(60_000);
    assert!(agent.is_report_due(now));
    agent.sent_report(now);
    assert!(!agent.is_report_due(now));
    assert_eq!(agent.report(|_| Bytes::ZERO).sequence, Sequence::new(2));
    agent.gpus[0].listed = false;
    assert!(agent.report(|_| Bytes::ZERO).gpus.is_empty());
}
