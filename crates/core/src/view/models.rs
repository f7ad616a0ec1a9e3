//! Models and what is known of their memory.

use std::sync::Arc;

use berth_domain::{Bytes, GpuCount, ModelName, ModelRevision, ModelSpec, Timestamp};

use super::sorted;
use crate::memory::{self, CorrectionReason, MemoryVerdict, Watched};
use crate::state::State;

/// A model of the catalogue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelView {
    /// The name in the catalogue.
    pub name: ModelName,
    /// The revision of the catalogue entry.
    pub revision: ModelRevision,
    /// Whether it was removed.
    pub deleted: bool,
    /// How many of its slots serve or will serve.
    pub live: u32,
    /// How many workloads wait for it.
    pub waiting: usize,
    /// How often one of its slots was evicted.
    pub evictions: u64,
    /// Slots that nobody asked for wait until then, because one failed.
    pub retry_at: Option<Timestamp>,
    /// Its catalogue entry.
    pub spec: Arc<ModelSpec>,
    /// What its slots were seen to use, and what is charged instead of what its entry says, by GPU count.
    pub memory: Vec<MemoryView>,
}

/// What is known of one GPU count of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryView {
    /// How many GPUs.
    pub count: GpuCount,
    /// What the next slot is charged on each of them.
    pub charged: Vec<Bytes>,
    /// Why that is not what its entry says, if it is not.
    pub corrected: Option<CorrectionReason>,
    /// The most that its slots were seen to use on each of them; empty before anything was seen.
    pub peaks: Vec<Bytes>,
    /// How the two compare.
    pub verdict: MemoryVerdict,
    /// What would be charged by what was seen, where that is another number.
    pub offered: Option<Vec<Bytes>>,
}

impl State {
    /// Lists all models, ordered by name.
    #[must_use]
    pub fn models(&self) -> Vec<ModelView> {
        sorted(self.models.iter().map(|(_, row)| self.model_view(row)).collect(), |view| view.name.clone())
    }

    pub(crate) fn model_view(&self, model: &crate::state::Model) -> ModelView {
        ModelView {
            name: model.name.clone(),
            revision: model.revision,
            deleted: model.deleted,
            live: model.live,
            waiting: model.waiting_leases.len() + model.waiting_jobs.len(),
            evictions: model.evictions,
            retry_at: model.retry_at,
            spec: model.spec.clone(),
            memory: model.memory.iter().filter_map(|(count, row)| self.memory_view(model, *count, row)).collect(),
        }
    }

    fn memory_view(&self, model: &crate::state::Model, count: GpuCount, row: &Watched) -> Option<MemoryView> {
        let (original, charged) = (model.stated_on(count)?, model.bytes_on(count)?);
        let offered = memory::corrected(&original, &row.peaks, u64::from(self.settings.oom_limit));
        Some(MemoryView {
            count,
            corrected: row.correction.as_ref().map(|correction| correction.why),
            peaks: row.peaks.clone(),
            verdict: row.verdict,
            offered: Some(offered).filter(|offered| row.verdict.is_drift() && *offered != charged),
            charged,
        })
    }
}
