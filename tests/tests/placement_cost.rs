//! A decision looks at a handful of devices, whatever the size of the fleet.
//!
//! Dry runs are asked, because they plan exactly as a submission does and change nothing; a few real submissions check
//! that this is so. Fleets are filled by foreign memory, which can lie in any pattern and costs no step, and by slots.

use std::collections::{BTreeMap, BTreeSet};

use berth_core::{Command, Outcome, Settings, State, step};
use berth_domain::{
    BootId, Bytes, ClusterId, DeviceUuid, EpochTag, Fraction, GpuCount, GpuHealth, GpuName, GpuReport, HostReport,
    LabelKey, LabelValue, MachineId, Memory, MemorySource, Millicores, ModelName, ModelSpec, NameError, Placement,
    PoolName, RankMemory, ReasonText, Replicas, RunnerId, RunnerReport, RuntimeName, Sequence, Submission, Timestamp,
    WorkloadId, WorkloadKind,
};
use uuid::Uuid;

/// The most devices that a decision which places may look at.
const MOST: u32 = 64;
const NOW: Timestamp = Timestamp::from_millis(1_000_000);
const FILLS: [u64; 4] = [0, 50, 90, 99];

#[test]
fn a_decision_examines_no_more_devices_in_a_larger_fleet() {
    let fleets = [10, 100, 1000].map(|runners| Fleet { gpus: vec![8; runners], ..Fleet::default() });
    assert_few_examined(&at_every_fill(&fleets));
}

#[test]
fn a_decision_examines_few_devices_among_1213_mixed_runners() {
    let sizes = [(1, 24), (2, 518), (4, 54), (8, 617)];
    let mut gpus: Vec<u16> = sizes.iter().flat_map(|(gpus, runners)| vec![*gpus; *runners]).collect();
    let mut dice = Dice(7);
    gpus.sort_by_cached_key(|_| dice.roll());
    assert_few_examined(&at_every_fill(&[Fleet { gpus, ..Fleet::default() }]));
}

#[test]
fn a_decision_examines_few_devices_where_half_of_the_hosts_lack_ram() {
    let short = Fleet { short_of_ram: true, ..Fleet::default() };
    let fleets = [10, 100, 500].map(|runners| Fleet { gpus: vec![8; runners], ..short.clone() });
    assert_few_examined(&at_every_fill(&fleets));
}

#[test]
fn a_decision_examines_few_devices_where_runners_mix_gpu_sizes() {
    let mixed = Fleet { two_sizes: true, ..Fleet::default() };
    let fleets = [10, 100, 500].map(|runners| Fleet { gpus: vec![8; runners], ..mixed.clone() });
    assert_few_examined(&at_every_fill(&fleets));
}

#[test]
fn a_decision_examines_few_devices_where_idle_slots_hold_the_memory() {
    assert_few_examined(&FILLS.map(|slots| Fleet { gpus: vec![8; 100], slots, ..Fleet::default() }));
}

/// A fleet and what is on it.
#[derive(Clone, Debug, Default)]
struct Fleet {
    /// The GPUs of each runner.
    gpus: Vec<u16>,
    /// How much of the memory is in use by others, in percent.
    fill: u64,
    /// How much of the memory slots have, in percent.
    slots: u64,
    /// Every other host has too little RAM for anything.
    short_of_ram: bool,
    /// Every other GPU has half the memory, and another name.
    two_sizes: bool,
}

fn at_every_fill(fleets: &[Fleet]) -> Vec<Fleet> {
    fleets.iter().flat_map(|fleet| FILLS.map(|fill| Fleet { fill, ..fleet.clone() })).collect()
}

/// Every decision that places, for every model in each of these fleets, looks at few devices.
fn assert_few_examined(fleets: &[Fleet]) {
    let mut too_many: Vec<(u32, String)> = fleets.iter().flat_map(examined_too_many).collect();
    too_many.sort_by(|a, b| b.cmp(a));
    let worst: Vec<&str> = too_many.iter().take(20).map(|(_, text)| text.as_str()).collect();
    assert!(
        too_many.is_empty(),
        "{} decisions looked at more than {MOST} devices:\n{}",
        too_many.len(),
        worst.join("\n")
    );
}

