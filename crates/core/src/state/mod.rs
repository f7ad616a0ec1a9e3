//! Everything the core knows. Private to the crate: others read [`crate::view`]s and send commands.

mod attempt;
mod catalogue;
mod dirty_set;
mod fleet;
mod history;
mod link;
mod owners;
mod slot;
mod timers;
mod work;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use berth_domain::{
    ClusterId, DeviceUuid, Epoch, GpuName, IdempotencyKey, MachineId, ModelName, Revision, RunnerId, SlotId, Timestamp,
    WorkloadId, WorkloadKind,
};
use serde::{Deserialize, Serialize};

pub use attempt::PastAttempt;
pub(crate) use attempt::PastAttempts;
pub(crate) use catalogue::{Model, OpenSlot, Shape, ShapeRow};
pub(crate) use dirty_set::DirtySet;
pub use fleet::{Admission, Liveness};
pub(crate) use fleet::{AttachmentRow, Device, Machine, MissingGpu, Runner, badness, offered};
pub(crate) use history::{EpochStart, History};
pub use owners::OwnerPhase;
pub(crate) use owners::Owners;
pub(crate) use slot::{Slot, SlotGpu};
pub(crate) use timers::{Timer, Timers};
pub(crate) use work::{Claimant, Queue, QueueKey, Reservation, Workload};

use crate::index::Index;
use crate::settings::Settings;
use crate::snapshot::Snapshot;
use crate::table::{DeviceKey, Lookup, MachineKey, ModelKey, RunnerKey, ShapeKey, SlotKey, Table, WorkloadKey};

/// Everything the core knows.
#[derive(Clone, Debug)]
pub struct State {
    pub(crate) settings: Settings,
    pub(crate) cluster: Option<ClusterId>,
    pub(crate) epoch: Epoch,
    pub(crate) revision: Revision,
    /// Which starts of the server this state knows of.
    pub(crate) history: History,
    /// The time of the last command: a clock that goes back is not followed.
    pub(crate) now: Timestamp,
    /// No timer counts from before this: the start of the server, or the end of a pause.
    pub(crate) timers_from: Timestamp,
    pub(crate) machines: Table<MachineKey, MachineId, Machine>,
    pub(crate) runners: Table<RunnerKey, RunnerId, Runner>,
    /// What operators said of runners that name a machine of another runner: which one, and whether it is the same.
    pub(crate) machine_words: BTreeMap<RunnerId, (MachineId, bool)>,
    pub(crate) devices: Table<DeviceKey, DeviceUuid, Device>,
    /// Devices that an operator shut, also those that nobody lists at the moment.
    pub(crate) cordons: BTreeSet<DeviceUuid>,
    /// Names of GPUs, each kept once.
    pub(crate) gpu_names: BTreeSet<GpuName>,
    /// How many MIG instances of each parent are known.
    pub(crate) instances: Lookup<DeviceUuid, u16>,
    pub(crate) models: Table<ModelKey, ModelName, Model>,
    pub(crate) shapes: Table<ShapeKey, Arc<Shape>, ShapeRow>,
    /// Strays are rows here too, but are found by their runner: their ids may be anybody's.
    pub(crate) slots: Table<SlotKey, SlotName, Slot>,
    pub(crate) workloads: Table<WorkloadKey, WorkloadId, Workload>,
    /// How many runners have a stray of this id.
    pub(crate) stray_ids: BTreeMap<SlotId, u32>,
    pub(crate) keys: Lookup<IdempotencyKey, WorkloadId>,
    /// How many workloads each owner has.
    pub(crate) owners: Owners,
    /// Ended workloads, in the order in which they ended.
    pub(crate) ended: std::collections::VecDeque<WorkloadKey>,
    pub(crate) queue: Queue,
    /// Slots that wait for memory, by model, oldest first.
    pub(crate) promised: BTreeMap<ModelKey, BTreeSet<(u64, SlotKey)>>,
    /// Slots that wait for their turn to start on a device where others took their memory.
    pub(crate) crowded_out: BTreeSet<SlotKey>,
    /// Models with fewer slots than they must have.
    pub(crate) understaffed: BTreeSet<ModelKey>,
    pub(crate) timers: Timers,
    pub(crate) index: Index,
    pub(crate) dirty: DirtySet,
    pub(crate) counters: Counters,
    /// Runners whose agents should ask again, once somebody wants to know.
    pub(crate) called: Option<Vec<RunnerId>>,
    /// The snapshot that is being made: everything but rows, as it was when it was begun.
    pub(crate) pictured: Option<Box<Snapshot>>,
}

/// How a slot is found: its own by id, a stray by its runner too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct SlotName {
    pub(crate) id: SlotId,
    pub(crate) stray_on: Option<RunnerKey>,
}

