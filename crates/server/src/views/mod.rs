//! What others read: published by the writer after each durable batch, never locked by a slow reader.
//!
//! | module | purpose |
//! | --- | --- |
//! | [`Views`] | rows as they are, by id |
//! | [`waiters`] | who waits for a row to change |
//! | [`history`] | the last decisions |
//! | [`stream`] | the last events, for those who follow |
//! | [`past`] | where slots were that are no more |
//! | [`tails`] | the last lines of slots that failed or ended |
//! | [`load_times`] | how long models took to load |
//! | [`tally`] | how many there are of what |

pub mod history;
pub mod load_times;
pub mod metrics;
pub mod past;
mod publish;
pub mod stream;
pub mod subject;
mod tails;
pub mod tally;
pub mod waiters;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use berth_core::SlotRef;
use berth_core::view::{DeviceView, HostView, ModelView, RunnerView, SlotView, WorkloadView};
use berth_domain::{
    ClusterId, DeviceUuid, Epoch, Generation, HistoryPoint, LogTail, MachineId, ModelName, Revision, RunnerId,
    RunnerReport, SlotId, Span, Timestamp, WorkloadId,
};
use berth_wire as wire;
use parking_lot::{Mutex, RwLock};

use history::History;
use load_times::LoadTimes;
use metrics::Metrics;
use past::{PastSlots, Whereabouts};
use stream::Stream;
use tails::Tails;
use tally::Tally;
use waiters::Waiters;

/// A map that many read and one writes. Its keys are ours or checked, and its hash is seeded all the same.
pub(crate) type Map<K, V> = dashmap::DashMap<K, V, foldhash::fast::RandomState>;

/// A workload as it is, and when that became so.
#[derive(Clone, Debug)]
pub struct WorkloadRow {
    /// As it is.
    pub view: Arc<WorkloadView>,
    /// The revision of its last change.
    pub revision: Revision,
}

/// What a runner last reported, as it said it.
#[derive(Clone, Debug)]
pub struct LastReport {
    /// When it came in.
    pub received: Timestamp,
    /// What it said.
    pub report: Arc<RunnerReport>,
    /// The readings that came with it.
    pub telemetry: Arc<Telemetry>,
}

/// Readings that an agent reports and the server only shows: no decision depends on them.
#[derive(Clone, Debug, Default)]
pub struct Telemetry {
    /// How busy each GPU was, in percent, and how it was doing.
    pub gpus: BTreeMap<DeviceUuid, (Option<u32>, wire::GpuTelemetry)>,
    /// How GPUs are joined.
    pub links: Vec<wire::GpuLink>,
    /// The first process of each slot.
    pub pids: BTreeMap<SlotId, u32>,
}

/// Everything that is published.
pub struct Views {
    workloads: Map<WorkloadId, WorkloadRow>,
    slots: Map<SlotRef, Arc<SlotView>>,
    runners: Map<RunnerId, Arc<RunnerView>>,
    devices: Map<DeviceUuid, Arc<DeviceView>>,
    hosts: Map<MachineId, Arc<HostView>>,
    models: Map<ModelName, Arc<ModelView>>,
    reports: Map<RunnerId, LastReport>,
    past: Mutex<PastSlots>,
    tails: Mutex<Tails>,
    /// Who waits for a workload to change.
    pub workload_waiters: Waiters<WorkloadId>,
    /// Who waits for a runner's desired slots to change.
    pub runner_waiters: Waiters<RunnerId>,
    /// The last decisions.
    pub history: History,
    /// The last events.
    pub stream: Stream,
    /// How long models took to load.
    pub load_times: LoadTimes,
    /// How many there are of what.
    pub tally: Tally,
    /// Numbers for Prometheus.
    pub metrics: Metrics,
    /// Odd while a batch is being published: a reader of many rows sees whether they belong together.
    publishing: AtomicU64,
    revision: AtomicU64,
    /// The revision that runners, devices, hosts and models belong to.
    fleet_revision: AtomicU64,
    epoch: AtomicU64,
    cluster: RwLock<Option<ClusterId>>,
    read_only: AtomicBool,
    /// When the writer last began to wait for requests, in milliseconds of the server's clock.
    writer_waited: AtomicU64,
    /// Whether `went_back` is set: asked for every answer, so it is not behind the lock.
    has_gone_back: AtomicBool,
    went_back: Mutex<Option<HistoryPoint>>,
    violation: Mutex<Option<String>>,
    decision_log: crate::decision_log::DecisionLog,
}

impl std::fmt::Debug for Views {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Views at {}", self.revision())
    }
}

