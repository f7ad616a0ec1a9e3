//! The core from the outside: commands in, views out. The cases of the scenarios live elsewhere; these are the few
//! that need no more than a line or two.

use std::collections::BTreeMap;

use berth_domain::*;
use proptest::prelude::*;
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

/// A runner: its number, its GPUs' sizes and cores.
type Hardware = (usize, Vec<u64>, u64);
/// A job: GiB on each GPU, GPUs, cores, whether it is packed, and whether it names its GPU.
type Job = (u64, u16, u64, bool, bool);

/// Where each job goes, on runners that register in this order.
fn places(runners: &[Hardware], jobs: &[Job]) -> Vec<Option<(RunnerId, Vec<DeviceUuid>)>> {
    let mut state = started();
    for (number, gpus, cores) in runners {
        let mut report = report(&format!("r{number}"), gpus, None, 1);
        report.host.cpu = Millicores::new(cores * 1000);
        let name = if number % 2 == 0 { "A100" } else { "H100" };
        report.gpus.iter_mut().for_each(|gpu| gpu.name = GpuName::new(name).unwrap());
        step(&mut state, &Command::Report(Box::new(report)), at(0)).answer.unwrap();
    }
    let place = |(number, (gib, count, cores, packed, named)): (usize, &Job)| {
        let name = ModelName::new(format!("job-{number}")).unwrap();
        let memory = MemorySource::stated(Memory::Total(Bytes::gib(gib * u64::from(*count).max(1))));
        let mut spec = ModelSpec::new(name.clone(), RuntimeName::new("vllm").unwrap(), memory);
        spec.gpu_counts = std::collections::BTreeSet::from([GpuCount::new(*count)]);
        spec.placement = if *packed { Placement::Pack } else { Placement::Spread };
        spec.cpu = Millicores::new(cores * 1000);
        if *named && *count > 0 {
            spec.constraints.gpu_names.insert(GpuName::new("H100").unwrap());
        }
        step(&mut state, &Command::PutModel { spec: Box::new(spec) }, at(0)).answer.unwrap();
        let workload = WorkloadId::new(Uuid::from_u128(number as u128 + 1));
        let submit = Command::Submit { workload, submission: Submission::job(name), limits: None };
        step(&mut state, &submit, at(1)).events.iter().find_map(|event| match event {
            Event::SlotPlaced(placed) => {
                Some((placed.runner.clone(), placed.claims.iter().map(|claim| claim.uuid.clone()).collect()))
            }
            _ => None,
        })
    };
    let found = jobs.iter().enumerate().map(place).collect();
    invariants::check(&state).unwrap();
    found
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_order_of_registration_decides_nothing(
        sizes in proptest::collection::vec((proptest::collection::vec(prop_oneof![Just(80u64), Just(40)], 0..5), 1..65u64), 1..7),
        jobs in proptest::collection::vec((1..70u64, 0..3u16, 0..17u64, any::<bool>(), any::<bool>()), 1..30),
        seed in any::<u64>(),
    ) {
        let runners: Vec<Hardware> =
            sizes.into_iter().enumerate().map(|(number, (gpus, cores))| (number, gpus, cores)).collect();
        let mut shuffled = runners.clone();
        shuffled.sort_by_key(|(number, ..)| (*number as u64 + 1).wrapping_mul(seed | 1));
        prop_assert_eq!(places(&runners, &jobs), places(&shuffled, &jobs));
    }
}

#[test]
fn work_without_gpus_goes_where_it_strands_the_least() {
    for packed in [true, false] {
        // The first runner has just the cores that its GPUs need, the second has cores to spare.
        let runners = [(0, vec![80, 80], 16), (1, vec![80], 64)];
        let gpu_job = (80, 1, 8, packed, false);
        let found = places(&runners, &[gpu_job, (1, 0, 8, packed, false), (1, 0, 8, packed, false)]);
        let where_to =
            |place: &Option<(RunnerId, Vec<DeviceUuid>)>| place.as_ref().map(|(runner, _)| runner.to_string());
        assert_eq!(where_to(&found[1]).as_deref(), Some("r1"), "packed: {packed}");
        assert_eq!(where_to(&found[2]).as_deref(), Some("r1"), "packed: {packed}");
    }
}
