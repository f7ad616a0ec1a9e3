//! Models, and the shapes that waiting work has in common.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use berth_domain::{
    Bytes, Constraints, GpuCount, GpuMemory, Millicores, ModelName, ModelRevision, ModelSpec, Placement, Timestamp,
    WorkloadKind,
};
use serde::{Deserialize, Serialize};

use crate::memory::{self, Watched};
use crate::state::slot::Slot;
use crate::state::work::QueueKey;
use crate::table::{ModelKey, Row, ShapeKey, SlotKey};

/// What a slot needs of the fleet, apart from whose it is. Work of one shape fits or waits together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Shape {
    /// For each allowed count, smallest first, what each GPU must give in rank order. Empty if nobody knows.
    pub(crate) counts: Vec<(GpuCount, Vec<GpuMemory>)>,
    pub(crate) constraints: Constraints,
    pub(crate) cpu: Millicores,
    pub(crate) ram: Bytes,
    pub(crate) placement: Placement,
}

impl Shape {
    /// The shape of a model, with what is charged instead of what its entry says.
    pub(crate) fn of(spec: &ModelSpec, watched: &BTreeMap<GpuCount, Watched>) -> Self {
        let known = |count: GpuCount| Some((count, memory::charged_on(spec, watched, count)?));
        Self {
            counts: spec.allowed_counts().into_iter().filter_map(known).collect(),
            constraints: spec.constraints.clone(),
            cpu: spec.cpu,
            ram: spec.ram,
            placement: spec.placement,
        }
    }

    pub(crate) fn is_cpu_only(&self) -> bool {
        self.counts.first().is_some_and(|(count, _)| count.get() == 0)
    }
}

/// A shape and the work of that shape that waits.
#[derive(Clone, Debug)]
pub(crate) struct ShapeRow {
    pub(crate) shape: Arc<Shape>,
    /// Models of this shape.
    pub(crate) models: u32,
    /// The first in order of each model and kind that waits.
    pub(crate) heads: BTreeSet<(QueueKey, ModelKey, WorkloadKind)>,
}

/// A slot with room for leases: ready ones first, then the least busy, then the oldest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct OpenSlot {
    pub(crate) not_ready: bool,
    pub(crate) active: u32,
    pub(crate) number: u64,
    pub(crate) slot: SlotKey,
}

/// A catalogue entry. It stays as a tombstone after deletion, so that revision numbers go on.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Model {
    pub(crate) name: ModelName,
    pub(crate) revision: ModelRevision,
    pub(crate) spec: Arc<ModelSpec>,
    #[serde(skip)]
    pub(crate) shape: ShapeKey,
    pub(crate) deleted: bool,
    /// All its slots, of any revision and state.
    #[serde(skip)]
    pub(crate) slots: BTreeSet<SlotKey>,
    /// Lease slots of this revision that serve or will serve.
    #[serde(skip)]
    pub(crate) live: u32,
    #[serde(skip)]
    pub(crate) open: BTreeSet<OpenSlot>,
    /// Slots with room for leases that a reservation keeps from all but higher priorities.
    #[serde(skip)]
    pub(crate) kept_back: BTreeSet<OpenSlot>,
    /// Since when it has fewer slots than it must have.
    pub(crate) short_since: Option<Timestamp>,
    #[serde(skip)]
    pub(crate) waiting_leases: BTreeSet<QueueKey>,
    #[serde(skip)]
    pub(crate) waiting_jobs: BTreeSet<QueueKey>,
    /// What its shape knows as the first in order of each kind.
    #[serde(skip)]
    pub(crate) heads: [Option<QueueKey>; 2],
    /// Slots that failed one after the other without becoming ready.
    pub(crate) failures: u32,
    /// Slots that nobody asked for wait until then.
    pub(crate) retry_at: Option<Timestamp>,
    /// How often one of its slots was evicted.
    pub(crate) evictions: u64,
    /// What the slots of this revision were seen to use, and what is charged instead of what its entry says.
    #[serde(default)]
    pub(crate) memory: BTreeMap<GpuCount, Watched>,
}

impl Row<Arc<Shape>> for ShapeRow {
    fn id(&self) -> Arc<Shape> {
        self.shape.clone()
    }
}

impl Row<ModelName> for Model {
    fn id(&self) -> ModelName {
        self.name.clone()
    }

    fn picture(&self) -> Self {
        Self {
            name: self.name.clone(),
            spec: self.spec.clone(),
            slots: BTreeSet::new(),
            open: BTreeSet::new(),
            kept_back: BTreeSet::new(),
            waiting_leases: BTreeSet::new(),
            waiting_jobs: BTreeSet::new(),
            memory: self.memory.clone(),
            ..*self
        }
    }
}

impl Model {
    pub(crate) fn waiting(&self, kind: WorkloadKind) -> &BTreeSet<QueueKey> {
        match kind {
            WorkloadKind::Lease => &self.waiting_leases,
            WorkloadKind::Job => &self.waiting_jobs,
        }
    }

    pub(crate) fn waiting_mut(&mut self, kind: WorkloadKind) -> &mut BTreeSet<QueueKey> {
        match kind {
            WorkloadKind::Lease => &mut self.waiting_leases,
            WorkloadKind::Job => &mut self.waiting_jobs,
        }
    }

    /// What each GPU of a slot must give by its entry, where that is bytes.
    pub(crate) fn stated_on(&self, count: GpuCount) -> Option<Vec<Bytes>> {
        self.spec.memory_on(count)?.into_iter().map(GpuMemory::bytes).collect()
    }

    /// What each GPU of a slot is charged, where that is bytes.
    pub(crate) fn bytes_on(&self, count: GpuCount) -> Option<Vec<Bytes>> {
        memory::bytes_on(&self.spec, &self.memory, count)
    }

    /// Whether a slot has what it would be given if it were placed now.
    pub(crate) fn is_enough(&self, slot: &Slot) -> bool {
        let count = GpuCount::new(u16::try_from(slot.gpus.len()).unwrap_or(u16::MAX));
        let charged = self.bytes_on(count);
        charged.is_none_or(|charged| slot.gpus.iter().zip(&charged).all(|(gpu, bytes)| gpu.bytes >= *bytes))
    }

    /// Whether it may have one more slot.
    pub(crate) fn may_grow(&self) -> bool {
        self.spec.replicas.max.is_none_or(|max| self.live < max)
    }

    /// How many of its slots could go without falling below its minimum.
    pub(crate) fn spare_replicas(&self) -> u32 {
        if self.deleted { self.live } else { self.live.saturating_sub(self.spec.replicas.min) }
    }
}
