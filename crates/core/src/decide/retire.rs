//! Ending slots: whose work goes where, and what the runner is told.
//!
//! Leases move on at once. A job runs at most once: unless it says `restart_on_lost`, it is not started again once its
//! agent may have been told to start it, and its end is what is known when its slot is proven gone. "May have been told"
//! means that the slot stood in a durable desired state as *run*, whether the agent fetched it or not.

use berth_domain::{FailureReason, SlotEnd, SlotState, Timestamp, WorkloadEnd, WorkloadKind, WorkloadState};

use crate::event::Event;
use crate::reason::{Cause, Proof, StopReason};
use crate::state::{Slot, State, Workload};

/// Sends the work of a slot that may still run elsewhere. A job stays with it until it is proven gone.
pub(crate) fn give_up(state: &State, slot: &Slot, cause: Cause, now: Timestamp, events: &mut Vec<Event>) {
    for workload in work_of(state, slot) {
        if !is_told_job(slot, workload) {
            events.push(requeue_or_fail(state, workload, cause, now));
        }
    }
}

/// Sends the work of a slot elsewhere whose agent says that it failed. A job whose start failed waits until the failed
/// start is proven gone; one that ran stays with its slot.
pub(super) fn give_up_failed(state: &State, slot: &Slot, why: FailureReason, now: Timestamp, events: &mut Vec<Event>) {
    let cause = Cause::SlotFailed(why);
    for workload in work_of(state, slot) {
        if !is_told_job(slot, workload) {
            events.push(requeue_or_fail(state, workload, cause, now));
        } else if may_start_again(workload, cause) {
            events.push(match requeue_or_fail(state, workload, cause, now) {
                Event::WorkloadRequeued { workload, cause, not_before, failures, .. } => Event::WorkloadRequeued {
                    workload,
                    cause,
                    not_before,
                    failures,
                    after: Some(slot.id),
                    may_run_twice: false,
                },
                ended => ended,
            });
        }
    }
}

/// Sends the work of a slot elsewhere whose runner is lost. A job that says so is started again at once, and the record
/// says that both may run.
pub(super) fn give_up_lost(state: &State, slot: &Slot, now: Timestamp, events: &mut Vec<Event>) {
    let cause = Cause::RunnerLost;
    for workload in work_of(state, slot) {
        if !is_told_job(slot, workload) {
            events.push(requeue_or_fail(state, workload, cause, now));
        } else if workload.submission.job.restart_on_lost {
            events.push(match requeue_or_fail(state, workload, cause, now) {
                Event::WorkloadRequeued { workload, cause, not_before, failures, after, .. } => {
                    Event::WorkloadRequeued { workload, cause, not_before, failures, after, may_run_twice: true }
                }
                ended => ended,
            });
        }
    }
}

/// A job that waits for the end of its last start on a lost runner does so no longer, if it says so.
pub(super) fn unblock_lost(state: &State, slot: &Slot, events: &mut Vec<Event>) {
    let waiting = slot.blocks.and_then(|key| state.workloads.get(key));
    let again = waiting.filter(|row| row.submission.job.restart_on_lost);
    events.extend(again.map(|row| Event::WorkloadUnblocked { workload: row.id }));
}

/// Settles the work of a slot that is proven gone, or was never started: nothing of it can run any more.
pub(super) fn settle_gone(state: &State, slot: &Slot, end: SlotEnd, now: Timestamp, events: &mut Vec<Event>) {
    for workload in work_of(state, slot) {
        let cause = cause_of(slot, end);
        events.push(match end {
            SlotEnd::Exited(code) if workload.submission.kind == WorkloadKind::Job => {
                let end = if code == 0 { WorkloadEnd::Succeeded } else { WorkloadEnd::Failed };
                Event::WorkloadEnded { workload: workload.id, end, cause: Cause::JobExited(code) }
            }
            _ => settled(state, slot, workload, cause, now),
        });
    }
}

/// The same, by something else than its agent's word.
pub(crate) fn settle_proven(state: &State, slot: &Slot, cause: Cause, now: Timestamp, events: &mut Vec<Event>) {
    let work = work_of(state, slot);
    events.extend(work.map(|workload| settled(state, slot, workload, cause, now)));
}

