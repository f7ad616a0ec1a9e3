//! What waits, and what the fleet lacks.

use berth_domain::{Attempt, Bytes, GpuCount, ModelName, Priority, TenantName, WorkloadId, WorkloadKind};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Reason, Time, is_false, schema};

/// One workload that waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct QueueEntry {
    /// Where it stands, from 1.
    #[schema(minimum = 1)]
    pub position: u64,
    /// Which.
    #[schema(value_type = schema::WorkloadId)]
    pub workload_id: WorkloadId,
    /// Its model.
    #[schema(value_type = schema::ModelName)]
    pub model: ModelName,
    /// Its kind.
    #[schema(value_type = schema::WorkloadKind)]
    pub kind: WorkloadKind,
    /// Higher goes first.
    #[schema(value_type = schema::Priority)]
    pub priority: Priority,
    /// Who it belongs to.
    #[serde(default)]
    #[schema(value_type = Option<schema::TenantName>)]
    pub tenant: Option<TenantName>,
    /// Which try this will be.
    #[serde(default)]
    #[schema(value_type = schema::Attempt)]
    pub attempt: Attempt,
    /// Why it waits.
    pub reason: Reason,
    /// When it was submitted.
    pub created: Time,
    /// How long ago that is.
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
    /// Why it waits.
    pub reason: Reason,
    /// How many wait.
    pub waiting: u64,
    /// When the oldest was submitted.
    pub oldest: Time,
    /// How long ago that is.
    pub oldest_age_ms: u64,
    /// Any of these would do for one slot.
    pub needs: Vec<DemandNeed>,
}

/// What one slot needs of one runner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DemandNeed {
    /// How many GPUs.
    #[schema(value_type = schema::GpuCount)]
    pub gpu_count: GpuCount,
    /// Bytes on each in rank order; empty where it is a share of the device, or unknown. Of whole GPUs it is the least
    /// that each must have; empty if any will do.
    #[serde(default)]
    #[schema(value_type = Vec<schema::Bytes>)]
    pub gpu_bytes: Vec<Bytes>,
    /// Whether whole GPUs are needed, with nobody else on them.
    #[serde(default, skip_serializing_if = "is_false")]
    pub whole: bool,
}
