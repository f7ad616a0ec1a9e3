//! The catalogue changes.

use std::sync::Arc;

use berth_domain::{ModelName, ModelRevision, ModelSpec, ModelSpecError, WorkloadEnd};

use super::arguments;
use crate::command::Refusal;
use crate::event::Event;
use crate::plan::Demand;
use crate::reason::Cause;
use crate::state::{Reservation, State};

/// Adds or changes a model. The same entry again changes nothing; a changed one is a new revision.
pub(super) fn put(state: &State, spec: &ModelSpec) -> Result<Vec<Event>, Refusal> {
    spec.validate()?;
    let known = state.models.find(&spec.name).map(|(_, row)| row);
    if known.is_some_and(|row| !row.deleted && *row.spec == *spec) {
        return Ok(Vec::new());
    }
    refuse_shared_names(state, spec)?;
    arguments::check_model(state, spec)?;
    let revision = match known {
        None => ModelRevision::new(1),
        // Slots serve under another alias, or on another route, without being started again.
        Some(row) if !row.deleted && row.spec.runs_like(spec) => row.revision,
        Some(row) => row.revision.next(),
    };
    // What was kept for the old entry may be wrong for the new one.
    let mut events = end_reservations(state, &spec.name);
    events.push(Event::ModelPut { spec: Arc::new(spec.clone()), revision });
    Ok(events)
}

/// A caller's word for a model means one model.
fn refuse_shared_names(state: &State, spec: &ModelSpec) -> Result<(), ModelSpecError> {
    let others = || state.models.iter().map(|(_, row)| row).filter(|row| !row.deleted && row.name != spec.name);
    for name in spec.aliases.iter().chain([&spec.name]) {
        if let Some(other) = others().find(|row| row.spec.is_called(name)) {
            return Err(ModelSpecError::NameTaken { name: name.clone(), taken_by: other.name.clone() });
        }
    }
    Ok(())
}

/// Ends all reservations of a model: what is kept may be wrong for what it needs now.
pub(super) fn end_reservations(state: &State, name: &ModelName) -> Vec<Event> {
    let is_of_model =
        |row: &&Reservation| Demand::of_claimant(state, row.owner).is_some_and(|demand| demand.model.name == *name);
    let kept = state.queue.reservations.iter().filter(is_of_model).filter_map(|row| state.name_of(row.owner));
    kept.map(|owner| Event::ReservationEnded { owner }).collect()
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