/// Decisions that place and look at too many devices. There must be some that place.
fn examined_too_many(fleet: &Fleet) -> Vec<(u32, String)> {
    let models = models();
    let mut state = world(fleet, &models);
    let dry_run = |state: &State, spec: &ModelSpec| {
        let report = state.fit(&spec.name, WorkloadKind::Job, NOW);
        report.filter(|report| report.outcome == Outcome::Placed).map(|report| report.examined)
    };
    let placed: Vec<(&ModelSpec, u32)> =
        models.iter().filter_map(|spec| Some((spec, dry_run(&state, spec)?))).collect();
    assert!(!placed.is_empty(), "nothing fits, and that proves nothing: {fleet:?}");
    for (number, spec) in models.iter().step_by(29).enumerate() {
        let dry = dry_run(&state, spec);
        let workload = WorkloadId::new(Uuid::from_u64_pair(2, number as u64));
        let submit = Command::Submit { workload, submission: Submission::job(spec.name.clone()), limits: None };
        let step = step(&mut state, &submit, NOW);
        let real = step.reports.first().filter(|report| report.outcome == Outcome::Placed);
        assert_eq!(real.map(|report| report.examined), dry, "a dry run of {} planned something else", spec.name);
    }
    placed
        .into_iter()
        .filter(|(_, examined)| *examined > MOST)
        .map(|(spec, examined)| describe(fleet, spec, examined))
        .collect()
}

fn describe(fleet: &Fleet, spec: &ModelSpec, examined: u32) -> (u32, String) {
    let Fleet { gpus, fill, slots, short_of_ram, two_sizes } = fleet;
    let mut text = format!("{examined} for {} on {} runners, ", spec.name, gpus.len());
    text += &format!("{fill} % used by others, {slots} % by slots");
    text += if *short_of_ram { ", half of them short of RAM" } else { "" };
    text += if *two_sizes { ", with GPUs of two sizes" } else { "" };
    (examined, text)
}

/// Numbers that are the same in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        (mixed ^ (mixed >> 31)) >> 33
    }

    /// Whether something of so many percent happens.
    fn percent(&mut self, percent: u64) -> bool {
        self.roll() % 100 < percent
    }
}

fn known<T>(name: Result<T, NameError>) -> T {
    name.unwrap_or_else(|error| unreachable!("{error}"))
}

/// A core with this fleet. Models come first: a step costs as much as there are devices to check.
fn world(fleet: &Fleet, models: &[ModelSpec]) -> State {
    let mut state = State::new(Settings::default());
    let mut run = |command: Command| {
        let step = step(&mut state, &command, NOW);
        assert!(step.answer.is_ok(), "{:?}", step.answer);
    };
    run(Command::Start { cluster: ClusterId::new(Uuid::from_u64_pair(1, 1)), tag: EpochTag::default() });
    for spec in models {
        run(Command::PutModel { spec: Box::new(spec.clone()) });
    }
    let mut dice = Dice(fleet.fill);
    for (number, gpus) in fleet.gpus.iter().enumerate() {
        run(Command::Report(Box::new(registration(fleet, number, *gpus, &mut dice))));
    }
    for spec in filling(fleet) {
        run(Command::PutModel { spec: Box::new(spec) });
    }
    state
}

/// Models of every kind: 1 to 8 GPUs, both strategies, bytes (even or not), fractions and whole GPUs, anywhere and in
/// places.
fn models() -> Vec<ModelSpec> {
    let mut models = Vec::new();
    for count in [1, 2, 4, 8] {
        for placement in [Placement::Spread, Placement::Pack] {
            for memory in ["10g", "30g", "60g, then 5g", "0.25", "whole"] {
                for place in ["anywhere", "zone", "name", "small", "pool"] {
                    models.push(model(count, placement, memory, place));
                }
            }
        }
    }
    models
}

fn model(count: u16, placement: Placement, memory: &str, place: &str) -> ModelSpec {
    let name = known(ModelName::new(format!("{count}/{placement:?}/{memory}/{place}")));
    let per_gpu = |first: u64, rest: u64| {
        let ranks = (0..count).map(|rank| Bytes::gib(if rank == 0 { first } else { rest })).collect();
        MemorySource::stated(Memory::PerGpu(BTreeMap::from([(GpuCount::new(count), RankMemory::Ranks(ranks))])))
    };
    let source = match memory {
        "10g" => per_gpu(10, 10),
        "30g" => per_gpu(30, 30),
        "60g, then 5g" => per_gpu(60, 5),
        "0.25" => {
            Fraction::from_millionths(250_000).map(Memory::Fraction).map(MemorySource::stated).unwrap_or_default()
        }
        _ => MemorySource::default(),
    };
    let mut spec = ModelSpec::new(name, known(RuntimeName::new("vllm")), source);
    spec.gpu_counts = BTreeSet::from([GpuCount::new(count)]);
    spec.exclusive = memory == "whole";
    spec.placement = placement;
    (spec.cpu, spec.ram) = (Millicores::new(100), Bytes::gib(4));
    match place {
        "zone" => {
            spec.constraints.labels = BTreeMap::from([(known(LabelKey::new("zone")), known(LabelValue::new("b")))]);
        }
        "name" => spec.constraints.gpu_names = BTreeSet::from([known(GpuName::new("H100"))]),
        "small" => spec.constraints.gpu_names = BTreeSet::from([known(GpuName::new("L40"))]),
        "pool" => spec.constraints.pool = known(PoolName::new("batch")),
        _ => {}
    }
    spec
}

