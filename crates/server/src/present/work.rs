//! Workloads, the queue and the catalogue.

use berth_core::view::{DemandView, MemoryView, ModelView, SlotView, WorkloadView};
use berth_domain::{Bytes, GpuCount, GpuMemory, Revision, Timestamp, WorkloadState};
use berth_wire as wire;

use super::attempt;
use super::lack::{is_whole, least};
use super::reason::wait_reason;

/// A workload, with the slot it has.
#[must_use]
pub fn workload(view: &WorkloadView, revision: Revision, slot: Option<&SlotView>) -> wire::Workload {
    let waits = view.waits.filter(|_| view.state == WorkloadState::Queued);
    let waits = waits.map(|why| wait_reason(why, view.wants_whole_gpus));
    // A slot answers for a workload only once it runs: before that its endpoint is nobody's business.
    let running = view.state == WorkloadState::Running;
    wire::Workload {
        id: view.id,
        kind: view.kind,
        model: view.model.clone(),
        state: view.state.into(),
        attempt: view.attempt,
        priority: view.priority,
        tenant: view.tenant.clone(),
        owner: view.owner.as_ref().map(ToString::to_string),
        position: view.position.map(|position| position as u64),
        slot: slot.map(|slot| wire::WorkloadSlot {
            id: slot.id,
            runner_id: slot.runner.clone(),
            endpoint: slot.endpoint.clone().filter(|_| running),
            gpus: slot.gpus.iter().map(|(uuid, ..)| uuid.clone()).collect(),
        }),
        reason: waits.or_else(|| attempt::reason(view)),
        created: wire::Time(view.created),
        revision,
        reserved_gpus: view.reserved.clone(),
        may_run_twice: view.may_run_twice,
        attempts: attempt::attempts(view),
    }
}

/// One that waits.
#[must_use]
pub fn queue_entry(view: &WorkloadView, position: usize, now: Timestamp) -> wire::QueueEntry {
    let unknown = || wire::Reason::new("queued", "it was not looked at yet");
    wire::QueueEntry {
        position: position as u64,
        workload_id: view.id,
        model: view.model.clone(),
        kind: view.kind,
        priority: view.priority,
        tenant: view.tenant.clone(),
        attempt: view.attempt,
        reason: view.waits.map_or_else(unknown, |why| wait_reason(why, view.wants_whole_gpus)),
        created: wire::Time(view.created),
        age_ms: now.since(view.created).millis(),
    }
}

/// What the fleet lacks for one model.
#[must_use]
pub fn demand(view: &DemandView, now: Timestamp) -> wire::Demand {
    let needs = view.counts.iter().map(|(count, ranks)| {
        let bytes = ranks.iter().map(|memory| least(*memory).filter(|bytes| !bytes.is_zero()));
        wire::DemandNeed {
            gpu_count: *count,
            gpu_bytes: bytes.collect::<Option<Vec<Bytes>>>().unwrap_or_default(),
            whole: ranks.iter().any(|memory| is_whole(*memory)),
        }
    });
    let unknown = || wire::Reason::new("queued", "it was not looked at yet");
    wire::Demand {
        model: view.model.clone(),
        kind: view.kind,
        reason: view.waits.map_or_else(unknown, |why| wait_reason(why, wants_whole_gpus(&view.counts))),
        waiting: view.waiting as u64,
        oldest: wire::Time(view.oldest),
        oldest_age_ms: now.since(view.oldest).millis(),
        needs: needs.collect(),
    }
}

fn wants_whole_gpus(counts: &[(GpuCount, Vec<GpuMemory>)]) -> bool {
    counts.iter().flat_map(|(_, ranks)| ranks).any(|memory| is_whole(*memory))
}

/// A catalogue entry and how it fares.
#[must_use]
pub fn model(view: &ModelView) -> wire::Model {
    let entry = wire::Model::of(&view.spec, view.revision);
    let charged = entry.charged.into_iter().map(|charged| seen(charged, &view.memory)).collect();
    wire::Model {
        charged,
        deleted: view.deleted,
        live_slots: view.live,
        waiting: view.waiting as u64,
        evictions: view.evictions,
        ..entry
    }
}

/// What a GPU count costs, with what was seen of it.
fn seen(mut charged: wire::ChargedMemory, memory: &[MemoryView]) -> wire::ChargedMemory {
    let Some(view) = memory.iter().find(|view| view.count == charged.gpu_count) else { return charged };
    if let Some(why) = view.corrected {
        charged.entry_bytes = charged.gpu_bytes.replace(view.charged.clone());
        charged.source = Some(why.code().to_owned());
    }
    charged.observed = (!view.peaks.is_empty()).then(|| wire::ObservedMemory {
        peak_bytes: view.peaks.clone(),
        drift_percent: wire::ObservedMemory::drift(&view.charged, &view.peaks),
        verdict: view.verdict.code().to_owned(),
        offered_bytes: view.offered.clone(),
    });
    charged
}
