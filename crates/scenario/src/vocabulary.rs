//! The closed lists of words that a file may use: states, codes, verdicts. Each list is made from the type it speaks of,
//! and stops compiling when that type gets another variant.

use berth_core::{
    Admission, Cause, Closed, CorrectionReason, CountVerdict, Exclusion, Liveness, MemoryVerdict, Outcome, Refusal,
    StopReason, Unplaceable, Verdict, WaitReason,
};
use berth_domain::{Bytes, FailureReason, SlotState, WorkloadEnd, WorkloadState};

/// A closed list of words.
pub(crate) trait Vocabulary {
    /// What one of its words is, for those who misspelt it.
    const WHAT: &'static str;
    /// All of its words.
    fn known() -> Vec<&'static str>;
}

macro_rules! vocabularies {
    ($($name:ident: $what:literal = $known:expr;)+) => {$(
        #[doc = concat!("The words for ", $what, ".")]
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub(crate) struct $name;

        impl Vocabulary for $name {
            const WHAT: &'static str = $what;
            fn known() -> Vec<&'static str> {
                $known
            }
        }
    )+};
}

/// The words of these variants, and of nothing else there is but those `besides` them.
macro_rules! words {
    ($kind:ident, $word:expr, [$($variant:ident),+ $(,)?] $(, besides [$($other:ident),+])?) => {{
        let _is_complete = |value: $kind| match value {
            $($kind::$variant { .. })|+ => (),
            $($($kind::$other { .. })|+ => (),)?
        };
        [$($kind::$variant),+].map($word)
    }};
}

vocabularies! {
    WorkloadStates: "state of workloads that are kept" = workload_states();
    WorkloadStatesAndForgotten: "workload state" = [workload_states(), vec!["forgotten"]].concat();
    SlotStates: "slot state" = slot_states();
    SlotStatesOrNone: "slot state" = [slot_states(), vec!["none"]].concat();
    WaitReasonsOrNo: "wait reason" = [wait_reasons(), vec!["no"]].concat();
    CausesOrNone: "cause" = [causes(), vec!["none"]].concat();
    ClosedReasonsOrNo: "reason for a closed device" = [closed_reasons(), vec!["no"]].concat();
    StopReasons: "stop reason" = words!(StopReason, StopReason::code, [
        Evicted, Idle, Superseded, Drained, Operator, JobEnded, Reserved, Abandoned, Surplus, MaxRun,
    ]).to_vec();
    LivenessWords: "liveness" = words!(Liveness, liveness, [Ready, Suspect, Lost]).to_vec();
    AdmissionWords: "admission" = [
        &words!(Admission, admission, [Open, Cordoned, Drained, Forgotten], besides [Draining])[..],
        &[admission(Admission::Draining { deadline: None, overdue: false })],
    ].concat();
    MemoryVerdicts: "memory verdict" = [
        &words!(MemoryVerdict, MemoryVerdict::code, [Watching, Fits, UnderEstimated, OverEstimated])[..],
        &["unseen"],
    ].concat();
    CorrectionsOrNo: "reason for a correction" = [
        &words!(CorrectionReason, CorrectionReason::code, [OutOfMemory, Learned])[..],
        &["no"],
    ].concat();
    Outcomes: "outcome" = outcomes(Outcome::as_str);
    OutcomeCodes: "code of an outcome" = [&outcomes(Outcome::code)[..2], &wait_reasons(), &unplaceable()].concat();
    CountVerdicts: "verdict on a GPU count" = [
        &words!(CountVerdict, CountVerdict::code, [Chosen, NoRoom, NoMatch, NotNeeded], besides [NeverFits])[..],
        &["never_fits"],
    ].concat();
    DeviceVerdicts: "verdict on a device" = [
        &words!(Verdict, device_verdict, [Chosen, RanksLower, Exclusive, NotWhole], besides [Short, Closed])[..],
        &[device_verdict(Verdict::Short { missing: Bytes::ZERO })],
        &closed_reasons(),
    ].concat();
    Exclusions: "reason for an exclusion" = words!(Exclusion, Exclusion::code, [
        Pool, Labels, Runtime, RuntimeKind, GpuName, GpuUuid, NoGpus, TooFewGpus, Cordoned, Draining, Suspect, Lost,
        NotReported, HistoryWentBack, InvalidCode, MachineDisputed, NeighbourNotReported, DevicesClosed, GpuMemory, Host,
    ]).to_vec();
    RefusalCodes: "refusal" = [Refusal::CODES, &unplaceable()].concat();
}

