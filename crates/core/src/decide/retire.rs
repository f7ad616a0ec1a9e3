//! Ending slots: whose work goes where, and what the runner is told.

use berth_domain::{SlotState, Timestamp, WorkloadEnd, WorkloadKind, WorkloadState};

use crate::event::Event;
use crate::reason::{Cause, Proof, StopReason};
use crate::state::{Slot, State, Workload};

/// What becomes of a slot's work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rehome {
    pub(crate) cause: Cause,
    pub(crate) now: Timestamp,
    /// The slot may still be running somewhere: a job is started again only if it says so.
    pub(crate) may_still_run: bool,
}

/// Sends a slot's work back to the queue, or to its end where it must not be tried again.
pub(crate) fn abandon(state: &State, slot: &Slot, rehome: Rehome, events: &mut Vec<Event>) {
    for workload in state.workloads_of(slot).into_iter().filter_map(|key| state.workloads.get(key)) {
        if !matches!(workload.state, WorkloadState::Assigned | WorkloadState::Running) {
            continue;
        }
        events.extend(rehome_workload(state, workload, rehome));
    }
}

fn rehome_workload(state: &State, workload: &Workload, rehome: Rehome) -> Option<Event> {
    let Rehome { cause, now, may_still_run } = rehome;
    let job_must_stay = workload.submission.kind == WorkloadKind::Job
        && workload.state == WorkloadState::Running
        && !workload.submission.job.restart_on_lost;
    if job_must_stay {
        // The lost one may still run: it is not over, and it is not started twice.
        let failed = Event::WorkloadEnded { workload: workload.id, end: WorkloadEnd::Failed, cause };
        return (!may_still_run).then_some(failed);
    }
    let failures = workload.failures + u32::from(cause.is_failure());
    if failures >= state.settings.attempts {
        return Some(Event::WorkloadEnded { workload: workload.id, end: WorkloadEnd::Failed, cause });
    }
    let settings = &state.settings;
    let pause = settings.backoff.doubled(failures.saturating_sub(1), settings.backoff_limit);
    let not_before = cause.is_failure().then(|| now.after(pause));
    Some(Event::WorkloadRequeued { workload: workload.id, cause, not_before })
}

/// Tells a slot to stop. Its work was sent elsewhere before.
pub(crate) fn stop(state: &State, slot: &Slot, why: StopReason, events: &mut Vec<Event>) {
    match (slot.state, slot.is_stray()) {
        (_, true) => {
            if let Some(runner) = state.runners.get(slot.runner) {
                events.push(Event::StrayCondemned { runner: runner.id.clone(), slot: slot.id });
            }
        }
        (SlotState::Promised, _) => events.push(Event::PromiseWithdrawn { slot: slot.id }),
        // The runner never heard of it: there is nothing to prove.
        (SlotState::Pending, _) => {
            events.push(Event::SlotReleased { slot: slot.id, proof: Proof::NeverTold, note: None });
        }
        (SlotState::Stopping, _) => {}
        _ => events.push(Event::SlotStopping { slot: slot.id, why }),
    }
}

/// Lets a slot go as gently as it can: busy ones finish what they have, others stop.
pub(crate) fn retire(state: &State, slot: &Slot, why: StopReason, now: Timestamp, events: &mut Vec<Event>) {
    let busy = !slot.is_idle();
    match slot.state {
        SlotState::Ready if busy => events.push(Event::SlotDrainBegun { slot: slot.id }),
        SlotState::Draining if busy => {}
        SlotState::Stopping | SlotState::Failed | SlotState::Unknown => {}
        SlotState::Promised => {
            abandon(state, slot, Rehome { cause: Cause::PromiseWithdrawn, now, may_still_run: false }, events);
            stop(state, slot, why, events);
        }
        _ => {
            abandon(state, slot, Rehome { cause: Cause::SlotStopped, now, may_still_run: false }, events);
            stop(state, slot, why, events);
        }
    }
}
