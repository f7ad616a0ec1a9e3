//! The life of a workload, as the design draws it.

use berth_core::{Cause, Event};
use berth_domain::{RunnerId, SlotId, SlotState, WorkloadEnd, WorkloadId, WorkloadKind, WorkloadState};

use super::{Reference, Slot, Workload};
use crate::assertions::ensure;
use crate::system_under_test::{AssertionResult, FailedAssertion};

impl Reference {
    pub(super) fn apply_to_workload(&mut self, event: &Event) -> AssertionResult {
        use WorkloadState::{Assigned, Ended, Queued, Running};
        match event {
            Event::WorkloadSubmitted { workload, submission, .. } => {
                self.submitted += 1;
                let row = Workload {
                    number: self.submitted,
                    submission: submission.clone(),
                    state: Queued,
                    attempt: 1,
                    slot: None,
                    pauses: false,
                    waits_for: None,
                    avoid: None,
                };
                let known = self.workloads.insert(*workload, row);
                ensure!("lives of workloads", known.is_none(), "{event:?}: known already");
            }
            Event::WorkloadAssigned { workload, slot } => self.assign(event, *workload, *slot)?,
            Event::WorkloadRequeued { workload, cause, not_before, after, .. } => {
                let failed = cause.is_failure();
                let runner = self.runner_of(*workload).filter(|_| failed);
                let row = self.workload(event, *workload, |state| matches!(state, Assigned | Running))?;
                (row.state, row.slot, row.attempt) = (Queued, None, row.attempt + 1);
                (row.pauses, row.avoid) = (not_before.is_some(), runner);
                row.waits_for = *after;
            }
            Event::WorkloadUnblocked { workload } => {
                self.workload(event, *workload, |state| state == Queued)?.waits_for = None;
            }
            Event::WorkloadEligible { workload } => {
                self.workload(event, *workload, |state| state == Queued)?.pauses = false;
            }
            Event::WorkloadEnded { workload, end, cause } => {
                let succeeded = *end == WorkloadEnd::Succeeded;
                let done = matches!(cause, Cause::Completed | Cause::JobExited(0));
                ensure!("lives of workloads", !succeeded || done, "{event:?}");
                let row = self.workload(event, *workload, |state| !matches!(state, Ended(_)))?;
                (row.state, row.slot, row.pauses, row.waits_for) = (Ended(*end), None, false, None);
            }
            Event::WorkloadForgotten { workload } => {
                self.workload(event, *workload, |state| matches!(state, Ended(_)))?;
                self.workloads.remove(workload);
            }
            _ => {}
        }
        Ok(())
    }

    fn runner_of(&mut self, workload: WorkloadId) -> Option<RunnerId> {
        let slot = self.workloads.get(&workload)?.slot?;
        self.slot(slot).map(|row| row.runner.clone())
    }

    fn workload(
        &mut self,
        event: &Event,
        id: WorkloadId,
        legal: impl FnOnce(WorkloadState) -> bool,
    ) -> AssertionResult<&mut Workload> {
        match self.workloads.get_mut(&id) {
            Some(row) if legal(row.state) => Ok(row),
            row => Err(FailedAssertion {
                check: "lives of workloads",
                text: format!("{event:?} while {:?}", row.map(|r| r.state)),
            }),
        }
    }

    /// A lease takes one unit of a slot that serves or will; a job takes the slot that was made for it.
    fn assign(&mut self, event: &Event, id: WorkloadId, slot: SlotId) -> AssertionResult {
        let taken = self.workloads.values().filter(|row| row.slot == Some(slot)).count();
        let row = self.slots.get(&(slot, None)).cloned();
        let Some(Slot { state, placed: Some(placed), spec: Some(spec), .. }) = row else {
            return Err(FailedAssertion { check: "lives of workloads", text: format!("{event:?}: no such slot") });
        };
        let current = self.models.get(&placed.model).is_some_and(|model| model.revision == placed.revision);
        let workload = self.workload(event, id, |state| state == WorkloadState::Queued)?;
        let right = match workload.submission.kind {
            WorkloadKind::Lease => placed.job.is_none() && taken < spec.concurrency as usize,
            WorkloadKind::Job => placed.job == Some(id) && taken == 0,
        };
        ensure!("concurrency", right, "{event:?}: {taken} on {placed:?}");
        let may = !workload.pauses && workload.waits_for.is_none();
        let serves = workload.submission.model == placed.model && current && state.is_live() && may;
        ensure!("leases go to live slots of their model", serves, "{event:?}: {state} {placed:?}");
        workload.slot = Some(slot);
        workload.state = if state == SlotState::Ready { WorkloadState::Running } else { WorkloadState::Assigned };
        Ok(())
    }
}
