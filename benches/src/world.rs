//! A fleet with simulated agents, built and driven through commands only.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

use berth_core::{Answer, Command, Event, Settings, State, Step, step};
use berth_domain::{
    Attempt, BootId, Bytes, ClusterId, DeviceUuid, EpochTag, GpuHealth, GpuName, GpuReport, HostReport, MachineId,
    Millicores, ModelName, ModelSpec, PoolName, ReasonText, ReportedMemory, ReportedState, RunnerId, RunnerReport,
    RuntimeKind, RuntimeName, Sequence, SlotId, SlotReport, Span, Submission, Timestamp, WorkloadId,
};
use berth_sim::SimulatedAgent;
use uuid::Uuid;

use crate::catalogue::{self, FILLING, GPUS, POOLS, RUNTIME, known};

/// The memory of every GPU here.
pub const GPU_MEMORY: Bytes = Bytes::gib(80);

/// What one runner has.
#[derive(Clone, Copy, Debug)]
pub struct Hardware {
    /// How many GPUs.
    pub gpus: u16,
    /// Which of [`GPUS`].
    pub name: &'static str,
    /// Which of [`POOLS`].
    pub pool: &'static str,
    /// CPU and RAM.
    pub host: HostReport,
}

/// Runners with these numbers of GPUs each: one in five in the second pool, one in three with the second GPU.
#[must_use]
pub fn fleet(gpus: impl IntoIterator<Item = u16>) -> Vec<Hardware> {
    let host = HostReport { cpu: Millicores::new(128_000), ram: Bytes::gib(1024) };
    let runner = |(place, gpus): (usize, u16)| Hardware {
        gpus,
        name: GPUS[usize::from(place % 3 == 2)],
        pool: POOLS[usize::from(place % 5 == 4)],
        host,
    };
    gpus.into_iter().enumerate().map(runner).collect()
}

/// `runners` runners with eight GPUs each.
#[must_use]
pub fn eights(runners: usize) -> Vec<Hardware> {
    fleet(std::iter::repeat_n(8, runners))
}

/// The same, all alike and in one pool.
#[must_use]
pub fn alike(runners: usize) -> Vec<Hardware> {
    eights(runners).into_iter().map(|hardware| Hardware { name: GPUS[0], pool: POOLS[0], ..hardware }).collect()
}

/// 1 213 runners with 6 212 GPUs, in the proportions of a published trace of a production cluster, well mixed.
#[must_use]
pub fn mixed() -> Vec<Hardware> {
    let mut gpus: Vec<u16> =
        [(1, 24), (2, 518), (4, 54), (8, 617)].iter().flat_map(|(gpus, many)| vec![*gpus; *many]).collect();
    let mut dice = Dice(7);
    for place in (1..gpus.len()).rev() {
        gpus.swap(place, dice.below(place + 1));
    }
    fleet(gpus)
}

/// Numbers that are the same in every run.
#[derive(Clone, Debug)]
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        usize::try_from((mixed ^ (mixed >> 31)) >> 33).unwrap_or(0) % end.max(1)
    }
}

/// What the world remembers of a slot.
#[derive(Clone, Copy, Debug)]
struct Berth {
    agent: usize,
    bytes: u64,
}

/// A core and the fleet around it.
#[derive(Clone, Debug)]
pub struct World {
    /// The core.
    pub state: State,
    now: Timestamp,
    agents: Vec<SimulatedAgent>,
    by_id: HashMap<RunnerId, usize>,
    slots: HashMap<SlotId, Berth>,
    /// Agents that have something to do.
    stirred: BTreeSet<usize>,
    claimed: u64,
    workloads: u64,
    jobs: Vec<WorkloadId>,
    dice: Dice,
}

