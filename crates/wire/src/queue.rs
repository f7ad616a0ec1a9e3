//! Waiting workloads, and unmet demand.

use berth_domain::{Attempt, Bytes, GpuCount, ModelName, Priority, TenantName, WorkloadId, WorkloadKind};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Reason, Time, is_false, schema};

/// One workload that waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct QueueEntry {
    /// The position in the queue, from 1.
    #[schema(minimum = 1)]
    pub position: u64,
    /// The id of the workload.
    #[schema(value_type = schema::WorkloadId)]
    pub workload_id: WorkloadId,
    /// Its model.
    #[schema(value_type = schema::ModelName)]
    pub model: ModelName,
    /// Its kind.
    #[schema(value_type = schema::WorkloadKind)]
    pub kind: WorkloadKind,
    /// The priority. Work of a higher priority goes first.
    #[schema(value_type = schema::Priority)]
    pub priority: Priority,
    /// The tenant that the workload belongs to.
    #[serde(default)]
    #[schema(value_type = Option<schema::TenantName>)]
    pub tenant: Option<TenantName>,
    /// The number of the next attempt.
    #[serde(default)]
    #[schema(value_type = schema::Attempt)]
    pub attempt: Attempt,
    /// Why the workload waits.
    pub reason: Reason,
    /// When it was submitted.
    pub created: Time,
    /// How long ago that was.
    pub age_ms: u64,
}

/// Work of one model that waits for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Demand {
    /// The model.
    #[schema(value_type = schema::ModelName)]
    pub model: ModelName,
    /// The kind.
    #[schema(value_type = schema::WorkloadKind)]
    pub kind: WorkloadKind,
    /// Why the workload waits.
    pub reason: Reason,
    /// The number of workloads that wait.
    pub waiting: u64,
    /// When the oldest was submitted.
    pub oldest: Time,
    /// How long ago that was.
    pub oldest_age_ms: u64,
    /// Alternatives, each of which would be enough for one slot.
    pub needs: Vec<DemandNeed>,
}

/// What one slot needs of one runner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DemandNeed {
    /// The number of GPUs.
    #[schema(value_type = schema::GpuCount)]
    pub gpu_count: GpuCount,
    /// Bytes on each GPU in rank order; empty for a share of the device, or if unknown. For whole GPUs, the least
    /// memory that each must have; empty if any GPU will do.
    #[serde(default)]
    #[schema(value_type = Vec<schema::Bytes>)]
    pub gpu_bytes: Vec<Bytes>,
    /// Whether whole GPUs are needed, without other slots on them.
    #[serde(default, skip_serializing_if = "is_false")]
    pub whole: bool,
}
