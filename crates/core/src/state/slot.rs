//! Slots.

use std::sync::Arc;

use berth_domain::{
    Bytes, Endpoint, ExitStatus, Generation, Millicores, ModelRevision, ModelSpec, SlotId, SlotState, Span, Timestamp,
};
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use crate::reason::{StopReason, UnknownReason};
use crate::state::{OpenSlot, SlotName};
use crate::table::{DeviceKey, ModelKey, Row, RunnerKey, WorkloadKey};

/// What a slot has on one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SlotGpu {
    pub(crate) device: DeviceKey,
    pub(crate) bytes: Bytes,
    /// What the driver saw it use, where it can tell.
    pub(crate) observed: Option<Bytes>,
    /// What was in use on the device, by whomever, when it was told to start there.
    #[serde(skip)]
    pub(crate) used_before: Option<Bytes>,
    pub(crate) peak: Bytes,
}

/// One instance of a model, or a slot that a runner has and the server never made (`model` is `None`).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Slot {
    pub(crate) id: SlotId,
    /// The order of creation.
    pub(crate) number: u64,
    pub(crate) generation: Generation,
    pub(crate) model: Option<ModelKey>,
    pub(crate) revision: ModelRevision,
    pub(crate) spec: Option<Arc<ModelSpec>>,
    pub(crate) runner: RunnerKey,
    pub(crate) state: SlotState,
    pub(crate) gpus: SmallVec<[SlotGpu; 1]>,
    pub(crate) cpu: Millicores,
    pub(crate) ram: Bytes,
    /// Whether it was made for a job, which may have left it since.
    pub(crate) is_job: bool,
    pub(crate) job: Option<WorkloadKey>,
    pub(crate) leases: Vec<WorkloadKey>,
    pub(crate) endpoint: Option<Endpoint>,
    pub(crate) created: Timestamp,
    pub(crate) ready_since: Option<Timestamp>,
    pub(crate) idle_since: Option<Timestamp>,
    /// Its agent has mentioned it.
    pub(crate) seen: bool,
    /// It has run long enough to be evicted.
    pub(crate) is_past_min_run: bool,
    /// Whether it is counted as evictable on its devices now.
    #[serde(skip)]
    pub(crate) evictable: bool,
    /// Whether it is counted among its model's live slots now.
    #[serde(skip)]
    pub(crate) live: bool,
    /// Its entry among its model's slots with room for leases.
    #[serde(skip)]
    pub(crate) open: Option<OpenSlot>,
    pub(crate) stop_reason: Option<StopReason>,
    /// Its stop takes too long.
    pub(crate) stalled: bool,
    /// When it entered its state.
    pub(crate) since: Timestamp,
    /// How often it was started again in its place without becoming ready.
    pub(crate) restarts: u32,
    /// It was given up for a while and came back: others may have taken its place.
    pub(crate) returned: bool,
    /// Which of its timers are armed.
    pub(crate) armed: u8,
    pub(crate) failure: Option<berth_domain::FailureReason>,
    /// How the first process of this start ended, if it ended by itself.
    #[serde(default)]
    pub(crate) exit: Option<ExitStatus>,
    /// Why nobody can say whether it exists.
    pub(crate) unknown: Option<UnknownReason>,
    /// A job that waits until this slot, its last start, is proven gone.
    pub(crate) blocks: Option<WorkloadKey>,
    /// Its entry among its model's slots with room for leases, if a reservation keeps it from all but higher
    /// priorities.
    #[serde(skip)]
    pub(crate) kept_back: Option<OpenSlot>,
}

impl Row<SlotName> for Slot {
    fn id(&self) -> SlotName {
        SlotName { id: self.id, stray_on: self.is_stray().then_some(self.runner) }
    }
}

impl Slot {
    pub(crate) fn is_stray(&self) -> bool {
        self.model.is_none()
    }

    /// Leases it could take beside those it has.
    pub(crate) fn spare(&self) -> u32 {
        let concurrency = self.spec.as_ref().map_or(0, |spec| spec.concurrency);
        concurrency.saturating_sub(self.active())
    }

    pub(crate) fn active(&self) -> u32 {
        u32::try_from(self.leases.len()).unwrap_or(u32::MAX)
    }

    pub(crate) fn total_bytes(&self) -> Bytes {
        self.gpus.iter().fold(Bytes::ZERO, |sum, gpu| sum.saturating_add(gpu.bytes))
    }

    /// A job that was started runs to its end, whatever becomes of its model.
    pub(crate) fn runs_a_job(&self) -> bool {
        self.is_job && !matches!(self.state, SlotState::Promised | SlotState::Pending)
    }

    /// Whether anybody used it since it became ready.
    pub(crate) fn has_served(&self) -> bool {
        !self.is_idle() || self.idle_since.zip(self.ready_since).is_some_and(|(idle, ready)| idle > ready)
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.leases.is_empty() && self.job.is_none()
    }

    pub(crate) fn min_run(&self, default: Span) -> Span {
        self.spec.as_ref().and_then(|spec| spec.min_run).unwrap_or(default)
    }

    pub(crate) fn is_pinned(&self) -> bool {
        self.spec.as_ref().is_some_and(|spec| spec.replicas.pinned)
    }

    pub(crate) fn on(&self, device: DeviceKey) -> Option<&SlotGpu> {
        self.gpus.iter().find(|gpu| gpu.device == device)
    }
}