/// Models that must have as many slots as it takes: all of them are placed in one step.
fn filling(fleet: &Fleet) -> Vec<ModelSpec> {
    let gpus: u64 = fleet.gpus.iter().copied().map(u64::from).sum();
    let mut filling = Vec::new();
    for (pool, share) in [("default", 80), ("batch", 20)] {
        for (gib, placement) in [(40, Placement::Spread), (20, Placement::Pack), (8, Placement::Pack)] {
            let slots = gpus * 80 * share * fleet.slots / (3 * 100 * 100 * gib);
            let Some(min) = u32::try_from(slots).ok().filter(|min| *min > 0) else { continue };
            let name = known(ModelName::new(format!("fill/{pool}/{gib}g")));
            let memory = MemorySource::stated(Memory::Total(Bytes::gib(gib)));
            let mut spec = ModelSpec::new(name, known(RuntimeName::new("vllm")), memory);
            spec.gpu_counts = BTreeSet::from([GpuCount::new(1)]);
            spec.constraints.pool = known(PoolName::new(pool));
            spec.placement = placement;
            spec.replicas = Replicas { min, max: None, pinned: false };
            filling.push(spec);
        }
    }
    filling
}

/// A runner: one in five in the second pool, every other in the second zone, one in three with the second GPU.
fn registration(fleet: &Fleet, number: usize, gpus: u16, dice: &mut Dice) -> RunnerReport {
    // Half of what is free is on runners that have room on every GPU, so that there is a place for several.
    let roomy = number == 2 || dice.percent(100_u64.saturating_sub(fleet.fill).div_ceil(2));
    let zone = if number % 2 == 1 { "b" } else { "a" };
    let short = fleet.short_of_ram && number % 4 < 2;
    RunnerReport {
        runner: known(RunnerId::new(format!("runner-{number}"))),
        incarnation: None,
        cluster: None,
        obeyed: None,
        shares_machine: true,
        sequence: Sequence::new(1),
        machine: known(MachineId::new(format!("machine-{number}"))),
        boot: known(BootId::new("boot")),
        version: known(ReasonText::new("0.1.0")),
        address: known(ReasonText::new("localhost")),
        pool: known(PoolName::new(if number % 5 == 4 { "batch" } else { "default" })),
        labels: BTreeMap::from([(known(LabelKey::new("zone")), known(LabelValue::new(zone)))]),
        allowed: BTreeMap::new(),
        engines: BTreeMap::new(),
        runtimes: BTreeMap::from([(known(RuntimeName::new("vllm")), berth_domain::RuntimeKind::Both)]),
        host: HostReport { cpu: Millicores::new(128_000), ram: Bytes::gib(if short { 3 } else { 1024 }) },
        gpus: (0..gpus).map(|index| gpu(fleet, number, index, roomy, dice)).collect(),
        slots: Vec::new(),
    }
}

fn gpu(fleet: &Fleet, number: usize, index: u16, roomy: bool, dice: &mut Dice) -> GpuReport {
    let small = fleet.two_sizes && index % 2 == 1;
    let gib = if small { 40 } else { 80 };
    let name = if number % 3 == 2 { "H100" } else { "A100" };
    let free = fleet.fill == 0 || roomy || dice.percent(100_u64.saturating_sub(fleet.fill).div_ceil(2));
    // What is free lies in pieces of any size: nothing at all is in use on one device in four of those.
    let used = match (free, fleet.fill) {
        (_, 0) => 0,
        (true, _) if dice.percent(25) => 0,
        (true, _) => dice.roll() % (gib * 1024),
        (false, _) => gib * 1024,
    };
    GpuReport {
        uuid: known(DeviceUuid::new(format!("GPU-{number}-{index}"))),
        index,
        name: known(GpuName::new(if small { "L40" } else { name })),
        memory_total: Bytes::gib(gib),
        memory_used: Bytes::mib(used),
        memory_reserved: Bytes::ZERO,
        parent: None,
        health: GpuHealth::Ok,
    }
}
