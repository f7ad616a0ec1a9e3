//! The world of a scenario: the core, the agents around it, the names that the file uses, and the time.

use std::collections::{BTreeMap, HashMap};

use berth_core::{Answer, Command, Event, Refusal, Report, Settings, State, invariants, replay, step_unaudited};
use berth_domain::{Attempt, ClusterId, EpochTag, Incarnation, SlotId, Span, Timestamp, WorkloadId, WorkloadState};
use uuid::Uuid;

use crate::agent::Agent;
use crate::error::StepError;
use crate::memory::Foreign;
use crate::names::WorkloadNames;
use crate::waits::Waits;

/// When scenarios begin. Any time would do.
const BEGINNING: Timestamp = Timestamp::from_millis(1_750_000_000_000);
/// How often a gateway renews a lease that it keeps.
const RENEW_EVERY: Span = Span::from_secs(60);
/// Rounds of orders and reports after which the core is taken to be going in circles.
const MOST_ROUNDS: usize = 5000;

/// Everything there is.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) settings: Settings,
    pub(crate) state: State,
    pub(crate) cluster: ClusterId,
    clusters: u128,
    pub(crate) now: Timestamp,
    pub(crate) agents: Vec<Agent>,
    pub(crate) foreign: Foreign,
    /// What a journal would have: everything since the start, without telemetry from before the last restart.
    journal: Vec<(Timestamp, Event)>,
    /// Everything that was chosen, with why.
    pub(crate) reports: Vec<Report>,
    pub(crate) workloads: WorkloadNames<WorkloadId>,
    pub(crate) names: HashMap<WorkloadId, String>,
    /// All slots that a workload had, in order.
    pub(crate) slots_of: HashMap<WorkloadId, Vec<SlotId>>,
    pub(crate) waits: Waits,
    pub(crate) strays: BTreeMap<String, SlotId>,
    /// Gateways renew their leases, because the file does not say when they do.
    pub(crate) gateways_renew: bool,
    /// Leases that their gateway renews, and when it did so last.
    pub(crate) renewed: BTreeMap<WorkloadId, Timestamp>,
    numbers: u64,
}

impl World {
    /// A server that has just started, with agents that have not registered yet.
    pub(crate) fn new(settings: Settings, agents: Vec<Agent>, foreign: Foreign) -> Result<Self, StepError> {
        let mut world = Self {
            state: State::new(settings.clone()),
            settings,
            cluster: cluster(1),
            clusters: 1,
            now: BEGINNING,
            agents,
            foreign,
            journal: Vec::new(),
            reports: Vec::new(),
            workloads: WorkloadNames::default(),
            names: HashMap::new(),
            slots_of: HashMap::new(),
            waits: Waits::default(),
            strays: BTreeMap::new(),
            gateways_renew: false,
            renewed: BTreeMap::new(),
            numbers: 0,
        };
        let cluster = world.cluster;
        world.demand(&Command::Start { cluster, tag: EpochTag::default() })?;
        Ok(world)
    }

    /// Sends a command and keeps what came of it. Everything is checked when the agents are done with it: a check after
    /// each of many commands would cost the square of them.
    pub(crate) fn send(&mut self, command: &Command) -> Result<Answer, Refusal> {
        let done = step_unaudited(&mut self.state, command, self.now);
        let at = done.at;
        self.waits.note(&self.state, &done.events, at);
        for event in done.events {
            if let Event::WorkloadAssigned { workload, slot } = &event {
                self.slots_of.entry(*workload).or_default().push(*slot);
            }
            self.journal.push((at, event));
        }
        self.reports.extend(done.reports);
        done.answer
    }

    /// Sends a command that must be taken.
    pub(crate) fn demand(&mut self, command: &Command) -> Result<Answer, StepError> {
        self.send(command).map_err(|refusal| StepError::refused(&refusal))
    }

    /// Lets the agents do what they are told until there is nothing left to do, and checks everything.
    pub(crate) fn settle(&mut self) -> Result<(), StepError> {
        for _ in 0..MOST_ROUNDS {
            let mut quiet = true;
            for place in 0..self.agents.len() {
                self.obey(place)?;
                if self.agents[place].news && !self.agents[place].silent {
                    self.report(place)?;
                    quiet = false;
                }
            }
            if quiet {
                return self.check();
            }
        }
        Err(StepError::otherwise(format!("the agents are still busy after {MOST_ROUNDS} rounds of orders")))
    }

