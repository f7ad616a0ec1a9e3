//! What may be asked of the core, and why it may say no.

use berth_domain::{
    Attempt, BootId, ClusterId, DeviceUuid, EpochTag, Incarnation, ModelName, ModelSpec, ModelSpecError, ObeyedAnswer,
    OwnerLimits, ReasonText, RunnerId, RunnerReport, RuntimeName, SlotId, Span, Submission, WorkloadId,
};

use berth_engines::{ArgumentSource, Forbidden, Unfit};

use crate::explain::{ArgumentText, LackText};
use crate::lack::Lack;
use crate::reason::Unplaceable;
use crate::state::OwnerPhase;

/// What may be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields of a command are named by what they are; the variants say what is asked")]
pub enum Command {
    /// The server starts on its data directory.
    Start { cluster: ClusterId, tag: EpochTag },
    /// The state was read from a backup. What the server did after the backup was made is not in it.
    Restore,
    /// An operator says that the server goes on although its history went back.
    ContinueHistory { reason: ReasonText },
    /// Time passes.
    Tick,

    /// A gateway submits a workload under an id of its choice.
    Submit { workload: WorkloadId, submission: Submission, limits: Option<OwnerLimits> },
    /// Take a workload back.
    Cancel { workload: WorkloadId },
    /// A lease is still needed.
    Heartbeat { workload: WorkloadId, attempt: Attempt },
    /// A workload is done.
    Complete { workload: WorkloadId, attempt: Attempt, succeeded: bool },

    /// Add or change a model.
    PutModel { spec: Box<ModelSpec> },
    /// Remove a model.
    DeleteModel { model: ModelName },

    /// An agent reports, or registers.
    Report(Box<RunnerReport>),
    /// An agent polls: it lives.
    Poll { runner: RunnerId, incarnation: Incarnation, obeyed: Option<ObeyedAnswer> },

    /// Nothing new on a runner.
    CordonRunner { runner: RunnerId },
    /// Work again.
    UncordonRunner { runner: RunnerId },
    /// Finish what it has.
    DrainRunner { runner: RunnerId, deadline: Option<Span> },
    /// It is no more.
    ForgetRunner { runner: RunnerId, reason: ReasonText },
    /// These runners are on the machine that they name (`is_same`), or on others that have the same id.
    JudgeMachines { runners: Vec<RunnerId>, is_same: bool, reason: ReasonText },
    /// Nothing new on a device.
    CordonDevice { uuid: DeviceUuid },
    /// Work again.
    UncordonDevice { uuid: DeviceUuid },
    /// Stop a slot.
    StopSlot { slot: SlotId },
    /// Free a slot's memory on an operator's word.
    ForceRelease { slot: SlotId, reason: ReasonText },
}

/// What came of a command that was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Done.
    Done,
    /// The workload under which the submission is known; `repeated` if it was known before.
    Submitted {
        /// Its id.
        workload: WorkloadId,
        /// The same key and body came before.
        repeated: bool,
    },
    /// The agent's incarnation.
    Reported {
        /// As numbered by the server.
        incarnation: Incarnation,
    },
}