impl World {
    /// A started core that knows these runners.
    #[must_use]
    pub fn new(fleet: &[Hardware]) -> Self {
        // Time stands still while a bench runs, so nothing but what is measured happens.
        let settings = Settings {
            suspect_after: Span::from_secs(30 * 24 * 3600),
            lost_after: Span::from_secs(60 * 24 * 3600),
            age_limit: Span::from_secs(30 * 24 * 3600),
            keep_ended: 1000,
            ..Settings::default()
        };
        let mut world = Self {
            state: State::new(settings),
            now: Timestamp::from_millis(1_000_000),
            agents: Vec::new(),
            by_id: HashMap::new(),
            slots: HashMap::new(),
            stirred: BTreeSet::new(),
            claimed: 0,
            workloads: 0,
            jobs: Vec::new(),
            dice: Dice(1),
        };
        world.run(&Command::Start { cluster: ClusterId::new(Uuid::from_u64_pair(1, 1)), tag: EpochTag::default() });
        for hardware in fleet {
            world.register(*hardware);
        }
        world
    }

    fn register(&mut self, hardware: Hardware) {
        let registration = registration(self.agents.len(), hardware);
        self.by_id.insert(registration.runner.clone(), self.agents.len());
        let step = self.run(&Command::Report(Box::new(registration.clone())));
        let incarnation = match step.answer {
            Ok(Answer::Reported { incarnation }) => incarnation,
            answer => unreachable!("a registration was answered with {answer:?}"),
        };
        let mut agent = SimulatedAgent::new(registration);
        agent.facts.incarnation = Some(incarnation);
        self.agents.push(agent);
    }

    /// Adds models to the catalogue.
    pub fn put(&mut self, models: impl IntoIterator<Item = ModelSpec>) {
        for spec in models {
            let step = self.run(&Command::PutModel { spec: Box::new(spec) });
            assert!(step.answer.is_ok(), "a model was refused: {:?}", step.answer);
        }
    }

    /// Carries out a command.
    pub fn run(&mut self, command: &Command) -> Step {
        self.timed(command).1
    }

    /// Carries out a command and says how long the core took.
    pub fn timed(&mut self, command: &Command) -> (Duration, Step) {
        let begin = Instant::now();
        let step = step(&mut self.state, command, self.now);
        let time = begin.elapsed();
        self.watch(&step);
        (time, step)
    }

    fn watch(&mut self, step: &Step) {
        for event in &step.events {
            match event {
                Event::SlotPlaced(placed) => {
                    let Some(agent) = self.by_id.get(&placed.runner).copied() else { continue };
                    let bytes = placed.claims.iter().map(|claim| claim.bytes.get()).sum();
                    self.claimed += bytes;
                    self.slots.insert(placed.slot, Berth { agent, bytes });
                    self.stirred.insert(agent);
                }
                Event::SlotReleased { slot, .. } | Event::PromiseWithdrawn { slot } => {
                    if let Some(berth) = self.slots.remove(slot) {
                        self.claimed -= berth.bytes;
                    }
                }
                Event::SlotGranted { slot } | Event::SlotStopping { slot, .. } | Event::PromiseKept { slot, .. } => {
                    self.stirred.extend(self.slots.get(slot).map(|berth| berth.agent));
                }
                _ => {}
            }
        }
    }

    /// Time passes, in steps that are no pause of the server.
    pub fn advance(&mut self, span: Span) {
        let end = self.now.after(span);
        while self.now < end {
            self.now = self.now.after(Span::from_secs(10)).min(end);
            self.run(&Command::Tick);
        }
    }

    /// A command that submits `submission` under a new id.
    pub fn submit(&mut self, submission: Submission) -> (WorkloadId, Command) {
        self.workloads += 1;
        let workload = WorkloadId::new(Uuid::from_u64_pair(2, self.workloads));
        (workload, Command::Submit { workload, submission, limits: None })
    }

    /// Takes a workload back.
    pub fn cancel(&mut self, workload: WorkloadId) -> (Duration, Step) {
        self.timed(&Command::Cancel { workload })
    }

