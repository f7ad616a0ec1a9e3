//! The server's history went back: what the core knows is older than what the fleet has done.
//!
//! Nobody knows what became of work that waited in the old copy. A lease does no harm if it is served again. A job runs
//! at most once, so one that does not say `restart_on_lost` is ended: it may have run since the copy was made.

use berth_domain::{
    HistoryPoint, ObeyedAnswer, ReasonText, RunnerId, SlotState, Timestamp, WorkloadEnd, WorkloadKind, WorkloadState,
};

use super::retire::{give_up, stop};
use crate::command::Refusal;
use crate::event::Event;
use crate::reason::{Cause, StopReason};
use crate::state::{Slot, State};

/// The state was read from a backup, and the server goes on from there.
pub(super) fn restore(state: &State, now: Timestamp) -> Vec<Event> {
    let mut events = vec![Event::HistoryRestored];
    give_up_what_may_have_run(state, Since::Ever, now, &mut events);
    events
}

/// Which work may have run without this server knowing of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Since {
    /// All of it: the server has not started yet since it was restored.
    Ever,
    /// What was there when the server started. What came later it started itself.
    LastStart,
}

/// An operator says that the server goes on although its history went back.
pub(super) fn go_on(state: &State, reason: &ReasonText) -> Result<Vec<Event>, Refusal> {
    if reason.as_str().trim().is_empty() {
        return Err(Refusal::ReasonMissing);
    }
    let beyond = state.history.beyond().ok_or(Refusal::HistoryIsWhole)?;
    Ok(vec![continue_above(state, beyond, Some(reason.clone()))])
}

/// What follows from the newest answer that an agent says it obeyed.
///
/// A wrong code closes the runner that sent it and no other: only a server with the cluster's key makes right ones.
pub(super) fn judge_obeyed(
    state: &State,
    runner: &RunnerId,
    obeyed: Option<ObeyedAnswer>,
    now: Timestamp,
) -> Vec<Event> {
    let was_invalid = state.runners.find(runner).is_some_and(|(_, row)| row.sent_invalid_code);
    let mut events = Vec::new();
    match (obeyed, was_invalid) {
        (Some(ObeyedAnswer::Invalid), false) => events.push(Event::ObeyedCodeRefused { runner: runner.clone() }),
        (Some(ObeyedAnswer::Verified(_)) | None, true) => {
            events.push(Event::ObeyedCodeAccepted { runner: runner.clone() });
        }
        _ => {}
    }
    if let Some(ObeyedAnswer::Verified(shown)) = obeyed {
        compare(state, runner, shown, now, &mut events);
    }
    events
}

/// Holds an answer that a server of this cluster gave against the answers that this server knows of.
fn compare(state: &State, runner: &RunnerId, shown: HistoryPoint, now: Timestamp, events: &mut Vec<Event>) {
    if state.history.contains(shown, state.revision) {
        return;
    }
    if state.may_continue_above(now) {
        // Agents obey a later epoch, whatever its revision is.
        if shown.epoch >= state.epoch {
            events.push(continue_above(state, shown, None));
        }
        return;
    }
    if state.history.is_continued_above(shown) {
        return;
    }
    let is_newer = |known: HistoryPoint| (shown.epoch, shown.revision) > (known.epoch, known.revision);
    match state.history.beyond() {
        Some(known) if !is_newer(known) => {}
        Some(_) => events.push(Event::HistoryWentBack { runner: runner.clone(), shown }),
        None => {
            events.push(Event::HistoryWentBack { runner: runner.clone(), shown });
            give_up_what_may_have_run(state, Since::LastStart, now, events);
        }
    }
}

fn continue_above(state: &State, shown: HistoryPoint, reason: Option<ReasonText>) -> Event {
    let (epoch, revision) = (state.epoch.max(shown.epoch).next(), shown.revision.next());
    Event::HistoryContinued { epoch, revision, reason }
}

/// Takes back what the agents may have been told since, as far as this state does not know of it: slots that were not
/// told yet (they may run, and are then charged as slots that the server does not know), and jobs that wait.
fn give_up_what_may_have_run(state: &State, since: Since, now: Timestamp, events: &mut Vec<Event>) {
    let is_untold = |slot: &&Slot| {
        matches!(slot.state, SlotState::Promised | SlotState::Pending)
            && (since == Since::Ever || state.history.is_old_slot(slot.number))
    };
    for slot in state.slots.iter().map(|(_, slot)| slot).filter(is_untold) {
        let job = slot.job.and_then(|key| state.workloads.get(key)).filter(|job| !job.is_ended());
        match job.filter(|job| !job.submission.job.restart_on_lost) {
            Some(job) => events.push(ended(job.id)),
            None => give_up(state, slot, Cause::HistoryWentBack, now, events),
        }
        stop(state, slot, StopReason::Abandoned, events);
    }
    let waiting = state.workloads.iter().map(|(_, row)| row).filter(|row| row.state == WorkloadState::Queued);
    let old = waiting.filter(|row| since == Since::Ever || state.history.is_old_workload(row.number));
    let jobs = old.filter(|row| row.submission.kind == WorkloadKind::Job && !row.submission.job.restart_on_lost);
    events.extend(jobs.map(|job| ended(job.id)));
}

fn ended(workload: berth_domain::WorkloadId) -> Event {
    Event::WorkloadEnded { workload, end: WorkloadEnd::Failed, cause: Cause::HistoryWentBack }
}
