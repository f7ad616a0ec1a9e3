//! What may be asked of the core, and why it may say no.

use berth_domain::{
    Attempt, BootId, ClusterId, DeviceUuid, Incarnation, ModelName, ModelSpec, ModelSpecError, ReasonText, RunnerId,
    RunnerReport, SlotId, Span, Submission, WorkloadId,
};

use crate::reason::Unplaceable;

/// What may be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields of a command are named by what they are; the variants say what is asked")]
pub enum Command {
    /// The server starts on its data directory.
    Start { cluster: ClusterId },
    /// Time passes.
    Tick,

    /// A gateway submits a workload under an id of its choice.
    Submit { workload: WorkloadId, submission: Submission },
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
    Poll { runner: RunnerId, incarnation: Incarnation },

    /// Nothing new on a runner.
    CordonRunner { runner: RunnerId },
    /// Work again.
    UncordonRunner { runner: RunnerId },
    /// Finish what it has.
    DrainRunner { runner: RunnerId, deadline: Option<Span> },
    /// It is no more.
    ForgetRunner { runner: RunnerId, reason: ReasonText },
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
    #[error("model {model} can never run here: {}", why.code())]
    Unplaceable { model: ModelName, why: Unplaceable },
    #[error("the queue is full: {0} workloads wait")]
    QueueFull(usize),
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
    #[error("runner {runner} has incarnation {current}; {named} was superseded and must not register again")]
    Superseded { runner: RunnerId, current: Incarnation, named: Incarnation },
    #[error("runner {runner} is not registered as incarnation {named}: register first")]
    NotRegistered { runner: RunnerId, named: Incarnation },
    #[error("boot {boot} of the machine was superseded")]
    OldBoot { boot: BootId },
    #[error("report {named} is not newer than {current}")]
    OldReport { current: u64, named: u64 },
    #[error("runner {runner} has slots on another machine")]
    MachineChanged { runner: RunnerId },
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
}

impl Refusal {
    /// The stable code.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::UnknownModel(_) => "unknown_model",
            Self::UnknownWorkload(_) => "unknown_workload",
            Self::UnknownRunner(_) => "unknown_runner",
            Self::UnknownDevice(_) => "unknown_device",
            Self::UnknownSlot(_) => "unknown_slot",
            Self::Unplaceable { why, .. } => why.code(),
            Self::QueueFull(_) => "queue_full",
            Self::WorkloadIdTaken(_) => "workload_id_taken",
            Self::KeyReused(_) => "key_reused",
            Self::WorkloadEnded(_) => "workload_ended",
            Self::StaleAttempt { .. } => "stale_attempt",
            Self::NotRunning(_) => "not_running",
            Self::InvalidModel(_) => "invalid_model",
            Self::Superseded { .. } => "superseded",
            Self::NotRegistered { .. } => "not_registered",
            Self::OldBoot { .. } => "old_boot",
            Self::OldReport { .. } => "old_report",
            Self::MachineChanged { .. } => "machine_changed",
            Self::Implausible(_) => "implausible_report",
            Self::RunnerInUse(_) => "runner_in_use",
            Self::WrongSlotState { .. } => "wrong_slot_state",
            Self::ReasonMissing => "reason_missing",
            Self::OtherCluster(_) => "other_cluster",
            Self::NotStarted => "not_started",
        }
    }
}
