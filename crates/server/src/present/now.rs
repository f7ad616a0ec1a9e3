//! Where a workload is at this instant, in one sentence. The history comes after it, and elsewhere.

use berth_core::view::{SlotView, WorkloadView};
use berth_core::{Outcome, Report, State, WaitReason};
use berth_domain::{SlotState, Timestamp, WorkloadId, WorkloadState};
use berth_wire as wire;

use super::attempt::ended;
use super::reason::{cause, wait_reason};

/// What the core says of a workload at an instant, beside its view.
#[derive(Clone, Debug)]
pub struct Judged {
    /// When.
    pub at: Timestamp,
    /// What would be decided now, for one that waits.
    pub report: Option<Report>,
    /// A workload fails for good when so many of its attempts have failed.
    pub most_failures: u32,
}

impl Judged {
    /// Judges a workload on the state as it is.
    #[must_use]
    pub fn of(state: &State, workload: WorkloadId, at: Timestamp) -> Self {
        Self { at, report: state.explain(workload, at), most_failures: state.most_failures() }
    }
}

/// Where a workload is.
#[must_use]
pub fn now(view: &WorkloadView, slot: Option<&SlotView>, judged: &Judged) -> wire::Now {
    let at = judged.at;
    let (code, text, since) = match (view.state, slot) {
        (WorkloadState::Queued, _) => waits(view, judged),
        (WorkloadState::Assigned | WorkloadState::Running, Some(slot)) => has_slot(view, slot, judged),
        (WorkloadState::Assigned | WorkloadState::Running, None) => {
            (view.state.as_str().to_owned(), format!("it is {}", view.state), view.since)
        }
        (WorkloadState::Ended(_), _) => over(view),
    };
    wire::Now {
        code,
        text,
        since: wire::Time(since),
        until: view.not_before.map(wire::Time),
        attempt: view.attempt,
        slot_id: slot.map(|slot| slot.id),
        runner_id: slot.map(|slot| slot.runner.clone()),
        waited_ms: view.assigned.unwrap_or(at).since(view.queued).millis(),
        failures: view.failures,
        most_failures: judged.most_failures,
    }
}

/// What is said of it: a code, a sentence, and since when it is so.
type Said = (String, String, Timestamp);

fn waits(view: &WorkloadView, judged: &Judged) -> Said {
    let unknown = || wire::Reason::new("queued", "it was not looked at yet");
    // What is judged now is newer than what was noted when it was last looked at, and has the numbers.
    let (code, mut text) = match judged.report.as_ref().and_then(judged_wait) {
        Some(said) => said,
        None => {
            let reason = view.waits.map_or_else(unknown, |why| wait_reason(why, view.wants_whole_gpus));
            (reason.code.clone(), format!("it waits ({}): {}", reason.code, reason.text))
        }
    };
    match view.not_before {
        Some(until) => text += &format!(", until {} (in {})", wire::Time(until), until.since(judged.at)),
        None => text += &format!("; it has waited for {}", judged.at.since(view.queued)),
    }
    text += &attempt(view, judged.most_failures);
    (code, text, view.queued)
}

/// The code and the sentence of a judgement that something waits, or could never run. Nothing, if it would be placed.
fn judged_wait(report: &Report) -> Option<(String, String)> {
    let text = report.to_string();
    let headline = text.lines().next().unwrap_or_default();
    let said = match report.outcome {
        Outcome::Waiting(_) => format!("it waits {}", headline.strip_prefix("waiting ").unwrap_or(headline)),
        Outcome::Refused(_) => format!("it waits, and another one like it would be {headline}"),
        Outcome::Placed | Outcome::Reused => return None,
    };
    Some((report.outcome.code().to_owned(), said))
}

/// Why a workload waits that no runner could hold any more: what is judged now says what is missing.
#[must_use]
pub fn no_longer_fits(report: &Report) -> Option<wire::Reason> {
    judged_wait(report)?;
    let text = report.to_string();
    // "refused (never_fits): ...": the reason has a code of its own.
    let (_, why) = text.lines().next()?.split_once("): ")?;
    Some(wire::Reason::new(WaitReason::NoLongerFits.code(), why))
}

/// Which attempt it is, once one was not enough.
fn attempt(view: &WorkloadView, most: u32) -> String {
    if view.attempts.is_empty() && view.failures == 0 {
        return String::new();
    }
    let (attempt, failures) = (view.attempt, view.failures);
    match view.state {
        WorkloadState::Queued => format!("; attempt {attempt} comes next, {failures} of at most {most} have failed"),
        _ => format!("; attempt {attempt}, {failures} of at most {most} have failed"),
    }
}

fn has_slot(view: &WorkloadView, slot: &SlotView, judged: &Judged) -> Said {
    let at = judged.at;
    let place = format!("slot {} on runner {}", slot.id, slot.runner);
    let waited = view.assigned.unwrap_or(at).since(view.queued);
    let since = view.ran.or(view.assigned).unwrap_or(view.since);
    let for_how_long = format!("since {} ({})", wire::Time(since), at.since(since));
    let (code, text) = match (view.state, slot.state) {
        (WorkloadState::Running, _) => {
            let started = view.ran.zip(view.assigned).map(|(ran, assigned)| ran.since(assigned));
            let started = started.filter(|span| span.millis() > 0);
            let started = started.map(|span| format!(" and starting for {span}")).unwrap_or_default();
            ("running", format!("it runs in {place} {for_how_long}, after waiting for {waited}{started}"))
        }
        (_, SlotState::Promised) => {
            ("releasing", format!("it has memory promised in {place} that others still release, {for_how_long}"))
        }
        (_, SlotState::Pending) => {
            ("pending", format!("its {place} waits for its turn to start there, {for_how_long}"))
        }
        _ => ("starting", format!("its {place} starts {for_how_long}, after waiting for {waited}")),
    };
    (code.to_owned(), text + &attempt(view, judged.most_failures), since)
}

fn over(view: &WorkloadView) -> Said {
    let last = view.attempts.last().filter(|last| last.attempt == view.attempt);
    let reason = match (last, view.cause) {
        (Some(last), _) => ended(last.cause, last.exit),
        (None, Some(why)) => cause(why),
        (None, None) => wire::Reason::new(view.state.as_str(), "nobody noted why"),
    };
    let place = last.map(|last| format!(", in slot {} on runner {}", last.slot, last.runner)).unwrap_or_default();
    let when = wire::Time(view.since);
    // What was cancelled, or has expired, may not have failed before.
    let text = format!("it {} at {when} ({}): {}{place}{}", verb(view.state), reason.code, reason.text, attempts(view));
    (reason.code, text, view.since)
}

fn verb(state: WorkloadState) -> String {
    match state {
        WorkloadState::Ended(berth_domain::WorkloadEnd::Cancelled) => "was cancelled".to_owned(),
        other => other.as_str().to_owned(),
    }
}

/// How many attempts it took, if more than one.
fn attempts(view: &WorkloadView) -> String {
    match view.attempt.get() {
        0 | 1 => String::new(),
        number => format!("; that was attempt {number}"),
    }
}
