//! What became of attempts: how a program ended, why, and what may help.

use berth_core::view::WorkloadView;
use berth_core::{Cause, PastAttempt};
use berth_domain::{ExitStatus, FailureReason, ModelName, WorkloadId, WorkloadState};
use berth_wire as wire;

use super::reason::cause;

/// The attempts of a workload that are over, without their last lines.
pub(super) fn attempts(view: &WorkloadView) -> Vec<wire::PastAttempt> {
    view.attempts.iter().map(|past| past_attempt(view, past)).collect()
}

fn past_attempt(view: &WorkloadView, past: &PastAttempt) -> wire::PastAttempt {
    wire::PastAttempt {
        attempt: past.attempt,
        slot_id: past.slot,
        generation: past.generation,
        runner_id: past.runner.clone(),
        began: wire::Time(past.began),
        ran: past.ran.map(wire::Time),
        ended: wire::Time(past.ended),
        reason: ended(past.cause, past.exit),
        exit: past.exit.map(Into::into),
        last_lines: Vec::new(),
        hint: hint(view.id, &view.model, past),
    }
}

/// Why a workload waits or ended; for one that has a slot, why its attempt before ended, marked as that.
pub(super) fn reason(view: &WorkloadView) -> Option<wire::Reason> {
    let last = view.attempts.last();
    let is_over = matches!(view.state, WorkloadState::Ended(_));
    match last.filter(|last| last.attempt == view.attempt || !is_over) {
        Some(last) if is_over => Some(ended(last.cause, last.exit)),
        Some(last) => Some(ended(last.cause, last.exit).of_attempt(last.attempt)),
        None => view.cause.map(cause),
    }
}

/// Why an attempt ended, with how its program did.
pub(super) fn ended(why: Cause, exit: Option<ExitStatus>) -> wire::Reason {
    let reason = cause(why);
    match (why, exit) {
        // Its own text names the code.
        (Cause::JobExited(_), _) | (_, None) => reason,
        (_, Some(exit)) => wire::Reason::new(reason.code, format!("{}, {exit}", reason.text)),
    }
}

/// What may help after an attempt ended like this; nothing where nothing went wrong.
fn hint(workload: WorkloadId, model: &ModelName, past: &PastAttempt) -> Option<String> {
    let runner = &past.runner;
    let read_it = || format!("read what it wrote: `berth logs {workload}`");
    Some(match past.cause {
        Cause::SlotFailed(why) => hint_on_failure(workload, model, past, why),
        Cause::SlotGone => read_it(),
        Cause::JobExited(code) if code != 0 => read_it(),
        Cause::StartRefused => {
            format!("something else uses memory of its GPUs on runner {runner}: `berth ledger` shows how much")
        }
        Cause::MaxRun => "submit it with a longer max_run".to_owned(),
        Cause::HistoryWentBack => "find out whether it ran, and submit it again if it did not".to_owned(),
        Cause::Completed
        | Cause::Cancelled
        | Cause::LeaseExpired
        | Cause::QueueTimeout
        | Cause::SlotUnknown
        | Cause::SlotStopped
        | Cause::RunnerLost
        | Cause::Rebooted
        | Cause::PromiseWithdrawn
        | Cause::JobExited(_)
        | Cause::ModelDeleted
        | Cause::Unplaceable(_) => return None,
    })
}

fn hint_on_failure(workload: WorkloadId, model: &ModelName, past: &PastAttempt, why: FailureReason) -> String {
    let runner = &past.runner;
    let show = format!("`berth models show {model}`");
    match why {
        FailureReason::BadBinary => format!(
            "the last lines say what could not be run: correct the command of the model's runtime ({show} names it) in \
             the configuration of runner {runner}"
        ),
        FailureReason::ForbiddenArgument => format!(
            "the last lines name the argument: take it out of `args` of model {model} ({show} lists them), or of the job"
        ),
        FailureReason::BadArgument => {
            format!("the last lines name the argument: correct `args` of model {model} ({show} lists them)")
        }
        FailureReason::OutOfMemory => format!(
            "state more `memory` for model {model} ({show} says what is charged), allow more GPUs (`gpu_counts`), or have \
             it use less, by a shorter context for example"
        ),
        FailureReason::PortTaken => {
            format!("see what else listens on the machine of runner {runner}, or give its agent other `ports`")
        }
        FailureReason::ModelMissing => {
            format!(
                "put the files of model {model} where runner {runner} can read them, or correct its `args` ({show})"
            )
        }
        FailureReason::NeverReady => format!(
            "read what it wrote (`berth logs {workload}`); in the runtime's configuration on runner {runner}, raise \
             `ready.deadline` if it needs longer, or correct `ready.path` if it serves"
        ),
        FailureReason::Crashed => format!("read what it wrote: `berth logs {workload}`"),
        FailureReason::StartDeadline => {
            format!(
                "read what it wrote (`berth logs {workload}`); if it needs longer, raise `scheduler.start_deadline`"
            )
        }
        FailureReason::DeviceLost => format!("look at the GPUs of runner {runner}: `berth runners {runner}`"),
        FailureReason::Unkillable => format!(
            "look at the machine of runner {runner}: a process of the slot cannot be ended, or the driver does not let go \
             of it. A reboot proves it gone"
        ),
    }
}
