//! Memory was freed: who waits, in order, could use it?
//!
//! Before the change nothing that waits could be placed. So only places that the change touched are looked at, shape
//! by shape: ten thousand waiting of fifty shapes are fifty questions.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use berth_domain::{Priority, Span, Timestamp, WorkloadKind};

use crate::decide::{self, Decision};
use crate::plan::{self, Choice, Demand, Search, could_use};
use crate::state::{Claimant, State};
use crate::table::{ModelKey, RunnerKey, ShapeKey, WorkloadKey};

/// Somebody who might use what was freed.
enum Asker {
    /// All work of a shape, by its first in order.
    Shape(ShapeKey),
    /// Work with a place kept free.
    Reserved(Claimant),
    /// A model with fewer slots than it must have.
    Replica(ModelKey),
}

/// When somebody's turn is: priority, a place kept free before none, age.
type Turn = (Reverse<Priority>, bool, Timestamp, u64);

pub(super) fn next(state: &State, now: Timestamp) -> Option<Decision> {
    if state.queue.shapes.is_empty() && state.understaffed.is_empty() {
        return None;
    }
    let runners = touched_runners(state);
    askers(state, &runners).into_iter().find_map(|asker| match asker {
        Asker::Shape(shape) => of_shape(state, shape, &runners, now),
        Asker::Reserved(Claimant::Workload(workload)) => try_workload(state, workload, now).0,
        Asker::Reserved(Claimant::Replica(model)) | Asker::Replica(model) => {
            super::replicas::look_at(state, model, now)
        }
    })
}

/// Everybody in the order of the queue. Of the same priority, work with a place kept free goes first on it.
fn askers(state: &State, runners: &BTreeSet<RunnerKey>) -> Vec<Asker> {
    let is_touched = |row: &crate::state::Reservation| {
        let seats = |device| state.devices.get(device).map(|row| row.seats.as_slice()).unwrap_or_default();
        let on_device =
            row.devices.iter().any(|device| seats(*device).iter().any(|seat| runners.contains(&seat.runner)));
        on_device || runners.contains(&row.runner)
    };
    let workload = |key| state.workloads.get(key);
    let mut askers: Vec<(Turn, Asker)> = Vec::with_capacity(state.queue.shapes.len() + state.understaffed.len());
    for (entry, shape) in &state.queue.shapes {
        let Some(row) = workload(entry.workload) else { continue };
        askers.push(((Reverse(row.submission.priority), true, row.created, row.number), Asker::Shape(*shape)));
    }
    for model in &state.understaffed {
        let since = state.models.get(*model).and_then(|row| row.short_since).unwrap_or(state.now);
        askers.push(((Reverse(Priority::default()), true, since, 0), Asker::Replica(*model)));
    }
    for row in state.queue.reservations.iter().filter(|row| is_touched(row)) {
        askers.push(((Reverse(row.priority), false, row.since, 0), Asker::Reserved(row.owner)));
    }
    askers.sort_by_key(|(order, _)| *order);
    askers.into_iter().map(|(_, asker)| asker).collect()
}

/// Runners that the agenda names, by themselves or by their devices.
pub(super) fn touched_runners(state: &State) -> BTreeSet<RunnerKey> {
    let devices = state.agenda.devices.iter().filter_map(|device| state.devices.get(*device));
    let seats = devices.flat_map(|device| device.seats.iter().map(|row| row.runner));
    seats.chain(state.agenda.hosts.iter().copied()).collect()
}

fn of_shape(state: &State, shape: ShapeKey, runners: &BTreeSet<RunnerKey>, now: Timestamp) -> Option<Decision> {
    let row = state.shapes.get(shape)?;
    // Work of one shape fits or waits together, but for its kind and for what it may use of what is kept for others.
    let mut in_vain: Vec<(Priority, WorkloadKind, Option<Span>)> = Vec::new();
    for (entry, model, kind) in &row.heads {
        let Some(model) = state.models.get(*model) else { continue };
        if model.deleted || (*kind == WorkloadKind::Lease && !model.may_grow()) {
            continue;
        }
        let Some(demand) = Demand::of_workload(state, entry.workload) else { continue };
        let alike = (demand.priority, *kind, demand.max_run);
        if in_vain.contains(&alike) {
            continue;
        }
        let search = Search::new(state, demand);
        if !runners.iter().any(|runner| could_use(&search, *runner)) {
            in_vain.push(alike);
            continue;
        }
        match try_workload(state, entry.workload, now) {
            (Some(decision), _) => return Some(decision),
            // Another model of this shape may evict what this one must spare: its own.
            (None, true) => {}
            (None, false) => in_vain.push(alike),
        }
    }
    None
}

fn try_workload(state: &State, workload: WorkloadKey, now: Timestamp) -> (Option<Decision>, bool) {
    let Some(demand) = Demand::of_workload(state, workload) else { return (None, false) };
    let Some(row) = state.workloads.get(workload).filter(|row| row.eligible) else { return (None, false) };
    let plan = plan::plan(state, demand);
    match plan.choice {
        Choice::Place(_) | Choice::Reuse(_) => (Some(decide::assign(state, &demand, plan, row.id, now)), false),
        _ => (None, plan.spared_own),
    }
}
