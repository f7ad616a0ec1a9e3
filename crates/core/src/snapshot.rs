//! The whole state as data: what a journal may forget its beginning for.
//!
//! It is made while life goes on: begun between two commands, it shows the state of that moment, and is copied a few
//! rows at a time. A row that changes before its turn is copied first ([`crate::table`]).
//!
//! Only rows are kept. Whatever follows from them (queues, shelves, sets, look-ups) is made anew, by the same code that
//! makes it when an event is applied, so a restored state cannot disagree with its rows.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use berth_domain::{
    ClusterId, DeviceUuid, Epoch, HistoryPoint, MachineId, ModelName, Revision, RunnerId, Timestamp, WorkloadId,
};
use serde::{Deserialize, Serialize};

use crate::invariants::{self, Violation};
use crate::settings::Settings;
use crate::state::{
    Claimant, Counters, Device, History, Machine, Model, Reservation, Runner, Shape, Slot, SlotName, State, Timer,
    Timers, Workload,
};
use crate::table::{DeviceKey, MachineKey, ModelKey, Row, Rows, RunnerKey, SlotKey, Table, WorkloadKey};

/// A state as data. Opaque: it is written, read and restored.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Snapshot {
    cluster: Option<ClusterId>,
    epoch: Epoch,
    revision: Revision,
    history: History,
    now: Timestamp,
    timers_from: Timestamp,
    counters: Counters,
    machines: Rows<MachineKey, MachineId, Machine>,
    runners: Rows<RunnerKey, RunnerId, Runner>,
    devices: Rows<DeviceKey, DeviceUuid, Device>,
    models: Rows<ModelKey, ModelName, Model>,
    slots: Rows<SlotKey, SlotName, Slot>,
    workloads: Rows<WorkloadKey, WorkloadId, Workload>,
    ended: VecDeque<WorkloadKey>,
    reservations: Vec<Reservation>,
    cordons: BTreeSet<DeviceUuid>,
    machine_words: BTreeMap<RunnerId, (MachineId, bool)>,
    timers: Vec<(Timestamp, Timer)>,
}

impl Snapshot {
    /// The point of the server's history that it is a picture of.
    #[must_use]
    pub fn point(&self) -> HistoryPoint {
        HistoryPoint { epoch: self.epoch, tag: self.history.tag(), revision: self.revision }
    }

    /// The revision that it is a picture of.
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.revision
    }
}

impl State {
    /// Begins a snapshot of the state as it is now. One that was begun before is given up.
    pub fn begin_snapshot(&mut self) {
        self.pictured = Some(Box::new(Snapshot {
            cluster: self.cluster,
            epoch: self.epoch,
            revision: self.revision,
            history: self.history.clone(),
            now: self.now,
            timers_from: self.timers_from,
            counters: self.counters,
            machines: Rows::new(),
            runners: Rows::new(),
            devices: Rows::new(),
            models: Rows::new(),
            slots: Rows::new(),
            workloads: Rows::new(),
            ended: self.ended.clone(),
            reservations: self.queue.reservations.clone(),
            cordons: self.cordons.clone(),
            machine_words: self.machine_words.clone(),
            timers: self.timers.list(),
        }));
        self.machines.begin_copy();
        self.runners.begin_copy();
        self.devices.begin_copy();
        self.models.begin_copy();
        self.slots.begin_copy();
        self.workloads.begin_copy();
    }

    /// Copies at most so many rows more, and gives the snapshot away once it is whole.
    pub fn continue_snapshot(&mut self, rows: usize) -> Option<Snapshot> {
        let mut pictured = self.pictured.take()?;
        let left = self.machines.copy_some(rows, Row::picture);
        let left = self.runners.copy_some(left, Row::picture);
        let left = self.devices.copy_some(left, Row::picture);
        let left = self.models.copy_some(left, Row::picture);
        let left = self.slots.copy_some(left, |slot| without_known_spec(slot, &self.models));
        let left = self.workloads.copy_some(left, Row::picture);
        if left == 0 {
            self.pictured = Some(pictured);
            return None;
        }
        pictured.machines = self.machines.take_copy();
        pictured.runners = self.runners.take_copy();
        pictured.devices = self.devices.take_copy();
        pictured.models = self.models.take_copy();
        pictured.slots = self.slots.take_copy();
        pictured.workloads = self.workloads.take_copy();
        Some(*pictured)
    }

