//! The whole state as data: what a journal may forget its beginning for.
//!
//! Only rows are kept. Whatever follows from them (queues, shelves, sets, look-ups) is made anew, by the same code that
//! makes it when an event is applied, so a restored state cannot disagree with its rows.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};

use berth_domain::{
    ClusterId, DeviceUuid, Epoch, MachineId, ModelName, PoolName, Revision, RunnerId, Timestamp, WorkloadId,
};
use serde::{Deserialize, Serialize};

use crate::invariants::{self, Violation};
use crate::settings::Settings;
use crate::state::{
    Counters, Device, Machine, Model, Reservation, Runner, Shape, Slot, SlotName, State, Timer, Timers, Workload,
};
use crate::table::{DeviceKey, MachineKey, ModelKey, RunnerKey, SlotKey, Table, WorkloadKey};

/// A state as data. Opaque: it is written, read and restored.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Snapshot<'a> {
    cluster: Option<ClusterId>,
    epoch: Epoch,
    revision: Revision,
    now: Timestamp,
    timers_from: Timestamp,
    counters: Counters,
    machines: Cow<'a, Table<MachineKey, MachineId, Machine>>,
    runners: Cow<'a, Table<RunnerKey, RunnerId, Runner>>,
    devices: Cow<'a, Table<DeviceKey, DeviceUuid, Device>>,
    models: Cow<'a, Table<ModelKey, ModelName, Model>>,
    slots: Cow<'a, Table<SlotKey, SlotName, Slot>>,
    workloads: Cow<'a, Table<WorkloadKey, WorkloadId, Workload>>,
    ended: Cow<'a, VecDeque<WorkloadKey>>,
    reservations: Cow<'a, BTreeMap<PoolName, Reservation>>,
    timers: Vec<(Timestamp, Timer)>,
}

impl Snapshot<'_> {
    /// The revision that it is a picture of.
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.revision
    }
}

impl State {
    /// The state as data.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot<'_> {
        Snapshot {
            cluster: self.cluster,
            epoch: self.epoch,
            revision: self.revision,
            now: self.now,
            timers_from: self.timers_from,
            counters: self.counters,
            machines: Cow::Borrowed(&self.machines),
            runners: Cow::Borrowed(&self.runners),
            devices: Cow::Borrowed(&self.devices),
            models: Cow::Borrowed(&self.models),
            slots: Cow::Borrowed(&self.slots),
            workloads: Cow::Borrowed(&self.workloads),
            ended: Cow::Borrowed(&self.ended),
            reservations: Cow::Borrowed(&self.queue.reservations),
            timers: self.timers.list(),
        }
    }

    /// The state that `snapshot` is a picture of. One whose ledgers do not add up is refused.
    pub fn restore(settings: Settings, snapshot: Snapshot<'_>) -> Result<Self, Violation> {
        let mut state = Self::new(settings);
        state.cluster = snapshot.cluster;
        state.epoch = snapshot.epoch;
        state.revision = snapshot.revision;
        state.now = snapshot.now;
        state.timers_from = snapshot.timers_from;
        state.counters = snapshot.counters;
        state.machines = snapshot.machines.into_owned();
        state.runners = snapshot.runners.into_owned();
        state.devices = snapshot.devices.into_owned();
        state.models = snapshot.models.into_owned();
        state.slots = snapshot.slots.into_owned();
        state.workloads = snapshot.workloads.into_owned();
        state.ended = snapshot.ended.into_owned();
        state.queue.reservations = snapshot.reservations.into_owned();
        state.timers = Timers::from_list(snapshot.timers);
        state.follow_from_rows();
        invariants::check_ledgers(&state)?;
        Ok(state)
    }

    /// Makes everything that follows from the rows.
    fn follow_from_rows(&mut self) {
        self.restore_fleet();
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
            self.index.serve(&spec);
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
            if row.spec.as_ref() == Some(&model.spec) {
                row.spec = Some(model.spec.clone());
            }
        }
        self.slots.keys().into_iter().for_each(|slot| self.link_slot(slot));
        self.models.keys().into_iter().for_each(|model| self.link_staff(model));
    }
}
