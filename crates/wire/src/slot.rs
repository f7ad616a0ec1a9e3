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
    /// Which.
    #[schema(value_type = schema::SlotId)]
    pub id: SlotId,
    /// Which start of it.
    #[schema(value_type = schema::Generation)]
    pub generation: Generation,
    /// What it serves; nothing for a slot that the server did not make.
    #[serde(default)]
    #[schema(value_type = Option<schema::ModelName>)]
    pub model: Option<ModelName>,
    /// Which version of the model.
    #[serde(default)]
    #[schema(value_type = schema::ModelRevision)]
    pub model_revision: ModelRevision,
    /// Where it runs.
    #[schema(value_type = schema::RunnerId)]
    pub runner_id: RunnerId,
    /// Where it is in its life.
    #[schema(value_type = schema::SlotState)]
    pub state: SlotState,
    /// Since when.
    pub since: Time,
    /// Its memory.
    pub gpu_allocation: GpuAllocation,
    /// Where it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Endpoint>)]
    pub endpoint: Option<Endpoint>,
    /// How many use it.
    pub active: u32,
    /// How many may.
    pub concurrency: u32,
    /// When it was placed.
    pub created: Time,
    /// Since when nobody uses it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_since: Option<Time>,
    /// Why it is being stopped, or failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// Its stop takes too long: its memory stays charged, and nobody new counts on it.
    #[serde(default)]
    pub stalled: bool,
}

/// A slot's memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GpuAllocation {
    /// Its claims in rank order.
    pub gpus: Vec<SlotGpu>,
    /// How many GPUs.
    pub gpu_count: u16,
    /// Over how many GPUs each layer is split.
    pub tensor_parallel_size: u16,
    /// All its claims together.
    #[schema(value_type = schema::Bytes)]
    pub total_bytes: Bytes,
}

impl GpuAllocation {
    /// The claims of a slot, counted and added up.
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
    /// Which device.
    #[schema(value_type = schema::DeviceUuid)]
    pub uuid: DeviceUuid,
    /// Its index on the slot's runner.
    #[serde(default)]
    pub index: Option<u16>,
    /// How much is charged.
    #[schema(value_type = schema::Bytes)]
    pub bytes: Bytes,
    /// What the claim is.
    pub phase: ClaimPhase,
    /// What the driver saw the slot use.
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
    /// At most so many; all unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(value_type = Option<u32>, minimum = 1, maximum = 4294967295_u32)]
    pub limit: Option<std::num::NonZeroU32>,
    /// Only those after this one, as the `Link` header says.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(value_type = Option<schema::SlotId>, inline)]
    pub after: Option<SlotId>,
}

/// Why a slot's memory is freed without proof.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ForceReleaseRequest {
    /// Goes on record.
    #[schema(value_type = schema::ReasonText)]
    pub reason: ReasonText,
}