    /// Where a slot is.
    #[must_use]
    pub fn agent_of(&self, slot: SlotId) -> Option<usize> {
        self.slots.get(&slot).map(|berth| berth.agent)
    }

    /// How many slots an agent has.
    #[must_use]
    pub fn slots_of(&self, agent: usize) -> usize {
        self.slots.values().filter(|berth| berth.agent == agent).count()
    }

    /// A poll of an agent.
    #[must_use]
    pub fn poll(&self, agent: usize) -> Command {
        let facts = &self.agents[agent].facts;
        let incarnation = facts.incarnation.unwrap_or_else(|| unreachable!("{} registered", facts.runner));
        Command::Poll { runner: facts.runner.clone(), incarnation, obeyed: None }
    }

    /// The next report of an agent that did all it was asked: what should run is ready, what should stop is gone.
    pub fn report(&mut self, agent: usize) -> Command {
        let agent = &mut self.agents[agent];
        for slot in self.state.desired(&agent.facts.runner) {
            agent.follow(&slot);
        }
        let report = agent.report(|uuid| agent.uses(uuid));
        agent.sent_report(self.now);
        agent.forget_acknowledged();
        Command::Report(Box::new(report))
    }

    /// Agents do what they were asked to and report it, until nobody has anything left to do.
    pub fn calm(&mut self) {
        while let Some(agent) = self.stirred.pop_first() {
            let report = self.report(agent);
            let step = self.run(&report);
            assert!(step.answer.is_ok(), "a report was refused: {:?}", step.answer);
        }
    }

    /// The share of all GPU memory that is claimed, in percent.
    #[must_use]
    pub fn fill(&self) -> f64 {
        let gpus: usize = self.agents.iter().map(|agent| agent.gpus.len()).sum();
        100.0 * (self.claimed as f64) / (gpus.max(1) as f64 * GPU_MEMORY.get() as f64)
    }

    /// How many slots there are.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Fills the fleet with jobs to so many percent: somewhat fuller at first, then jobs end here and there, so that
    /// the room that is left lies as it does in life.
    pub fn fill_to(&mut self, percent: f64) {
        let over = (percent + 8.0).min(99.99);
        let mut failed = 0;
        while self.fill() < over && failed < 1000 {
            let place = self.dice.below(10);
            let pool = POOLS[usize::from(place > 7)];
            let first = self.dice.below(FILLING.len() - 1);
            let placed = FILLING[first..].iter().find_map(|gib| self.place_job(pool, *gib));
            failed = if placed.is_some() { 0 } else { failed + 1 };
            self.jobs.extend(placed);
        }
        self.calm();
        while self.fill() > percent && !self.jobs.is_empty() {
            let job = self.dice.below(self.jobs.len());
            let job = self.jobs.swap_remove(job);
            self.cancel(job);
            self.calm();
        }
        self.run(&Command::Tick);
    }

    fn place_job(&mut self, pool: &str, gib: u64) -> Option<WorkloadId> {
        let name = known(ModelName::new(format!("fill/{pool}/{gib}g")));
        let (workload, command) = self.submit(Submission::job(name));
        let placed = self.run(&command).events.iter().any(|event| matches!(event, Event::SlotPlaced(_)));
        if !placed {
            self.cancel(workload);
        }
        placed.then_some(workload)
    }

    /// Fills the fleet with busy slots of these models, one lease each, until none of them fits.
    pub fn fill_with_leases(&mut self, models: &[ModelName]) -> Vec<WorkloadId> {
        let (mut leases, mut left) = (Vec::new(), models.to_vec());
        while !left.is_empty() {
            let model = self.dice.below(left.len());
            let (workload, command) = self.submit(Submission::lease(left[model].clone()));
            if self.run(&command).events.iter().any(|event| matches!(event, Event::SlotPlaced(_))) {
                leases.push(workload);
            } else {
                self.cancel(workload);
                left.swap_remove(model);
            }
        }
        self.calm();
        leases
    }

