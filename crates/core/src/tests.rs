//! The core from the outside: commands in, views out. The cases of the scenarios live elsewhere; these are the few
//! that need no more than a line or two.

use std::collections::BTreeMap;

use berth_domain::*;
use uuid::Uuid;

use crate::*;

pub(crate) fn at(seconds: u64) -> Timestamp {
    Timestamp::from_millis(1_000_000 + seconds * 1000)
}

pub(crate) fn started() -> State {
    let mut state = State::new(Settings::default());
    let cluster = ClusterId::new(Uuid::from_u128(7));
    step(&mut state, &Command::Start { cluster, tag: EpochTag::default() }, at(0)).answer.unwrap();
    state
}

pub(crate) fn report(runner: &str, gpus: &[u64], incarnation: Option<u64>, sequence: u64) -> RunnerReport {
    let gpu = |(index, gib): (usize, &u64)| GpuReport {
        uuid: DeviceUuid::new(format!("{runner}/{index}")).unwrap(),
        index: u16::try_from(index).unwrap(),
        name: GpuName::new("H100").unwrap(),
        memory_total: Bytes::gib(*gib),
        memory_used: Bytes::ZERO,
        memory_reserved: Bytes::ZERO,
        parent: None,
        health: GpuHealth::Ok,
    };
    RunnerReport {
        runner: RunnerId::new(runner).unwrap(),
        incarnation: incarnation.map(Incarnation::new),
        cluster: None,
        obeyed: None,
        shares_machine: true,
        sequence: Sequence::new(sequence),
        machine: MachineId::new(runner).unwrap(),
        boot: BootId::new("boot-1").unwrap(),
        version: ReasonText::new("1").unwrap(),
        address: ReasonText::new("127.0.0.1").unwrap(),
        pool: PoolName::default_pool(),
        labels: BTreeMap::new(),
        allowed: BTreeMap::new(),
        engines: BTreeMap::new(),
        runtimes: BTreeMap::from([(RuntimeName::new("vllm").unwrap(), RuntimeKind::Both)]),
        host: HostReport { cpu: Millicores::new(64_000), ram: Bytes::gib(512) },
        gpus: gpus.iter().enumerate().map(gpu).collect(),
        slots: Vec::new(),
    }
}

pub(crate) fn put_model(state: &mut State, name: &str, gib: u64) {
    let memory = MemorySource::stated(Memory::Total(Bytes::gib(gib)));
    let spec = ModelSpec::new(ModelName::new(name).unwrap(), RuntimeName::new("vllm").unwrap(), memory);
    step(state, &Command::PutModel { spec: Box::new(spec) }, at(0)).answer.unwrap();
}

pub(crate) fn submit(state: &mut State, number: u128, model: &str) -> Step {
    let submission = Submission::lease(ModelName::new(model).unwrap());
    let workload = WorkloadId::new(Uuid::from_u128(number));
    step(state, &Command::Submit { workload, submission, limits: None }, at(1))
}

#[test]
fn p1_three_models_on_two_gpus() {
    let mut state = started();
    step(&mut state, &Command::Report(Box::new(report("r1", &[80, 80], None, 1))), at(0)).answer.unwrap();
    for (number, (name, gib)) in [("big", 75), ("small", 15), ("middle", 39)].into_iter().enumerate() {
        put_model(&mut state, name, gib);
        let step = submit(&mut state, number as u128 + 1, name);
        assert!(step.answer.is_ok());
        println!("{}", step.reports[0]);
    }
    invariants::check(&state).unwrap();
    let held: Vec<Bytes> = state.devices().iter().map(|device| device.balance.held).collect();
    assert_eq!(held, [Bytes::gib(75), Bytes::gib(54)]);
}

#[test]
fn p5_p6_never_fits_is_refused_and_changes_nothing() {
    let mut state = started();
    step(&mut state, &Command::Report(Box::new(report("r1", &[80, 80], None, 1))), at(0)).answer.unwrap();
    put_model(&mut state, "huge", 200);
    let before = state.fingerprint();
    let refused = submit(&mut state, 1, "huge").answer.unwrap_err();
    assert_eq!(refused.code(), "never_fits");
    assert_eq!(
        refused.to_string(),
        "model huge can never run here: at best it needs 100 GiB on each of 2 GPUs of one runner; the best runner has \
         80 GiB there"
    );
    assert_eq!(state.fingerprint(), before);
}

#[test]
fn a_waiting_report_reads_well() {
    let mut state = started();
    step(&mut state, &Command::Report(Box::new(report("r1", &[80], None, 1))), at(0)).answer.unwrap();
    put_model(&mut state, "a", 60);
    put_model(&mut state, "b", 40);
    submit(&mut state, 1, "a");
    let step = submit(&mut state, 2, "b");
    println!("{}", step.reports[0]);
    assert_eq!(step.reports[0].outcome, Outcome::Waiting(WaitReason::FullNow));
    invariants::check(&state).unwrap();
}
