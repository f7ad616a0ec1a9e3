//! Memory was freed: who waits, in order, could use it?
//!
//! Before the change nothing that waits could be placed. So only places that the change touched are looked at, shape
//! by shape: ten thousand waiting of fifty shapes are fifty questions.

use std::collections::BTreeSet;

use berth_domain::{Timestamp, WorkloadKind};

use crate::decide::{self, Decision};
use crate::plan::{self, Choice, Demand, Search, could_use};
use crate::state::State;
use crate::table::{RunnerKey, ShapeKey, WorkloadKey};

pub(super) fn next(state: &State, now: Timestamp) -> Option<Decision> {
    if state.queue.shapes.is_empty() && state.understaffed.is_empty() {
        return None;
    }
    let runners = touched_runners(state);
    reserved(state, &runners, now)
        .or_else(|| state.queue.shapes.values().find_map(|shape| of_shape(state, *shape, &runners, now)))
        .or_else(|| state.understaffed.iter().find_map(|model| super::replicas::look_at(state, *model, now)))
}

/// Runners that the agenda names, by themselves or by their devices.
pub(super) fn touched_runners(state: &State) -> BTreeSet<RunnerKey> {
    let devices = state.agenda.devices.iter().filter_map(|device| state.devices.get(*device));
    let seats = devices.flat_map(|device| device.seats.iter().map(|row| row.runner));
    seats.chain(state.agenda.hosts.iter().copied()).collect()
}

/// Work with a reservation goes first on what is kept for it.
fn reserved(state: &State, runners: &BTreeSet<RunnerKey>, now: Timestamp) -> Option<Decision> {
    let seats = |device| state.devices.get(device).map(|row| row.seats.as_slice()).unwrap_or_default();
    let is_touched = |device| seats(device).iter().any(|row| runners.contains(&row.runner));
    let touched = state.queue.reservations.values().filter(|row| row.devices.iter().any(|device| is_touched(*device)));
    touched.map(|row| row.workload).find_map(|workload| try_workload(state, workload, now).0)
}

fn of_shape(state: &State, shape: ShapeKey, runners: &BTreeSet<RunnerKey>, now: Timestamp) -> Option<Decision> {
    let row = state.shapes.get(shape)?;
    for (entry, model, kind) in &row.heads {
        let Some(model) = state.models.get(*model) else { continue };
        if model.deleted || (*kind == WorkloadKind::Lease && !model.may_grow()) {
            continue;
        }
        let Some(demand) = Demand::of_workload(state, entry.workload) else { continue };
        let search = Search::new(state, demand);
        if !runners.iter().any(|runner| could_use(&search, *runner)) {
            return None;
        }
        match try_workload(state, entry.workload, now) {
            (Some(decision), _) => return Some(decision),
            // Another model of this shape may evict what this one must spare: its own.
            (None, true) => {}
            (None, false) => return None,
        }
    }
    None
}

fn try_workload(state: &State, workload: WorkloadKey, now: Timestamp) -> (Option<Decision>, bool) {
    let Some(demand) = Demand::of_workload(state, workload) else { return (None, false) };
    let Some(row) = state.workloads.get(workload) else { return (None, false) };
    let plan = plan::plan(state, demand);
    match plan.choice {
        Choice::Place(_) | Choice::Reuse(_) => (Some(decide::assign(state, &demand, plan, row.id, now)), false),
        _ => (None, plan.spared_own),
    }
}
