//! Reports of agents about their machines. They are read leniently: unknown fields are ignored, and missing fields have
//! a safe default.

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
    /// The start of the agent, as the server numbered it; absent to register.
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
    /// The id of the machine.
    #[schema(value_type = schema::MachineId)]
    pub machine_id: MachineId,
    /// The id of the machine's present boot.
    #[schema(value_type = schema::BootId)]
    pub boot_id: BootId,
    /// The number of the report within this start of the agent.
    #[serde(default)]
    #[schema(value_type = schema::Sequence)]
    pub sequence: Sequence,
    /// The agent's version.
    #[serde(default)]
    #[schema(max_length = 1024)]
    pub version: String,
    /// The address at which its slots answer, a host name or an IP address. Default: the address that its token grants,
    /// else the address from which the agent connects.
    #[serde(default)]
    #[schema(max_length = 1024, example = "10.0.0.7")]
    pub address: String,
    /// Its pool. Default: the one that its token grants, else `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::PoolName>)]
    pub pool: Option<PoolName>,
    /// Its labels.
    #[serde(default)]
    #[schema(value_type = BTreeMap<String, schema::LabelValue>)]
    pub labels: BTreeMap<LabelKey, LabelValue>,
    /// The runtimes that the runner can start.
    #[serde(default)]
    #[schema(value_type = Vec<schema::RuntimeName>)]
    pub runtimes: Vec<RuntimeName>,
    /// What each runtime is for. A runtime that is not listed takes leases and jobs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = BTreeMap<String, RuntimeKind>)]
    pub runtime_kinds: BTreeMap<RuntimeName, RuntimeKind>,
    /// Arguments that the agent's configuration allows, by runtime, beside those that need no permission.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = BTreeMap<String, Vec<schema::Arg>>)]
    pub allowed_args: BTreeMap<RuntimeName, BTreeSet<Arg>>,
    /// What the agent learned about the engines behind its runtimes, also about those that it does not offer.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = BTreeMap<String, EngineReport>)]
    pub engines: BTreeMap<RuntimeName, EngineReport>,
    /// CPU and RAM that it may use.
    #[serde(default)]
    pub host: Host,
    /// Its GPUs, with one entry for each replica.
    #[serde(default)]
    pub gpus: Vec<ReportedGpu>,
    /// How its GPUs are connected, as far as the driver says.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<GpuLink>,
    /// The slots that the agent knows of.
    #[serde(default)]
    pub slots: Vec<ReportedSlot>,
}

/// What an agent learned about one engine by running it with `--version` and `--help`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EngineReport {
    /// The engine's version, once it is known.
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
    /// The runtime serves until it is told to end.
    Server,
    /// The runtime ends by itself, and its exit code says how.
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
    /// RAM: the cgroup's limit where there is one.
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
    /// The driver's name for the GPU.
    #[schema(value_type = schema::GpuName)]
    pub name: GpuName,
    /// The whole memory of the GPU.
    #[schema(value_type = schema::Bytes)]
    pub memory_total_bytes: Bytes,
    /// The memory in use now, by all processes.
    #[serde(default)]
    #[schema(value_type = schema::Bytes)]
    pub memory_used_bytes: Bytes,
    /// The memory that the driver keeps for itself.
    #[serde(default)]
    #[schema(value_type = schema::Bytes)]
    pub memory_reserved_bytes: Bytes,
    /// How busy the GPU is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = 37)]
    pub utilization_percent: Option<u32>,
    /// The GPU that it is a MIG instance of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::AdvertisedUuid>)]
    pub parent_uuid: Option<String>,
    /// The health of the GPU, according to the driver.
    #[serde(default)]
    pub health: GpuHealth,
    /// Further readings of the driver.
    #[serde(default)]
    pub telemetry: GpuTelemetry,
}

/// The health of a GPU, according to its driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
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
    /// A state that this version does not know. Nothing is placed on such a GPU.
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