    /// The state that `snapshot` is a picture of. One whose ledgers do not add up is refused.
    pub fn restore(settings: Settings, snapshot: Snapshot) -> Result<Self, Violation> {
        let mut state = Self::new(settings);
        state.cluster = snapshot.cluster;
        state.epoch = snapshot.epoch;
        state.revision = snapshot.revision;
        state.history = snapshot.history;
        state.now = snapshot.now;
        state.timers_from = snapshot.timers_from;
        state.counters = snapshot.counters;
        state.machines = Table::from(snapshot.machines);
        state.runners = Table::from(snapshot.runners);
        state.devices = Table::from(snapshot.devices);
        state.models = Table::from(snapshot.models);
        state.slots = Table::from(snapshot.slots);
        state.workloads = Table::from(snapshot.workloads);
        state.ended = snapshot.ended;
        state.queue.reservations = snapshot.reservations;
        state.cordons = snapshot.cordons;
        state.machine_words = snapshot.machine_words;
        state.timers = Timers::from_list(snapshot.timers);
        state.follow_from_rows();
        invariants::check_ledgers(&state)?;
        Ok(state)
    }

    /// Makes everything that follows from the rows.
    fn follow_from_rows(&mut self) {
        self.restore_fleet();
        self.restore_bars();
        let owners: Vec<Claimant> = self.queue.reservations.iter().map(|row| row.owner).collect();
        owners.into_iter().for_each(|owner| self.mark_reservation(owner));
        self.restore_catalogue();
        self.restore_slots();
        for workload in self.workloads.keys() {
            if let Some(row) = self.workloads.get(workload)
                && let Some(key) = row.submission.idempotency_key.clone()
            {
                self.keys.insert(key, row.id);
            }
            self.link_workload(workload);
        }
        self.rebuild_index();
    }

    fn restore_fleet(&mut self) {
        for device in self.devices.keys() {
            let Some(row) = self.devices.get_mut(device) else { continue };
            // A name is kept once, however many GPUs have it.
            match self.gpu_names.get(&row.name) {
                Some(known) => row.name = known.clone(),
                None => drop(self.gpu_names.insert(row.name.clone())),
            }
            if let Some(parent) = row.parent.clone() {
                *self.instances.entry(parent).or_default() += 1;
            }
        }
    }

    fn restore_catalogue(&mut self) {
        for model in self.models.keys() {
            let Some(row) = self.models.get(model) else { continue };
            let (spec, shape) = (row.spec.clone(), Shape::of(&row.spec, &row.memory));
            if !row.deleted {
                self.index.serve(&spec);
            }
            let shape = self.take_shape(shape);
            if let Some(row) = self.models.get_mut(model) {
                row.shape = shape;
            }
        }
    }

    fn restore_slots(&mut self) {
        for slot in self.slots.keys() {
            let Some(row) = self.slots.get_mut(slot) else { continue };
            let Some(model) = row.model else {
                *self.stray_ids.entry(row.id).or_default() += 1;
                continue;
            };
            let Some(model) = self.models.get_mut(model) else { continue };
            model.slots.insert(slot);
            if row.spec.as_ref().is_none_or(|spec| *spec == model.spec) {
                row.spec = Some(model.spec.clone());
            }
        }
        self.slots.keys().into_iter().for_each(|slot| self.link_slot(slot));
        self.models.keys().into_iter().for_each(|model| self.link_missing_replicas(model));
    }
}

/// A slot, and its model's entry only if that is another by now.
fn without_known_spec(slot: &Slot, models: &Table<ModelKey, ModelName, Model>) -> Slot {
    let known = slot.model.and_then(|model| models.get(model)).map(|model| &model.spec);
    let spec = slot.spec.clone().filter(|spec| known.is_none_or(|known| !Arc::ptr_eq(spec, known)));
    Slot { spec, ..slot.picture() }
}