fn workload_states() -> Vec<&'static str> {
    let ended = |end| WorkloadState::Ended(end).as_str();
    let ends = words!(WorkloadEnd, ended, [Succeeded, Failed, Cancelled, Expired]);
    let before = words!(WorkloadState, WorkloadState::as_str, [Queued, Assigned, Running], besides[Ended]);
    before.into_iter().chain(ends).collect()
}

fn slot_states() -> Vec<&'static str> {
    words!(SlotState, SlotState::as_str, [Promised, Pending, Starting, Ready, Draining, Stopping, Failed, Unknown])
        .to_vec()
}

fn wait_reasons() -> Vec<&'static str> {
    words!(
        WaitReason,
        WaitReason::code,
        [
            FullNow,
            Releasing,
            ReplicaLimit,
            BackingOff,
            NoRunners,
            NoGpus,
            RunnersNotReady,
            HostFull,
            NoLongerFits,
            OldCopy,
            HistoryWentBack
        ]
    )
    .to_vec()
}

fn unplaceable() -> Vec<&'static str> {
    words!(
        Unplaceable,
        Unplaceable::code,
        [NeverFits, UnknownMemory, NoMatchingRunner, RuntimeMissing, RuntimeNotForJobs, RuntimeOnlyForJobs]
    )
    .to_vec()
}

fn closed_reasons() -> Vec<&'static str> {
    words!(
        Closed,
        Closed::code,
        [Missing, Lost, Quarantined, Stale, MigParent, Cordoned, BackingOff, Overcommitted, Reserved, RunnerClosed]
    )
    .to_vec()
}

fn failure_reasons() -> Vec<&'static str> {
    FailureReason::ALL.map(FailureReason::code).to_vec()
}

fn causes() -> Vec<&'static str> {
    let plain = words!(
        Cause,
        Cause::code,
        [
            Completed, Cancelled, LeaseExpired, QueueTimeout, SlotGone, SlotUnknown, StartRefused, SlotStopped,
            RunnerLost, Rebooted, PromiseWithdrawn, ModelDeleted, MaxRun, HistoryWentBack
        ],
        besides[SlotFailed, JobExited, Unplaceable]
    );
    [&plain[..], &[Cause::JobExited(0).code()], &failure_reasons(), &unplaceable()].concat()
}

/// Those without a reason of their own come first.
fn outcomes(word: fn(Outcome) -> &'static str) -> Vec<&'static str> {
    let plain = words!(Outcome, word, [Reused, Placed], besides [Waiting, Refused]);
    let others = [Outcome::Waiting(WaitReason::FullNow), Outcome::Refused(Unplaceable::NeverFits)];
    plain.into_iter().chain(others.map(word)).collect()
}

/// Whether a runner is heard of, in a word.
pub(crate) fn liveness(liveness: Liveness) -> &'static str {
    match liveness {
        Liveness::Ready => "ready",
        Liveness::Suspect => "suspect",
        Liveness::Lost => "lost",
    }
}

/// What an operator wants of a runner, in a word.
pub(crate) fn admission(admission: Admission) -> &'static str {
    match admission {
        Admission::Open => "open",
        Admission::Cordoned => "cordoned",
        Admission::Draining { .. } => "draining",
        Admission::Drained => "drained",
        Admission::Forgotten => "forgotten",
    }
}

/// What a device said to a demand, in a word.
pub(crate) fn device_verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Chosen => "chosen",
        Verdict::RanksLower => "ranks_lower",
        Verdict::Short { .. } => "short",
        Verdict::Exclusive => "exclusive",
        Verdict::NotWhole => "not_whole",
        Verdict::Closed(why) => why.code(),
    }
}
