//! Eviction: one request after the other asks for a model, and not all models fit at once. How often is it there?

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result};
use berth_core::Event;
use berth_domain::{
    Bytes, GpuCount, HostReport, Memory, MemorySource, Millicores, ModelName, ModelSpec, Placement, RuntimeName, Span,
    Submission,
};

use super::random::SplitMix;
use crate::catalogue::{POOLS, RUNTIME, known};
use crate::world::{Hardware, World, complete, registration};

/// The memory of a GPU in GiB.
pub const GPU_GIB: u64 = 80;
/// GiB on each GPU for models of each class; the last class takes two GPUs.
const SIZES: [u64; 8] = [7, 7, 16, 16, 24, 24, 48, 70];

/// What models need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sizing {
    /// Each model takes a whole GPU.
    Unit,
    /// The number of a model gives its size.
    Sized,
}

/// What it costs to bring a model back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartCost {
    /// Each takes a second to start.
    Equal,
    /// Each takes a second for each GiB.
    ByGib,
}

impl Sizing {
    /// GiB on each GPU, and how many GPUs.
    #[must_use]
    pub fn of(self, model: usize) -> (u64, u16) {
        match self {
            Self::Unit => (GPU_GIB, 1),
            Self::Sized => (SIZES[model % 8], if model % 8 == 7 { 2 } else { 1 }),
        }
    }

    /// GiB in all.
    #[must_use]
    pub fn gib(self, model: usize) -> u64 {
        let (gib, gpus) = self.of(model);
        gib * u64::from(gpus)
    }
}

/// What a sequence of requests came to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Served {
    /// Requests.
    pub requests: u64,
    /// Those that found their model running.
    pub hits: u64,
    /// What had to be loaded.
    pub gib_loaded: u64,
}

impl Served {
    /// The share of requests that found their model running.
    #[must_use]
    pub fn hit_ratio(&self) -> f64 {
        self.hits as f64 / self.requests.max(1) as f64
    }

    pub(super) fn count(&mut self, hit: bool, gib: u64) {
        self.requests += 1;
        self.hits += u64::from(hit);
        self.gib_loaded += if hit { 0 } else { gib };
    }
}

/// The requests of a trace, each the number of a model.
pub fn read_requests(directory: &Path) -> Result<Vec<usize>> {
    let path = directory.join("model_requests.txt");
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    text.split_whitespace().map(|word| word.parse().with_context(|| word.to_owned())).collect()
}

/// Requests as they come in life: few models get most of them, what is popular changes, and requests come in runs.
#[must_use]
pub fn generated_requests(many: usize) -> Vec<usize> {
    let mut random = SplitMix::new(26);
    let (mut requests, mut shift) = (Vec::with_capacity(many), 0);
    while requests.len() < many {
        if random.below(400) == 0 {
            shift = random.below(24);
        }
        // The product of two draws is small more often than not.
        let popular = random.below(24) * random.below(24) / 24;
        let model = (popular + shift) % 24;
        let run = 1 + random.below(3);
        requests.extend(std::iter::repeat_n(model, run));
    }
    requests.truncate(many);
    requests
}

/// Serves the requests with the real core on one runner.
#[must_use]
pub fn serve(requests: &[usize], gpus: u16, sizing: Sizing, cost: StartCost) -> Served {
    let host = HostReport { cpu: Millicores::new(1_000_000), ram: Bytes::gib(10_000) };
    let mut world = World::of_registrations([registration(0, Hardware { gpus, name: "GPU", pool: POOLS[0], host })]);
    let models: BTreeSet<usize> = requests.iter().copied().collect();
    world.put(models.iter().map(|model| spec(*model, sizing)));
    let mut served = Served::default();
    for model in requests {
        let (workload, command) = world.submit(Submission::lease(name(*model)));
        let step = world.run(&command);
        let placed = step.events.iter().any(|event| matches!(event, Event::SlotPlaced(_)));
        served.count(!placed, sizing.gib(*model));
        if placed {
            // First the victims are proven gone, then the new slot starts, and after a while it is ready.
            world.calm_slowly(match cost {
                StartCost::Equal => Span::from_secs(1),
                StartCost::ByGib => Span::from_secs(sizing.gib(*model)),
            });
        }
        world.pass(Span::from_millis(1));
        let done = world.run(&complete(workload));
        assert!(done.answer.is_ok(), "a lease could not be completed: {:?}", done.answer);
    }
    served
}

fn name(model: usize) -> ModelName {
    known(ModelName::new(format!("model/{model}")))
}

fn spec(model: usize, sizing: Sizing) -> ModelSpec {
    let (_, gpus) = sizing.of(model);
    let memory = MemorySource::stated(Memory::Total(Bytes::gib(sizing.gib(model))));
    ModelSpec {
        gpu_counts: BTreeSet::from([GpuCount::new(gpus)]),
        placement: Placement::Pack,
        keep_alive: Some(Span::from_secs(1000 * 24 * 3600)),
        min_run: Some(Span::ZERO),
        ..ModelSpec::new(name(model), known(RuntimeName::new(RUNTIME)), memory)
    }
}