/// Why a command was not taken. It changed nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the message says it")]
pub enum Refusal {
    #[error("no model {0}")]
    UnknownModel(ModelName),
    #[error("no workload {0}")]
    UnknownWorkload(WorkloadId),
    #[error("no runner {0}")]
    UnknownRunner(RunnerId),
    #[error("no device {0}")]
    UnknownDevice(DeviceUuid),
    #[error("no slot {0}")]
    UnknownSlot(SlotId),
    #[error("model {model} can never run here: {}", LackText(lacks))]
    Unplaceable { model: ModelName, why: Unplaceable, lacks: Vec<Lack> },
    #[error("the queue is full: {0} workloads wait")]
    QueueFull(usize),
    /// The owner has as much as it may.
    #[error(
        "this submitter has {count} workloads that {}, and may have {limit}: wait until some of them have ended, or ask \
         an admin for a higher limit",
        phase.words()
    )]
    OwnerLimit { phase: OwnerPhase, count: u32, limit: u32 },
    #[error("workload id {0} is taken")]
    WorkloadIdTaken(WorkloadId),
    #[error("idempotency key of workload {0} was used with another body")]
    KeyReused(WorkloadId),
    #[error("workload {0} has ended")]
    WorkloadEnded(WorkloadId),
    #[error("workload {workload} is at attempt {current}, not {named}")]
    StaleAttempt { workload: WorkloadId, current: Attempt, named: Attempt },
    #[error("workload {0} does not run")]
    NotRunning(WorkloadId),
    #[error("model is not valid: {0}")]
    InvalidModel(#[from] ModelSpecError),
    #[error("model {model} could not be started: {why}")]
    UnfitModel { model: ModelName, why: Unfit },
    #[error("{}", ArgumentText { source: *of, runtime, runner: runner.as_ref(), forbidden })]
    ForbiddenArgument { of: ArgumentSource, runtime: RuntimeName, runner: Option<RunnerId>, forbidden: Box<Forbidden> },
    #[error("runner {runner} has incarnation {current}; {named} was superseded and must not register again")]
    Superseded { runner: RunnerId, current: Incarnation, named: Incarnation },
    #[error("runner {runner} is not registered as incarnation {named}: register first")]
    NotRegistered { runner: RunnerId, named: Incarnation },
    #[error("boot {boot} of the machine was superseded")]
    OldBoot { boot: BootId },
    #[error("report {named} is not newer than {current}")]
    OldReport { current: u64, named: u64 },
    #[error("runner {runner} has slots or GPUs on another machine: it registers anew there once they are gone")]
    MachineChanged { runner: RunnerId },
    #[error("runner {runner} has slots: drain it first, then say on which machine it is")]
    HasSlots { runner: RunnerId },
    #[error("runner {runner} has {count} {what}, and {limit} are allowed ({setting})")]
    TooMany { runner: RunnerId, what: &'static str, count: usize, limit: usize, setting: &'static str },
    #[error("the report is not plausible: {0}")]
    Implausible(&'static str),
    #[error("runner {0} is in use: drain it first, or wait until it is lost")]
    RunnerInUse(RunnerId),
    #[error("slot {slot} is {state}: that cannot be done now")]
    WrongSlotState { slot: SlotId, state: berth_domain::SlotState },
    #[error("a reason is needed: it goes on record")]
    ReasonMissing,
    #[error("the data directory belongs to cluster {0}")]
    OtherCluster(ClusterId),
    #[error("the core was not started")]
    NotStarted,
    #[error("the history of this server did not go back: there is nothing to continue from")]
    HistoryIsWhole,
}

/// Makes the code of each refusal, and the list of them, from one match: neither can miss a refusal.
macro_rules! refusal_codes {
    ($($refusal:pat => $code:literal,)+) => {
        impl Refusal {
            /// The codes of all refusals but [`Refusal::Unplaceable`], which has those of [`Unplaceable`].
            pub const CODES: &[&str] = &[$($code),+];

            /// The stable code.
            #[must_use]
            pub fn code(&self) -> &'static str {
                match self {
                    Self::Unplaceable { why, .. } => why.code(),
                    $($refusal => $code,)+
                }
            }
        }
    };
}

refusal_codes! {
    Self::UnknownModel(_) => "unknown_model",
    Self::UnknownWorkload(_) => "unknown_workload",
    Self::UnknownRunner(_) => "unknown_runner",
    Self::UnknownDevice(_) => "unknown_device",
    Self::UnknownSlot(_) => "unknown_slot",
    Self::QueueFull(_) => "queue_full",
    Self::OwnerLimit { .. } => "owner_limit",
    Self::WorkloadIdTaken(_) => "workload_id_taken",
    Self::KeyReused(_) => "key_reused",
    Self::WorkloadEnded(_) => "workload_ended",
    Self::StaleAttempt { .. } => "stale_attempt",
    Self::NotRunning(_) => "not_running",
    Self::InvalidModel(_) => "invalid_model",
    Self::UnfitModel { .. } => "unfit_model",
    Self::ForbiddenArgument { .. } => "forbidden_argument",
    Self::Superseded { .. } => "superseded",
    Self::NotRegistered { .. } => "not_registered",
    Self::OldBoot { .. } => "old_boot",
    Self::OldReport { .. } => "old_report",
    Self::MachineChanged { .. } => "machine_changed",
    Self::HasSlots { .. } => "has_slots",
    Self::TooMany { .. } => "report_too_large",
    Self::Implausible(_) => "implausible_report",
    Self::RunnerInUse(_) => "runner_in_use",
    Self::WrongSlotState { .. } => "wrong_slot_state",
    Self::ReasonMissing => "reason_missing",
    Self::OtherCluster(_) => "other_cluster",
    Self::NotStarted => "not_started",
    Self::HistoryIsWhole => "history_is_whole",
}
