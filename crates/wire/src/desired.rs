//! What the server asks agents to make true.

use berth_domain::{
    Arg, Bytes, ClusterId, DeviceUuid, Epoch, Generation, Incarnation, Millicores, ModelName, Revision, RuntimeName,
    SlotId, WorkloadKind,
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::{AgentRequest, TimeSpan, schema};

/// What one runner should make true. An agent keeps a slot that is not mentioned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Desired {
    /// The cluster. An agent that belongs to another one stops nothing.
    #[schema(value_type = schema::ClusterId)]
    pub cluster_id: ClusterId,
    /// The start of the server.
    #[schema(value_type = schema::Epoch)]
    pub epoch: Epoch,
    /// The revision of this answer. The next poll passes it as `after`.
    #[schema(value_type = schema::Revision)]
    pub revision: Revision,
    /// Proves that this cluster's server gave this answer. The agent keeps the code of the newest answer that it obeyed,
    /// and shows it with every report and poll.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// The protocol that the server speaks: see [`crate::PROTOCOL`].
    #[serde(default = "crate::oldest_protocol")]
    pub protocol: u32,
    /// The slots to run, to stop and to account for.
    #[serde(default)]
    pub slots: Vec<DesiredSlot>,
    /// Requests beside slots. An agent ignores requests of a kind that it does not know.
    #[serde(default)]
    pub requests: Vec<AgentRequest>,
}

/// One slot that the server mentions to a runner: run it, stop it, or account for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DesiredSlot {
    /// The id of the slot.
    #[schema(value_type = schema::SlotId)]
    pub id: SlotId,
    /// The start of the slot that is meant.
    #[schema(value_type = schema::Generation)]
    pub generation: Generation,
    /// The slot's devices in rank order.
    #[serde(default)]
    pub gpus: Vec<DesiredGpu>,
    /// What the agent should do about the slot.
    #[serde(flatten)]
    pub action: DesiredAction,
}

/// What an agent should do about a slot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "action", rename_all = "snake_case")]
pub enum DesiredAction {
    /// The agent should run the slot in this way.
    Run(RunSpec),
    /// The agent should end the slot and prove that it is gone.
    Stop,
    /// The agent should say whether the slot exists, and start and stop nothing: the slot lives, it is gone with
    /// evidence, or the agent cannot tell and says why.
    Account,
}

/// Everything that an agent needs to run a slot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunSpec {
    /// The model that the slot serves.
    #[schema(value_type = schema::ModelName)]
    pub model: ModelName,
    /// The runtime that starts the slot.
    #[schema(value_type = schema::RuntimeName)]
    pub runtime: RuntimeName,
    /// Whether the slot serves leases or is one job.
    #[serde(default)]
    #[schema(value_type = schema::WorkloadKind)]
    pub kind: WorkloadKind,
    /// Arguments of the model, then those of the job.
    #[serde(default)]
    #[schema(value_type = Vec<schema::Arg>)]
    pub args: Vec<Arg>,
    /// How many of `args` are the model's. The rest are the job's, which the agent checks more strictly.
    #[serde(default)]
    pub model_args: usize,
    /// The CPU of the slot.
    #[serde(default)]
    #[schema(value_type = schema::Millicores)]
    pub cpu_millicores: Millicores,
    /// The RAM of the slot.
    #[serde(default)]
    #[schema(value_type = schema::Bytes)]
    pub ram_bytes: Bytes,
    /// How many leases the slot serves at once.
    #[serde(default)]
    pub concurrency: u32,
}

/// One device of a desired slot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DesiredGpu {
    /// The UUID of the device.
    #[schema(value_type = schema::DeviceUuid)]
    pub uuid: DeviceUuid,
    /// How much of the device's memory belongs to the slot.
    #[schema(value_type = schema::Bytes)]
    pub memory_bytes: Bytes,
}

impl From<berth_domain::DesiredSlot> for DesiredSlot {
    fn from(slot: berth_domain::DesiredSlot) -> Self {
        let gpu = |gpu: berth_domain::DesiredGpu| DesiredGpu { uuid: gpu.uuid, memory_bytes: gpu.memory_bytes };
        let action = match slot.action {
            berth_domain::DesiredAction::Run(spec) => DesiredAction::Run(RunSpec {
                model: spec.model,
                runtime: spec.runtime,
                kind: spec.kind,
                args: spec.args,
                model_args: spec.model_args,
                cpu_millicores: spec.cpu_millicores,
                ram_bytes: spec.ram_bytes,
                concurrency: spec.concurrency,
            }),
            berth_domain::DesiredAction::Stop => DesiredAction::Stop,
            berth_domain::DesiredAction::Account => DesiredAction::Account,
        };
        Self { id: slot.id, generation: slot.generation, gpus: slot.gpus.into_iter().map(gpu).collect(), action }
    }
}

impl From<DesiredSlot> for berth_domain::DesiredSlot {
    fn from(slot: DesiredSlot) -> Self {
        let gpu = |gpu: DesiredGpu| berth_domain::DesiredGpu { uuid: gpu.uuid, memory_bytes: gpu.memory_bytes };
        let action = match slot.action {
            DesiredAction::Run(spec) => berth_domain::DesiredAction::Run(Box::new(berth_domain::RunSpec {
                model: spec.model,
                runtime: spec.runtime,
                kind: spec.kind,
                args: spec.args,
                model_args: spec.model_args,
                cpu_millicores: spec.cpu_millicores,
                ram_bytes: spec.ram_bytes,
                concurrency: spec.concurrency,
            })),
            DesiredAction::Stop => berth_domain::DesiredAction::Stop,
            DesiredAction::Account => berth_domain::DesiredAction::Account,
        };
        Self { id: slot.id, generation: slot.generation, gpus: slot.gpus.into_iter().map(gpu).collect(), action }
    }
}

/// The parameters of an agent's poll: the answer that it has, and how long it waits for a newer one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct DesiredQuery {
    /// The start of the server that `after` belongs to. If the server was started again since, it answers at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(value_type = Option<schema::Epoch>, inline)]
    pub epoch: Option<Epoch>,
    /// The revision that the agent has. The server answers as soon as there is a newer one for this runner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(value_type = Option<schema::Revision>, inline)]
    pub after: Option<Revision>,
    /// The longest wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(inline, example = "30s")]
    pub wait: Option<TimeSpan>,
    /// The start of the agent that asks.
    #[param(value_type = schema::Incarnation, inline)]
    pub incarnation: Incarnation,
    /// The `code` of the newest answer that the agent obeyed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(inline, max_length = 256)]
    pub obeyed: Option<String>,
}