impl Views {
    /// Nothing yet. Decisions and events are written down by `decision_log`.
    #[must_use]
    pub fn new(decisions_kept: usize, events_kept: usize, decision_log: crate::decision_log::DecisionLog) -> Self {
        Self {
            workloads: Map::default(),
            slots: Map::default(),
            runners: Map::default(),
            devices: Map::default(),
            hosts: Map::default(),
            models: Map::default(),
            reports: Map::default(),
            past: Mutex::default(),
            tails: Mutex::default(),
            workload_waiters: Waiters::new(),
            runner_waiters: Waiters::new(),
            history: History::new(decisions_kept),
            stream: Stream::new(events_kept),
            load_times: LoadTimes::default(),
            tally: Tally::default(),
            metrics: Metrics::new(),
            publishing: AtomicU64::new(0),
            revision: AtomicU64::new(0),
            fleet_revision: AtomicU64::new(0),
            epoch: AtomicU64::new(0),
            cluster: RwLock::new(None),
            read_only: AtomicBool::new(false),
            writer_waited: AtomicU64::new(0),
            has_gone_back: AtomicBool::new(false),
            went_back: Mutex::new(None),
            violation: Mutex::new(None),
            decision_log,
        }
    }

    /// The revision that workloads and slots belong to: nothing newer was answered.
    #[must_use]
    pub fn revision(&self) -> Revision {
        Revision::new(self.revision.load(Ordering::Acquire))
    }

