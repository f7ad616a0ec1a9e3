//! What an agent reports of its machine. Reports are untrusted: a value of these types is well formed, and need not be
//! true.

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
    /// The runner that reports.
    pub runner: RunnerId,
    /// The start of the agent that reports; absent when it registers.
    pub incarnation: Option<Incarnation>,
    /// The cluster the agent belongs to, once it knows one.
    pub cluster: Option<ClusterId>,
    /// The newest answer of the server that the agent obeyed, once it obeyed one.
    pub obeyed: Option<ObeyedAnswer>,
    /// Whether the agent's token grants the machine that the report names. If so, the runner may share the machine with
    /// the runner that owns it.
    pub shares_machine: bool,
    /// The number of the report within this start of the agent.
    pub sequence: Sequence,
    /// The id of the machine.
    pub machine: MachineId,
    /// The id of the machine's present boot.
    pub boot: BootId,
    /// The agent's version.
    pub version: ReasonText,
    /// The address at which its slots answer.
    pub address: ReasonText,
    /// Its pool.
    pub pool: PoolName,
    /// Its labels.
    pub labels: BTreeMap<LabelKey, LabelValue>,
    /// The runtimes that it can start, and what each of them is for.
    pub runtimes: BTreeMap<RuntimeName, RuntimeKind>,
    /// Arguments that its own configuration allows, by runtime, beside those that need no permission.
    pub allowed: BTreeMap<RuntimeName, BTreeSet<Arg>>,
    /// What its agent learned about the engines behind its runtimes, also about those that it does not offer.
    pub engines: BTreeMap<RuntimeName, EngineReport>,
    /// CPU and RAM that it may use.
    pub host: HostReport,
    /// Its GPUs, with one entry for each replica.
    pub gpus: Vec<GpuReport>,
    /// The slots that the agent knows of.
    pub slots: Vec<SlotReport>,
}

/// What an agent learned about one engine by running it with `--version` and `--help`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct EngineReport {
    /// The engine's version, once it is known.
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
    /// The runtime serves until it is told to end; if it ends by itself, that is a failure.
    Server,
    /// The runtime ends by itself, and its exit code says how.
    Job,
}

/// CPU and RAM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct HostReport {
    /// Thousandths of a core.
    pub cpu: Millicores,
    /// RAM: the cgroup's limit where there is one.
    pub ram: Bytes,
}

/// One advertised GPU: a physical device, a replica of one, or a MIG instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuReport {
    /// The UUID of the physical device.
    pub uuid: DeviceUuid,
    /// Its index on the machine.
    pub index: u16,
    /// The driver's name for the GPU.
    pub name: GpuName,
    /// The whole memory of the GPU.
    pub memory_total: Bytes,
    /// The memory in use now, by all processes.
    pub memory_used: Bytes,
    /// The memory that the driver keeps for itself.
    pub memory_reserved: Bytes,
    /// The GPU that this is a MIG instance of.
    pub parent: Option<DeviceUuid>,
    /// The health of the GPU, according to the driver.
    pub health: GpuHealth,
}

/// The health of a GPU, according to its driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GpuHealth {
    /// The GPU works.
    #[default]
    Ok,
    /// The GPU fell off the bus.
    Lost,
    /// The driver did not answer in time: the numbers are old.
    Stale,
    /// The memory of the GPU could not be won back.
    Failed,
}

/// One slot, as its agent sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotReport {
    /// The id of the slot.
    pub id: SlotId,
    /// The start of the slot that is meant.
    pub generation: Generation,
    /// The model that the slot serves.
    pub model: Option<ModelName>,
    /// The state of the slot.
    pub state: ReportedState,
    /// How the slot's first process ended, if it ended by itself.
    pub exit: Option<ExitStatus>,
    /// The address at which the slot answers, once it is ready.
    pub endpoint: Option<Endpoint>,
    /// The claims of the slot, as the agent recorded them.
    pub claims: Vec<ReportedClaim>,
    /// The memory that the driver saw the slot use. Use on a device that is missing here could not be attributed.
    pub memory: Vec<ReportedMemory>,
}

impl SlotReport {
    /// Returns how the slot's first process ended by itself, as far as the report says: by `exit`, or by the exit code
    /// of a job.
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
    /// The UUID of the device.
    pub uuid: DeviceUuid,
    /// The amount of memory.
    pub bytes: Bytes,
}

/// What the driver saw a slot use on one device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportedMemory {
    /// The UUID of the device.
    pub uuid: DeviceUuid,
    /// The memory in use now.
    pub used: Bytes,
    /// The largest use so far.
    pub peak: Bytes,
}

/// The state of a slot, as its agent sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReportedState {
    /// The slot's process was started.
    Starting,
    /// The slot answers.
    Ready,
    /// The slot is being ended.
    Stopping,
    /// The slot failed, or did not become ready.
    Failed(FailureReason),
    /// A job's process ended by itself.
    Exited {
        /// Its exit code.
        code: i32,
    },
    /// The agent did not start the slot, because too little memory was free. That is proof that the slot holds none.
    Refused,
    /// The slot is gone.
    Gone {
        /// How the slot came to its end.
        why: SlotEnd,
        /// What the agent saw of the end.
        evidence: Evidence,
    },
    /// The agent cannot tell whether the slot exists.
    Unknown {
        /// Why the agent cannot tell.
        why: ReasonText,
    },
}

impl ReportedState {
    /// The slot was stopped as asked, with complete evidence.
    pub const STOPPED: Self = Self::Gone { why: SlotEnd::Asked, evidence: Evidence::COMPLETE };

    /// Returns whether the agent says that the process is gone or was not started. That need not be proof.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        matches!(self, Self::Gone { .. } | Self::Refused)
    }

    /// Returns whether this proves that the slot holds no memory.
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
    /// The server asked for the end.
    Asked,
    /// The slot failed.
    Failed(FailureReason),
    /// A job's process ended by itself with this code.
    Exited(i32),
    /// The end was not observed: the agent has no record of the slot, no process carries its mark, and the driver lists
    /// none.
    NoTrace,
}

/// What an agent saw of a slot that is gone. It is proof if both fields are true.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// No process of the slot's tree is left.
    pub tree_gone: bool,
    /// The driver lists none of the slot's pids.
    pub driver_clear: bool,
}

impl Evidence {
    /// The evidence that is proof.
    pub const COMPLETE: Self = Self { tree_gone: true, driver_clear: true };

    /// Returns whether this proves that the memory is back.
    #[must_use]
    pub const fn is_proof(self) -> bool {
        self.tree_gone && self.driver_clear
    }
}

/// Why a slot failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum FailureReason {
    /// The program could not be run.
    BadBinary,
    /// The model or the job stated an argument that it may not state.
    ForbiddenArgument,
    /// The program ran out of GPU or host memory.
    OutOfMemory,
    /// The program does not know one of its arguments.
    BadArgument,
    /// The slot's port was in use.
    PortTaken,
    /// The model's files are not on the machine.
    ModelMissing,
    /// The slot did not become healthy in time.
    NeverReady,
    /// The program ended by itself.
    Crashed,
    /// The start took longer than allowed.
    StartDeadline,
    /// The slot's device is gone.
    DeviceLost,
    /// The slot's processes could not be ended.
    Unkillable,
}

impl FailureReason {
    /// All reasons.
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

    /// Returns the stable code.
    #[must_use]
    pub fn code(self) -> &'static str {
        self.into()
    }

    /// Returns whether the program itself cannot have run. A job may then be tried again.
    #[must_use]
    pub const fn never_ran(self) -> bool {
        matches!(self, Self::BadBinary | Self::ForbiddenArgument)
    }
}
