//! The catalogue changes.

use std::sync::Arc;

use berth_domain::{ModelName, ModelRevision, ModelSpec, WorkloadEnd};

use crate::command::Refusal;
use crate::event::Event;
use crate::reason::Cause;
use crate::state::State;

/// Adds or changes a model. The same entry again changes nothing; a changed one is a new revision.
pub(super) fn put(state: &State, spec: &ModelSpec) -> Result<Vec<Event>, Refusal> {
    spec.validate()?;
    let known = state.models.find(&spec.name).map(|(_, row)| row);
    if known.is_some_and(|row| !row.deleted && *row.spec == *spec) {
        return Ok(Vec::new());
    }
    let revision = known.map_or(ModelRevision::new(1), |row| row.revision.next());
    // What was kept for the old entry may be wrong for the new one.
    let workloads = state.queue.reservations.values().filter_map(|row| state.workloads.get(row.workload));
    let kept = workloads.filter(|row| row.submission.model == spec.name);
    let mut events: Vec<Event> = kept.map(|row| Event::ReservationEnded { workload: row.id }).collect();
    events.push(Event::ModelPut { spec: Arc::new(spec.clone()), revision });
    Ok(events)
}

/// Removes a model: what waits for it ends, what runs finishes and goes.
pub(super) fn delete(state: &State, name: &ModelName) -> Result<Vec<Event>, Refusal> {
    let unknown = || Refusal::UnknownModel(name.clone());
    let (key, _) = state.models.find(name).filter(|(_, row)| !row.deleted).ok_or_else(unknown)?;
    let waiting = state.workloads.iter().filter(|(_, row)| row.model == key && row.queued.is_some());
    let end = |id| Event::WorkloadEnded { workload: id, end: WorkloadEnd::Cancelled, cause: Cause::ModelDeleted };
    let mut events: Vec<Event> = waiting.map(|(_, row)| end(row.id)).collect();
    events.push(Event::ModelDeleted { model: name.clone() });
    Ok(events)
}
