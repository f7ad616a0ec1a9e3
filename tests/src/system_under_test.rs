//! The system under test: the core, simulated agents on simulated machines, and the assertions after each command.

use std::panic::{AssertUnwindSafe, catch_unwind};

use berth_core::view::WorkloadView;
use berth_core::{Answer, Command, Event, Settings, State, Step, apply, step};
use berth_domain::{
    Attempt, Bytes, EpochTag, Incarnation, JobSpec, RunnerReport, Span, Submission, Timestamp, WorkloadId,
    WorkloadKind, WorkloadState,
};
use proptest::test_runner::{Config, RngSeed};

use crate::agent::Agent;
use crate::assertions::Assertions;
use crate::hostile_command::HostileCommand;
use crate::names::{self, name};
use crate::transition::Transition;
use crate::world::{self, Machine, World};

/// An assertion that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedAssertion {
    /// The name of the assertion.
    pub check: &'static str,
    /// The values that contradict it.
    pub text: String,
}

impl std::fmt::Display for FailedAssertion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "[{}] {}", self.check, self.text)
    }
}

/// The result of a transition: the first assertion that failed, if any.
pub type AssertionResult<T = ()> = Result<T, FailedAssertion>;

/// The core with its simulated agents, and the assertions that watch it.
pub struct SystemUnderTest {
    /// The state of the core.
    pub state: State,
    /// The simulated time.
    pub now: Timestamp,
    /// The machines as they really are.
    pub machines: Vec<Machine>,
    /// The simulated agents.
    pub agents: Vec<Agent>,
    /// Every event so far, with its time.
    pub journal: Vec<(Event, Timestamp)>,
    /// Every command so far, with its time: what [`Self::describe`] prints.
    pub commands: Vec<(Command, Timestamp)>,
    /// The assertions that are checked after each command.
    pub assertions: Assertions,
    models: Vec<berth_domain::ModelSpec>,
    submitted: Vec<(WorkloadId, Submission)>,
    pub(crate) strays: u64,
}

impl SystemUnderTest {
    /// Starts the server of a world, fills its catalogue and registers every agent.
    pub fn new(world: &World) -> AssertionResult<Self> {
        let settings = world::settings();
        let agents = world.runners.iter().cloned().enumerate().map(|(n, runner)| Agent::new(n, runner)).collect();
        let mut run = Self {
            state: State::new(settings.clone()),
            now: Timestamp::from_millis(1_000_000),
            machines: world.machines.clone(),
            agents,
            journal: Vec::new(),
            commands: Vec::new(),
            models: world.models.clone(),
            assertions: Assertions::new(settings),
            submitted: Vec::new(),
            strays: 0,
        };
        run.send(Command::Start { cluster: names::cluster(), tag: EpochTag::default() })?;
        for spec in world.models.clone() {
            run.send(Command::PutModel { spec: Box::new(spec) })?;
        }
        for agent in 0..run.agents.len() {
            run.report(agent)?;
        }
        Ok(run)
    }

    /// Executes one command and checks every assertion.
    pub fn send(&mut self, command: Command) -> AssertionResult<Step> {
        let before = self.state.clone();
        let done = step_or_panic(&mut self.state, &command, self.now);
        let done = match done {
            Ok(done) => done,
            Err(failed) => {
                self.commands.push((command, self.now));
                return Err(failed);
            }
        };
        self.journal.extend(done.events.iter().map(|event| (event.clone(), done.at)));
        self.commands.push((command.clone(), self.now));
        self.assertions.after(&before, &command, &done, &self.state)?;
        Ok(done)
    }

    /// Rebuilds the state from the durable events, as a restart does.
    #[must_use]
    pub fn replayed(&self) -> State {
        self.replayed_with(self.state.settings().clone())
    }

    /// Rebuilds the state from the durable events under other settings.
    #[must_use]
    pub fn replayed_with(&self, settings: Settings) -> State {
        let mut state = State::new(settings);
        for (event, at) in self.journal.iter().filter(|(event, _)| event.is_durable()) {
            apply(&mut state, event, *at);
        }
        state
    }

    /// Executes a hostile command, for which the clock may go back.
    pub fn apply_hostile(&mut self, command: &HostileCommand) -> AssertionResult {
        let now = self.now;
        self.now = match command.jump {
            i64::MIN => Timestamp::default(),
            jump => Timestamp::from_millis(now.millis().saturating_add_signed(jump)),
        };
        let sent = self.send(command.command.clone());
        self.now = self.now.max(now);
        sent.map(|_| ())
    }

    /// Describes a failure: the assertion, every command up to it, and the last events.
    #[must_use]
    pub fn describe(&self, failed: &FailedAssertion) -> String {
        let commands = self.commands.iter().map(|(command, at)| format!("  {} {command:?}\n", at.millis()));
        let tail = self.journal.len().saturating_sub(16);
        let events = self.journal[tail..].iter().map(|(event, at)| format!("  {} {event:?}\n", at.millis()));
        let (commands, events) = (commands.collect::<String>(), events.collect::<String>());
        format!("{failed}\nafter the commands\n{commands}and at last the events\n{events}")
    }

