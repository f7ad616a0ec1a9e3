//! What agents are asked to make true.

use berth_domain::{
    Arg, Bytes, ClusterId, DesiredAction, DeviceUuid, Epoch, Generation, Incarnation, Millicores, ModelName, Revision,
    RuntimeName, SlotId,
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::{AgentRequest, TimeSpan, schema};

/// What one runner should make true. A slot that is not mentioned is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Desired {
    /// The cluster. An agent that belongs to another one stops nothing.
    #[schema(value_type = schema::ClusterId)]
    pub cluster_id: ClusterId,
    /// The server's start.
    #[schema(value_type = schema::Epoch)]
    pub epoch: Epoch,
    /// The revision that this is of: `after` for the next poll.
    #[schema(value_type = schema::Revision)]
    pub revision: Revision,
    /// What to run and what to stop.
    #[serde(default)]
    pub slots: Vec<DesiredSlot>,
    /// What else the server would like; an agent leaves what it does not know.
    #[serde(default)]
    pub requests: Vec<AgentRequest>,
}

/// One slot that a runner should run or stop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DesiredSlot {
    /// Which slot.
    #[schema(value_type = schema::SlotId)]
    pub id: SlotId,
    /// Which start of it.
    #[schema(value_type = schema::Generation)]
    pub generation: Generation,
    /// What to do.
    #[schema(value_type = schema::DesiredAction)]
    pub action: DesiredAction,
    /// The model that it serves.
    #[schema(value_type = schema::ModelName)]
    pub model: ModelName,
    /// What starts it.
    #[schema(value_type = schema::RuntimeName)]
    pub runtime: RuntimeName,
    /// Arguments of the model and the job.
    #[serde(default)]
    #[schema(value_type = Vec<schema::Arg>)]
    pub args: Vec<Arg>,
    /// Its devices in rank order.
    #[serde(default)]
    pub gpus: Vec<DesiredGpu>,
    /// Its CPU.
    #[serde(default)]
    #[schema(value_type = schema::Millicores)]
    pub cpu_millicores: Millicores,
    /// Its RAM.
    #[serde(default)]
    #[schema(value_type = schema::Bytes)]
    pub ram_bytes: Bytes,
    /// How many it serves at once.
    #[serde(default)]
    pub concurrency: u32,
}

/// One device of a desired slot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DesiredGpu {
    /// Which.
    #[schema(value_type = schema::DeviceUuid)]
    pub uuid: DeviceUuid,
    /// How much of it belongs to the slot.
    #[schema(value_type = schema::Bytes)]
    pub memory_bytes: Bytes,
}

impl From<berth_domain::DesiredSlot> for DesiredSlot {
    fn from(slot: berth_domain::DesiredSlot) -> Self {
        let gpu = |gpu: berth_domain::DesiredGpu| DesiredGpu { uuid: gpu.uuid, memory_bytes: gpu.memory_bytes };
        Self {
            id: slot.id,
            generation: slot.generation,
            action: slot.action,
            model: slot.model,
            runtime: slot.runtime,
            args: slot.args,
            gpus: slot.gpus.into_iter().map(gpu).collect(),
            cpu_millicores: slot.cpu_millicores,
            ram_bytes: slot.ram_bytes,
            concurrency: slot.concurrency,
        }
    }
}

impl From<DesiredSlot> for berth_domain::DesiredSlot {
    fn from(slot: DesiredSlot) -> Self {
        let gpu = |gpu: DesiredGpu| berth_domain::DesiredGpu { uuid: gpu.uuid, memory_bytes: gpu.memory_bytes };
        Self {
            id: slot.id,
            generation: slot.generation,
            action: slot.action,
            model: slot.model,
            runtime: slot.runtime,
            args: slot.args,
            gpus: slot.gpus.into_iter().map(gpu).collect(),
            cpu_millicores: slot.cpu_millicores,
            ram_bytes: slot.ram_bytes,
            concurrency: slot.concurrency,
        }
    }
}

/// What an agent knows already, and how long it waits for more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct DesiredQuery {
    /// The server's start that `after` is of. Another one is answered at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(value_type = Option<schema::Epoch>, inline)]
    pub epoch: Option<Epoch>,
    /// Answer as soon as there is something newer for this runner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(value_type = Option<schema::Revision>, inline)]
    pub after: Option<Revision>,
    /// How long to wait at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(inline, example = "30s")]
    pub wait: Option<TimeSpan>,
    /// Which start of the agent asks.
    #[param(value_type = schema::Incarnation, inline)]
    pub incarnation: Incarnation,
}
