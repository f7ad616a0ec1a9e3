//! Evictions back and forth (E8): two models that each need the whole GPU, and requests for them in turn, every second for ten minutes.

use std::collections::BTreeMap;

use berth_core::{Command, Event, Settings, State, StopReason, invariants, step};
use berth_domain::{
    Bytes, EpochTag, GpuHealth, HostReport, Memory, MemorySource, Millicores, ModelSpec, Span, Submission, Timestamp,
    WorkloadEnd, WorkloadId, WorkloadState,
};
use berth_tests::agent::Agent;
use berth_tests::names::{cluster, gpu, model, name, workload};
use berth_tests::world::{Gpu, Machine, Runner};

const BEGIN: u64 = 1_000_000;
/// Gateways look this often, in milliseconds.
const GLANCE: u64 = 100;
/// The agent takes this long for each step of a start or a stop.
const AGENT_STEP: u64 = 500;
const REQUESTS: u64 = 600;

#[test]
fn e8_short_requests_swap_at_most_once_per_min_run() {
    play(50, 1);
}

#[test]
fn e8_long_requests_swap_at_most_once_per_min_run() {
    play(300, 1);
}

#[test]
fn e8_requests_that_nearly_fill_the_gpu_swap_at_most_once_per_min_run() {
    play(700, 1);
}

/// Neither model is ever idle by itself: each turn is due to a reservation.
#[test]
fn e8_overlapping_requests_swap_at_most_once_per_age_limit() {
    play(2500, 4);
}

/// Each request takes `service` milliseconds, and a slot serves `concurrency` of them at once.
fn play(service: u64, concurrency: u32) {
    let mut bench = Bench::new(concurrency);
    let min_run = bench.settings.min_run.millis();
    // Its turn comes after `min_run`, or past the age limit; then those before it are served.
    let longest_wait = if service < 2000 { 2 * min_run } else { 2 * bench.settings.age_limit.millis() };
    let turn = if service < 2000 { min_run } else { bench.settings.age_limit.millis() };
    let end = BEGIN + REQUESTS * 1000;
    let mut now = BEGIN;
    while now < end || !bench.open.is_empty() {
        assert!(now < end + 2 * longest_wait, "service {service}: {} requests wait for ever", bench.open.len());
        bench.now = now;
        if now < end && (now - BEGIN).is_multiple_of(1000) {
            let number = (now - BEGIN) / 1000;
            bench.submit(number);
        }
        if now.is_multiple_of(AGENT_STEP) {
            bench.send(&Command::Tick);
            bench.agent_works();
        }
        bench.serve(service);
        now += GLANCE;
    }

    assert_eq!(bench.waits.len() as u64, REQUESTS, "service {service}: every request was served");
    let longest = bench.waits.iter().max().copied().unwrap_or_default();
    assert!(longest <= longest_wait, "service {service}: somebody waited {longest} ms");

    let swaps = &bench.swaps;
    for pair in swaps.windows(2) {
        let apart = pair[1] - pair[0];
        assert!(apart >= min_run, "service {service}: two swaps within {apart} ms: {swaps:?}");
    }
    let most = REQUESTS * 1000 / min_run;
    let during = swaps.iter().filter(|at| **at < end).count() as u64;
    assert!(during <= most, "service {service}: {during} swaps in ten minutes, at most {most} are allowed");
    // Both models had their turn, again and again.
    assert!(during >= REQUESTS * 1000 / turn / 2, "service {service}: only {during} swaps in ten minutes");

    assert_eq!(bench.state.evictions(), swaps.len() as u64, "service {service}: the swaps are counted");
    let of_models: u64 = bench.state.models().iter().map(|row| row.evictions).sum();
    assert_eq!(of_models, swaps.len() as u64, "service {service}: and for each model");
}

/// The core, one agent with one GPU of 80 GiB, and the gateways of two models.
struct Bench {
    settings: Settings,
    state: State,
    now: u64,
    machine: Machine,
    agent: Agent,
    /// Requests that are not done: since when they wait, and since when they are served.
    open: BTreeMap<WorkloadId, (u64, Option<u64>)>,
    /// How long each waited.
    waits: Vec<u64>,
    /// When a slot had to go for another model.
    swaps: Vec<u64>,
}