    /// Applies one transition.
    pub fn apply(&mut self, transition: &Transition) -> AssertionResult {
        self.now = self.now.after(Span::from_millis(100));
        match transition {
            Transition::AdvanceTime { millis } => {
                self.now = self.now.after(Span::from_millis(*millis));
                self.send(Command::Tick)?;
            }
            Transition::PollAll { seconds } => {
                self.now = self.now.after(Span::from_secs(*seconds));
                for agent in 0..self.agents.len() {
                    self.poll(agent, false)?;
                }
            }
            Transition::SilenceRunner { runner, beats } => {
                self.fall_silent(usize::from(*runner) % self.agents.len(), *beats)?;
            }
            Transition::ReportAll => {
                for agent in 0..self.agents.len() {
                    self.agents[agent].work(&self.state);
                    self.report(agent)?;
                }
            }
            Transition::Submit { .. }
            | Transition::Cancel { .. }
            | Transition::Heartbeat { .. }
            | Transition::Complete { .. }
            | Transition::Finish { .. } => self.gateway(transition)?,
            Transition::Agent { runner, transition } => {
                self.apply_to_agent(usize::from(*runner) % self.agents.len(), transition)?;
            }
            Transition::Poll { runner, wrong } => self.poll(usize::from(*runner) % self.agents.len(), *wrong)?,
            _ => self.operator(transition)?,
        }
        Ok(())
    }

    fn gateway(&mut self, transition: &Transition) -> AssertionResult {
        let command = match transition {
            Transition::Submit { model, job, priority, key, ttl, timeout, restart } => {
                let kind = if *job { WorkloadKind::Job } else { WorkloadKind::Lease };
                let submission = Submission {
                    model: names::model(usize::from(*model) % (self.models.len() + 1)),
                    kind,
                    priority: berth_domain::Priority::new(*priority),
                    tenant: None,
                    owner: (*priority > 0).then(|| name(&format!("owner-{}", priority % 3))),
                    ttl: ttl.then(|| Span::from_secs(20)),
                    queue_timeout: timeout.then(|| Span::from_secs(15)),
                    job: JobSpec {
                        args: Vec::new(),
                        restart_on_lost: *restart,
                        // Some jobs say how long they run at most.
                        max_run: ttl.then(|| Span::from_secs(15)),
                    },
                    idempotency_key: key.map(|key| name(&format!("key-{key}"))),
                };
                // Sometimes the same submission again, to meet the idempotency key.
                let again = self.submitted.iter().rev().take(4).find(|(_, known)| {
                    known.idempotency_key.is_some() && known.idempotency_key == submission.idempotency_key && *restart
                });
                let submission = again.map_or(submission, |(_, known)| known.clone());
                let workload = names::workload(self.submitted.len() as u64);
                self.submitted.push((workload, submission.clone()));
                Command::Submit { workload, submission, limits: None }
            }
            Transition::Cancel { workload } => Command::Cancel { workload: self.pick(*workload).0 },
            Transition::Heartbeat { workload, wrong } => {
                let (workload, attempt) = self.pick(*workload);
                Command::Heartbeat { workload, attempt: if *wrong { attempt.next() } else { attempt } }
            }
            Transition::Complete { workload, wrong, succeeded } => {
                let (workload, attempt) = self.pick(*workload);
                let attempt = if *wrong { Attempt::new(attempt.get().saturating_sub(1)) } else { attempt };
                Command::Complete { workload, attempt, succeeded: *succeeded }
            }
            Transition::Finish { workload } => {
                let running = |row: &WorkloadView| row.state == WorkloadState::Running;
                let running: Vec<WorkloadView> = self.state.workloads().into_iter().filter(running).collect();
                match running.len() {
                    0 => Command::Tick,
                    count => {
                        let row = &running[usize::from(*workload) % count];
                        Command::Complete { workload: row.id, attempt: row.attempt, succeeded: true }
                    }
                }
            }
            other => unreachable!("{other:?} is no transition of a gateway"),
        };
        self.send(command).map(|_| ())
    }

    /// Lets time pass while one agent is silent and the others poll.
    fn fall_silent(&mut self, silent: usize, beats: u8) -> AssertionResult {
        for _ in 0..beats {
            self.now = self.now.after(Span::from_secs(9));
            self.send(Command::Tick)?;
            for agent in (0..self.agents.len()).filter(|agent| *agent != silent) {
                self.poll(agent, false)?;
            }
        }
        Ok(())
    }

    /// Chooses a known workload, with its present attempt.
    fn pick(&self, choice: u8) -> (WorkloadId, Attempt) {
        let known: Vec<_> = self.state.workloads().into_iter().map(|row| (row.id, row.attempt)).collect();
        match known.len() {
            0 => (names::workload(9_999), Attempt::new(1)),
            count => known[usize::from(choice) % count],
        }
    }

