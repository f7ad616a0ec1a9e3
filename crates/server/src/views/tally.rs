//! How many there are of what, counted as rows come and go, so that nobody has to walk all of them.

use std::sync::atomic::{AtomicI64, Ordering};

use berth_domain::{SlotState, WorkloadEnd, WorkloadState};

const WORKLOAD_STATES: [WorkloadState; 7] = [
    WorkloadState::Queued,
    WorkloadState::Assigned,
    WorkloadState::Running,
    WorkloadState::Ended(WorkloadEnd::Succeeded),
    WorkloadState::Ended(WorkloadEnd::Failed),
    WorkloadState::Ended(WorkloadEnd::Cancelled),
    WorkloadState::Ended(WorkloadEnd::Expired),
];
const SLOT_STATES: [SlotState; 8] = [
    SlotState::Promised,
    SlotState::Pending,
    SlotState::Starting,
    SlotState::Ready,
    SlotState::Draining,
    SlotState::Stopping,
    SlotState::Failed,
    SlotState::Unknown,
];

/// Counts by state.
#[derive(Debug, Default)]
pub struct Tally {
    workloads: [AtomicI64; WORKLOAD_STATES.len()],
    slots: [AtomicI64; SLOT_STATES.len()],
}

impl Tally {
    pub(super) fn workload(&self, state: WorkloadState, by: i64) {
        let place = WORKLOAD_STATES.iter().position(|known| *known == state);
        if let Some(count) = place.and_then(|place| self.workloads.get(place)) {
            count.fetch_add(by, Ordering::Relaxed);
        }
    }

    pub(super) fn slot(&self, state: SlotState, by: i64) {
        let place = SLOT_STATES.iter().position(|known| *known == state);
        if let Some(count) = place.and_then(|place| self.slots.get(place)) {
            count.fetch_add(by, Ordering::Relaxed);
        }
    }

    /// Workloads by state.
    pub fn workloads(&self) -> impl Iterator<Item = (WorkloadState, i64)> {
        WORKLOAD_STATES.into_iter().zip(self.workloads.iter().map(|count| count.load(Ordering::Relaxed)))
    }

    /// Slots by state.
    pub fn slots(&self) -> impl Iterator<Item = (SlotState, i64)> {
        SLOT_STATES.into_iter().zip(self.slots.iter().map(|count| count.load(Ordering::Relaxed)))
    }
}
