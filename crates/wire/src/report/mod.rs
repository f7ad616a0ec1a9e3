//! What agents say of their machines. It is read leniently: what is unknown is ignored, what is missing has a safe
//! default.

mod taken;
mod telemetry;
mod told;

use std::collections::{BTreeMap, BTreeSet};

use berth_domain::{
    Arg, BootId, Bytes, ClusterId, Endpoint, Epoch, Generation, GpuName, HostReport, Incarnation, LabelKey, LabelValue,
    MachineId, Millicores, ModelName, PoolName, Revision, RuntimeName, Sequence, SlotId,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{ExitStatus, schema};

pub use telemetry::{Closeness, ComputeMode, GpuLink, GpuTelemetry};

/// One report of one agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReportRequest {
    /// The protocol that the agent speaks: see [`crate::PROTOCOL`]. An agent that speaks another one is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<u32>,
    /// Which start of the agent, as the server numbered it; absent to register.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Incarnation>)]
    pub incarnation: Option<Incarnation>,
    /// The cluster that the agent belongs to, once it knows one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::ClusterId>)]
    pub cluster_id: Option<ClusterId>,
    /// The `code` of the newest `desired` answer that the agent obeyed, as the server gave it.
    ///
    /// It tells a server that goes on from an older copy of its data that its history went back. A code that no server
    /// of this cluster made closes the runner to new work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 256)]
    pub obeyed: Option<String>,
    /// The machine.
    #[schema(value_type = schema::MachineId)]
    pub machine_id: MachineId,
    /// The machine's boot.
    #[schema(value_type = schema::BootId)]
    pub boot_id: BootId,
    /// The order of the agent's reports.
    #[serde(default)]
    #[schema(value_type = schema::Sequence)]
    pub sequence: Sequence,
    /// The agent's version.
    #[serde(default)]
    #[schema(max_length = 1024)]
    pub version: String,
    /// Where its slots answer, a host name or an IP address; left out or empty: where its token says, else the address
    /// from which it connects.
    #[serde(default)]
    #[schema(max_length = 1024, example = "10.0.0.7")]
    pub address: String,
    /// Its pool; left out: the one that its token grants, else `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::PoolName>)]
    pub pool: Option<PoolName>,
    /// Its labels.
    #[serde(default)]
    #[schema(value_type = BTreeMap<String, schema::LabelValue>)]
    pub labels: BTreeMap<LabelKey, LabelValue>,
    /// What it can start.
    #[serde(default)]
    #[schema(value_type = Vec<schema::RuntimeName>)]
    pub runtimes: Vec<RuntimeName>,
    /// What each runtime is for; one that is not listed takes leases and jobs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = BTreeMap<String, RuntimeKind>)]
    pub runtime_kinds: BTreeMap<RuntimeName, RuntimeKind>,
    /// Arguments that the agent's configuration allows, by runtime, beside those that need nobody's leave.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = BTreeMap<String, Vec<schema::Arg>>)]
    pub allowed_args: BTreeMap<RuntimeName, BTreeSet<Arg>>,
    /// What the agent found out about the engines behind its runtimes, also of those that it does not offer.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = BTreeMap<String, EngineReport>)]
    pub engines: BTreeMap<RuntimeName, EngineReport>,
    /// CPU and RAM that it may use.
    #[serde(default)]
    pub host: Host,
    /// Its GPUs, replicas and all.
    #[serde(default)]
    pub gpus: Vec<ReportedGpu>,
    /// How its GPUs are joined, as far as the driver says.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<GpuLink>,
    /// The slots that it knows of.
    #[serde(default)]
    pub slots: Vec<ReportedSlot>,
}

/// What an agent found out about one engine by asking it for its version and its options.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EngineReport {
    /// The engine's version, once it was told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Options and variables that the runtime's template needs and the engine does not have. A runtime with any of them is
    /// not offered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    /// Why the engine could not be asked, or that it is being asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl From<&berth_domain::EngineReport> for EngineReport {
    fn from(found: &berth_domain::EngineReport) -> Self {
        Self {
            version: found.version.as_ref().map(ToString::to_string),
            missing: found.missing.iter().map(ToString::to_string).collect(),
            note: found.note.as_ref().map(ToString::to_string),
        }
    }
}

/// What a runtime starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RuntimeKind {
    /// It serves until it is told to end.
    Server,
    /// It ends by itself, and its exit code says how.
    Job,
    /// Servers and jobs, as each slot asks; also a word that this version does not know.
    #[default]
    #[serde(other)]
    Both,
}

impl From<RuntimeKind> for berth_domain::RuntimeKind {
    fn from(kind: RuntimeKind) -> Self {
        match kind {
            RuntimeKind::Both => Self::Both,
            RuntimeKind::Server => Self::Server,
            RuntimeKind::Job => Self::Job,
        }
    }
}

impl From<berth_domain::RuntimeKind> for RuntimeKind {
    fn from(kind: berth_domain::RuntimeKind) -> Self {
        match kind {
            berth_domain::RuntimeKind::Both => Self::Both,
            berth_domain::RuntimeKind::Server => Self::Server,
            berth_domain::RuntimeKind::Job => Self::Job,
        }
    }
}

/// CPU and RAM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Host {
    /// Thousandths of a core.
    #[schema(value_type = schema::Millicores)]
    pub cpu_millicores: Millicores,
    /// The cgroup's limit where there is one.
    #[schema(value_type = schema::Bytes)]
    pub ram_bytes: Bytes,
}

impl From<HostReport> for Host {
    fn from(host: HostReport) -> Self {
        Self { cpu_millicores: host.cpu, ram_bytes: host.ram }
    }
}

