//! The agent: looks, asks, acts, reports, again and again. All decisions are [`crate::reconcile`]'s.
//!
//! ```text
//! inventory (its own thread) ──┐
//! desired (long poll) ─────────┼─> round: observe -> reconcile -> put on record -> act ──> report
//! processes, health, time ─────┘
//! ```
//!
//! One task does the rounds. What may block (the driver, the server) is asked elsewhere and answers through channels, so
//! a hanging driver or a dead server stops nothing but its own answer.

mod act;
mod adopt;
mod answer;
mod config;
mod eyes;
mod findings;
mod health;
mod last_lines;
mod link;
mod live;
mod observe;
mod secrets;
mod start;
mod tell;
mod trace;
mod users;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::sync::Arc;
use std::time::{Duration, Instant};

use berth_client::{Client, ClientError};
use berth_domain::{DesiredAction, SlotId, Timestamp};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Notify, watch};

pub use config::{AgentConfig, AgentSettings, ConfigError};
pub use users::log_slot_users;

use crate::engine::EnginesFound;
use crate::inventory::Inventory;
use crate::process::{LogDir, Ports, ProcessTable, SpawnOptions, Spawner};
use crate::reconcile::{Action, DeviceSeen, Doubt, Seen, Trace, Version, Wish, World, reconcile};
use crate::record::{Obeys, Record, RecordError};
use crate::runtime::{Runtimes, UserId};
use answer::Answers;
use eyes::Eyes;
use findings::Findings;
use health::Probes;
use link::{Heard, Link};
use live::Live;
use tell::Said;

/// While something is changing, the machine is looked at this often.
const SOON: Duration = Duration::from_millis(20);
/// While nothing is, this often: the end of a process is heard at once.
const LATER: Duration = Duration::from_secs(10);
/// How often what slots write is read, and those who serve are asked for their health if it is their turn.
const CHORES: Duration = Duration::from_secs(1);
/// Ended children are waited for at once, but their list is read at most this often.
const REAP_EVERY: Duration = Duration::from_millis(50);
/// How many rounds may follow each other at once; more would be a loop.
const ROUNDS: usize = 16;

/// Why an agent ends.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// Its own record cannot be kept: it must not act without.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// Another start of this agent has registered.
    #[error(
        "runner {0} was registered by another agent: this one ends and leaves its slots alone. Two agents need two ids"
    )]
    Superseded(berth_domain::RunnerId),
    /// The server does not let it in.
    #[error("the server refuses this agent: {0}")]
    Refused(Box<ClientError>),
    /// Something on this machine does not work.
    #[error("{0}: {1}")]
    Io(&'static str, #[source] std::io::Error),
}

/// What an agent needs to run.
#[derive(Debug)]
pub struct Parts {
    /// Who it is and how it should behave.
    pub settings: AgentSettings,
    /// What it can start.
    pub runtimes: Runtimes,
    /// The way to the server.
    pub client: Client,
    /// How processes are started.
    pub spawning: SpawnOptions,
}

/// A running agent.
pub struct Agent {
    settings: Arc<AgentSettings>,
    runtimes: Runtimes,
    /// The users that its slots may run as.
    users: BTreeSet<UserId>,
    /// The values of the secrets that it gave to slots.
    given_secrets: BTreeSet<OsString>,
    record: Record,
    live: BTreeMap<SlotId, Live>,
    spawner: Spawner,
    ports: Ports,
    logs: LogDir,
    eyes: Eyes,
    findings: Findings,
    engines: EnginesFound,
    link: Link,
    answers: Answers,
    wish: Option<Wish>,
    /// It was said that the wish is too old to start anything for it.
    said_expired: bool,
    /// Slots that the server asks about and of which nothing can be told: they are not on record.
    doubts: BTreeMap<SlotId, Doubt>,
    /// The disk was full: nothing is started before this.
    no_starts_before: Option<Instant>,
    probes: Probes,
    /// Rung when the first process of a slot ends.
    somebody_ended: Arc<Notify>,
    /// Rung when any child ends, also one that a slot left behind.
    child_ended: Signal,
    /// When the ended children are waited for, if there are any.
    next_reap: Option<Instant>,
    last_reap: Instant,
    /// Something changed that the server should hear of.
    news: bool,
    /// What the server last heard.
    said: Said,
    /// It was told to end, and ends its slots first.
    draining: bool,
}

