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
mod config;
mod eyes;
mod link;
mod live;
mod observe;
mod tell;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use berth_client::{Client, ClientError};
use berth_domain::{Bytes, DeviceUuid, GpuHealth, SlotId, Timestamp};
use tokio::sync::watch;

pub use config::{AgentConfig, AgentSettings, ConfigError};

use crate::inventory::Inventory;
use crate::process::{LogDir, Ports, ProcessTable, SpawnOptions, Spawner};
use crate::reconcile::{Action, Wish, World, reconcile};
use crate::record::{Obeys, Record, RecordError};
use crate::runtime::Runtimes;
use eyes::Eyes;
use link::{Heard, Link};
use live::Live;

/// While something is changing, the machine is looked at this often.
const SOON: Duration = Duration::from_millis(20);
/// While nothing is, this often.
const LATER: Duration = Duration::from_secs(1);
/// How many rounds may follow each other at once; more would be a loop.
const ROUNDS: usize = 8;

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
    record: Record,
    live: BTreeMap<SlotId, Live>,
    spawner: Spawner,
    ports: Ports,
    logs: LogDir,
    eyes: Eyes,
    link: Link,
    wish: Option<Wish>,
    /// Something changed that the server should hear of.
    news: bool,
    last_report: Option<std::time::Instant>,
    /// The GPUs that the server last heard of.
    last_gpus: Vec<(DeviceUuid, GpuHealth, Bytes)>,
    stopping: bool,
}

impl Agent {
    /// Runs until `stop` becomes true, or until it must not go on.
    pub async fn run(parts: Parts, mut stop: watch::Receiver<bool>) -> Result<(), AgentError> {
        let mut agent = Self::start(parts)?;
        agent.adopt()?;
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
        let logs = LogDir::open(&settings.data_dir.join("logs"), settings.log_limits())
            .map_err(|error| AgentError::Io("logs cannot be kept", error))?;
        let eyes = Eyes::open(settings.inventory.clone()).map_err(|error| AgentError::Io("no thread", error))?;
        Ok(Self {
            ports: Ports::new(settings.ports.clone()),
            link: Link::new(client, settings.id.clone(), record.obeys()),
            settings,
            runtimes,
            record,
            live: BTreeMap::new(),
            spawner,
            logs,
            eyes,
            wish: None,
            news: true,
            last_report: None,
            last_gpus: Vec::new(),
            stopping: false,
        })
    }

    /// One look at everything, and what follows from it, until nothing does.
    async fn round(&mut self) -> Result<(), AgentError> {
        for _ in 0..ROUNDS {
            let now = now();
            let table = ProcessTable::read().map_err(|error| AgentError::Io("/proc cannot be read", error))?;
            self.spawner.reap(&table);
            let inventory = self.eyes.inventory();
            let seen = self.observe(&table, inventory.as_deref(), now).await;
            let devices = observe::devices(inventory.as_deref());
            let actions = reconcile(&World {
                now,
                wish: self.wish.as_ref(),
                kept: self.record.kept(),
                seen: &seen,
                devices: &devices,
                obeys: self.record.obeys().map(|obeys| (obeys.cluster, obeys.epoch)),
                patience: self.settings.patience(),
            });
            let starts = actions.iter().any(|action| matches!(action, Action::Start(_)));
            // What a start may count on must be newer than the last one: look again before the next.
            if starts && !self.eyes.look_now(self.settings.inventory.deadline).await {
                tracing::warn!("the driver does not answer: starts wait for it");
            }
            if actions.is_empty() {
                break;
            }
            for action in actions {
                self.act(action, now)?;
            }
        }
        self.speak(self.eyes.inventory().as_deref())
    }

    /// Waits until there is something to do.
    async fn wait(&mut self, stop: &mut watch::Receiver<bool>) -> Result<(), AgentError> {
        let changing = self.record.kept().values().any(|kept| !kept.is_at_rest());
        let mut pause = if changing { SOON } else { LATER };
        if let Some(next) = self.live.values().filter_map(Live::next_probe).min() {
            pause = pause.min(Duration::from_millis(next.since(now()).millis().max(1)));
        }
        if changing {
            self.eyes.nudge();
        }
        tokio::select! {
            heard = self.link.hear() => self.take_in(heard)?,
            () = tokio::time::sleep(pause) => {}
            _ = stop.changed(), if !self.stopping => {}
        }
        Ok(())
    }

    /// Takes in what the server said.
    fn take_in(&mut self, heard: Heard) -> Result<(), AgentError> {
        match heard {
            Heard::Answered(answer, told) => {
                if self.record.obeys().is_none() {
                    self.record.obey(Obeys { cluster: answer.cluster_id, epoch: answer.epoch })?;
                }
                self.note_told(&told)?;
            }
            Heard::Wish(wish) => {
                let known = self.record.obeys();
                if known.is_some_and(|obeys| obeys.cluster != wish.cluster) {
                    tracing::error!(
                        server = %wish.cluster,
                        "the server belongs to another cluster: nothing is started or stopped for it. If that is \
                         right, stop the slots of this agent and remove its obeys.json"
                    );
                } else if known.is_none_or(|obeys| wish.epoch >= obeys.epoch) {
                    self.record.obey(Obeys { cluster: wish.cluster, epoch: wish.epoch })?;
                }
                self.wish = Some(wish);
            }
            Heard::Superseded => return Err(AgentError::Superseded(self.settings.id.clone())),
            Heard::Refused(error) => return Err(AgentError::Refused(error)),
            Heard::Again => self.news = true,
        }
        Ok(())
    }

    /// Whether an agent that was told to stop stays until its slots are gone.
    fn may_stay(&mut self, stop: &mut watch::Receiver<bool>) -> bool {
        stop.borrow_and_update();
        self.stopping = true;
        if !self.settings.drain_on_sigterm {
            return false;
        }
        if let Some(wish) = &mut self.wish {
            wish.slots.iter_mut().for_each(|slot| slot.action = berth_domain::DesiredAction::Stop);
        }
        self.record.kept().values().any(|kept| !kept.is_over())
    }
}

/// The time of day.
fn now() -> Timestamp {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// What the eyes saw last.
type Look = Option<Arc<Inventory>>;