/// One advertised GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReportedGpu {
    /// Its UUID; a replica suffix is cut off.
    #[schema(value_type = schema::AdvertisedUuid)]
    pub uuid: String,
    /// Its index on the machine.
    #[serde(default)]
    pub index: u16,
    /// What the driver calls it.
    #[schema(value_type = schema::GpuName)]
    pub name: GpuName,
    /// All its memory.
    #[schema(value_type = schema::Bytes)]
    pub memory_total_bytes: Bytes,
    /// What is in use now, by whomever.
    #[serde(default)]
    #[schema(value_type = schema::Bytes)]
    pub memory_used_bytes: Bytes,
    /// What the driver keeps for itself.
    #[serde(default)]
    #[schema(value_type = schema::Bytes)]
    pub memory_reserved_bytes: Bytes,
    /// How busy it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = 37)]
    pub utilization_percent: Option<u32>,
    /// The GPU that it is a MIG instance of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::AdvertisedUuid>)]
    pub parent_uuid: Option<String>,
    /// What the driver says of it.
    #[serde(default)]
    pub health: GpuHealth,
    /// How it is doing.
    #[serde(default)]
    pub telemetry: GpuTelemetry,
}

/// What the driver says of a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
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
    /// A word that this version does not know. Nothing is placed on such a GPU.
    #[serde(other)]
    Unknown,
}

impl From<GpuHealth> for berth_domain::GpuHealth {
    fn from(health: GpuHealth) -> Self {
        match health {
            GpuHealth::Ok => Self::Ok,
            GpuHealth::Lost => Self::Lost,
            GpuHealth::Stale | GpuHealth::Unknown => Self::Stale,
            GpuHealth::Failed => Self::Failed,
        }
    }
}

impl From<berth_domain::GpuHealth> for GpuHealth {
    fn from(health: berth_domain::GpuHealth) -> Self {
        match health {
            berth_domain::GpuHealth::Ok => Self::Ok,
            berth_domain::GpuHealth::Lost => Self::Lost,
            berth_domain::GpuHealth::Stale => Self::Stale,
            berth_domain::GpuHealth::Failed => Self::Failed,
        }
    }
}

/// What the agent knows of one slot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReportedSlot {
    /// Which slot.
    #[schema(value_type = schema::SlotId)]
    pub id: SlotId,
    /// Which start of it.
    #[serde(default)]
    #[schema(value_type = schema::Generation)]
    pub generation: Generation,
    /// What it serves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::ModelName>)]
    pub model: Option<ModelName>,
    /// Where it is.
    pub state: ReportedSlotState,
    /// Where it answers, once ready. Of this only the port counts: the host is the runner's address, and the scheme is
    /// `http`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Endpoint>)]
    pub endpoint: Option<Endpoint>,
    /// Its first process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// What the agent believes belongs to it.
    #[serde(default)]
    pub claims: Vec<ReportedClaim>,
    /// What the driver saw it use; a device that is missing could not be attributed.
    #[serde(default)]
    pub memory: Vec<ReportedMemory>,
    /// How its process ended; `exited` needs it, and `gone` has it where a job ended by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// How its first process ended, if it ended by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<ExitStatus>,
    /// Why it failed, as a code; an unknown one counts as `crashed`. For one that is gone also `asked` (the default) and
    /// `no_trace`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "out_of_memory")]
    pub reason: Option<String>,
    /// Why it failed, or why nothing can be told of it, in the agent's words: shown, never interpreted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The last lines that it wrote, once it failed or ended: shown to people, never kept on the server's disk.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub last_lines: Vec<String>,
    /// What the agent saw, if it says that the slot is gone. Without it there is no proof.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<ReportedEvidence>,
}

/// Where a slot is, as its agent sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReportedSlotState {
    /// Its process was started.
    Starting,
    /// It answers.
    Ready,
    /// It is being ended.
    Stopping,
    /// It came to a bad end, or never came up.
    Failed,
    /// A job's process ended by itself.
    Exited,
    /// It was never started: too little memory was free.
    Refused,
    /// Its process is gone.
    Gone,
    /// The agent cannot tell whether it exists; `detail` says why. Also a word that this version does not know.
    #[serde(other)]
    Unknown,
}

/// A claim as the agent recorded it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReportedClaim {
    /// On which device.
    #[schema(value_type = schema::AdvertisedUuid)]
    pub uuid: String,
    /// How much.
    #[schema(value_type = schema::Bytes)]
    pub bytes: Bytes,
}

/// What the driver saw a slot use on one device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReportedMemory {
    /// On which device.
    #[schema(value_type = schema::AdvertisedUuid)]
    pub uuid: String,
    /// Now.
    #[schema(value_type = schema::Bytes)]
    pub used_bytes: Bytes,
    /// At most, so far.
    #[serde(default)]
    #[schema(value_type = schema::Bytes)]
    pub peak_bytes: Bytes,
}

/// What the agent saw of a slot that is gone. Both must be true to be proof.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct ReportedEvidence {
    /// No process of its tree is left.
    pub tree_gone: bool,
    /// The driver lists none of its pids.
    pub driver_clear: bool,
}

/// What the server says to a report that it took.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReportAnswer {
    /// The cluster. An agent that belongs to another one stops nothing.
    #[schema(value_type = schema::ClusterId)]
    pub cluster_id: ClusterId,
    /// The server's start.
    #[schema(value_type = schema::Epoch)]
    pub epoch: Epoch,
    /// The revision at which the report was taken in: what is desired from there on knows of it.
    #[schema(value_type = schema::Revision)]
    pub revision: Revision,
    /// The protocol that the server speaks: see [`crate::PROTOCOL`].
    #[serde(default = "crate::oldest_protocol")]
    pub protocol: u32,
    /// The agent's number, to be named from now on.
    #[schema(value_type = schema::Incarnation)]
    pub incarnation: Incarnation,
}
