//! A run: a world, the core, and everything that must stay true after each step.

use std::panic::{AssertUnwindSafe, catch_unwind};

use berth_core::view::WorkloadView;
use berth_core::{Answer, Command, Event, Settings, State, Step, apply, step};
use berth_domain::{
    Attempt, Bytes, EpochTag, Incarnation, JobSpec, RunnerReport, Span, Submission, Timestamp, WorkloadId,
    WorkloadKind, WorkloadState,
};
use proptest::test_runner::{Config, RngSeed};

use crate::acts::Act;
use crate::agent::Agent;
use crate::checks::Checks;
use crate::hostile::Blow;
use crate::names::{self, name};
use crate::world::{self, Machine, World};

/// Something that must be true and is not: which check found it, and what it saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// The check.
    pub check: &'static str,
    /// What it saw.
    pub text: String,
}

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "[{}] {}", self.check, self.text)
    }
}

/// What a step of a run comes to.
pub type Outcome<T = ()> = Result<T, Broken>;

/// A world, the core, and the checks.
pub struct Run {
    /// The core.
    pub state: State,
    /// The time.
    pub now: Timestamp,
    /// The machines as they are.
    pub machines: Vec<Machine>,
    /// The agents.
    pub agents: Vec<Agent>,
    /// Every event so far and when it happened.
    pub journal: Vec<(Event, Timestamp)>,
    /// Every command so far, for people who look for a bug.
    pub commands: Vec<(Command, Timestamp)>,
    /// What must stay true.
    pub checks: Checks,
    models: Vec<berth_domain::ModelSpec>,
    submitted: Vec<(WorkloadId, Submission)>,
    pub(crate) strays: u64,
}

