//! Models come, change and go.

use std::collections::BTreeMap;
use std::sync::Arc;

use berth_domain::{Bytes, GpuCount, ModelName, ModelRevision, ModelSpec, WorkloadKind};

use crate::memory::{Correction, CorrectionReason, Watched};
use crate::state::{Model, Shape, ShapeRow, State, Timer};
use crate::table::{ModelKey, ShapeKey};

const KINDS: [WorkloadKind; 2] = [WorkloadKind::Lease, WorkloadKind::Job];

impl State {
    pub(super) fn on_model_put(&mut self, spec: &Arc<ModelSpec>, revision: ModelRevision) {
        self.index.serve(spec);
        let before = self.models.find(&spec.name).filter(|(_, row)| !row.deleted).map(|(_, row)| row.spec.clone());
        before.into_iter().for_each(|before| self.index.dismiss(&before));
        if let Some(row) = self.models.key(&spec.name).and_then(|key| self.models.get_mut(key))
            && row.revision == revision
        {
            // Only how callers reach it has changed: what its slots are and what was seen of them still holds.
            row.spec = spec.clone();
            return;
        }
        let shape = self.take_shape(Shape::of(spec, &BTreeMap::new()));
        let key = match self.models.key(&spec.name) {
            Some(key) => self.change_model(key, spec, revision, shape),
            None => self.models.insert(new_model(spec, revision, shape)),
        };
        self.link_missing_replicas(key);
        self.dirty.models.insert(key);
        self.dirty.replicas.insert(key);
    }

    fn change_model(
        &mut self,
        key: ModelKey,
        spec: &Arc<ModelSpec>,
        revision: ModelRevision,
        shape: ShapeKey,
    ) -> ModelKey {
        let waiting = self.withdraw_waiting(key);
        let Some(row) = self.models.get_mut(key) else { return key };
        let old_shape = std::mem::replace(&mut row.shape, shape);
        row.spec = spec.clone();
        row.revision = revision;
        row.deleted = false;
        row.failures = 0;
        row.retry_at = None;
        // What was seen of the old entry says nothing about the new one.
        row.memory.clear();
        self.timers.disarm(Timer::Replicas(key));
        self.leave_shape(old_shape);
        self.link_model_slots(key);
        // Work that waits does so by the new entry: another pool, another shape.
        waiting.into_iter().for_each(|workload| self.link_workload(workload));
        key
    }

    /// Changes what is known of one GPU count of a model.
    pub(super) fn on_watched(&mut self, name: &ModelName, count: GpuCount, change: impl FnOnce(&mut Watched)) {
        let Some(key) = self.models.key(name) else { return };
        if let Some(row) = self.models.get_mut(key) {
            change(row.memory.entry(count).or_default());
        }
    }

    /// From now on something else is charged: the model has another shape, and its waiting work waits by that.
    pub(super) fn on_memory_corrected(
        &mut self,
        name: &ModelName,
        count: GpuCount,
        bytes: &[Bytes],
        why: CorrectionReason,
    ) {
        self.on_watched(name, count, |row| {
            let raised = row.correction.as_ref().is_some_and(|correction| correction.raised);
            let raised = raised || why == CorrectionReason::OutOfMemory;
            row.correction = Some(Correction { bytes: bytes.to_vec(), why, raised });
        });
        let Some(key) = self.models.key(name) else { return };
        let waiting = self.withdraw_waiting(key);
        let Some(shape) = self.models.get(key).map(|row| Shape::of(&row.spec, &row.memory)) else { return };
        let shape = self.take_shape(shape);
        let old = self.models.get_mut(key).map(|row| std::mem::replace(&mut row.shape, shape));
        old.into_iter().for_each(|old| self.leave_shape(old));
        waiting.into_iter().for_each(|workload| self.link_workload(workload));
        self.dirty.models.insert(key);
        self.dirty.replicas.insert(key);
    }

    /// Takes the model's waiting work out of the queue's sets, to be linked again.
    fn withdraw_waiting(&mut self, key: ModelKey) -> Vec<crate::table::WorkloadKey> {
        let Some(row) = self.models.get_mut(key) else { return Vec::new() };
        let pool = row.spec.constraints.pool.clone();
        let entries: Vec<_> = row.waiting_leases.iter().chain(&row.waiting_jobs).copied().collect();
        row.waiting_leases.clear();
        row.waiting_jobs.clear();
        if let Some(set) = self.queue.pools.get_mut(&pool) {
            entries.iter().for_each(|entry| {
                set.remove(entry);
            });
            if set.is_empty() {
                self.queue.pools.remove(&pool);
            }
        }
        KINDS.into_iter().for_each(|kind| self.link_head(key, kind));
        for entry in &entries {
            if let Some(workload) = self.workloads.get_mut(entry.workload) {
                workload.eligible = false;
            }
        }
        entries.into_iter().map(|entry| entry.workload).collect()
    }

    pub(crate) fn take_shape(&mut self, shape: Shape) -> ShapeKey {
        let shape = Arc::new(shape);
        let key = match self.shapes.key(&shape) {
            Some(key) => key,
            None => {
                let row = ShapeRow { shape, models: 0, heads: std::collections::BTreeSet::new() };
                self.shapes.insert(row)
            }
        };
        if let Some(row) = self.shapes.get_mut(key) {
            row.models += 1;
        }
        key
    }

    fn leave_shape(&mut self, key: ShapeKey) {
        let Some(row) = self.shapes.get_mut(key) else { return };
        row.models -= 1;
        if row.models == 0 {
            self.shapes.remove(key);
        }
    }

    pub(super) fn on_model_deleted(&mut self, name: &ModelName) {
        let Some(key) = self.models.key(name) else { return };
        let before = self.models.get(key).filter(|row| !row.deleted).map(|row| row.spec.clone());
        before.into_iter().for_each(|before| self.index.dismiss(&before));
        if let Some(row) = self.models.get_mut(key) {
            row.deleted = true;
            row.retry_at = None;
        }
        self.timers.disarm(Timer::Replicas(key));
        self.link_missing_replicas(key);
        self.link_model_slots(key);
        self.dirty.models.insert(key);
    }

    pub(super) fn on_model_retried(&mut self, name: &ModelName) {
        let Some(key) = self.models.key(name) else { return };
        if let Some(row) = self.models.get_mut(key) {
            row.retry_at = None;
        }
        self.timers.disarm(Timer::Replicas(key));
        self.dirty.replicas.insert(key);
    }
}

fn new_model(spec: &Arc<ModelSpec>, revision: ModelRevision, shape: ShapeKey) -> Model {
    Model {
        name: spec.name.clone(),
        revision,
        spec: spec.clone(),
        shape,
        deleted: false,
        slots: std::collections::BTreeSet::new(),
        live: 0,
        open: std::collections::BTreeSet::new(),
        kept_back: std::collections::BTreeSet::new(),
        short_since: None,
        waiting_leases: std::collections::BTreeSet::new(),
        waiting_jobs: std::collections::BTreeSet::new(),
        heads: [None; 2],
        failures: 0,
        retry_at: None,
        evictions: 0,
        memory: BTreeMap::new(),
    }
}