/// Numbers that only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Counters {
    pub(crate) slots: u64,
    /// The number of the last slot id that was given out.
    pub(crate) slot_ids: u64,
    pub(crate) workloads: u64,
    pub(crate) runners: u32,
    pub(crate) evictions: u64,
    /// Events that broke a line they should have kept: always zero, or there is a bug.
    pub(crate) faults: u64,
}

impl State {
    /// A core that knows nothing yet.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            cluster: None,
            epoch: Epoch::default(),
            revision: Revision::default(),
            history: History::default(),
            now: Timestamp::default(),
            timers_from: Timestamp::default(),
            machines: Table::default(),
            runners: Table::default(),
            machine_words: BTreeMap::new(),
            devices: Table::default(),
            cordons: BTreeSet::new(),
            gpu_names: BTreeSet::new(),
            instances: Lookup::default(),
            models: Table::default(),
            shapes: Table::default(),
            slots: Table::default(),
            workloads: Table::default(),
            stray_ids: BTreeMap::new(),
            keys: Lookup::default(),
            owners: Owners::default(),
            ended: std::collections::VecDeque::new(),
            queue: Queue::default(),
            promised: BTreeMap::new(),
            crowded_out: BTreeSet::new(),
            understaffed: BTreeSet::new(),
            timers: Timers::default(),
            index: Index::default(),
            dirty: DirtySet::default(),
            counters: Counters::default(),
            called: None,
            pictured: None,
        }
    }

    /// The number of the last event.
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// Which start of the server this is.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The time of the last command: a clock that goes back is not followed.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// When the core has something to do by itself.
    #[must_use]
    pub fn next_timer(&self) -> Option<Timestamp> {
        self.timers.next()
    }

    /// Puts everything into the dirty set again. Whatever could be done was done, so the next step does nothing more.
    pub fn note_everything(&mut self) {
        self.dirty.devices.extend(self.devices.keys());
        self.dirty.hosts.extend(self.runners.keys());
        self.dirty.runners.extend(self.runners.keys());
        self.dirty.models.extend(self.models.keys());
        self.dirty.replicas.extend(self.models.keys());
        self.dirty.slots.extend(self.slots.keys());
    }

    /// The settings it decides by.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The slot of this id that the server made.
    pub(crate) fn slot(&self, id: SlotId) -> Option<(SlotKey, &Slot)> {
        self.slots.find(&SlotName { id, stray_on: None })
    }

    /// A slot of this id that a runner has and the server did not make.
    pub(crate) fn stray(&self, runner: RunnerKey, id: SlotId) -> Option<(SlotKey, &Slot)> {
        self.slots.find(&SlotName { id, stray_on: Some(runner) })
    }

    /// Whether a slot may be evicted: ready, idle, past its minimum run, not pinned, not needed. Which work asks for its memory is checked elsewhere.
    pub(crate) fn is_evictable(&self, slot: &Slot) -> bool {
        use berth_domain::SlotState;
        let Some(model) = slot.model.and_then(|key| self.models.get(key)) else { return false };
        let current = slot.revision == model.revision && !model.deleted;
        slot.state == SlotState::Ready
            && !slot.is_job
            && slot.is_idle()
            && slot.is_past_min_run
            && !(slot.is_pinned() && current)
            && (!current || model.spare_replicas() > 0)
    }

    /// The reservation that somebody has.
    pub(crate) fn reservation_of(&self, owner: Claimant) -> Option<&Reservation> {
        self.queue.reservations.iter().find(|row| row.owner == owner)
    }

    /// Reservations that keep a slot from taking leases of their priority or a lower one.
    pub(crate) fn reservations_on<'a>(&'a self, slot: &'a Slot) -> impl Iterator<Item = &'a Reservation> {
        let machine = self.runners.get(slot.runner).map(|row| row.machine);
        let in_the_way = move |row: &&Reservation| !row.backfill && row.concerns(slot, machine == Some(row.machine));
        self.queue.reservations.iter().filter(in_the_way)
    }

    /// The first waiting workload of a model and kind.
    pub(crate) fn head(&self, model: ModelKey, kind: WorkloadKind) -> Option<QueueKey> {
        self.models.get(model)?.waiting(kind).first().copied()
    }

    /// The next slot's id and number.
    pub(crate) fn next_slot_id(&self) -> SlotId {
        let cluster = self.cluster.unwrap_or(ClusterId::new(uuid::Uuid::nil()));
        let next = (1..=u64::MAX).map(|more| SlotId::numbered(cluster, self.counters.slot_ids.wrapping_add(more)));
        // A runner may hold a slot of an id that is yet to be given out, honestly (an old data directory) or not.
        next.into_iter().find(|id| !self.stray_ids.contains_key(id)).unwrap_or(SlotId::numbered(cluster, 0))
    }
}