/// One slot, as its agent sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReportedSlot {
    /// The id of the slot.
    #[schema(value_type = schema::SlotId)]
    pub id: SlotId,
    /// The start of the slot that is meant.
    #[serde(default)]
    #[schema(value_type = schema::Generation)]
    pub generation: Generation,
    /// The model that the slot serves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::ModelName>)]
    pub model: Option<ModelName>,
    /// The state of the slot.
    pub state: ReportedSlotState,
    /// Where it answers, once ready. Of this only the port counts: the host is the runner's address, and the scheme is
    /// `http`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Endpoint>)]
    pub endpoint: Option<Endpoint>,
    /// The pid of the slot's first process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// The claims of the slot, as the agent recorded them.
    #[serde(default)]
    pub claims: Vec<ReportedClaim>,
    /// The memory that the driver saw the slot use. Use on a device that is missing here could not be attributed.
    #[serde(default)]
    pub memory: Vec<ReportedMemory>,
    /// The exit code of the process. The state `exited` needs it, and `gone` has it where a job ended by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// How the slot's first process ended, if it ended by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<ExitStatus>,
    /// Why it failed, as a code; an unknown one counts as `crashed`. For one that is gone also `asked` (the default) and
    /// `no_trace`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "out_of_memory")]
    pub reason: Option<String>,
    /// Why the slot failed, or why the agent cannot tell, as a text. The server shows it and does not interpret it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The last lines that the slot wrote, once it failed or ended. The server shows them and does not write them to
    /// its disk.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub last_lines: Vec<String>,
    /// What the agent saw of the end, if the slot is gone. Without it there is no proof.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<ReportedEvidence>,
}

/// The state of a slot, as its agent sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReportedSlotState {
    /// The slot's process was started.
    Starting,
    /// The slot answers.
    Ready,
    /// The slot is being ended.
    Stopping,
    /// The slot failed, or did not become ready.
    Failed,
    /// A job's process ended by itself.
    Exited,
    /// The agent did not start the slot, because too little memory was free.
    Refused,
    /// The slot's processes are gone.
    Gone,
    /// The agent cannot tell whether the slot exists; `detail` says why. A state that this version does not know counts
    /// as this one.
    #[serde(other)]
    Unknown,
}

/// A claim as the agent recorded it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReportedClaim {
    /// The UUID of the device.
    #[schema(value_type = schema::AdvertisedUuid)]
    pub uuid: String,
    /// The amount of memory.
    #[schema(value_type = schema::Bytes)]
    pub bytes: Bytes,
}

/// What the driver saw a slot use on one device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReportedMemory {
    /// The UUID of the device.
    #[schema(value_type = schema::AdvertisedUuid)]
    pub uuid: String,
    /// The memory in use now.
    #[schema(value_type = schema::Bytes)]
    pub used_bytes: Bytes,
    /// The largest use so far.
    #[serde(default)]
    #[schema(value_type = schema::Bytes)]
    pub peak_bytes: Bytes,
}

/// What an agent saw of a slot that is gone. It is proof if both fields are true.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct ReportedEvidence {
    /// No process of the slot's tree is left.
    pub tree_gone: bool,
    /// The driver lists none of the slot's pids.
    pub driver_clear: bool,
}

/// The answer to a report that the server took in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReportAnswer {
    /// The cluster. An agent that belongs to another one stops nothing.
    #[schema(value_type = schema::ClusterId)]
    pub cluster_id: ClusterId,
    /// The start of the server.
    #[schema(value_type = schema::Epoch)]
    pub epoch: Epoch,
    /// The revision at which the server took the report in. Desired states of later revisions take it into account.
    #[schema(value_type = schema::Revision)]
    pub revision: Revision,
    /// The protocol that the server speaks: see [`crate::PROTOCOL`].
    #[serde(default = "crate::oldest_protocol")]
    pub protocol: u32,
    /// The agent's incarnation, which it names from now on.
    #[schema(value_type = schema::Incarnation)]
    pub incarnation: Incarnation,
}
