//! The agent: observes, decides, acts and reports, again and again. All decisions are made by [`crate::reconcile`],
//! which is pure.
//!
//! ```text
//! inventory (its own thread) ──┐
//! desired (long poll) ─────────┼─> round: observe -> reconcile -> put on record -> act ──> report
//! processes, health, time ─────┘
//! ```
//!
//! | part | what it does | may change |
//! | --- | --- | --- |
//! | `Observer` | looks at the driver and at processes | nothing on the machine |
//! | `HealthChecks` | probes slots | their health |
//! | [`crate::reconcile`] | decides what to do next | nothing: it is a function |
//! | `Executor` | starts, signals, adopts; writes the record first | processes, the record |
//! | `Reporter` | tells the server | nothing |
//! | `Slots` | holds what the parts above know of slots | |
//!
//! One task does the rounds. Calls that may block (the driver, the server) run elsewhere and answer through channels,
//! so that a server that is away delays no round, and a driver that hangs delays one by its deadline at most.

mod act;
mod adopt;
mod config;
mod health;
mod inventory_log;
mod inventory_thread;
mod last_lines;
mod link;
mod live;
mod observe;
mod programs;
mod reap;
mod render;
mod report;
mod requests;
mod search;
mod secrets;
mod slots;
mod start;
mod users;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use berth_client::{Client, ClientError};
use berth_domain::{DesiredSlot, SlotId, Timestamp};
use berth_wire::AgentRequest;
use tokio::sync::watch;

pub use config::{AgentConfig, AgentSettings, ConfigError};
pub use users::log_slot_users;

use crate::clock::now;
use crate::process::{ProcessTable, SpawnOptions};
use crate::reconcile::{Action, Assignment, DesiredState, Doubt, ReconcileInput, SearchResult, Version, reconcile};
use crate::record::{ClusterBinding, RecordError};
use crate::runtime::Runtimes;
use act::{ActionContext, Executor};
use health::HealthChecks;
use link::{ServerLink, ServerMessage};
use live::LiveSlot;
use observe::{Observation, Observer};
use programs::Programs;
use reap::Reaper;
use report::Reporter;
use requests::RequestAnswers;
use slots::Slots;

/// How often the machine is observed while a slot is changing.
const POLL_WHILE_CHANGING: Duration = Duration::from_millis(20);
/// How often the machine is observed while none is. The end of a process is noticed at once.
const POLL_AT_REST: Duration = Duration::from_secs(10);
/// How often logs are read, and slots that serve are probed if it is their turn.
const CHORES_EVERY: Duration = Duration::from_secs(1);
/// How many rounds may follow each other without a pause; more would be an endless loop.
const MAX_ROUNDS: usize = 16;

/// Why an agent ends.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The agent's record cannot be written, and the agent must not act without it.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// Another start of this agent has registered.
    #[error(
        "runner {0} was registered by another agent: this one ends and leaves its slots alone. Two agents need two ids"
    )]
    Superseded(berth_domain::RunnerId),
    /// The server refused the agent.
    #[error("the server refuses this agent: {0}")]
    Refused(Box<ClientError>),
    /// An operation on this machine failed.
    #[error("{0}: {1}")]
    Io(&'static str, #[source] std::io::Error),
}

/// What an agent needs to run.
#[derive(Debug)]
pub struct AgentParts {
    /// The agent's checked configuration.
    pub settings: AgentSettings,
    /// The runtimes that it can start.
    pub runtimes: Runtimes,
    /// The client of the server.
    pub client: Client,
    /// How processes are started.
    pub spawning: SpawnOptions,
}

/// A running agent: its parts, and what they share.
pub struct Agent {
    settings: Arc<AgentSettings>,
    slots: Slots,
    assignment: Assignment,
    programs: Programs,
    observer: Observer,
    health: HealthChecks,
    executor: Executor,
    reaper: Reaper,
    reporter: Reporter,
    request_answers: RequestAnswers,
}

impl Agent {
    /// Runs until `stop` becomes true, or until an error ends the agent.
    pub async fn run(parts: AgentParts, mut stop: watch::Receiver<bool>) -> Result<(), AgentError> {
        let mut agent = Self::start(parts)?;
        agent.executor.adopt_recorded_slots(&mut agent.slots, &agent.programs.runtimes)?;
        agent.slots.prune_logs();
        // Without an inventory there is nothing to report.
        agent.observer.look_now().await;
        secrets::warn_of_loose_files(&agent.programs.runtimes);
        inventory_log::log_runtimes(&agent.programs.runtimes, &agent.settings.path());
        agent.slots.has_news |= agent.programs.look();
        loop {
            agent.round().await?;
            if *stop.borrow() && !agent.must_finish_draining(&mut stop) {
                return Ok(());
            }
            agent.wait(&mut stop).await?;
        }
    }

