//! What an agent says of its machine. It is untrusted: nothing here is more than well formed.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::{
    Arg, BootId, Bytes, ClusterId, DeviceUuid, Endpoint, ExitStatus, Generation, GpuName, Incarnation, LabelKey,
    LabelValue, MachineId, Millicores, ModelName, ObeyedAnswer, PoolName, ReasonText, RunnerId, RuntimeName, Sequence,
    SlotId,
};

/// One report of one agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunnerReport {
    /// Who reports.
    pub runner: RunnerId,
    /// Which start of the agent; absent when it registers.
    pub incarnation: Option<Incarnation>,
    /// The cluster the agent belongs to, once it knows one.
    pub cluster: Option<ClusterId>,
    /// The newest answer of the server that the agent obeyed, once it obeyed one.
    pub obeyed: Option<ObeyedAnswer>,
    /// Its token grants the machine that it names: it may share the machine with the runner that owns it.
    pub shares_machine: bool,
    /// The order of its reports.
    pub sequence: Sequence,
    /// The machine.
    pub machine: MachineId,
    /// The machine's boot.
    pub boot: BootId,
    /// The agent's version.
    pub version: ReasonText,
    /// Where its slots answer.
    pub address: ReasonText,
    /// Its pool.
    pub pool: PoolName,
    /// Its labels.
    pub labels: BTreeMap<LabelKey, LabelValue>,
    /// What it can start, and what each of them is for.
    pub runtimes: BTreeMap<RuntimeName, RuntimeKind>,
    /// Arguments that its own configuration allows, by runtime, beside those that need nobody's leave.
    pub allowed: BTreeMap<RuntimeName, BTreeSet<Arg>>,
    /// What its agent found out about the engines behind its runtimes, also of those that it does not offer.
    pub engines: BTreeMap<RuntimeName, EngineReport>,
    /// CPU and RAM it may use.
    pub host: HostReport,
    /// Its GPUs, replicas and all.
    pub gpus: Vec<GpuReport>,
    /// The slots it knows of.
    pub slots: Vec<SlotReport>,
}

/// What an agent found out about one engine by asking it for its version and its options.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct EngineReport {
    /// The engine's version, once it was told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<ReasonText>,
    /// Options and variables that the runtime's template needs and the engine does not have. A runtime with any of them is
    /// not offered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<ReasonText>,
    /// Why the engine could not be asked, or that it is being asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<ReasonText>,
}

/// What a runtime starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RuntimeKind {
    /// Servers and jobs, as each slot asks.
    #[default]
    Both,
    /// It serves until it is told to end; to end by itself is a failure.
    Server,
    /// It ends by itself, and its exit code says how.
    Job,
}

/// CPU and RAM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct HostReport {
    /// Thousandths of a core.
    pub cpu: Millicores,
    /// The cgroup's limit where there is one.
    pub ram: Bytes,
}

/// One advertised GPU: a physical device, a replica of one, or a MIG instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuReport {
    /// The physical device.
    pub uuid: DeviceUuid,
    /// Its index on the machine.
    pub index: u16,
    /// What the driver calls it.
    pub name: GpuName,
    /// All its memory.
    pub memory_total: Bytes,
    /// What is in use now, by whomever.
    pub memory_used: Bytes,
    /// What the driver keeps for itself.
    pub memory_reserved: Bytes,
    /// The GPU it is a MIG instance of.
    pub parent: Option<DeviceUuid>,
    /// What the driver says of it.
    pub health: GpuHealth,
}

/// What the driver says of a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GpuHealth {
    /// In order.
    #[default]
    Ok,
    /// Fell off the bus.
    Lost,
    /// The driver did not answer in time: these are old numbers.
    Stale,
    /// Its memory could not be won back.
    Failed,
}

/// What the agent knows of one slot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotReport {
    /// Which slot.
    pub id: SlotId,
    /// Which start of it.
    pub generation: Generation,
    /// What it serves.
    pub model: Option<ModelName>,
    /// Where it is.
    pub state: ReportedState,
    /// How its first process ended, if it ended by itself.
    pub exit: Option<ExitStatus>,
    /// Where it answers, once ready.
    pub endpoint: Option<Endpoint>,
    /// What the agent believes belongs to it.
    pub claims: Vec<ReportedClaim>,
    /// What the driver saw it use; a device that is missing could not be attributed.
    pub memory: Vec<ReportedMemory>,
}