impl Agent {
    /// Runs until `stop` becomes true, or until it must not go on.
    pub async fn run(parts: Parts, mut stop: watch::Receiver<bool>) -> Result<(), AgentError> {
        let mut agent = Self::start(parts)?;
        agent.take_over_all()?;
        agent.prune_logs();
        // Without a first look there is nothing to report.
        agent.eyes.look_now(agent.settings.inventory.deadline).await;
        secrets::warn_of_loose_files(&agent.runtimes);
        findings::tell_runtimes(&agent.runtimes, &agent.settings.path());
        agent.look_at_engines();
        loop {
            agent.round().await?;
            if *stop.borrow() && !agent.may_stay(&mut stop) {
                return Ok(());
            }
            agent.wait(&mut stop).await?;
        }
    }

    fn start(parts: Parts) -> Result<Self, AgentError> {
        let Parts { settings, runtimes, client, spawning } = parts;
        let settings = Arc::new(settings);
        let record = Record::open(&settings.data_dir)?;
        let spawner = Spawner::start(spawning).map_err(|error| AgentError::Io("processes cannot be started", error))?;
        let logs = LogDir::open(&settings.data_dir.join("logs"), settings.logs.limits())
            .map_err(|error| AgentError::Io("logs cannot be kept", error))?;
        let eyes = Eyes::open(settings.inventory.clone()).map_err(|error| AgentError::Io("no thread", error))?;
        let engines = EnginesFound::open(&settings.data_dir);
        Ok(Self {
            ports: Ports::new(settings.ports.clone()),
            answers: Answers::new(client.clone(), settings.id.clone()),
            link: Link::new(client, settings.id.clone(), record.obeys().cloned()),
            settings,
            users: runtimes.users(),
            given_secrets: BTreeSet::new(),
            runtimes,
            record,
            live: BTreeMap::new(),
            spawner,
            logs,
            eyes,
            findings: Findings::default(),
            engines,
            wish: None,
            said_expired: false,
            doubts: BTreeMap::new(),
            no_starts_before: None,
            probes: Probes::new(),
            somebody_ended: Arc::default(),
            child_ended: signal(SignalKind::child()).map_err(|error| AgentError::Io("no signals", error))?,
            next_reap: None,
            last_reap: Instant::now(),
            news: true,
            said: Said::default(),
            draining: false,
        })
    }

    /// One look at everything, and what follows from it, until nothing does.
    async fn round(&mut self) -> Result<(), AgentError> {
        let mut is_fresh = false;
        for _ in 0..ROUNDS {
            let mut actions = self.next_actions(is_fresh)?;
            // What a start or a proof counts on must be newer than everything before it: the driver is asked, and all
            // is decided once more.
            if !is_fresh && actions.iter().any(Action::needs_a_fresh_look) {
                is_fresh = self.eyes.look_now(self.settings.inventory.deadline).await;
                if is_fresh {
                    continue;
                }
                tracing::warn!("the driver does not answer: starts and proofs wait for it");
                actions.retain(|action| !action.needs_a_fresh_look());
                self.doubt_asked("the driver does not answer");
            }
            if actions.is_empty() {
                break;
            }
            for action in actions {
                self.act(action)?;
            }
            is_fresh = false;
        }
        self.speak();
        Ok(())
    }

    /// Looks at everything, and decides. Slots that are not on record are looked for only if the driver was just asked:
    /// what follows for them counts on it.
    fn next_actions(&mut self, is_fresh: bool) -> Result<Vec<Action>, AgentError> {
        let (begun, now) = (Instant::now(), now());
        self.record.catch_up()?;
        let table = match ProcessTable::read() {
            Ok(table) => table,
            Err(error) => {
                self.cannot_look(&error);
                return Ok(Vec::new());
            }
        };
        self.spawner.reap(&table);
        let inventory = self.eyes.inventory();
        if let Some(inventory) = inventory.as_deref() {
            self.findings.tell(inventory);
        }
        let seen = self.observe(&table, inventory.as_deref(), now);
        self.drop_settled_doubts();
        let devices = observe::devices(inventory.as_deref());
        let mut actions = reconcile(&self.world(now, &seen, &devices, &BTreeMap::new()));
        let sought = |action: &Action| if let Action::LookFor(slot) = action { Some((**slot).clone()) } else { None };
        let sought: Vec<_> = actions.iter().filter_map(sought).collect();
        if is_fresh && !sought.is_empty() {
            let traces = self.look_for(&table, inventory.as_deref(), &sought);
            actions = reconcile(&self.world(now, &seen, &devices, &traces));
        }
        self.say_if_expired();
        let micros = begun.elapsed().as_micros();
        tracing::debug!(slots = seen.len(), actions = actions.len(), micros, "looked at everything");
        Ok(actions)
    }