impl Run {
    /// A run of a world: the server is started, the catalogue is filled, every agent has registered.
    pub fn new(world: &World) -> Outcome<Self> {
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
            checks: Checks::new(settings),
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

    /// Carries out one command and checks everything.
    pub fn send(&mut self, command: Command) -> Outcome<Step> {
        let before = self.state.clone();
        let done = step_or_panic(&mut self.state, &command, self.now);
        let done = match done {
            Ok(done) => done,
            Err(broken) => {
                self.commands.push((command, self.now));
                return Err(broken);
            }
        };
        self.journal.extend(done.events.iter().map(|event| (event.clone(), done.at)));
        self.commands.push((command.clone(), self.now));
        self.checks.after(&before, &command, &done, &self.state)?;
        Ok(done)
    }

    /// What a restart leaves: everything that a journal keeps, and then a start.
    #[must_use]
    pub fn replayed(&self) -> State {
        self.replayed_with(self.state.settings().clone())
    }

    /// The same, on a server whose settings are others by now.
    #[must_use]
    pub fn replayed_with(&self, settings: Settings) -> State {
        let mut state = State::new(settings);
        for (event, at) in self.journal.iter().filter(|(event, _)| event.is_durable()) {
            apply(&mut state, event, *at);
        }
        state
    }

    /// Sends a hostile command; the clock may go back for it.
    pub fn suffer(&mut self, blow: &Blow) -> Outcome {
        let now = self.now;
        self.now = match blow.jump {
            i64::MIN => Timestamp::default(),
            jump => Timestamp::from_millis(now.millis().saturating_add_signed(jump)),
        };
        let sent = self.send(blow.command.clone());
        self.now = self.now.max(now);
        sent.map(|_| ())
    }

    /// What broke, with every command up to it and the last events.
    #[must_use]
    pub fn told(&self, broken: &Broken) -> String {
        let commands = self.commands.iter().map(|(command, at)| format!("  {} {command:?}\n", at.millis()));
        let tail = self.journal.len().saturating_sub(16);
        let events = self.journal[tail..].iter().map(|(event, at)| format!("  {} {event:?}\n", at.millis()));
        let (commands, events) = (commands.collect::<String>(), events.collect::<String>());
        format!("{broken}\nafter the commands\n{commands}and at last the events\n{events}")
    }

    /// Makes one thing happen.
    pub fn act(&mut self, act: &Act) -> Outcome {
        self.now = self.now.after(Span::from_millis(100));
        match act {
            Act::Pass { millis } => {
                self.now = self.now.after(Span::from_millis(*millis));
                self.send(Command::Tick)?;
            }
            Act::Beat { seconds } => {
                self.now = self.now.after(Span::from_secs(*seconds));
                for agent in 0..self.agents.len() {
                    self.poll(agent, false)?;
                }
            }
            Act::Silence { runner, beats } => self.fall_silent(usize::from(*runner) % self.agents.len(), *beats)?,
            Act::Round => {
                for agent in 0..self.agents.len() {
                    self.agents[agent].work(&self.state);
                    self.report(agent)?;
                }
            }
            Act::Submit { .. } | Act::Cancel { .. } | Act::Heartbeat { .. } | Act::Complete { .. } => {
                self.gateway(act)?;
            }
            Act::Agent { runner, deed } => self.deed(usize::from(*runner) % self.agents.len(), deed)?,
            Act::Poll { runner, wrong } => self.poll(usize::from(*runner) % self.agents.len(), *wrong)?,
            _ => self.operator(act)?,
        }
        Ok(())
    }

    fn gateway(&mut self, act: &Act) -> Outcome {
        let command = match act {
            Act::Submit { model, job, priority, key, ttl, timeout, restart } => {
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
                // Now and then the very same again.
                let again = self.submitted.iter().rev().take(4).find(|(_, known)| {
                    known.idempotency_key.is_some() && known.idempotency_key == submission.idempotency_key && *restart
                });
                let submission = again.map_or(submission, |(_, known)| known.clone());
                let workload = names::workload(self.submitted.len() as u64);
                self.submitted.push((workload, submission.clone()));
                Command::Submit { workload, submission, limits: None }
            }
            Act::Cancel { workload } => Command::Cancel { workload: self.pick(*workload).0 },
            Act::Heartbeat { workload, wrong } => {
                let (workload, attempt) = self.pick(*workload);
                Command::Heartbeat { workload, attempt: if *wrong { attempt.next() } else { attempt } }
            }
            Act::Complete { workload, wrong, succeeded } => {
                let (workload, attempt) = self.pick(*workload);
                let attempt = if *wrong { Attempt::new(attempt.get().saturating_sub(1)) } else { attempt };
                Command::Complete { workload, attempt, succeeded: *succeeded }
            }
            Act::Finish { workload } => {
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
            _ => Command::Tick,
        };
        self.send(command).map(|_| ())
    }

    /// One agent says nothing for a while; the others poll.
    fn fall_silent(&mut self, silent: usize, beats: u8) -> Outcome {
        for _ in 0..beats {
            self.now = self.now.after(Span::from_secs(9));
            self.send(Command::Tick)?;
            for agent in (0..self.agents.len()).filter(|agent| *agent != silent) {
                self.poll(agent, false)?;
            }
        }
        Ok(())
    }

    /// A recent workload and its attempt.
    fn pick(&self, choice: u8) -> (WorkloadId, Attempt) {
        let known: Vec<_> = self.state.workloads().into_iter().map(|row| (row.id, row.attempt)).collect();
        match known.len() {
            0 => (names::workload(9_999), Attempt::new(1)),
            count => known[usize::from(choice) % count],
        }
    }

    fn operator(&mut self, act: &Act) -> Outcome {
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
        let command = match act {
            Act::Put { model, spec } => {
                let place = usize::from(*model) % self.models.len();
                let spec = spec.as_deref().map_or(&self.models[place], |spec| spec).clone();
                let spec = berth_domain::ModelSpec { name: names::model(place), ..spec };
                self.models[place] = spec.clone();
                Command::PutModel { spec: Box::new(spec) }
            }
            Act::Delete { model } => {
                Command::DeleteModel { model: names::model(usize::from(*model) % (self.models.len() + 1)) }
            }
            Act::Cordon { runner: n } => Command::CordonRunner { runner: runner(n) },
            Act::Uncordon { runner: n } => Command::UncordonRunner { runner: runner(n) },
            Act::Drain { runner: n, deadline } => Command::DrainRunner {
                runner: runner(n),
                deadline: deadline.map(|seconds| Span::from_secs(u64::from(seconds))),
            },
            Act::Forget { runner: n } => Command::ForgetRunner { runner: runner(n), reason: name("scrapped") },
            Act::CordonDevice { device: n } => Command::CordonDevice { uuid: device(n) },
            Act::UncordonDevice { device: n } => Command::UncordonDevice { uuid: device(n) },
            Act::Stop { slot: n } => Command::StopSlot { slot: slot(n) },
            Act::Force { slot: n } => Command::ForceRelease { slot: slot(n), reason: name("stuck") },
            _ => Command::Start { cluster: names::cluster(), tag: EpochTag::default() },
        };
        self.send(command).map(|_| ())
    }

    /// One agent polls, as itself or as a start that is over.
    pub fn poll(&mut self, agent: usize, wrong: bool) -> Outcome {
        let Some(incarnation) = self.agents[agent].incarnation else { return self.report(agent) };
        let incarnation = if wrong { Incarnation::new(incarnation.get() - 1) } else { incarnation };
        self.send(Command::Poll { runner: names::runner(agent), incarnation, obeyed: None }).map(|_| ())
    }

    /// One agent reports what is; it registers first if it must.
    pub fn report(&mut self, agent: usize) -> Outcome {
        let machine = self.agents[agent].runner.machine;
        let others: Vec<Agent> = self.agents.iter().filter(|row| row.runner.machine == machine).cloned().collect();
        let uses = |uuid: &berth_domain::DeviceUuid| {
            others.iter().fold(Bytes::ZERO, |sum, row| sum.saturating_add(row.uses(uuid)))
        };
        let report = self.agents[agent].report(&self.machines[machine], uses);
        self.send_report(agent, report)
    }

    fn send_report(&mut self, agent: usize, report: RunnerReport) -> Outcome {
        let step = self.send(Command::Report(Box::new(report)))?;
        match step.answer {
            Ok(Answer::Reported { incarnation }) => self.agents[agent].incarnation = Some(incarnation),
            // It was forgotten, or its boot is new: it registers the next time.
            Err(berth_core::Refusal::NotRegistered { .. } | berth_core::Refusal::Superseded { .. }) => {
                self.agents[agent].incarnation = None;
            }
            _ => {}
        }
        Ok(())
    }
}

/// So many cases, the same in every run: a change is judged by what it changed. With `PROPTEST_CASES` as many as it
/// says, and new ones each time: that is how to look for what nobody thought of. No files are left behind.
#[must_use]
pub fn config(cases: u32) -> Config {
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    let rng_seed = if asked.is_some() { RngSeed::Random } else { RngSeed::Fixed(0x0be4_7400) };
    let cases = asked.unwrap_or(cases);
    Config { cases, failure_persistence: None, max_shrink_iters: 4000, rng_seed, ..Config::default() }
}

/// A step, with a panic of the core as something that broke.
pub fn step_or_panic(state: &mut State, command: &Command, now: Timestamp) -> Outcome<Step> {
    let caught = catch_unwind(AssertUnwindSafe(|| step(state, command, now)));
    caught.map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default();
        Broken { check: "no panic", text: format!("{text} at {command:?}") }
    })
}