fn settled(state: &State, slot: &Slot, workload: &Workload, cause: Cause, now: Timestamp) -> Event {
    let at_most_once = is_told_job(slot, workload) && !may_start_again(workload, cause);
    if at_most_once || cause == Cause::MaxRun {
        let end = if cause == Cause::MaxRun { WorkloadEnd::Expired } else { WorkloadEnd::Failed };
        return Event::WorkloadEnded { workload: workload.id, end, cause };
    }
    requeue_or_fail(state, workload, cause, now)
}

/// Work that is on a slot now.
fn work_of<'a>(state: &'a State, slot: &Slot) -> impl Iterator<Item = &'a Workload> {
    let rows = state.workloads_of(slot).into_iter().filter_map(|key| state.workloads.get(key));
    rows.filter(|row| matches!(row.state, WorkloadState::Assigned | WorkloadState::Running))
}

/// Whether the agent may have been told to start this job.
fn is_told_job(slot: &Slot, workload: &Workload) -> bool {
    let was_told = !matches!(slot.state, SlotState::Promised | SlotState::Pending);
    workload.submission.kind == WorkloadKind::Job && was_told
}

/// Whether a job whose last start is gone may be started again: it says so, its agent started nothing, or its agent says
/// why the start failed.
fn may_start_again(workload: &Workload, cause: Cause) -> bool {
    let never_ran = workload.state == WorkloadState::Assigned;
    match cause {
        _ if workload.submission.job.restart_on_lost => true,
        Cause::StartRefused => true,
        Cause::SlotFailed(why) if why.never_ran() => true,
        Cause::SlotFailed(
            FailureReason::OutOfMemory
            | FailureReason::BadArgument
            | FailureReason::PortTaken
            | FailureReason::ModelMissing
            | FailureReason::NeverReady
            | FailureReason::Crashed,
        ) => never_ran,
        _ => false,
    }
}

/// Why the work of a slot that is gone has to go: what its agent says, else why it was being stopped.
fn cause_of(slot: &Slot, end: SlotEnd) -> Cause {
    let failure = slot.failure.map(Cause::SlotFailed);
    match (end, slot.state, slot.stop_reason) {
        (SlotEnd::Failed(why), ..) => failure.unwrap_or(Cause::SlotFailed(why)),
        (_, SlotState::Stopping, Some(StopReason::MaxRun)) => Cause::MaxRun,
        (_, SlotState::Stopping, _) => failure.unwrap_or(Cause::SlotStopped),
        _ => failure.unwrap_or(Cause::SlotGone),
    }
}

fn requeue_or_fail(state: &State, workload: &Workload, cause: Cause, now: Timestamp) -> Event {
    let settings = &state.settings;
    // What failed before a long quiet time is forgiven; the number of the attempt goes on all the same.
    let is_forgiven = workload.last_failure.is_some_and(|last| now.since(last) >= settings.forgive_after);
    let before = if is_forgiven { 0 } else { workload.failures };
    let failures = before + u32::from(cause.is_failure());
    if failures >= settings.attempts {
        return Event::WorkloadEnded { workload: workload.id, end: WorkloadEnd::Failed, cause };
    }
    let pause = settings.backoff.doubled(failures.saturating_sub(1), settings.backoff_limit);
    let not_before = cause.is_failure().then(|| now.after(pause));
    let (after, may_run_twice) = (None, false);
    Event::WorkloadRequeued { workload: workload.id, cause, not_before, failures, after, may_run_twice }
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
        // A job that was told to start runs to its end, if it comes up.
        SlotState::Starting if slot.job.is_some() => {}
        SlotState::Stopping | SlotState::Failed | SlotState::Unknown => {}
        SlotState::Promised => {
            give_up(state, slot, Cause::PromiseWithdrawn, now, events);
            stop(state, slot, why, events);
        }
        _ => {
            give_up(state, slot, Cause::SlotStopped, now, events);
            stop(state, slot, why, events);
        }
    }
}

impl State {
    /// When slots of a model that nobody asked for may be placed again, after one more of them came to nothing.
    pub(crate) fn retry_at(&self, slot: &Slot, now: Timestamp) -> Timestamp {
        let failures = slot.model.and_then(|key| self.models.get(key)).map_or(0, |model| model.failures);
        now.after(self.settings.backoff.doubled(failures, self.settings.backoff_limit))
    }
}