    /// Asks engines that are new or have changed for their versions and options, in the background.
    fn look_at_engines(&mut self) {
        let path = self.settings.path();
        self.news |= self.engines.look(&mut self.runtimes, &self.settings.environment, &path);
    }

    /// Waits for the processes that slots left behind, so that none of them stays in the machine's list of processes.
    fn reap(&mut self) {
        (self.next_reap, self.last_reap) = (None, Instant::now());
        if let Ok(table) = ProcessTable::read() {
            self.spawner.reap(&table);
        }
    }

    fn world<'a>(
        &'a self,
        now: Timestamp,
        seen: &'a BTreeMap<SlotId, Seen>,
        devices: &'a [DeviceSeen],
        traces: &'a BTreeMap<SlotId, Trace>,
    ) -> World<'a> {
        World {
            now,
            monotonic: Instant::now(),
            wish: self.wish.as_ref(),
            kept: self.record.kept(),
            seen,
            traces,
            doubts: &self.doubts,
            devices,
            obeys: self.record.obeys().map(|obeys| (obeys.cluster, obeys.epoch)),
            can_record: self.can_record(),
            patience: self.settings.patience(),
        }
    }

    /// Says once that a wish is too old to start anything for it, if there is something that it would start.
    fn say_if_expired(&mut self) {
        let Some(wish) = self.wish.as_ref().filter(|wish| wish.is_expired(Instant::now())) else { return };
        let kept = self.record.kept();
        let waiting = wish
            .slots
            .iter()
            .filter(|slot| slot.should_run() && kept.get(&slot.id).is_none_or(|kept| kept.is_replaced_by(slot)));
        let waiting = waiting.count();
        if waiting > 0 && !self.said_expired {
            let seconds = Wish::LASTS.as_secs();
            tracing::warn!(
                slots = waiting,
                "not started: the server said {seconds} s ago or longer that they should run, and was not heard since"
            );
            self.said_expired = true;
        }
    }

    /// Waits until there is a reason to look at everything again. Meanwhile slots are asked for their health and their
    /// logs are read: with many slots somebody's turn is always next, and none of it is a reason by itself.
    async fn wait(&mut self, stop: &mut watch::Receiver<bool>) -> Result<(), AgentError> {
        let changing = self.record.kept().values().any(|kept| !kept.is_at_rest());
        // What could not be told, or could not be written, is tried again.
        let is_tried_again = !self.doubts.is_empty() || !self.can_record();
        let until = Instant::now()
            + match (changing, is_tried_again) {
                (true, _) => SOON,
                (false, true) => Doubt::LOOK_AGAIN,
                (false, false) => LATER,
            };
        if changing {
            self.eyes.nudge();
        }
        let mut next_chores = Instant::now() + CHORES;
        loop {
            // What starts is asked as soon as it is its turn; those who serve are asked together.
            let next_probe = self.live.values().filter(|_| changing).filter_map(Live::next_probe).min();
            let next_probe =
                next_probe.map(|at| Instant::now() + Duration::from_millis(at.since(now()).millis().max(1)));
            let wake = next_probe.into_iter().chain(self.next_reap).fold(until.min(next_chores), Instant::min);
            let is_news = tokio::select! {
                heard = self.link.hear() => self.take_in(heard)?,
                Some(Ok(first)) = self.probes.join_next() => self.note_answers(first),
                () = self.somebody_ended.notified() => true,
                Some((_, is_new)) = self.engines.next_answer() => {
                    self.engines.choose_templates(&mut self.runtimes);
                    self.news |= is_new;
                    is_new
                }
                Some(()) = self.child_ended.recv() => {
                    self.next_reap = Some(Instant::now().max(self.last_reap + REAP_EVERY));
                    false
                }
                () = tokio::time::sleep_until(wake.into()) => self.ask_for_health(now()),
                _ = stop.changed(), if !self.draining => true,
            };
            if self.next_reap.is_some_and(|at| Instant::now() >= at) {
                self.reap();
            }
            if Instant::now() >= next_chores {
                next_chores = Instant::now() + CHORES;
                self.read_logs();
                self.look_at_engines();
            }
            if is_news || Instant::now() >= until || self.is_time_to_speak() {
                return Ok(());
            }
        }
    }

    /// Takes in what the server said, and says whether anything is different now.
    fn take_in(&mut self, heard: Heard) -> Result<bool, AgentError> {
        Ok(match heard {
            Heard::Server(server) => {
                self.join(server)?;
                true
            }
            Heard::Answered => self.news,
            Heard::Wish(wish, requests) => {
                let heard = Obeys::from(&wish);
                let is_other = self.record.obeys().is_some_and(|known| known.cluster != heard.cluster);
                if is_other {
                    tracing::error!(
                        server = %wish.version.cluster,
                        "the server belongs to another cluster: nothing is started or stopped for it. If that is \
                         right, stop the slots of this agent and remove its obeys.json"
                    );
                } else if self.record.obeys().is_none_or(|known| !heard.is_before(known)) {
                    self.record.obey(heard)?;
                    self.link.note_obeyed(self.record.obeys().cloned());
                }
                // Another cluster's server is told nothing of what slots wrote.
                if !is_other {
                    self.answer(requests);
                }
                let wish = if self.draining { nothing_of(wish) } else { wish };
                // The same again is news to one who had waited too long for it.
                let now = Instant::now();
                let is_known = |old: &Wish| old.says_the_same(&wish) && !old.is_expired(now);
                let is_other = !self.wish.as_ref().is_some_and(is_known);
                self.said_expired &= wish.is_expired(now);
                self.wish = Some(wish);
                is_other
            }
            // The server is shown what was obeyed: it may have forgotten that it gave that answer.
            Heard::Overtaken => {
                self.news = true;
                true
            }
            Heard::Superseded => return Err(AgentError::Superseded(self.settings.id.clone())),
            Heard::Refused(error) => return Err(AgentError::Refused(error)),
            Heard::Again => {
                self.news = true;
                true
            }
        })
    }

    /// Whether an agent that was told to stop stays until its slots are gone, and the server knows it.
    fn may_stay(&mut self, stop: &mut watch::Receiver<bool>) -> bool {
        stop.borrow_and_update();
        if !self.settings.drain_on_sigterm {
            return false;
        }
        if !self.draining {
            tracing::info!("its slots end first");
            self.draining = true;
            self.wish = self.wish.take().map(nothing_of);
        }
        self.record.kept().values().any(|kept| !kept.is_over())
    }
}

