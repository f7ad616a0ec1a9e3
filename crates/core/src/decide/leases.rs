//! What a gateway says of its workloads.

use berth_domain::{Attempt, SlotState, WorkloadEnd, WorkloadId, WorkloadKind, WorkloadState};

use super::retire;
use crate::command::Refusal;
use crate::event::Event;
use crate::reason::{Cause, StopReason};
use crate::state::{State, Workload};

pub(super) fn cancel(state: &State, id: WorkloadId) -> Result<Vec<Event>, Refusal> {
    let workload = find(state, id)?;
    match workload.state {
        // Taking it back twice is taking it back.
        WorkloadState::Ended(WorkloadEnd::Cancelled) => Ok(Vec::new()),
        WorkloadState::Ended(_) => Err(Refusal::WorkloadEnded(id)),
        _ => Ok(end(state, workload, WorkloadEnd::Cancelled, Cause::Cancelled)),
    }
}

pub(super) fn heartbeat(state: &State, id: WorkloadId, attempt: Attempt) -> Result<Vec<Event>, Refusal> {
    let workload = find(state, id)?;
    if workload.is_ended() {
        return Err(Refusal::WorkloadEnded(id));
    }
    check_attempt(workload, attempt)?;
    let running = workload.state == WorkloadState::Running;
    Ok(if running { vec![Event::LeaseRenewed { workload: id }] } else { Vec::new() })
}

pub(super) fn complete(
    state: &State,
    id: WorkloadId,
    attempt: Attempt,
    succeeded: bool,
) -> Result<Vec<Event>, Refusal> {
    let workload = find(state, id)?;
    let wanted = if succeeded { WorkloadEnd::Succeeded } else { WorkloadEnd::Failed };
    check_attempt(workload, attempt)?;
    match workload.state {
        // Said again: its first answer.
        WorkloadState::Ended(end) if end == wanted && workload.cause == Some(Cause::Completed) => Ok(Vec::new()),
        WorkloadState::Ended(_) => Err(Refusal::WorkloadEnded(id)),
        WorkloadState::Queued | WorkloadState::Assigned => Err(Refusal::NotRunning(id)),
        WorkloadState::Running => Ok(end(state, workload, wanted, Cause::Completed)),
    }
}

/// A workload's one end. A job takes its slot with it, and a lease a slot that nobody else waits for being started.
fn end(state: &State, workload: &Workload, end: WorkloadEnd, cause: Cause) -> Vec<Event> {
    let mut events = vec![Event::WorkloadEnded { workload: workload.id, end, cause }];
    let Some(slot) = workload.slot.and_then(|key| state.slots.get(key)) else { return events };
    let alone = slot.leases.len() == 1 && matches!(slot.state, SlotState::Promised | SlotState::Pending);
    let unneeded = alone && !slot.is_job && is_above_minimum(state, slot);
    if workload.submission.kind == WorkloadKind::Job || unneeded {
        retire::stop(state, slot, StopReason::JobEnded, &mut events);
    }
    events
}

fn is_above_minimum(state: &State, slot: &crate::state::Slot) -> bool {
    let model = slot.model.and_then(|key| state.models.get(key));
    model.is_some_and(|model| model.spare_replicas() > 0)
}

fn check_attempt(workload: &Workload, named: Attempt) -> Result<(), Refusal> {
    match workload.attempt == named {
        true => Ok(()),
        false => Err(Refusal::StaleAttempt { workload: workload.id, current: workload.attempt, named }),
    }
}

fn find(state: &State, id: WorkloadId) -> Result<&Workload, Refusal> {
    state.workloads.find(&id).map(|(_, row)| row).ok_or(Refusal::UnknownWorkload(id))
}