    fn operator(&mut self, transition: &Transition) -> AssertionResult {
        let runner = |n: &u8| names::runner(usize::from(*n) % self.agents.len());
        let device = |n: &u8| {
            let known = self.state.devices();
            let chosen = (!known.is_empty()).then(|| known[usize::from(*n) % known.len()].uuid.clone());
            chosen.unwrap_or_else(|| name("GPU-none"))
        };
        let slot = |n: &u8| {
            let known = self.state.slots();
            if known.is_empty() { names::stray(999) } else { known[usize::from(*n) % known.len()].id }
        };
        let command = match transition {
            Transition::PutModel { model, spec } => {
                let place = usize::from(*model) % self.models.len();
                let spec = spec.as_deref().map_or(&self.models[place], |spec| spec).clone();
                let spec = berth_domain::ModelSpec { name: names::model(place), ..spec };
                self.models[place] = spec.clone();
                Command::PutModel { spec: Box::new(spec) }
            }
            Transition::DeleteModel { model } => {
                Command::DeleteModel { model: names::model(usize::from(*model) % (self.models.len() + 1)) }
            }
            Transition::Cordon { runner: n } => Command::CordonRunner { runner: runner(n) },
            Transition::Uncordon { runner: n } => Command::UncordonRunner { runner: runner(n) },
            Transition::Drain { runner: n, deadline } => Command::DrainRunner {
                runner: runner(n),
                deadline: deadline.map(|seconds| Span::from_secs(u64::from(seconds))),
            },
            Transition::Forget { runner: n } => Command::ForgetRunner { runner: runner(n), reason: name("scrapped") },
            Transition::CordonDevice { device: n } => Command::CordonDevice { uuid: device(n) },
            Transition::UncordonDevice { device: n } => Command::UncordonDevice { uuid: device(n) },
            Transition::StopSlot { slot: n } => Command::StopSlot { slot: slot(n) },
            Transition::ForceRelease { slot: n } => Command::ForceRelease { slot: slot(n), reason: name("stuck") },
            Transition::RestartServer => Command::Start { cluster: names::cluster(), tag: EpochTag::default() },
            other => unreachable!("{other:?} is no transition of an operator"),
        };
        self.send(command).map(|_| ())
    }

    /// Polls as one agent, or, if `wrong`, as its previous incarnation.
    pub fn poll(&mut self, agent: usize, wrong: bool) -> AssertionResult {
        let Some(incarnation) = self.agents[agent].sim.facts.incarnation else { return self.report(agent) };
        let incarnation = if wrong { Incarnation::new(incarnation.get() - 1) } else { incarnation };
        self.send(Command::Poll { runner: names::runner(agent), incarnation, obeyed: None }).map(|_| ())
    }

    /// Reports as one agent, which registers if it has no incarnation.
    pub fn report(&mut self, agent: usize) -> AssertionResult {
        let machine = self.agents[agent].runner.machine;
        let others: Vec<Agent> = self.agents.iter().filter(|row| row.runner.machine == machine).cloned().collect();
        let uses = |uuid: &berth_domain::DeviceUuid| {
            others.iter().fold(Bytes::ZERO, |sum, row| sum.saturating_add(row.sim.uses(uuid)))
        };
        let report = self.agents[agent].report(&self.machines[machine], uses);
        self.send_report(agent, report)
    }

    fn send_report(&mut self, agent: usize, report: RunnerReport) -> AssertionResult {
        let step = self.send(Command::Report(Box::new(report)))?;
        match step.answer {
            Ok(Answer::Reported { incarnation }) => self.agents[agent].sim.facts.incarnation = Some(incarnation),
            // The server forgot the runner, or the boot is new: the agent registers with its next report.
            Err(berth_core::Refusal::NotRegistered { .. } | berth_core::Refusal::Superseded { .. }) => {
                self.agents[agent].sim.facts.incarnation = None;
            }
            _ => {}
        }
        Ok(())
    }
}

/// Configures proptest: `cases` cases, the same in every run, so that a failure is due to a change of the code.
///
/// The variable `PROPTEST_CASES` asks for another number of cases, which are then new in each run. No regression files
/// are written.
#[must_use]
pub fn config(cases: u32) -> Config {
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    let rng_seed = if asked.is_some() { RngSeed::Random } else { RngSeed::Fixed(0x0be4_7400) };
    let cases = asked.unwrap_or(cases);
    Config { cases, failure_persistence: None, max_shrink_iters: 4000, rng_seed, ..Config::default() }
}

/// Executes one step; a panic of the core is a failed assertion.
pub fn step_or_panic(state: &mut State, command: &Command, now: Timestamp) -> AssertionResult<Step> {
    let caught = catch_unwind(AssertUnwindSafe(|| step(state, command, now)));
    caught.map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default();
        FailedAssertion { check: "no panic", text: format!("{text} at {command:?}") }
    })
}