    /// Which start of the server this is.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        Epoch::new(self.epoch.load(Ordering::Acquire))
    }

    /// The data directory's identity, once started.
    #[must_use]
    pub fn cluster(&self) -> Option<ClusterId> {
        *self.cluster.read()
    }

    /// Whether writes are refused for want of room.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.read_only.load(Ordering::Relaxed)
    }

    /// Notes whether there is room for writes, and says so when that changes.
    pub fn set_read_only(&self, read_only: bool) {
        if self.read_only.swap(read_only, Ordering::Relaxed) != read_only {
            if read_only {
                tracing::error!("the journal has no room left: writes are refused until there is space on its disk");
            } else {
                tracing::info!("the journal has room again: writes are taken");
            }
        }
    }

    /// The newest answer that a runner obeyed and this server does not know of, while no operator has continued.
    #[must_use]
    pub fn went_back(&self) -> Option<HistoryPoint> {
        if self.has_gone_back.load(Ordering::Acquire) { *self.went_back.lock() } else { None }
    }

    /// Notes whether the history went back, and says so when that changes.
    fn set_went_back(&self, shown: Option<HistoryPoint>) {
        if shown.is_none() && !self.has_gone_back.load(Ordering::Acquire) {
            return;
        }
        let before = std::mem::replace(&mut *self.went_back.lock(), shown);
        self.has_gone_back.store(shown.is_some(), Ordering::Release);
        match shown {
            Some(shown) if before.is_none() => tracing::error!("{}", crate::present::went_back(shown)),
            None if before.is_some() => tracing::warn!("the server goes on although its history went back"),
            _ => {}
        }
    }

    /// Notes that the writer is done with what it had.
    pub fn note_writer_waits(&self, now: Timestamp) {
        self.writer_waited.store(now.millis(), Ordering::Relaxed);
    }

    /// How long the writer has been busy with one batch, if that is longer than any batch should take.
    #[must_use]
    pub fn writer_stalled(&self, now: Timestamp) -> Option<Span> {
        const LONGEST: Span = Span::from_secs(5);
        let waited = Timestamp::from_millis(self.writer_waited.load(Ordering::Relaxed));
        Some(now.since(waited)).filter(|busy| waited > Timestamp::default() && *busy > LONGEST)
    }

    /// Notes what a check of all ledgers found.
    pub fn note_ledger_check(&self, violation: Option<berth_core::invariants::Violation>) {
        if let Some(violation) = &violation {
            tracing::error!(%violation, "a ledger is not the fold of its claims");
        }
        self.metrics.note_ledger_check(violation.is_none());
        *self.violation.lock() = violation.map(|violation| violation.to_string());
    }

    /// What the last check of all ledgers found wrong.
    #[must_use]
    pub fn violation(&self) -> Option<String> {
        self.violation.lock().clone()
    }

    /// One workload.
    #[must_use]
    pub fn workload(&self, id: WorkloadId) -> Option<WorkloadRow> {
        self.workloads.get(&id).map(|row| row.clone())
    }

    /// A workload, and the slot that it has.
    #[must_use]
    pub fn with_slot(&self, row: WorkloadRow) -> (WorkloadRow, Option<Arc<SlotView>>) {
        let slot = row.view.slot.and_then(|slot| self.slot(slot));
        (row, slot)
    }

    /// All workloads, in the order of their submission.
    #[must_use]
    pub fn workloads(&self) -> Vec<WorkloadRow> {
        let mut rows: Vec<WorkloadRow> = self.workloads.iter().map(|row| row.clone()).collect();
        rows.sort_unstable_by_key(|row| row.view.number);
        rows
    }

    /// One slot: the server's own, or else a stray of that id.
    #[must_use]
    pub fn slot(&self, id: SlotId) -> Option<Arc<SlotView>> {
        let own = self.slots.get(&SlotRef { id, stray_on: None }).map(|row| row.clone());
        own.or_else(|| self.slots.iter().find(|row| row.key().id == id).map(|row| row.clone()))
    }

    /// Where a slot was that is no more, if it ended lately.
    #[must_use]
    pub fn past_slot(&self, id: SlotId) -> Option<Whereabouts> {
        self.past.lock().find(id)
    }

    /// Keeps the last lines that a runner tells of one start of a slot. A runner's word about a slot that is not its own
    /// counts for nothing.
    pub fn keep_tail(&self, runner: &RunnerId, slot: SlotId, generation: Generation, tail: LogTail) {
        let own = self.slots.get(&SlotRef { id: slot, stray_on: None }).map(|row| row.runner == *runner);
        if own.unwrap_or_else(|| self.past_slot(slot).is_some_and(|was| was.runner == *runner)) {
            self.tails.lock().keep(runner, (slot, generation), tail);
        }
    }

    /// The last lines of one start of a slot, if they are still kept.
    #[must_use]
    pub fn tail(&self, slot: SlotId, generation: Generation) -> Option<Arc<LogTail>> {
        self.tails.lock().find((slot, generation))
    }

    /// All slots by id, which for the server's own is the order of their creation.
    #[must_use]
    pub fn slots(&self) -> Vec<Arc<SlotView>> {
        sorted(&self.slots, |view| (view.id, view.runner.clone()))
    }

    /// The slots of each runner, in the order of their creation.
    #[must_use]
    pub fn slots_by_runner(&self) -> std::collections::HashMap<RunnerId, Vec<SlotId>> {
        let mut lists = std::collections::HashMap::<RunnerId, Vec<SlotId>>::new();
        for slot in self.slots() {
            lists.entry(slot.runner.clone()).or_default().push(slot.id);
        }
        lists
    }

    /// One runner.
    #[must_use]
    pub fn runner(&self, id: &RunnerId) -> Option<Arc<RunnerView>> {
        self.runners.get(id).map(|row| row.clone())
    }

    /// Whether a runner takes new work, or will as soon as it has reported.
    #[must_use]
    pub fn is_open(&self, id: &RunnerId) -> bool {
        self.runners.get(id).is_some_and(|row| row.is_open())
    }

    /// All runners by id.
    #[must_use]
    pub fn runners(&self) -> Vec<Arc<RunnerView>> {
        sorted(&self.runners, |view| view.id.clone())
    }

    /// One device.
    #[must_use]
    pub fn device(&self, uuid: &DeviceUuid) -> Option<Arc<DeviceView>> {
        self.devices.get(uuid).map(|row| row.clone())
    }

    /// One model, unless it was removed.
    #[must_use]
    pub fn model(&self, name: &ModelName) -> Option<Arc<ModelView>> {
        self.models.get(name).map(|row| row.clone()).filter(|view| !view.deleted)
    }

    /// All models by name, without those that were removed.
    #[must_use]
    pub fn models(&self) -> Vec<Arc<ModelView>> {
        let mut rows = sorted(&self.models, |view| view.name.clone());
        rows.retain(|view| !view.deleted);
        rows
    }

    /// What a runner last reported.
    #[must_use]
    pub fn last_report(&self, id: &RunnerId) -> Option<LastReport> {
        self.reports.get(id).map(|row| row.clone())
    }

    /// Notes what a runner said. Called once the server took it in.
    pub fn note_report(&self, id: RunnerId, report: LastReport) {
        self.reports.insert(id, report);
    }

    /// All devices by UUID and all hosts by machine, of one revision unless the writer never pauses.
    #[must_use]
    pub fn ledgers(&self) -> (Revision, Vec<Arc<DeviceView>>, Vec<Arc<HostView>>) {
        const TRIES: u32 = 16;
        let mut last = None;
        for _ in 0..TRIES {
            let before = self.publishing.load(Ordering::Acquire);
            let devices = sorted(&self.devices, |view| view.uuid.clone());
            let hosts = sorted(&self.hosts, |view| view.machine.clone());
            last = Some((Revision::new(self.fleet_revision.load(Ordering::Acquire)), devices, hosts));
            if before.is_multiple_of(2) && self.publishing.load(Ordering::Acquire) == before {
                break;
            }
            std::thread::yield_now();
        }
        last.unwrap_or_default()
    }
}

fn sorted<K: Eq + std::hash::Hash, V, O: Ord>(map: &Map<K, Arc<V>>, by: impl Fn(&V) -> O) -> Vec<Arc<V>> {
    let mut rows: Vec<Arc<V>> = map.iter().map(|row| row.clone()).collect();
    rows.sort_by_cached_key(|view| by(view));
    rows
}
