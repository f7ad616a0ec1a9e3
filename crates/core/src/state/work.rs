//! Workloads and the order in which they wait.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use berth_domain::{Attempt, PoolName, Submission, Timestamp, WorkloadId, WorkloadState};
use serde::{Deserialize, Serialize};

use crate::index::{Count, Ranked};
use crate::reason::{Cause, WaitReason};
use crate::table::{DeviceKey, ModelKey, Row, RunnerKey, ShapeKey, SlotKey, WorkloadKey};

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
    /// Pauses after a failure.
    pub(crate) backing_off: bool,
    pub(crate) not_before: Option<Timestamp>,
    /// Where it failed last: tried again there only if nowhere else will do.
    pub(crate) avoid: Option<RunnerKey>,
    /// When its state changed last.
    pub(crate) since: Timestamp,
    /// Its key in the queue, while it waits.
    #[serde(skip)]
    pub(crate) queued: Option<QueueKey>,
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

/// A device set kept for the oldest waiting work of a pool. It is not a claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reservation {
    pub(crate) workload: WorkloadKey,
    pub(crate) runner: RunnerKey,
    pub(crate) devices: Vec<DeviceKey>,
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
    /// One for each pool at most.
    pub(crate) reservations: BTreeMap<PoolName, Reservation>,
}