impl From<&Wish> for Obeys {
    fn from(wish: &Wish) -> Self {
        let Version { cluster, epoch, revision } = wish.version;
        Self { cluster, epoch, revision, code: wish.code.clone() }
    }
}

/// The same, but that nothing of it should run. What is asked about is still only asked about.
fn nothing_of(mut wish: Wish) -> Wish {
    wish.slots.iter_mut().filter(|slot| slot.should_run()).for_each(|slot| slot.action = DesiredAction::Stop);
    wish
}

/// The time of day.
fn now() -> Timestamp {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// What the eyes saw last.
type Look = Option<Arc<Inventory>>;

#[cfg(test)]
mod tests {
    use berth_domain::{Bytes, ClusterId, DesiredSlot, Epoch, Generation, Millicores, Revision, RunSpec, WorkloadKind};

    use super::*;

    #[test]
    fn an_agent_that_drains_stops_what_should_run_and_answers_what_is_asked() {
        let spec = RunSpec {
            model: "m".parse().unwrap(),
            runtime: "r".parse().unwrap(),
            kind: WorkloadKind::Lease,
            model_args: 0,
            args: Vec::new(),
            cpu_millicores: Millicores::ZERO,
            ram_bytes: Bytes::ZERO,
            concurrency: 1,
        };
        let id = |number| SlotId::new(uuid::Uuid::from_u128(number));
        let slot =
            |number, action| DesiredSlot { id: id(number), generation: Generation::new(1), gpus: Vec::new(), action };
        let actions = [DesiredAction::Run(Box::new(spec)), DesiredAction::Stop, DesiredAction::Account];
        let slots = (0..).zip(actions).map(|(number, action)| slot(number, action)).collect();
        let cluster = ClusterId::new(uuid::Uuid::from_u128(1));
        let version = Version { cluster, epoch: Epoch::new(1), revision: Revision::new(1) };
        let drained = nothing_of(Wish { version, code: None, sent: Instant::now(), slots });
        let actions: Vec<DesiredAction> = drained.slots.into_iter().map(|slot| slot.action).collect();
        assert_eq!(actions, [DesiredAction::Stop, DesiredAction::Stop, DesiredAction::Account]);
    }
}
