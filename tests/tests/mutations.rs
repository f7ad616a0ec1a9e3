//! Tests of the tests: with one rule of the core broken, the assertions find it, by name; without, they find nothing.

use berth_core::Command;
use berth_core::sabotage::{Mutation, with};
use berth_domain::{Bytes, GpuCount, GpuHealth, HostReport, Memory, MemorySource, Millicores, ModelSpec, RankMemory};
use berth_domain::{SlotId, Submission};
use berth_tests::names::{self, name};
use berth_tests::system_under_test::{AssertionResult, SystemUnderTest};
use berth_tests::transition::{Transition, transitions};
use berth_tests::world::{Gpu, Machine, Runner, World, worlds};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;

fn machine(number: usize, gib: &[u64]) -> Machine {
    let gpu = |(n, gib): (usize, &u64)| Gpu {
        uuid: names::gpu(number, n),
        name: name("A100"),
        total: Bytes::gib(*gib),
        parent: None,
        foreign: Bytes::ZERO,
        health: GpuHealth::Ok,
        listed: true,
    };
    let host = HostReport { cpu: Millicores::new(8000), ram: Bytes::gib(64) };
    Machine { gpus: gib.iter().enumerate().map(gpu).collect(), host, boots: 1 }
}

fn runner(machine: usize, replicas: u16) -> Runner {
    Runner {
        machine,
        sees: 0xff,
        replicas,
        default_pool: true,
        labelled: false,
        both_runtimes: false,
        second_runtime: berth_domain::RuntimeKind::Both,
    }
}

fn model(number: usize, memory: Memory) -> ModelSpec {
    ModelSpec::new(names::model(number), name("vllm"), MemorySource::stated(memory))
}

fn one_gpu(number: usize, gib: u64) -> ModelSpec {
    ModelSpec { gpu_counts: [GpuCount::new(1)].into(), ..model(number, Memory::Total(Bytes::gib(gib))) }
}

/// A run that is judged by brute force, or by everything else alone.
fn begin(world: &World, checks_placement: bool) -> AssertionResult<SystemUnderTest> {
    let mut run = SystemUnderTest::new(world)?;
    run.assertions.checks_placement = checks_placement;
    Ok(run)
}

fn submit(run: &mut SystemUnderTest, number: u64, model: usize) -> AssertionResult {
    let submission = Submission::lease(names::model(model));
    run.send(Command::Submit { workload: names::workload(number), submission, limits: None }).map(|_| ())
}

/// 60 of 80 GiB are being released when 40 are asked for.
fn a_stop_and_a_start(checks_placement: bool) -> AssertionResult {
    let world = World {
        machines: vec![machine(0, &[80])],
        runners: vec![runner(0, 1)],
        models: vec![one_gpu(0, 60), one_gpu(1, 40)],
    };
    let mut run = begin(&world, checks_placement)?;
    submit(&mut run, 1, 0)?;
    run.apply(&Transition::ReportAll)?;
    run.apply(&Transition::ReportAll)?;
    run.send(Command::StopSlot { slot: SlotId::numbered(names::cluster(), 1) })?;
    submit(&mut run, 2, 1)?;
    (0..4).try_for_each(|_| run.apply(&Transition::ReportAll))
}

/// 40 GiB for the first rank and 10 for the second, on GPUs of 16 and 80 GiB.
fn two_ranks_on_unequal_gpus(checks_placement: bool) -> AssertionResult {
    let ranks = RankMemory::Ranks(vec![Bytes::gib(40), Bytes::gib(10)]);
    let per_gpu = Memory::PerGpu([(GpuCount::new(2), ranks)].into());
    let world =
        World { machines: vec![machine(0, &[16, 80])], runners: vec![runner(0, 1)], models: vec![model(0, per_gpu)] };
    let mut run = begin(&world, checks_placement)?;
    submit(&mut run, 1, 0)
}

/// One lease, two runners.
fn one_lease_and_two_runners(checks_placement: bool) -> AssertionResult {
    let world = World {
        machines: vec![machine(0, &[80]), machine(1, &[80])],
        runners: vec![runner(0, 1), runner(1, 1)],
        models: vec![one_gpu(0, 10)],
    };
    let mut run = begin(&world, checks_placement)?;
    submit(&mut run, 1, 0)
}

/// One GPU of 32 GiB under four names, and five models of 8 GiB.
fn four_names_of_one_gpu(checks_placement: bool) -> AssertionResult {
    let world = World {
        machines: vec![machine(0, &[32])],
        runners: vec![runner(0, 4)],
        models: (0..5).map(|n| one_gpu(n, 8)).collect(),
    };
    let mut run = begin(&world, checks_placement)?;
    (0..5).try_for_each(|n| submit(&mut run, n as u64, n))
}

/// A broken rule, a case that needs the rule, and the checks that find it: by brute force, and without.
type Case = (Mutation, fn(bool) -> AssertionResult, &'static str, Option<&'static str>);

const FITS: &str = "placed where it fits, smallest count first";
const CASES: [Case; 4] = [
    (Mutation::ReleasingIsFree, a_stop_and_a_start, FITS, Some("only reality breaks a line")),
    (Mutation::CheckTotal, two_ranks_on_unequal_gpus, FITS, Some("only reality breaks a line")),
    (Mutation::LostBreak, one_lease_and_two_runners, "one slot for each decision", None),
    (Mutation::CountReplicas, four_names_of_one_gpu, "a replica is a name", Some("a replica is a name")),
];

#[test]
fn each_broken_rule_is_found_by_name() {
    for (mutation, scenario, by_force, without) in CASES {
        assert_eq!(scenario(true), Ok(()), "{mutation:?}: the same without sabotage");
        let failed = with(mutation, || scenario(true)).expect_err("the sabotage was not noticed");
        assert_eq!(failed.check, by_force, "{mutation:?}: {failed}");
        let failed = with(mutation, || scenario(false)).err().map(|failed| failed.check);
        assert_eq!(failed, without, "{mutation:?} without brute force");
    }
}

fn play(world: &World, transitions: &[Transition]) -> AssertionResult {
    let mut run = SystemUnderTest::new(world)?;
    transitions.iter().try_for_each(|transition| run.apply(transition))
}

#[test]
fn random_histories_find_each_broken_rule() {
    for (mutation, ..) in CASES {
        let mut random = TestRunner::deterministic();
        let found = (0..200).find_map(|_| {
            let world = worlds().new_tree(&mut random).expect("a world").current();
            let transitions = transitions(60).new_tree(&mut random).expect("transitions").current();
            let failed = with(mutation, || play(&world, &transitions)).err()?;
            // Only what the sabotage did counts: the same history is clean without it.
            play(&world, &transitions).is_ok().then_some(failed)
        });
        let failed = found.unwrap_or_else(|| panic!("{mutation:?} was not noticed in 200 histories"));
        println!("{mutation:?} was found by [{}]", failed.check);
    }
}