impl Bench {
    fn new(concurrency: u32) -> Self {
        let settings = Settings::default();
        let device = Gpu {
            uuid: gpu(0, 0),
            name: name("H100"),
            total: Bytes::gib(80),
            parent: None,
            foreign: Bytes::ZERO,
            health: GpuHealth::Ok,
            listed: true,
        };
        let runner = Runner {
            machine: 0,
            sees: 1,
            replicas: 1,
            default_pool: true,
            labelled: false,
            both_runtimes: false,
            second_runtime: berth_domain::RuntimeKind::Both,
        };
        let host = HostReport { cpu: Millicores::new(8000), ram: Bytes::gib(64) };
        let mut bench = Self {
            state: State::new(settings.clone()),
            settings,
            now: BEGIN,
            machine: Machine { gpus: vec![device], host, boots: 1 },
            agent: Agent::new(0, runner),
            open: BTreeMap::new(),
            waits: Vec::new(),
            swaps: Vec::new(),
        };
        assert_eq!(bench.settings.min_run, Span::from_secs(30));
        bench.send(&Command::Start { cluster: cluster(), tag: EpochTag::default() });
        for number in 0..2 {
            let whole = MemorySource::stated(Memory::Total(Bytes::gib(80)));
            let spec = ModelSpec { concurrency, ..ModelSpec::new(model(number), name("vllm"), whole) };
            bench.send(&Command::PutModel { spec: Box::new(spec) });
        }
        bench.agent_works();
        bench
    }

    /// Carries out a command that must be taken, and looks for swaps in what came of it.
    fn send(&mut self, command: &Command) {
        let done = step(&mut self.state, command, Timestamp::from_millis(self.now));
        assert!(done.answer.is_ok(), "{command:?}: {:?}", done.answer);
        if let Ok(berth_core::Answer::Reported { incarnation }) = done.answer {
            self.agent.sim.facts.incarnation = Some(incarnation);
        }
        for event in &done.events {
            match event {
                Event::SlotStopping { why: StopReason::Evicted | StopReason::Reserved, .. } => {
                    self.swaps.push(self.now);
                }
                Event::SlotStopping { why, .. } => assert_eq!(*why, StopReason::Idle, "at {}", self.now),
                _ => {}
            }
        }
    }

    fn agent_works(&mut self) {
        self.agent.work(&self.state);
        let uses: BTreeMap<_, _> =
            self.machine.gpus.iter().map(|gpu| (gpu.uuid.clone(), self.agent.sim.uses(&gpu.uuid))).collect();
        let used = uses.values().fold(Bytes::ZERO, |sum, bytes| sum.saturating_add(*bytes));
        assert!(used <= Bytes::gib(80), "{used} used of 80 GiB");
        let report = self.agent.report(&self.machine, |uuid| uses.get(uuid).copied().unwrap_or_default());
        self.send(&Command::Report(Box::new(report)));
        assert!(invariants::check(&self.state).is_ok(), "{:?}", invariants::check(&self.state));
    }

    /// The models take turns.
    fn submit(&mut self, number: u64) {
        let id = workload(number);
        let of = model(usize::from(!number.is_multiple_of(2)));
        self.send(&Command::Submit { workload: id, submission: Submission::lease(of), limits: None });
        self.open.insert(id, (self.now, None));
    }

    /// Each request that runs is done after `service` milliseconds.
    fn serve(&mut self, service: u64) {
        let mut done = Vec::new();
        for (id, (since, served)) in &mut self.open {
            let view = self.state.workload(*id);
            let Some(view) = view.filter(|view| view.state == WorkloadState::Running) else { continue };
            let begun = *served.get_or_insert(self.now);
            if self.now >= begun + service {
                done.push((*id, view.attempt, begun - *since));
            }
        }
        for (id, attempt, waited) in done {
            self.send(&Command::Complete { workload: id, attempt, succeeded: true });
            let state = self.state.workload(id).map(|view| view.state);
            assert_eq!(state, Some(WorkloadState::Ended(WorkloadEnd::Succeeded)));
            self.waits.push(waited);
            self.open.remove(&id);
        }
    }
}
