//! The last report of a runner, with the server's ledgers.

use berth_domain::{BootId, Bytes, DeviceUuid, GpuName, Incarnation, MachineId, RunnerId, Sequence};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::report::{GpuHealth, GpuLink, GpuTelemetry, Host, ReportedSlot};
use crate::{DeviceState, MemoryBalance, RunnerState, Time, schema};

/// The last report of a runner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunnerStatus {
    /// The id of the runner.
    #[schema(value_type = schema::RunnerId)]
    pub id: RunnerId,
    /// Its machine.
    #[schema(value_type = schema::MachineId)]
    pub machine_id: MachineId,
    /// The machine's boot.
    #[schema(value_type = schema::BootId)]
    pub boot_id: BootId,
    /// The present start of its agent.
    #[schema(value_type = schema::Incarnation)]
    pub incarnation: Incarnation,
    /// The number of the report within that start.
    #[schema(value_type = schema::Sequence)]
    pub sequence: Sequence,
    /// When the report arrived.
    pub received: Time,
    /// The age of the report.
    #[serde(default)]
    pub age_ms: u64,
    /// Whether the runner reports.
    pub state: RunnerState,
    /// The agent's version.
    #[serde(default)]
    pub version: String,
    /// CPU and RAM that it may use.
    #[serde(default)]
    pub host: Host,
    /// Its physical GPUs by index.
    pub gpus: Vec<StatusGpu>,
    /// How the GPUs are connected, as far as the driver says.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<GpuLink>,
    /// The slots that it knows of.
    pub slots: Vec<ReportedSlot>,
}

/// One physical GPU as it was reported, and its ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StatusGpu {
    /// The UUID of the device.
    #[schema(value_type = schema::DeviceUuid)]
    pub uuid: DeviceUuid,
    /// Its index on the machine.
    pub index: u16,
    /// The driver's name for the GPU.
    #[schema(value_type = schema::GpuName)]
    pub name: GpuName,
    /// How often this runner advertises it.
    #[serde(default)]
    pub replicas: u16,
    /// The whole memory of the GPU.
    #[schema(value_type = schema::Bytes)]
    pub memory_total_bytes: Bytes,
    /// The memory in use, by all processes.
    #[schema(value_type = schema::Bytes)]
    pub memory_used_bytes: Bytes,
    /// The memory that the driver keeps for itself.
    #[schema(value_type = schema::Bytes)]
    pub memory_reserved_bytes: Bytes,
    /// How busy the GPU was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub utilization_percent: Option<u32>,
    /// The GPU that it is a MIG instance of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::DeviceUuid>)]
    pub parent_uuid: Option<DeviceUuid>,
    /// The health of the GPU, according to the driver.
    pub health: GpuHealth,
    /// Further readings of the driver.
    #[serde(default)]
    pub telemetry: GpuTelemetry,
    /// Its ledger; absent for a device that belongs to another machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ledger: Option<MemoryBalance>,
    /// Whether it takes anything new, and if not, why.
    pub state: DeviceState,
}
