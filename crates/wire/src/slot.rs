//! Slots.

use berth_domain::{
    Bytes, DeviceUuid, Endpoint, Generation, ModelName, ModelRevision, ReasonText, RunnerId, SlotId, SlotState,
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::{ClaimPhase, Reason, Time, schema};

/// One instance of a model, or of a job, on one runner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Slot {
    /// The id of the slot.
    #[schema(value_type = schema::SlotId)]
    pub id: SlotId,
    /// The present start of the slot.
    #[schema(value_type = schema::Generation)]
    pub generation: Generation,
    /// The model that the slot serves; absent for a slot that the server did not make.
    #[serde(default)]
    #[schema(value_type = Option<schema::ModelName>)]
    pub model: Option<ModelName>,
    /// The revision of the model.
    #[serde(default)]
    #[schema(value_type = schema::ModelRevision)]
    pub model_revision: ModelRevision,
    /// The runner that has the slot.
    #[schema(value_type = schema::RunnerId)]
    pub runner_id: RunnerId,
    /// The state of the slot.
    #[schema(value_type = schema::SlotState)]
    pub state: SlotState,
    /// When the slot entered that state.
    pub since: Time,
    /// The memory of the slot.
    pub gpu_allocation: GpuAllocation,
    /// The address at which the slot answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Endpoint>)]
    pub endpoint: Option<Endpoint>,
    /// The number of leases that use the slot.
    pub active: u32,
    /// The number of leases that may use the slot at once.
    pub concurrency: u32,
    /// When the slot was placed.
    pub created: Time,
    /// When the slot became idle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_since: Option<Time>,
    /// Why the slot is being stopped, or failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// Whether the stop takes too long: the memory stays charged, and no new promise counts on it.
    #[serde(default)]
    pub stalled: bool,
}

/// A slot's memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GpuAllocation {
    /// Its claims in rank order.
    pub gpus: Vec<SlotGpu>,
    /// The number of GPUs.
    pub gpu_count: u16,
    /// The number of GPUs that each layer is split over.
    pub tensor_parallel_size: u16,
    /// The sum of the claims.
    #[schema(value_type = schema::Bytes)]
    pub total_bytes: Bytes,
}

impl GpuAllocation {
    /// Makes an allocation of a slot's claims, with their count and sum.
    #[must_use]
    pub fn new(gpus: Vec<SlotGpu>) -> Self {
        let count = u16::try_from(gpus.len()).unwrap_or(u16::MAX);
        let total_bytes = gpus.iter().fold(Bytes::ZERO, |sum, gpu| sum.saturating_add(gpu.bytes));
        Self { gpus, gpu_count: count, tensor_parallel_size: count.max(1), total_bytes }
    }
}

/// A slot's claim on one device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SlotGpu {
    /// The UUID of the device.
    #[schema(value_type = schema::DeviceUuid)]
    pub uuid: DeviceUuid,
    /// The index of the device on the slot's runner.
    #[serde(default)]
    pub index: Option<u16>,
    /// The amount that is charged.
    #[schema(value_type = schema::Bytes)]
    pub bytes: Bytes,
    /// The phase of the claim.
    pub phase: ClaimPhase,
    /// The memory that the driver saw the slot use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Bytes>)]
    pub observed_bytes: Option<Bytes>,
}

/// Which slots to list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct SlotQuery {
    /// Only those of this model.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(value_type = Option<schema::ModelName>, inline)]
    pub model: Option<ModelName>,
    /// Only those on this runner.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(value_type = Option<schema::RunnerId>, inline)]
    pub runner_id: Option<RunnerId>,
    /// Only those in this state.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(value_type = Option<schema::SlotState>, inline)]
    pub state: Option<SlotState>,
    /// The largest number of slots. Default: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(value_type = Option<u32>, minimum = 1, maximum = 4294967295_u32)]
    pub limit: Option<std::num::NonZeroU32>,
    /// Only those after this one, as the `Link` header says.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(value_type = Option<schema::SlotId>, inline)]
    pub after: Option<SlotId>,
}

/// The request to free a slot's memory without proof.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ForceReleaseRequest {
    /// The reason, which goes on record.
    #[schema(value_type = schema::ReasonText)]
    pub reason: ReasonText,
}
