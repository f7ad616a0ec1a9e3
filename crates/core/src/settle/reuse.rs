//! Leases that an existing slot can take, and the first in order of a model that changed.

use berth_domain::{Timestamp, WorkloadEnd, WorkloadKind};

use crate::decide::{self, Decision};
use crate::event::Event;
use crate::explain::{self, Outcome};
use crate::plan::{self, Choice, Demand};
use crate::reason::Cause;
use crate::state::State;
use crate::table::ModelKey;

pub(super) fn look_at(state: &State, key: ModelKey, now: Timestamp) -> Option<Decision> {
    try_head(state, key, WorkloadKind::Lease, now).or_else(|| try_head(state, key, WorkloadKind::Job, now))
}

fn try_head(state: &State, key: ModelKey, kind: WorkloadKind, now: Timestamp) -> Option<Decision> {
    let head = state.head(key, kind)?.workload;
    let row = state.workloads.get(head)?;
    let demand = Demand::of_workload(state, head)?;
    if demand.model.deleted {
        let (end, cause) = (WorkloadEnd::Cancelled, Cause::ModelDeleted);
        return Some(Decision::of(vec![Event::WorkloadEnded { workload: row.id, end, cause }]));
    }
    let plan = plan::plan(state, demand).for_queued_work();
    match &plan.choice {
        // Said before: nothing new to tell.
        Choice::Wait(why) if row.waits == Some(*why) => None,
        Choice::Never(why) => {
            let end =
                Event::WorkloadEnded { workload: row.id, end: WorkloadEnd::Failed, cause: Cause::Unplaceable(*why) };
            let mut report = explain::report(state, &demand, &plan, Some(row.id), now);
            report.outcome = Outcome::Refused(*why);
            Some(Decision { events: vec![end], report: Some(report) })
        }
        _ => Some(decide::assign(state, &demand, plan, row.id, now)),
    }
}
