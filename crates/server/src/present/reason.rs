//! Reasons in words.

use berth_core::{Cause, StopReason, UnknownReason, Unplaceable, WaitReason};
use berth_domain::FailureReason;
use berth_wire::Reason;

/// Why a workload waits; `whole` if its model wants GPUs to itself.
#[must_use]
pub fn wait_reason(why: WaitReason, whole: bool) -> Reason {
    let text = match why {
        WaitReason::FullNow if whole => "no whole GPU is free now",
        WaitReason::FullNow => "too little GPU memory is free now",
        WaitReason::Releasing => "memory is promised to it that others still release",
        WaitReason::ReplicaLimit => "its model has all the slots it may have",
        WaitReason::BackingOff => "it failed and pauses before the next attempt",
        WaitReason::NoRunners => "no runner has registered yet",
        WaitReason::NoGpus => "no matching runner lists a GPU",
        WaitReason::RunnersNotReady => {
            "every runner that could take it is cordoned, draining, silent or has yet to report"
        }
        WaitReason::HostFull => "too little CPU or RAM is free on the machines",
        WaitReason::NoLongerFits => "no runner that is left could hold it",
        WaitReason::OldCopy => "its last start failed and is not proven gone yet; a job never has two copies",
        WaitReason::HistoryWentBack => {
            "the server's history went back, and nothing is placed until an operator continues it (`berth history`)"
        }
    };
    Reason::new(why.code(), text)
}

/// Why a workload came back to the queue, or ended.
#[must_use]
pub fn cause(cause: Cause) -> Reason {
    let text = match cause {
        Cause::Completed => "it said so itself".to_owned(),
        Cause::Cancelled => "whoever submitted it took it back".to_owned(),
        Cause::LeaseExpired => "no heartbeat came in time".to_owned(),
        Cause::QueueTimeout => "it waited longer than it wanted to".to_owned(),
        Cause::SlotFailed(reason) => format!("its slot failed: {}", failure(reason)),
        Cause::SlotGone => "its slot's process ended without being asked".to_owned(),
        Cause::SlotUnknown => "its agent lost the record of its slot".to_owned(),
        Cause::StartRefused => "the agent found too little free memory to start its slot".to_owned(),
        Cause::SlotStopped => "its slot was stopped under it".to_owned(),
        Cause::RunnerLost => "its runner was lost".to_owned(),
        Cause::Rebooted => "its machine was rebooted".to_owned(),
        Cause::PromiseWithdrawn => "the promise of its memory was taken back".to_owned(),
        Cause::JobExited(code) => format!("its process exited with code {code}"),
        Cause::ModelDeleted => "its model was removed from the catalogue".to_owned(),
        Cause::Unplaceable(why) => format!("its model changed: {}", unplaceable(why)),
        Cause::MaxRun => "it ran for as long as its max_run allows".to_owned(),
        Cause::HistoryWentBack => {
            "the server went on from an older copy of its data, and nobody knows whether this ran since: submit it again \
             if it did not"
                .to_owned()
        }
    };
    Reason::new(cause.code(), text)
}

/// Why a slot is being stopped.
#[must_use]
pub fn stop_reason(why: StopReason) -> Reason {
    let text = match why {
        StopReason::Evicted => "others need its memory",
        StopReason::Idle => "nobody used it for longer than its keep_alive",
        StopReason::Superseded => "its model has a newer revision, or none",
        StopReason::Drained => "its runner is drained",
        StopReason::Operator => "an operator asked",
        StopReason::JobEnded => "its job ended",
        StopReason::Reserved => "its devices are kept for the oldest waiting work",
        StopReason::Abandoned => "it was given up",
        StopReason::Surplus => "its model has more slots than it may have",
        StopReason::MaxRun => "its job ran for as long as its max_run allows",
    };
    Reason::new(why.code(), text)
}

/// Why nobody can say whether a slot exists.
#[must_use]
pub(super) fn unknown_reason(why: &UnknownReason) -> Reason {
    let text = match why {
        UnknownReason::RunnerLost => "its runner was lost; it is asked about the slot when it is back".to_owned(),
        UnknownReason::RunnerForgotten => "its runner was forgotten, but another runner has the same GPU".to_owned(),
        UnknownReason::NotMentioned => "its agent no longer mentions it, and is asked to account for it".to_owned(),
        UnknownReason::OtherCluster => "its agent belongs to another cluster".to_owned(),
        UnknownReason::CannotTell(why) => format!("its agent looked for it and cannot tell: {why}"),
    };
    Reason::new(why.code(), text)
}

pub(super) fn failure(reason: FailureReason) -> &'static str {
    match reason {
        FailureReason::BadBinary => "the program could not be run",
        FailureReason::ForbiddenArgument => {
            "one of its arguments is the agent's to set, needs the agent's leave, or means nothing to its runtime; its log \
             names it: remove it from the `args` of the model or the job, or have the agent's `allow` list it"
        }
        FailureReason::OutOfMemory => "out of GPU or host memory",
        FailureReason::BadArgument => "the program does not know one of its arguments, or takes no such value",
        FailureReason::PortTaken => "its port was taken",
        FailureReason::ModelMissing => "its model is not on the machine",
        FailureReason::NeverReady => "it never became healthy",
        FailureReason::Crashed => "it ended by itself",
        FailureReason::StartDeadline => "its start took longer than allowed",
        FailureReason::DeviceLost => "its device is gone",
        FailureReason::Unkillable => "it could not be ended",
    }
}

/// Why something can never run here.
#[must_use]
pub(super) fn unplaceable(why: Unplaceable) -> &'static str {
    match why {
        Unplaceable::NeverFits => "no runner is large enough, even when empty",
        Unplaceable::UnknownMemory => "nobody said how much memory it needs",
        Unplaceable::NoMatchingRunner => "no runner has its pool, labels, GPU names or UUIDs",
        Unplaceable::RuntimeMissing => "runners match, but none has its runtime",
        Unplaceable::RuntimeNotForJobs => "every runner that has its runtime says that it is not for jobs",
        Unplaceable::RuntimeOnlyForJobs => "every runner that has its runtime says that it is for jobs only",
    }
}
