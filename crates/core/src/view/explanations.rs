//! Explanations of the present state, for those who ask.

use berth_domain::{ModelName, Timestamp, WorkloadId, WorkloadKind, WorkloadState};

use crate::explain::{self, Report};
use crate::plan::{self, Demand};
use crate::state::State;

impl State {
    /// Explains why a workload is where it is. A workload that waits is judged on the present state.
    #[must_use]
    pub fn explain(&self, id: WorkloadId, now: Timestamp) -> Option<Report> {
        let (key, row) = self.workloads.find(&id)?;
        let demand = Demand::of_workload(self, key)?;
        if let Some(why) = row.waits.filter(|_| row.queued.is_some() && !row.eligible) {
            let plan = plan::Plan { choice: plan::Choice::Wait(why), examined: 0, spared_own: false };
            return Some(explain::report(self, &demand, &plan, Some(id), now));
        }
        if row.state == WorkloadState::Queued {
            let plan = plan::plan(self, demand).for_queued_work();
            return Some(explain::report(self, &demand, &plan, Some(id), now));
        }
        let choice = plan::Choice::Reuse(row.slot?);
        let plan = plan::Plan { choice, examined: 0, spared_own: false };
        Some(explain::report(self, &demand, &plan, Some(id), now))
    }

    /// Returns how many attempts may fail before a workload fails for good.
    #[must_use]
    pub fn most_failures(&self) -> u32 {
        self.settings.attempts
    }

    /// Plans a workload of this model without doing anything: would it fit, where, and which slots would be evicted?
    #[must_use]
    pub fn fit(&self, model: &ModelName, kind: WorkloadKind, now: Timestamp) -> Option<Report> {
        let (key, _) = self.models.find(model).filter(|(_, row)| !row.deleted)?;
        let demand = Demand::of_model(self, key, kind)?;
        let plan = plan::plan(self, demand);
        Some(explain::report(self, &demand, &plan, None, now))
    }
}