    /// Ends leases one by one and waits until their idle slots may be evicted.
    pub fn leave_idle(&mut self, leases: &[WorkloadId]) {
        for lease in leases {
            let step = self.run(&complete(*lease));
            assert!(step.answer.is_ok(), "a lease could not be completed: {:?}", step.answer);
            self.now = self.now.after(Span::from_millis(1));
        }
        self.advance(Span::from_secs(31));
    }

    /// Forgets one of the jobs that fill the fleet, any of them: the caller ends it.
    pub fn any_job(&mut self) -> Option<WorkloadId> {
        let job = self.dice.below(self.jobs.len());
        (!self.jobs.is_empty()).then(|| self.jobs.swap_remove(job))
    }

    /// Forgets everything but the core, to see what that holds.
    #[must_use]
    pub fn into_state(self) -> State {
        self.state
    }
}

/// The completion of a workload at its first attempt.
#[must_use]
pub fn complete(workload: WorkloadId) -> Command {
    Command::Complete { workload, attempt: Attempt::new(1), succeeded: true }
}

/// Everything that fills a fleet, and everything that is submitted to it.
#[must_use]
pub fn whole_catalogue() -> Vec<ModelSpec> {
    let filling = POOLS.iter().flat_map(|pool| FILLING.iter().map(|gib| catalogue::filling(pool, *gib)));
    catalogue::submitted().into_iter().chain(filling).collect()
}

fn registration(number: usize, hardware: Hardware) -> RunnerReport {
    let gpu = |index: u16| GpuReport {
        uuid: known(DeviceUuid::new(format!("GPU-{number:08x}-0000-4000-8000-{index:012x}"))),
        index,
        name: known(GpuName::new(hardware.name)),
        memory_total: GPU_MEMORY,
        memory_used: Bytes::ZERO,
        memory_reserved: Bytes::ZERO,
        parent: None,
        health: GpuHealth::Ok,
    };
    RunnerReport {
        runner: known(RunnerId::new(format!("runner-{number:05}"))),
        incarnation: None,
        cluster: None,
        obeyed: None,
        shares_machine: true,
        sequence: Sequence::new(1),
        machine: known(MachineId::new(format!("machine-{number:05}"))),
        boot: known(BootId::new(format!("boot-{number:05}"))),
        version: known(ReasonText::new("0.1.0")),
        address: known(ReasonText::new(format!("10.{}.{}.1:7000", number / 256, number % 256))),
        pool: known(PoolName::new(hardware.pool)),
        labels: BTreeMap::new(),
        allowed: Default::default(),
        engines: Default::default(),
        runtimes: BTreeMap::from([(known(RuntimeName::new(RUNTIME)), RuntimeKind::Both)]),
        host: hardware.host,
        gpus: (0..hardware.gpus).map(gpu).collect(),
        slots: Vec::new(),
    }
}

/// The first report of a runner with as many GPUs as it may have, and so many slots that the server does not know.
#[must_use]
pub fn largest_report(number: usize, slots: usize) -> Command {
    let host = HostReport { cpu: Millicores::new(128_000), ram: Bytes::gib(2048) };
    let mut report = registration(number, Hardware { gpus: 128, host, ..eights(1)[0] });
    let uuid = |slot: usize| report.gpus[slot % report.gpus.len()].uuid.clone();
    let strays = (0..slots).map(|slot| SlotReport {
        id: SlotId::new(Uuid::from_u64_pair(number as u64, slot as u64)),
        generation: berth_domain::Generation::new(1),
        model: None,
        state: ReportedState::Ready,
        exit: None,
        endpoint: None,
        claims: vec![berth_domain::ReportedClaim { uuid: uuid(slot), bytes: Bytes::gib(1) }],
        memory: vec![ReportedMemory { uuid: uuid(slot), used: Bytes::gib(1), peak: Bytes::gib(1) }],
    });
    report.slots = strays.collect();
    Command::Report(Box::new(report))
}
