//! A small world: machines with GPUs, runners that see some of them, and a catalogue.

use std::collections::{BTreeMap, BTreeSet};

use berth_core::Settings;
use berth_domain::{
    Bytes, DeviceUuid, Fraction, GpuCount, GpuHealth, GpuName, HostReport, Memory, MemorySource, Millicores, ModelSpec,
    Placement, RankMemory, Replicas, RuntimeKind, Span,
};
use proptest::prelude::*;

use crate::names::{gpu, model, name};

/// No world has more devices than this, so that every set of them can be tried.
const MOST_DEVICES: usize = 8;

/// One GPU as it really is.
#[derive(Clone, Debug)]
pub struct Gpu {
    /// Its identity.
    pub uuid: DeviceUuid,
    /// What the driver calls it.
    pub name: GpuName,
    /// All its memory.
    pub total: Bytes,
    /// The GPU it is a MIG instance of.
    pub parent: Option<DeviceUuid>,
    /// Memory in use that is not of our slots.
    pub foreign: Bytes,
    /// What the driver says of it.
    pub health: GpuHealth,
    /// Whether the driver lists it at all.
    pub listed: bool,
}

/// One machine as it really is.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Its GPUs by index.
    pub gpus: Vec<Gpu>,
    /// Its CPU and RAM.
    pub host: HostReport,
    /// How often it was booted.
    pub boots: u32,
}

/// What a runner may use.
#[derive(Clone, Debug)]
pub struct Runner {
    /// On which machine.
    pub machine: usize,
    /// Which of its GPUs, as bits.
    pub sees: u8,
    /// How often each is advertised.
    pub replicas: u16,
    /// In the pool that models name by default.
    pub default_pool: bool,
    /// With the label that some models need.
    pub labelled: bool,
    /// With the second runtime too.
    pub both_runtimes: bool,
    /// What that is for.
    pub second_runtime: RuntimeKind,
}

/// Machines, runners and models that a history begins with.
#[derive(Clone, Debug)]
pub struct World {
    /// The machines.
    pub machines: Vec<Machine>,
    /// The runners.
    pub runners: Vec<Runner>,
    /// The catalogue.
    pub models: Vec<ModelSpec>,
}

/// Returns settings with short spans, so that every timer fires in a short history.
#[must_use]
pub fn settings() -> Settings {
    Settings {
        keep_alive: Span::from_secs(40),
        min_run: Span::from_secs(4),
        lease_ttl: Span::from_secs(60),
        suspect_after: Span::from_secs(10),
        lost_after: Span::from_secs(30),
        age_limit: Span::from_secs(8),
        backfill_after: Span::from_secs(20),
        forgive_after: Span::from_secs(30),
        queue_limit: 24,
        start_deadline: Span::from_secs(25),
        stall_after: Span::from_secs(12),
        keep_ended_for: Span::from_secs(90),
        keep_ended: 6,
        ..Settings::default()
    }
}

/// Generates small worlds.
pub fn worlds() -> impl Strategy<Value = World> {
    let runners = prop::collection::vec(runner(), 1..=4);
    let models = prop::collection::vec(any_model(), 3..=8);
    let impostor = prop::bool::weighted(0.08);
    (prop::collection::vec(machine(), 1..=3), runners, models, impostor).prop_map(
        |(machines, runners, models, impostor)| {
            let mut left = MOST_DEVICES;
            let mut machines: Vec<Machine> =
                machines.into_iter().enumerate().map(|(n, plan)| build_machine(n, plan, &mut left)).collect();
            let count = machines.len();
            // Two machines that both claim to have one GPU.
            let copied = machines.get_mut(1).and_then(|machine| machine.gpus.first_mut()).filter(|_| impostor);
            copied.into_iter().for_each(|copy| copy.uuid = gpu(0, 0));
            let runners = runners.into_iter().map(|row| Runner { machine: row.machine % count, ..row }).collect();
            let models = models.into_iter().enumerate().map(|(n, spec)| ModelSpec { name: model(n), ..spec }).collect();
            World { machines, runners, models }
        },
    )
}

type MachinePlan = (Vec<(usize, bool, bool)>, u64, u64);

fn machine() -> impl Strategy<Value = MachinePlan> {
    let one = (0usize..4, any::<bool>(), prop::bool::weighted(0.12));
    (prop::collection::vec(one, 0..=4), 2u64..16, 8u64..64)
}

fn build_machine(number: usize, (plan, cores, ram): MachinePlan, left: &mut usize) -> Machine {
    let mut gpus: Vec<Gpu> = Vec::new();
    for (size, second_name, mig) in plan {
        let total = Bytes::gib([16, 24, 40, 80][size]);
        let name: GpuName = name(if second_name { "L4" } else { "A100" });
        let whole = Gpu {
            uuid: gpu(number, gpus.len()),
            name,
            total,
            parent: None,
            foreign: Bytes::ZERO,
            health: GpuHealth::Ok,
            listed: true,
        };
        let parent = Some(whole.uuid.clone());
        gpus.push(whole.clone());
        for _ in 0..if mig { 2 } else { 0 } {
            let uuid = gpu(number, gpus.len());
            gpus.push(Gpu { uuid, total: Bytes::new(total.get() / 2), parent: parent.clone(), ..whole.clone() });
        }
    }
    gpus.truncate((*left).min(8));
    *left -= gpus.len();
    let host = HostReport { cpu: Millicores::new(cores * 1000), ram: Bytes::gib(ram) };
    Machine { gpus, host, boots: 1 }
}

