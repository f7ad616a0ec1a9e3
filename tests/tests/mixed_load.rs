//! Twenty runners of eight 80 GiB GPUs and ten thousand mixed submissions, completions and cancellations: every ledger
//! adds up after every step, and every workload that was taken in is found.

use std::collections::BTreeSet;

use berth_core::{Answer, Command, Settings, State, invariants, step};
use berth_domain::{
    Bytes, EpochTag, GpuCount, GpuHealth, HostReport, Memory, MemorySource, Millicores, ModelSpec, Span, Submission,
    Timestamp, WorkloadId, WorkloadState,
};
use berth_tests::agent::Agent;
use berth_tests::assertions::check_lines;
use berth_tests::names::{self, name};
use berth_tests::world::{Gpu, Machine, Runner};

const RUNNERS: usize = 20;
const SUBMISSIONS: u64 = 10_000;

/// A small generator of numbers: the same on every machine.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

struct Fleet {
    state: State,
    now: Timestamp,
    steps: u64,
    machines: Vec<Machine>,
    agents: Vec<Agent>,
    known: BTreeSet<WorkloadId>,
}

impl Fleet {
    fn new() -> Self {
        let gpu = |machine: usize, n: usize| Gpu {
            uuid: names::gpu(machine, n),
            name: name("A100"),
            total: Bytes::gib(80),
            parent: None,
            foreign: Bytes::ZERO,
            health: GpuHealth::Ok,
            listed: true,
        };
        let host = HostReport { cpu: Millicores::new(128_000), ram: Bytes::gib(1024) };
        let machine = |number| Machine { gpus: (0..8).map(|n| gpu(number, n)).collect(), host, boots: 1 };
        let runner = |machine| Runner {
            machine,
            sees: 0xff,
            replicas: 1,
            default_pool: true,
            labelled: false,
            both_runtimes: false,
            second_runtime: berth_domain::RuntimeKind::Both,
        };
        Self {
            state: State::new(Settings::default()),
            now: Timestamp::from_millis(1_000_000),
            steps: 0,
            machines: (0..RUNNERS).map(machine).collect(),
            agents: (0..RUNNERS).map(|n| Agent::new(n, runner(n))).collect(),
            known: BTreeSet::new(),
        }
    }

    /// One step. Debug builds check every ledger in it by themselves.
    fn send(&mut self, command: &Command) -> Option<Answer> {
        let done = step(&mut self.state, command, self.now);
        self.steps += 1;
        self.now = self.now.after(Span::from_millis(2));
        if self.steps.is_multiple_of(50) {
            assert_eq!(check_lines(&self.state), Ok(()), "step {}", self.steps);
        }
        if self.steps.is_multiple_of(500) {
            assert_eq!(invariants::check(&self.state), Ok(()), "step {}", self.steps);
        }
        done.answer.ok()
    }

    fn report(&mut self, number: usize) {
        self.agents[number].work(&self.state);
        let agent = self.agents[number].clone();
        let report = self.agents[number].report(&self.machines[number], |uuid| agent.sim.uses(uuid));
        if let Some(Answer::Reported { incarnation }) = self.send(&Command::Report(Box::new(report))) {
            self.agents[number].sim.facts.incarnation = Some(incarnation);
        }
    }

    fn submit(&mut self, number: u64, submission: Submission) {
        let workload = names::workload(number);
        if let Some(Answer::Submitted { workload, .. }) =
            self.send(&Command::Submit { workload, submission, limits: None })
        {
            self.known.insert(workload);
        }
    }

    /// Ends some recent workload: most are done, some are taken back.
    fn end_one(&mut self, newest: u64, numbers: &mut Numbers) {
        let workload = names::workload(newest.saturating_sub(numbers.below(300)));
        let Some(row) = self.state.workload(workload) else { return };
        let command = match row.state {
            WorkloadState::Running if numbers.below(10) > 0 => {
                Command::Complete { workload, attempt: row.attempt, succeeded: numbers.below(20) > 0 }
            }
            WorkloadState::Queued if numbers.below(4) > 0 => return,
            WorkloadState::Ended(_) => return,
            _ => Command::Cancel { workload },
        };
        self.send(&command);
    }
}

fn catalogue() -> Vec<ModelSpec> {
    let model = |n: usize, gib: u64, count: u16, concurrency: u32| ModelSpec {
        gpu_counts: [GpuCount::new(count)].into(),
        concurrency,
        cpu: Millicores::new(1000),
        min_run: Some(Span::from_secs(1)),
        ..ModelSpec::new(names::model(n), name("vllm"), MemorySource::stated(Memory::Total(Bytes::gib(gib))))
    };
    vec![
        model(0, 8, 1, 4),
        model(1, 14, 1, 2),
        model(2, 39, 1, 1),
        model(3, 74, 1, 2),
        model(4, 140, 2, 4),
        model(5, 300, 4, 1),
        model(6, 560, 8, 1),
        ModelSpec { exclusive: true, ..model(7, 10, 1, 1) },
        ModelSpec { gpu_counts: [GpuCount::new(0)].into(), ..model(8, 1, 1, 1) },
        model(9, 20, 1, 1),
    ]
}

#[test]
fn c4_ten_thousand_mixed_submissions_lose_nothing() {
    let mut fleet = Fleet::new();
    let mut numbers = Numbers(7);
    fleet.send(&Command::Start { cluster: names::cluster(), tag: EpochTag::default() });
    for spec in catalogue() {
        fleet.send(&Command::PutModel { spec: Box::new(spec) });
    }
    (0..RUNNERS).for_each(|n| fleet.report(n));
    for number in 0..SUBMISSIONS {
        let model = names::model(usize::try_from(numbers.below(10)).unwrap_or(0));
        let job = numbers.below(8) == 0;
        fleet.submit(number, if job { Submission::job(model) } else { Submission::lease(model) });
        (0..3).for_each(|_| fleet.end_one(number, &mut numbers));
        if number.is_multiple_of(4) {
            fleet.report(usize::try_from(numbers.below(RUNNERS as u64)).unwrap_or(0));
        }
    }
    invariants::check(&fleet.state).unwrap_or_else(|violation| panic!("{violation}"));
    assert!(fleet.known.len() > 5_000, "only {} were taken in", fleet.known.len());
    let lost: Vec<_> = fleet.known.iter().filter(|id| fleet.state.workload(**id).is_none()).collect();
    assert!(lost.is_empty(), "{} of {} are lost: {lost:?}", lost.len(), fleet.known.len());
    let ended = fleet.state.workloads().iter().filter(|row| matches!(row.state, WorkloadState::Ended(_))).count();
    assert!(ended > 3_000, "only {ended} came to their end");
}
