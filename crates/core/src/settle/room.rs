//! Memory was freed: who waits, in order, could use it?
//!
//! Before the change nothing that waits could be placed. So only places that the change touched are looked at, shape
//! by shape: ten thousand waiting of fifty shapes are fifty questions.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use berth_domain::{Priority, Span, Timestamp, WorkloadKind};

use smallvec::SmallVec;

use crate::decide::{self, Decision};
use crate::plan::{self, Choice, Demand, Search, could_use};
use crate::state::{Claimant, State};
use crate::table::{ModelKey, RunnerKey, ShapeKey, WorkloadKey};

/// Somebody who might use what was freed, beside the shapes that wait.
#[derive(Clone, Copy)]
enum Other {
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
    let mut others = others(state, &runners).into_iter().peekable();
    // Shapes stand in the order of the queue; the few others are taken in between.
    for (entry, shape) in &state.queue.shapes {
        if others.peek().is_some()
            && let Some(row) = state.workloads.get(entry.workload)
        {
            let turn = (Reverse(row.submission.priority), true, row.created, row.number);
            while let Some((_, other)) = others.next_if(|(before, _)| *before < turn) {
                if let Some(decision) = try_other(state, other, now) {
                    return Some(decision);
                }
            }
        }
        if let Some(decision) = of_shape(state, *shape, &runners, now) {
            return Some(decision);
        }
    }
    others.find_map(|(_, other)| try_other(state, other, now))
}

/// Those who might use what was freed and are no waiting shape, in the order of their turns.
fn others(state: &State, runners: &BTreeSet<RunnerKey>) -> Vec<(Turn, Other)> {
    let is_touched = |row: &crate::state::Reservation| {
        let attachments = |device| state.devices.get(device).map(|row| row.attachments.as_slice()).unwrap_or_default();
        let on_device = row
            .devices
            .iter()
            .any(|device| attachments(*device).iter().any(|attachment| runners.contains(&attachment.runner)));
        on_device || runners.contains(&row.runner)
    };
    let replicas = state.understaffed.iter().map(|model| {
        let since = state.models.get(*model).and_then(|row| row.short_since).unwrap_or(state.now);
        ((Reverse(Priority::default()), true, since, 0), Other::Replica(*model))
    });
    let reserved = state.queue.reservations.iter().filter(|row| is_touched(row));
    // Of the same priority, work with a place kept free goes first on it.
    let reserved = reserved.map(|row| ((Reverse(row.priority), false, row.since, 0), Other::Reserved(row.owner)));
    let mut others: Vec<(Turn, Other)> = replicas.chain(reserved).collect();
    others.sort_by_key(|(turn, _)| *turn);
    others
}

fn try_other(state: &State, other: Other, now: Timestamp) -> Option<Decision> {
    match other {
        Other::Reserved(Claimant::Workload(workload)) => try_workload(state, workload, now).0,
        Other::Reserved(Claimant::Replica(model)) | Other::Replica(model) => {
            super::replicas::look_at(state, model, now)
        }
    }
}

/// Runners that the dirty set names, by themselves or by their devices.
pub(super) fn touched_runners(state: &State) -> BTreeSet<RunnerKey> {
    let devices = state.dirty.devices.iter().filter_map(|device| state.devices.get(*device));
    let attachments = devices.flat_map(|device| device.attachments.iter().map(|row| row.runner));
    attachments.chain(state.dirty.hosts.iter().copied()).collect()
}

fn of_shape(state: &State, shape: ShapeKey, runners: &BTreeSet<RunnerKey>, now: Timestamp) -> Option<Decision> {
    let row = state.shapes.get(shape)?;
    // Work of one shape fits or waits together, but for its kind and for what it may use of what is kept for others.
    let nothing_is_kept = state.queue.reservations.is_empty();
    let mut in_vain: SmallVec<[(Priority, WorkloadKind, Option<Span>); 2]> = SmallVec::new();
    for (entry, model, kind) in &row.heads {
        if nothing_is_kept && in_vain.iter().any(|(_, vain, _)| vain == kind) {
            continue;
        }
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
