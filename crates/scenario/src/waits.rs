//! How long workloads waited for their memory.

use std::collections::HashMap;

use berth_core::view::WorkloadView;
use berth_core::{Event, State};
use berth_domain::{SlotId, SlotState, Span, Timestamp, WorkloadId, WorkloadState};

/// The waits of all workloads. A workload waits while it is queued, and while its slot is a promise; it does not wait
/// while its slot starts.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    rows: HashMap<WorkloadId, Wait>,
    /// Workloads that were given a slot.
    on_slot: HashMap<SlotId, Vec<WorkloadId>>,
}

#[derive(Debug, Default)]
struct Wait {
    /// Waits that are over.
    before: Span,
    /// The beginning of the one that is not.
    since: Option<Timestamp>,
}

impl Waits {
    /// Takes note of what happened in a step, all of it at the same time.
    pub(crate) fn note(&mut self, state: &State, events: &[Event], at: Timestamp) {
        for event in events {
            match event {
                Event::WorkloadAssigned { workload, slot } => {
                    self.on_slot.entry(*slot).or_default().push(*workload);
                    self.look_at(state, *workload, at);
                }
                Event::WorkloadSubmitted { workload, .. }
                | Event::WorkloadRequeued { workload, .. }
                | Event::WorkloadEnded { workload, .. } => self.look_at(state, *workload, at),
                Event::PromiseKept { slot, .. } => {
                    let waiting = self.on_slot.get(slot).cloned().unwrap_or_default();
                    waiting.into_iter().for_each(|workload| self.look_at(state, workload, at));
                }
                _ => {}
            }
        }
    }

    fn look_at(&mut self, state: &State, workload: WorkloadId, at: Timestamp) {
        let waits = state.workload(workload).is_some_and(|view| is_waiting(state, &view));
        let row = self.rows.entry(workload).or_default();
        match (row.since, waits) {
            (None, true) => row.since = Some(at),
            (Some(since), false) => (row.before, row.since) = (sum(row.before, at.since(since)), None),
            _ => {}
        }
    }

    /// How long a workload waited so far.
    pub(crate) fn waited(&self, workload: WorkloadId, now: Timestamp) -> Span {
        let Some(row) = self.rows.get(&workload) else { return Span::ZERO };
        sum(row.before, row.since.map_or(Span::ZERO, |since| now.since(since)))
    }
}

fn is_waiting(state: &State, view: &WorkloadView) -> bool {
    let slot = || view.slot.and_then(|id| state.slot_by_id(id));
    match view.state {
        WorkloadState::Queued => true,
        WorkloadState::Assigned => slot().is_some_and(|slot| slot.state == SlotState::Promised),
        WorkloadState::Running | WorkloadState::Ended(_) => false,
    }
}

fn sum(one: Span, other: Span) -> Span {
    Span::from_millis(one.millis().saturating_add(other.millis()))
}