    fn obey(&mut self, place: usize) -> Result<(), StepError> {
        let agent = &self.agents[place];
        if agent.silent || agent.sim.facts.incarnation.is_none() {
            return Ok(());
        }
        for told in self.state.desired(&agent.sim.facts.runner.clone()) {
            let is_new = self.agents[place].sim.is_new(&told);
            let lacking = if is_new { self.lacking(&self.agents[place], &told) } else { None };
            match lacking {
                None => {
                    let is_news = self.agents[place].sim.follow(&told);
                    self.agents[place].news |= is_news;
                }
                Some(lacking) if lacking.hidden => {
                    self.agents[place].sim.refuse(&told);
                    self.agents[place].news = true;
                }
                Some(lacking) => {
                    return Err(StepError::otherwise(format!(
                        "runner {} was told to start {} with {} on {}, where {} is free",
                        self.agents[place].sim.facts.runner, told.id, lacking.needed, lacking.uuid, lacking.free
                    )));
                }
            }
        }
        Ok(())
    }

    /// An agent reports because it is time to, or because it has news.
    pub(crate) fn report(&mut self, place: usize) -> Result<(), StepError> {
        match self.speak(place) {
            Ok(()) | Err(Refusal::Superseded { .. } | Refusal::OldBoot { .. }) => Ok(()),
            Err(refusal) => Err(StepError::refused(&refusal)),
        }
    }

    /// An agent reports. One that the server does not know registers, as a real one does; one that was replaced, or is
    /// of an older boot, must not, and is silent from then on.
    pub(crate) fn speak(&mut self, place: usize) -> Result<(), Refusal> {
        if self.agents[place].sim.facts.incarnation.is_none() {
            return self.register(place);
        }
        let report = self.report_of(&self.agents[place]);
        match self.send(&Command::Report(Box::new(report))) {
            Ok(_) => {
                self.reported(place);
                Ok(())
            }
            Err(Refusal::NotRegistered { .. } | Refusal::UnknownRunner(_)) => self.register(place),
            Err(refusal @ (Refusal::Superseded { .. } | Refusal::OldBoot { .. })) => {
                self.agents[place].silent = true;
                Err(refusal)
            }
            Err(refusal) => Err(refusal),
        }
    }

    /// An agent registers.
    pub(crate) fn register(&mut self, place: usize) -> Result<(), Refusal> {
        let mut report = self.report_of(&self.agents[place]);
        report.incarnation = None;
        if let Answer::Reported { incarnation } = self.send(&Command::Report(Box::new(report)))? {
            self.joined(place, incarnation);
        }
        self.reported(place);
        Ok(())
    }

    /// The server numbered an agent.
    pub(crate) fn joined(&mut self, place: usize, incarnation: Incarnation) {
        let cluster = self.cluster;
        let agent = &mut self.agents[place];
        agent.sim.facts.incarnation = Some(incarnation);
        agent.sim.facts.cluster.get_or_insert(cluster);
        agent.silent = false;
    }

    /// A report was taken: what is over need not be said again.
    pub(crate) fn reported(&mut self, place: usize) {
        let now = self.now;
        let agent = &mut self.agents[place];
        agent.sim.sent_report(now);
        agent.news = false;
        let over = agent.sim.forget_acknowledged();
        agent.past.extend(over.into_iter().map(|(id, slot)| (id, slot.generation)));
        self.foreign.show(&self.agents[place]);
    }

    /// Time passes, second by second.
    pub(crate) fn advance(&mut self, span: Span) -> Result<(), StepError> {
        let end = self.now.after(span);
        while self.now < end {
            self.now = self.now.after(Span::from_secs(1)).min(end);
            self.demand(&Command::Tick)?;
            for place in 0..self.agents.len() {
                let agent = &self.agents[place];
                if agent.sim.is_report_due(self.now) && !agent.silent && agent.sim.facts.incarnation.is_some() {
                    self.report(place)?;
                }
            }
            self.renew()?;
            self.settle()?;
        }
        Ok(())
    }

