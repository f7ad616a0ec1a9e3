//! Slots.

use berth_domain::{
    Bytes, DeviceUuid, Endpoint, FailureReason, Generation, ModelName, ModelRevision, RunnerId, SlotId, SlotState,
    Timestamp,
};

use crate::reason::{StopReason, UnknownReason};
use crate::state::{Slot, State};

/// A slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotView {
    /// The id; ids ascend in the order of creation.
    pub id: SlotId,
    /// How often it was started anew in its place.
    pub generation: Generation,
    /// What it serves; nothing for a slot that the server did not make.
    pub model: Option<ModelName>,
    /// The revision of the model that it serves.
    pub revision: ModelRevision,
    /// The runner that it runs on.
    pub runner: RunnerId,
    /// The state that it is in.
    pub state: SlotState,
    /// When it came into that state.
    pub since: Timestamp,
    /// Its devices in rank order: the UUID, the bytes that are charged and the bytes that were last observed.
    pub gpus: Vec<(DeviceUuid, Bytes, Option<Bytes>)>,
    /// The address at which it answers.
    pub endpoint: Option<Endpoint>,
    /// How many leases and jobs use it.
    pub active: u32,
    /// How many leases may use it at once.
    pub concurrency: u32,
    /// When it was placed.
    pub created: Timestamp,
    /// When its last lease ended, while it has none.
    pub idle_since: Option<Timestamp>,
    /// It has run long enough to be evicted.
    pub past_min_run: bool,
    /// Why it is being stopped.
    pub stop_reason: Option<StopReason>,
    /// Why it failed, if it did.
    pub failure: Option<FailureReason>,
    /// Its stop takes too long.
    pub stalled: bool,
    /// Why it is not known whether it exists.
    pub unknown: Option<UnknownReason>,
}

impl State {
    /// Lists all slots in the order of their creation.
    #[must_use]
    pub fn slots(&self) -> Vec<SlotView> {
        let mut rows: Vec<&Slot> = self.slots.iter().map(|(_, row)| row).collect();
        rows.sort_by_key(|row| row.number);
        rows.into_iter().filter_map(|row| self.slot_view(row)).collect()
    }

    /// Finds a slot that the server made.
    #[must_use]
    pub fn slot_by_id(&self, id: SlotId) -> Option<SlotView> {
        self.slot(id).and_then(|(_, row)| self.slot_view(row))
    }

    /// Lists the slots of a runner.
    #[must_use]
    pub fn slots_of(&self, runner: &RunnerId) -> Vec<SlotId> {
        let slots = self.runners.find(runner).map(|(_, row)| row.slots.as_slice()).unwrap_or_default();
        slots.iter().filter_map(|key| self.slots.get(*key)).map(|slot| slot.id).collect()
    }

    /// Counts the slots that were evicted so far.
    #[must_use]
    pub fn evictions(&self) -> u64 {
        self.counters.evictions
    }

    pub(crate) fn slot_view(&self, slot: &Slot) -> Option<SlotView> {
        let gpu =
            |gpu: &crate::state::SlotGpu| Some((self.devices.get(gpu.device)?.uuid.clone(), gpu.bytes, gpu.observed));
        Some(SlotView {
            id: slot.id,
            generation: slot.generation,
            model: slot.spec.as_ref().map(|spec| spec.name.clone()),
            revision: slot.revision,
            runner: self.runners.get(slot.runner)?.id.clone(),
            state: slot.state,
            since: slot.since,
            gpus: slot.gpus.iter().filter_map(gpu).collect(),
            endpoint: slot.endpoint.clone(),
            active: slot.active() + u32::from(slot.job.is_some()),
            concurrency: slot.spec.as_ref().map_or(0, |spec| spec.concurrency),
            created: slot.created,
            idle_since: slot.idle_since,
            past_min_run: slot.is_past_min_run,
            stop_reason: slot.stop_reason,
            failure: slot.failure,
            stalled: slot.stalled,
            unknown: slot.unknown.clone(),
        })
    }
}