fn runner() -> impl Strategy<Value = Runner> {
    let sees = prop_oneof![4 => Just(0xffu8), 2 => any::<u8>()];
    let replicas = prop_oneof![3 => Just(1u16), 1 => 2u16..4];
    let yes = || prop::bool::weighted(0.85);
    let kind = prop_oneof![4 => Just(RuntimeKind::Both), 1 => Just(RuntimeKind::Server), 1 => Just(RuntimeKind::Job)];
    (0usize..3, sees, replicas, yes(), yes(), yes(), kind).prop_map(
        |(machine, sees, replicas, default_pool, labelled, both_runtimes, second_runtime)| Runner {
            machine,
            sees,
            replicas,
            default_pool,
            labelled,
            both_runtimes,
            second_runtime,
        },
    )
}

fn memory() -> impl Strategy<Value = MemorySource> {
    let gib = || (1u64..48).prop_map(Bytes::gib);
    let even = gib().prop_map(RankMemory::Even);
    let pair =
        prop_oneof![gib().prop_map(RankMemory::Even), prop::collection::vec(gib(), 2).prop_map(RankMemory::Ranks),];
    let per_gpu = (even, pair)
        .prop_map(|(one, two)| Memory::PerGpu(BTreeMap::from([(GpuCount::new(1), one), (GpuCount::new(2), two)])));
    let fraction = (50_000u32..=1_000_000).prop_filter_map("a fraction", Fraction::from_millionths);
    let stated = prop_oneof![
        5 => gib().prop_map(Memory::Total),
        2 => per_gpu,
        2 => fraction.prop_map(Memory::Fraction),
    ];
    let estimated = prop::option::weighted(0.2, (1u64..48).prop_map(|gib| Memory::Total(Bytes::gib(gib))));
    (prop::option::weighted(0.96, stated), estimated, prop::bool::weighted(0.1), prop::bool::weighted(0.3)).prop_map(
        |(stated, estimated, prefer_estimate, learn)| MemorySource {
            stated,
            estimated,
            prefer_estimate,
            learn,
            estimate: None,
        },
    )
}

fn counts() -> impl Strategy<Value = BTreeSet<GpuCount>> {
    let set = |counts: &[u16]| Just(counts.iter().copied().map(GpuCount::new).collect::<BTreeSet<_>>());
    prop_oneof![3 => set(&[]), 3 => set(&[1]), 2 => set(&[1, 2]), 1 => set(&[2]), 1 => set(&[0])]
}

fn replicas() -> impl Strategy<Value = Replicas> {
    let min = prop_oneof![7 => Just(0u32), 2 => Just(1u32), 1 => Just(2u32)];
    let extra = prop_oneof![3 => Just(None), 2 => (0u32..3).prop_map(Some)];
    (min, extra, prop::bool::weighted(0.12)).prop_map(|(min, extra, pinned)| Replicas {
        min,
        max: extra.map(|extra| (min + extra).max(1)),
        pinned,
    })
}

/// Any catalogue entry, nearly always a valid one. Its name is given by its place.
pub fn any_model() -> impl Strategy<Value = ModelSpec> {
    let rarely = prop::bool::weighted;
    let host =
        (prop_oneof![2 => Just(0u64), 1 => Just(1000), 1 => Just(4000)], prop_oneof![2 => Just(0u64), 1 => 1u64..12]);
    let places =
        (rarely(0.1), rarely(0.1), rarely(0.1), prop::option::weighted(0.08, (0usize..3, 0usize..4)), rarely(0.15));
    let times = (prop::option::weighted(0.3, 0u64..30), prop::option::weighted(0.3, 0u64..10));
    (memory(), counts(), rarely(0.1), 1u32..=3, replicas(), any::<bool>(), host, places, times).prop_map(
        |(memory, gpu_counts, exclusive, concurrency, replicas, pack, (cpu, ram), places, (keep, run))| {
            let (other_pool, label, gpu_name, pinned_gpu, second_runtime) = places;
            let runtime = name(if second_runtime { "llama" } else { "vllm" });
            let mut spec = ModelSpec::new(model(0), runtime, memory);
            if other_pool {
                spec.constraints.pool = name("batch");
            }
            if label {
                spec.constraints.labels.insert(name("tier"), name("gold"));
            }
            if gpu_name {
                spec.constraints.gpu_names.insert(name("A100"));
            }
            spec.constraints.gpu_uuids.extend(pinned_gpu.map(|(machine, n)| gpu(machine, n)));
            ModelSpec {
                gpu_counts,
                exclusive,
                concurrency,
                replicas,
                placement: if pack { Placement::Pack } else { Placement::Spread },
                cpu: Millicores::new(cpu),
                ram: Bytes::gib(ram),
                keep_alive: keep.map(Span::from_secs),
                min_run: run.map(Span::from_secs),
                ..spec
            }
        },
    )
}