    fn renew(&mut self) -> Result<(), StepError> {
        let due: Vec<WorkloadId> =
            self.renewed.iter().filter(|(_, at)| at.after(RENEW_EVERY) <= self.now).map(|(id, _)| *id).collect();
        for workload in due {
            let attempt = self.attempt(workload);
            let ended = self.state.workload(workload).is_none_or(|view| matches!(view.state, WorkloadState::Ended(_)));
            if ended {
                self.renewed.remove(&workload);
            } else {
                self.demand(&Command::Heartbeat { workload, attempt })?;
                self.renewed.insert(workload, self.now);
            }
        }
        Ok(())
    }

    /// Time jumps while the server is paused. The agents' time passes too, unheard.
    pub(crate) fn pause(&mut self, span: Span) {
        self.now = self.now.after(span);
    }

    /// The server restarts on what its journal kept.
    pub(crate) fn restart(&mut self) -> Result<(), StepError> {
        self.journal.retain(|(_, event)| event.is_durable());
        let mut rebuilt = self.replayed();
        let cluster = self.cluster;
        step_unaudited(&mut self.state, &Command::Start { cluster, tag: EpochTag::default() }, self.now);
        std::mem::swap(&mut self.state, &mut rebuilt);
        self.demand(&Command::Start { cluster, tag: EpochTag::default() })?;
        let (kept, read) = (durable(&rebuilt), durable(&self.state));
        match kept.iter().zip(&read).find(|(kept, read)| kept != read) {
            None => Ok(()),
            Some((kept, read)) => {
                Err(StepError::otherwise(format!("after the restart it is\n  {read}\nand before it was\n  {kept}")))
            }
        }
    }

    /// The data directory is lost; the agents live on.
    pub(crate) fn wipe(&mut self) -> Result<(), StepError> {
        self.clusters += 1;
        self.cluster = cluster(self.clusters);
        self.state = State::new(self.settings.clone());
        self.journal.clear();
        self.reports.clear();
        self.waits = Waits::default();
        let cluster = self.cluster;
        self.demand(&Command::Start { cluster, tag: EpochTag::default() })?;
        Ok(())
    }

    /// Everything that must always be true.
    pub(crate) fn check(&self) -> Result<(), StepError> {
        invariants::check(&self.state)
            .map_err(|violation| StepError::otherwise(format!("what must always be true is not: {violation}")))
    }

    /// The recorded events, applied to an empty state, give this state.
    pub(crate) fn check_replay(&self) -> Result<(), StepError> {
        let replayed = self.replayed();
        if replayed.fingerprint() == self.state.fingerprint() {
            return Ok(());
        }
        let differs = durable(&self.state).into_iter().zip(durable(&replayed)).find(|(kept, read)| kept != read);
        let (kept, read) = differs.unwrap_or_else(|| ("(a revision or what was observed)".into(), "different".into()));
        Err(StepError::otherwise(format!("replaying the events gives\n  {read}\nand not\n  {kept}")))
    }

    fn replayed(&self) -> State {
        let mut state = State::new(self.settings.clone());
        for (at, event) in &self.journal {
            replay(&mut state, event, *at);
        }
        state.finish_replay();
        state
    }

    /// The attempt that a workload is at.
    pub(crate) fn attempt(&self, workload: WorkloadId) -> Attempt {
        self.state.workload(workload).map(|view| view.attempt).unwrap_or_default()
    }

    /// An id that was not used before.
    pub(crate) fn fresh_id(&mut self) -> Uuid {
        self.numbers += 1;
        Uuid::from_u64_pair(0x5ce0, self.numbers)
    }
}

/// What a journal must keep, in lines that can be compared.
fn durable(state: &State) -> Vec<String> {
    let mut lines: Vec<String> = state.devices().iter().map(|view| format!("{view:?}")).collect();
    lines.extend(state.hosts().iter().map(|view| format!("{view:?}")));
    for mut slot in state.slots() {
        slot.gpus.iter_mut().for_each(|gpu| gpu.2 = None);
        lines.push(format!("{slot:?}"));
    }
    lines.extend(state.workloads().iter().map(|view| format!("{view:?}")));
    lines.extend(state.models().iter().map(|view| format!("{view:?}")));
    lines.extend(
        state.runners().iter().map(|view| format!("{:?} {:?} {:?}", view.id, view.admission, state.slots_of(&view.id))),
    );
    lines.push(format!("{:?} {:?}", state.queue(), state.revision()));
    lines
}

fn cluster(number: u128) -> ClusterId {
    ClusterId::new(Uuid::from_u128((0xbe47_0000 + number) << 96))
}
