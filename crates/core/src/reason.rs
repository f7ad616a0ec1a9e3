//! Why. Every reason is a type with a stable code; text is made at the edge.

use berth_domain::{FailureReason, ReasonText};
use serde::{Deserialize, Serialize};

/// Why a workload waits. Waiting is never an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum WaitReason {
    /// It would fit an emptier fleet.
    FullNow,
    /// Its memory is being released by others.
    Releasing,
    /// Its model has all the slots it may have.
    ReplicaLimit,
    /// It failed and pauses before the next attempt.
    BackingOff,
    /// No runner ever registered.
    NoRunners,
    /// No runner that matches has a GPU.
    NoGpus,
    /// Every runner that could take it is cordoned, draining, silent or has not reported yet.
    RunnersNotReady,
    /// CPU or RAM of the machines is used up.
    HostFull,
    /// When it was taken in some runner could have held it; none could now.
    NoLongerFits,
    /// Its last start failed and is not proven gone yet: a job never has two copies.
    OldCopy,
    /// The server's history went back, and no operator has said yet that it goes on.
    HistoryWentBack,
}

impl WaitReason {
    /// The stable code.
    #[must_use]
    pub fn code(self) -> &'static str {
        self.into()
    }

    /// Whether it waits for its own last attempt rather than for room.
    #[must_use]
    pub const fn is_pause(self) -> bool {
        matches!(self, Self::BackingOff | Self::OldCopy)
    }
}

/// Why something can never run here. Never a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Unplaceable {
    /// No runner is large enough, even when empty.
    NeverFits,
    /// Nobody knows how much memory it needs.
    UnknownMemory,
    /// No runner has its pool, labels, GPU names or UUIDs.
    NoMatchingRunner,
    /// Runners match, but none has its runtime.
    RuntimeMissing,
    /// It is a job, and every runner that has its runtime says that it is not for jobs.
    RuntimeNotForJobs,
    /// It is a lease, and every runner that has its runtime says that it is for jobs only.
    RuntimeOnlyForJobs,
}

impl Unplaceable {
    /// The stable code.
    #[must_use]
    pub fn code(self) -> &'static str {
        self.into()
    }
}

/// Why a runner was not used. The order is the order in which they are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Exclusion {
    /// In another pool.
    Pool,
    /// Without a label it must have.
    Labels,
    /// Without the runtime.
    Runtime,
    /// Its runtime is for the other kind of work.
    RuntimeKind,
    /// Without a GPU of that name.
    GpuName,
    /// Without one of the pinned GPUs.
    GpuUuid,
    /// Lists no GPU.
    NoGpus,
    /// Has fewer GPUs than the smallest count.
    TooFewGpus,
    /// Was cordoned.
    Cordoned,
    /// Is being drained.
    Draining,
    /// Silent for a while.
    Suspect,
    /// Silent for long.
    Lost,
    /// Has not reported since the server started.
    NotReported,
    /// The server's history went back.
    HistoryWentBack,
    /// It says that it obeyed an answer whose code is wrong.
    InvalidCode,
    /// It says that it is on a machine that belongs to another runner.
    MachineDisputed,
    /// Another runner of its machine has not reported since the history went back.
    NeighbourNotReported,
    /// Its GPUs are quarantined, cordoned, lost, stale, overcommitted, backing off or reserved.
    DevicesClosed,
    /// Too little GPU memory.
    GpuMemory,
    /// Too little CPU or RAM.
    Host,
}

impl Exclusion {
    /// The stable code.
    #[must_use]
    pub fn code(self) -> &'static str {
        self.into()
    }
}

/// Why a device takes nothing new.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Closed {
    /// Its machine no longer lists it, yet it has claims.
    Missing,
    /// It fell off the bus.
    Lost,
    /// Its memory could not be won back.
    Quarantined,
    /// The driver did not answer in time.
    Stale,
    /// Its MIG instances are devices of their own.
    MigParent,
    /// The operator said so.
    Cordoned,
    /// A start on it was refused a moment ago.
    BackingOff,
    /// More is held, releasing, promised or in use by others than it has.
    Overcommitted,
    /// Kept for work that has waited too long.
    Reserved,
    /// Every runner that has it is cordoned, draining, silent or has not reported since the server started.
    RunnerClosed,
}

