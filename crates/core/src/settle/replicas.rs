//! Slots that nobody asked for but their model must have.

use berth_domain::Timestamp;

use crate::decide::{self, Decision};
use crate::explain;
use crate::plan::{self, Choice, Demand};
use crate::state::State;
use crate::table::ModelKey;

pub(super) fn look_at(state: &State, key: ModelKey, now: Timestamp) -> Option<Decision> {
    let demand = Demand::of_replica(state, key)?;
    let model = demand.model;
    if model.deleted || model.retry_at.is_some() || model.live >= model.spec.replicas.min {
        return None;
    }
    let plan = plan::plan_slot(state, demand);
    let Choice::Place(site) = &plan.choice else { return None };
    let mut report = explain::report(state, &demand, &plan, None, now);
    let slot = state.next_slot_id();
    report.slot = Some(slot);
    let mut events = Vec::new();
    decide::place(state, &demand, site, slot, None, &mut events);
    Some(Decision { events, report: Some(report) })
}