    fn start(parts: AgentParts) -> Result<Self, AgentError> {
        let AgentParts { settings, runtimes, client, spawning } = parts;
        let settings = Arc::new(settings);
        let users = runtimes.users();
        let slots = Slots::open(&settings)?;
        let observer = Observer::start(&settings, users.clone())?;
        let executor = Executor::start(Arc::clone(&settings), spawning, users, observer.occupancy())?;
        let link = ServerLink::new(client.clone(), settings.id.clone(), slots.store.binding().cloned());
        Ok(Self {
            slots,
            assignment: Assignment::default(),
            programs: Programs::new(Arc::clone(&settings), runtimes),
            observer,
            health: HealthChecks::new(),
            executor,
            reaper: Reaper::new()?,
            reporter: Reporter::new(Arc::clone(&settings), link),
            request_answers: RequestAnswers::new(client, settings.id.clone()),
            settings,
        })
    }

    /// Observes, decides and acts until there is nothing left to do; then reports.
    async fn round(&mut self) -> Result<(), AgentError> {
        let mut is_fresh = false;
        for _ in 0..MAX_ROUNDS {
            self.slots.store.write_pending()?;
            let mut actions = self.next_actions(is_fresh);
            // Starts and proofs rely on what the driver says after everything that went before: so the driver is asked,
            // and all is decided once more.
            if !is_fresh && actions.iter().any(Action::needs_fresh_observation) {
                is_fresh = self.observer.look_now().await;
                if is_fresh {
                    continue;
                }
                tracing::warn!("the driver does not answer: starts and proofs wait for it");
                actions.retain(|action| !action.needs_fresh_observation());
                self.slots.doubt_asked(self.assignment.desired(), "the driver does not answer");
            }
            if actions.is_empty() {
                break;
            }
            for action in actions {
                self.act(action)?;
            }
            is_fresh = false;
        }
        let inventory = self.observer.inventory();
        let Self { slots, programs, executor, reporter, .. } = self;
        reporter.report_if_due(slots, programs, &executor.secrets, inventory.as_deref());
        Ok(())
    }

    /// Observes and decides. Slots that are not on record are searched for only if the driver was just asked, because
    /// the result relies on it.
    fn next_actions(&mut self, is_fresh: bool) -> Vec<Action> {
        let (begun, now) = (Instant::now(), now());
        let table = match ProcessTable::read() {
            Ok(table) => table,
            Err(error) => {
                self.slots.doubt_all(self.assignment.desired(), &error);
                return Vec::new();
            }
        };
        self.executor.reap(&table);
        self.health.probe_due(&mut self.slots.live, now);
        self.slots.read_logs();
        let inventory = self.observer.inventory();
        let seen = self.observer.observe(&mut self.slots, &table, inventory.as_deref(), now);
        self.slots.drop_settled_doubts(self.assignment.desired());
        let mut actions = reconcile(&self.reconcile_input(now, &seen, &BTreeMap::new()));
        let unrecorded: Vec<DesiredSlot> = actions.iter().filter_map(Action::searched_slot).cloned().collect();
        if is_fresh && !unrecorded.is_empty() {
            let searched = self.observer.look_for(&self.slots, &table, inventory.as_deref(), &unrecorded);
            actions = reconcile(&self.reconcile_input(now, &seen, &searched));
        }
        self.warn_of_expired_starts();
        let micros = begun.elapsed().as_micros();
        tracing::debug!(slots = seen.slots.len(), actions = actions.len(), micros, "looked at everything");
        actions
    }

    fn act(&mut self, action: Action) -> Result<(), AgentError> {
        let inventory = self.observer.inventory();
        let context = ActionContext {
            runtimes: &self.programs.runtimes,
            desired: self.assignment.desired(),
            inventory: inventory.as_deref(),
            now: now(),
        };
        self.executor.act(&mut self.slots, action, &context)
    }