impl Closed {
    /// The stable code.
    #[must_use]
    pub fn code(self) -> &'static str {
        self.into()
    }

    /// Whether what is free on the device is shown as free all the same: it is there for the work that it is kept for,
    /// or in a moment.
    #[must_use]
    pub const fn keeps_its_offer(self) -> bool {
        matches!(self, Self::BackingOff | Self::Reserved)
    }
}

/// Why a slot is being stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum StopReason {
    /// Others need its memory.
    Evicted,
    /// Idle past its keep-alive.
    Idle,
    /// Its model has a newer revision, or none.
    Superseded,
    /// Its runner is drained.
    Drained,
    /// An operator asked.
    Operator,
    /// Its job ended.
    JobEnded,
    /// A reservation keeps its devices for others.
    Reserved,
    /// It was given up while nobody knew of it.
    Abandoned,
    /// Its model has more slots than it may have.
    Surplus,
    /// Its job ran for as long as it may.
    MaxRun,
}

impl StopReason {
    /// The stable code.
    #[must_use]
    pub fn code(self) -> &'static str {
        self.into()
    }
}

/// Why nobody can say whether a slot exists. Its memory stays charged until its agent accounts for it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum UnknownReason {
    /// Its runner was lost.
    RunnerLost,
    /// Its runner was forgotten, but another one that lives has the same device.
    RunnerForgotten,
    /// Its agent does not mention it any more: it lost its record.
    NotMentioned,
    /// The server has a stray of another cluster.
    OtherCluster,
    /// Its agent looked for it and cannot tell, for this reason.
    CannotTell(ReasonText),
}

impl UnknownReason {
    /// The stable code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        self.into()
    }
}

/// Why a claim could leave its ledger. There is no timer among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Proof {
    /// The agent saw the process tree gone and the driver clear.
    Gone,
    /// The agent never started it.
    Refused,
    /// The runner never heard of it.
    NeverTold,
    /// The machine has a new boot id.
    Rebooted,
    /// An operator forced it, with a reason.
    Forced,
    /// An operator forgot the runner.
    Forgotten,
}

impl Proof {
    /// The stable code.
    #[must_use]
    pub fn code(self) -> &'static str {
        self.into()
    }
}

/// Why a workload went back to the queue, or came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// It said so itself.
    Completed,
    /// Whoever submitted it took it back.
    Cancelled,
    /// No heartbeat came in time.
    LeaseExpired,
    /// It waited longer than it wanted to.
    QueueTimeout,
    /// Its slot came to a bad end.
    SlotFailed(FailureReason),
    /// Its slot's process ended without being asked.
    SlotGone,
    /// Its agent lost the record of its slot.
    SlotUnknown,
    /// The agent refused to start its slot.
    StartRefused,
    /// Its slot was stopped under it.
    SlotStopped,
    /// Its runner was lost.
    RunnerLost,
    /// Its machine was rebooted.
    Rebooted,
    /// The promise of its memory was taken back.
    PromiseWithdrawn,
    /// Its job ended with this code.
    JobExited(i32),
    /// Its model was removed from the catalogue.
    ModelDeleted,
    /// Its model changed so that it can never run.
    Unplaceable(Unplaceable),
    /// It ran for as long as it may.
    MaxRun,
    /// The server's history went back. Nobody knows whether it ran since, and a job runs at most once.
    HistoryWentBack,
}

impl Cause {
    /// The stable code.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Cancelled => "cancelled",
            Self::LeaseExpired => "lease_expired",
            Self::QueueTimeout => "queue_timeout",
            Self::SlotFailed(reason) => reason.code(),
            Self::SlotGone => "slot_gone",
            Self::SlotUnknown => "slot_unknown",
            Self::StartRefused => "start_refused",
            Self::SlotStopped => "slot_stopped",
            Self::RunnerLost => "runner_lost",
            Self::Rebooted => "rebooted",
            Self::PromiseWithdrawn => "promise_withdrawn",
            Self::JobExited(_) => "job_exited",
            Self::ModelDeleted => "model_deleted",
            Self::Unplaceable(why) => why.code(),
            Self::MaxRun => "max_run",
            Self::HistoryWentBack => "history_went_back",
        }
    }

    /// Whether it counts against the attempts of the workload. What the fleet did does not.
    #[must_use]
    pub const fn is_failure(self) -> bool {
        matches!(self, Self::SlotFailed(_) | Self::SlotGone | Self::StartRefused)
    }
}