impl SlotReport {
    /// How its first process ended by itself, as far as the report says: apart, or by the exit code of a job.
    #[must_use]
    pub fn exit_status(&self) -> Option<ExitStatus> {
        self.exit.or(match self.state {
            ReportedState::Exited { code } | ReportedState::Gone { why: SlotEnd::Exited(code), .. } => {
                Some(ExitStatus::Code(code))
            }
            _ => None,
        })
    }
}

/// A claim as the agent recorded it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportedClaim {
    /// On which device.
    pub uuid: DeviceUuid,
    /// How much.
    pub bytes: Bytes,
}

/// What the driver saw a slot use on one device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportedMemory {
    /// On which device.
    pub uuid: DeviceUuid,
    /// Now.
    pub used: Bytes,
    /// At most, so far.
    pub peak: Bytes,
}

/// Where a slot is, as its agent sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReportedState {
    /// Its process was started.
    Starting,
    /// It answers.
    Ready,
    /// It is being ended.
    Stopping,
    /// It came to a bad end, or never came up.
    Failed(FailureReason),
    /// A job's process ended by itself.
    Exited {
        /// Its exit code.
        code: i32,
    },
    /// It was never started: too little memory was free. Proof that it holds none.
    Refused,
    /// It is gone.
    Gone {
        /// How it came to its end.
        why: SlotEnd,
        /// What the agent saw.
        evidence: Evidence,
    },
    /// The agent cannot tell whether it exists.
    Unknown {
        /// Why not.
        why: ReasonText,
    },
}

impl ReportedState {
    /// It was stopped as asked, and everything that can be seen was seen.
    pub const STOPPED: Self = Self::Gone { why: SlotEnd::Asked, evidence: Evidence::COMPLETE };

    /// Whether its process is said to be gone, or was never started. That need not be proof.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        matches!(self, Self::Gone { .. } | Self::Refused)
    }

    /// Whether this proves that the slot holds no memory.
    #[must_use]
    pub const fn is_proof(&self) -> bool {
        match self {
            Self::Gone { evidence, .. } => evidence.is_proof(),
            Self::Refused => true,
            _ => false,
        }
    }
}

/// How a slot that is gone came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SlotEnd {
    /// The server asked for it.
    Asked,
    /// It came to a bad end.
    Failed(FailureReason),
    /// A job's process ended by itself with this code.
    Exited(i32),
    /// Nobody knows: the agent has no record of it, no process carries its mark, and the driver lists none.
    NoTrace,
}

/// What the agent saw when it says that a slot is gone. Both must be true to be proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// No process of its tree is left.
    pub tree_gone: bool,
    /// The driver lists none of its pids.
    pub driver_clear: bool,
}

impl Evidence {
    /// Everything that can be seen was seen.
    pub const COMPLETE: Self = Self { tree_gone: true, driver_clear: true };

    /// Whether this proves that the memory is back.
    #[must_use]
    pub const fn is_proof(self) -> bool {
        self.tree_gone && self.driver_clear
    }
}

/// Why a slot came to a bad end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum FailureReason {
    /// The program could not be run.
    BadBinary,
    /// One of its arguments is not the model's or the job's to state.
    ForbiddenArgument,
    /// Out of GPU or host memory.
    OutOfMemory,
    /// The program does not know one of its arguments.
    BadArgument,
    /// Its port was taken.
    PortTaken,
    /// Its model is not on the machine.
    ModelMissing,
    /// It never became healthy.
    NeverReady,
    /// It ended by itself.
    Crashed,
    /// Its start took longer than allowed.
    StartDeadline,
    /// Its device is gone.
    DeviceLost,
    /// It could not be ended.
    Unkillable,
}

impl FailureReason {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::BadBinary,
        Self::BadArgument,
        Self::ForbiddenArgument,
        Self::OutOfMemory,
        Self::PortTaken,
        Self::ModelMissing,
        Self::NeverReady,
        Self::Crashed,
        Self::StartDeadline,
        Self::DeviceLost,
        Self::Unkillable,
    ];

    /// The stable code.
    #[must_use]
    pub fn code(self) -> &'static str {
        self.into()
    }

    /// Whether the program itself cannot have run: then a job may be tried again.
    #[must_use]
    pub const fn never_ran(self) -> bool {
        matches!(self, Self::BadBinary | Self::ForbiddenArgument)
    }
}
