//! Workloads and the order in which they wait.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use berth_domain::{
    Attempt, Bytes, Millicores, PoolName, Priority, Revision, Submission, Timestamp, WorkloadId, WorkloadState,
};
use serde::{Deserialize, Serialize};

use crate::index::{Count, Ranked};
use crate::reason::{Cause, WaitReason};
use crate::state::attempt::PastAttempts;
use crate::state::owners::OwnerPhase;
use crate::state::slot::Slot;
use crate::table::{DeviceKey, MachineKey, ModelKey, Row, RunnerKey, ShapeKey, SlotKey, WorkloadKey};

/// The order of waiting: priority, then age.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct QueueKey {
    priority: Reverse<i32>,
    number: u64,
    pub(crate) workload: WorkloadKey,
}

/// A workload.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Workload {
    pub(crate) id: WorkloadId,
    /// The order of submission: its age, kept through every return to the queue.
    pub(crate) number: u64,
    pub(crate) submission: Arc<Submission>,
    pub(crate) model: ModelKey,
    pub(crate) state: WorkloadState,
    pub(crate) attempt: Attempt,
    pub(crate) failures: u32,
    pub(crate) slot: Option<SlotKey>,
    pub(crate) waits: Option<WaitReason>,
    pub(crate) cause: Option<Cause>,
    pub(crate) created: Timestamp,
    /// When it came back to the queue last.
    #[serde(default)]
    pub(crate) requeued: Option<Timestamp>,
    /// When the present attempt got its slot.
    #[serde(default)]
    pub(crate) assigned: Option<Timestamp>,
    /// When the present attempt began to run.
    #[serde(default)]
    pub(crate) ran: Option<Timestamp>,
    /// What became of the attempts before.
    #[serde(default)]
    pub(crate) attempts: PastAttempts,
    /// When an attempt failed last: failures of long ago are forgiven.
    pub(crate) last_failure: Option<Timestamp>,
    /// A copy of an earlier attempt may still run.
    pub(crate) may_run_twice: bool,
    /// It waits until this slot, its last start, is proven gone.
    pub(crate) blocked_by: Option<SlotKey>,
    /// Pauses after a failure.
    pub(crate) backing_off: bool,
    pub(crate) not_before: Option<Timestamp>,
    /// Where it failed last: tried again there only if nowhere else will do.
    pub(crate) avoid: Option<RunnerKey>,
    /// When its state changed last.
    pub(crate) since: Timestamp,
    /// The revision of its last change that others can see.
    pub(crate) changed: Revision,
    /// Its key in the queue, while it waits.
    #[serde(skip)]
    pub(crate) queued: Option<QueueKey>,
    /// Where its owner's counts have it.
    #[serde(skip)]
    pub(crate) counted: Option<OwnerPhase>,
    /// Which of its timers are armed.
    pub(crate) armed: u8,
    /// Whether it could be placed if there were room.
    #[serde(skip)]
    pub(crate) eligible: bool,
}

impl Row<WorkloadId> for Workload {
    fn id(&self) -> WorkloadId {
        self.id
    }
}

impl Workload {
    pub(crate) fn queue_key(&self, key: WorkloadKey) -> QueueKey {
        QueueKey { priority: Reverse(self.submission.priority.get()), number: self.number, workload: key }
    }

    pub(crate) fn is_ended(&self) -> bool {
        matches!(self.state, WorkloadState::Ended(_))
    }
}

/// Who waits for a place, or has one kept free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) enum Claimant {
    /// A workload.
    Workload(WorkloadKey),
    /// A slot that a model must have and nobody asked for.
    Replica(ModelKey),
}

/// A place that is kept free for work that has waited too long. It is not a claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reservation {
    pub(crate) owner: Claimant,
    pub(crate) pool: PoolName,
    pub(crate) priority: Priority,
    pub(crate) runner: RunnerKey,
    /// Whose CPU and RAM are kept.
    pub(crate) machine: MachineKey,
    /// In rank order.
    pub(crate) devices: Vec<DeviceKey>,
    pub(crate) cpu: Millicores,
    pub(crate) ram: Bytes,
    /// CPU or RAM is short: slots on the whole machine are in the way.
    pub(crate) drains_host: bool,
    /// Jobs are in the way, and nobody knows when they end.
    pub(crate) waits_for_unknown_jobs: bool,
    /// Others that can leave in time may use the room meanwhile.
    pub(crate) backfill: bool,
    /// When everything in the way will have ended, if that is known.
    pub(crate) free_at: Option<Timestamp>,
    /// When its owner first got one.
    pub(crate) since: Timestamp,
}

impl Reservation {
    /// Whether a slot is in its way: it has a claim on a device that is kept, or CPU or RAM where that is short.
    pub(crate) fn concerns(&self, slot: &Slot, on_its_machine: bool) -> bool {
        let uses_host = slot.cpu.get() > 0 || !slot.ram.is_zero();
        slot.gpus.iter().any(|gpu| self.devices.contains(&gpu.device))
            || (self.drains_host && uses_host && on_its_machine)
    }
}

/// Everything that waits, and in which order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queue {
    /// All of it, for positions.
    pub(crate) order: Ranked<QueueKey, Count>,
    /// By pool, what could be placed if there were room.
    pub(crate) pools: BTreeMap<PoolName, BTreeSet<QueueKey>>,
    /// Shapes that wait, by their first in order.
    pub(crate) shapes: BTreeMap<QueueKey, ShapeKey>,
    /// Work that failed and pauses: it keeps its place, and may have a place kept free.
    pub(crate) paused: BTreeSet<QueueKey>,
    /// A few for each pool at most, in the order in which they were made.
    pub(crate) reservations: Vec<Reservation>,
}