    fn reconcile_input<'a>(
        &'a self,
        now: Timestamp,
        observation: &'a Observation,
        searched: &'a BTreeMap<SlotId, SearchResult>,
    ) -> ReconcileInput<'a> {
        ReconcileInput {
            now,
            monotonic: Instant::now(),
            desired: self.assignment.desired(),
            records: self.slots.records(),
            seen: &observation.slots,
            searched,
            doubts: self.slots.doubts(),
            devices: &observation.devices,
            binding: self.slots.store.binding().map(|binding| (binding.cluster, binding.epoch)),
            can_record: self.executor.can_record(&self.slots.store),
            timeouts: self.settings.timeouts(),
        }
    }

    fn warn_of_expired_starts(&mut self) {
        if let Some(waiting) = self.assignment.newly_expired_starts(self.slots.store.records(), Instant::now()) {
            let seconds = DesiredState::MAX_AGE.as_secs();
            tracing::warn!(
                slots = waiting,
                "not started: the server said {seconds} s ago or longer that they should run, and was not heard since"
            );
        }
    }

    /// Waits until there is a reason for another round. Meanwhile slots are probed and their logs are read, which is no
    /// reason by itself.
    async fn wait(&mut self, stop: &mut watch::Receiver<bool>) -> Result<(), AgentError> {
        let is_changing = self.slots.records().values().any(|record| !record.is_at_rest());
        // Searches and writes that failed are repeated.
        let is_tried_again = !self.slots.doubts().is_empty() || !self.executor.can_record(&self.slots.store);
        let until = Instant::now()
            + match (is_changing, is_tried_again) {
                (true, _) => POLL_WHILE_CHANGING,
                (false, true) => Doubt::LOOK_AGAIN,
                (false, false) => POLL_AT_REST,
            };
        if is_changing {
            self.observer.look_soon();
        }
        let mut next_chores = Instant::now() + CHORES_EVERY;
        loop {
            let mut wakes = [Some(until), Some(next_chores), self.reaper.next(), None];
            // Slots that start are probed as soon as it is their turn; slots that serve are probed together.
            if is_changing {
                wakes[3] = self.next_probe();
            }
            let wake = wakes.into_iter().flatten().fold(until, Instant::min);
            let needs_round = tokio::select! {
                message = self.reporter.link.next_message() => self.handle_message(message)?,
                Some(first) = self.health.next_answer() => self.health.note_answers(&mut self.slots.live, first),
                () = self.executor.process_ended.notified() => true,
                Some(is_new) = self.programs.next_answer() => {
                    self.slots.has_news |= is_new;
                    is_new
                }
                Some(()) = self.reaper.child_ended() => false,
                () = tokio::time::sleep_until(wake.into()) => self.health.probe_due(&mut self.slots.live, now()),
                _ = stop.changed(), if !self.assignment.is_draining() => true,
            };
            if self.reaper.take_due()
                && let Ok(table) = ProcessTable::read()
            {
                self.executor.reap(&table);
            }
            if Instant::now() >= next_chores {
                next_chores = Instant::now() + CHORES_EVERY;
                self.slots.read_logs();
                self.slots.has_news |= self.programs.look();
            }
            let inventory = self.observer.inventory();
            let is_report_due = self.reporter.is_due(inventory.as_deref(), self.slots.has_news);
            if needs_round || Instant::now() >= until || is_report_due {
                return Ok(());
            }
        }
    }

    fn next_probe(&self) -> Option<Instant> {
        let next = self.slots.live.values().filter_map(LiveSlot::next_probe).min()?;
        Some(Instant::now() + Duration::from_millis(next.since(now()).millis().max(1)))
    }

    /// Handles a message of the server. Returns whether another round is needed.
    fn handle_message(&mut self, message: ServerMessage) -> Result<bool, AgentError> {
        match message {
            ServerMessage::ClusterKnown(server) => self.bind_to_cluster(server).map(|()| true),
            ServerMessage::ReportAccepted => Ok(self.slots.has_news),
            ServerMessage::Desired(desired, requests) => self.handle_desired(desired, requests),
            // After `OutdatedDesired` the next report shows the server its newest answer, which it may have forgotten.
            ServerMessage::OutdatedDesired | ServerMessage::RequestFailed => {
                self.slots.has_news = true;
                Ok(true)
            }
            ServerMessage::Superseded => Err(AgentError::Superseded(self.settings.id.clone())),
            ServerMessage::Refused(error) => Err(AgentError::Refused(error)),
        }
    }

    /// Binds the agent to the first cluster that it hears of. Only then is it known which processes are its own:
    /// another agent of this name may serve another cluster on this machine.
    fn bind_to_cluster(&mut self, server: ClusterBinding) -> Result<(), AgentError> {
        self.slots.has_news = true;
        let cluster = server.cluster;
        self.slots.store.bind(server)?;
        self.executor.find_orphans(&mut self.slots, cluster, &self.programs.runtimes)
    }

    fn handle_desired(&mut self, desired: DesiredState, requests: Vec<AgentRequest>) -> Result<bool, AgentError> {
        let offered = ClusterBinding::from(&desired);
        let store = &mut self.slots.store;
        let is_other_cluster = store.binding().is_some_and(|known| known.cluster != offered.cluster);
        if is_other_cluster {
            tracing::error!(
                server = %desired.version.cluster,
                "the server belongs to another cluster: nothing is started or stopped for it. If that is \
                 right, stop the slots of this agent and remove its obeys.json"
            );
        } else if store.binding().is_none_or(|known| !offered.is_before(known)) {
            store.bind(offered)?;
            self.reporter.link.set_binding(store.binding().cloned());
        }
        // The server of another cluster gets no logs.
        if !is_other_cluster {
            let Self { request_answers, slots, settings, executor, programs, .. } = self;
            request_answers.answer(requests, slots, settings, || executor.secrets.redactor(&programs.runtimes));
        }
        Ok(self.assignment.replace(desired, Instant::now()))
    }

    /// Returns whether an agent that was told to stop goes on until its slots are gone and the server knows it.
    fn must_finish_draining(&mut self, stop: &mut watch::Receiver<bool>) -> bool {
        stop.borrow_and_update();
        if !self.settings.drain_on_sigterm {
            return false;
        }
        if !self.assignment.is_draining() {
            tracing::info!("its slots end first");
            self.assignment.drain();
        }
        self.slots.records().values().any(|record| !record.is_over())
    }
}

impl From<&DesiredState> for ClusterBinding {
    fn from(desired: &DesiredState) -> Self {
        let Version { cluster, epoch, revision } = desired.version;
        Self { cluster, epoch, revision, code: desired.code.clone() }
    }
}
