//! What agents are asked to make true.

use berth_domain::{
    Arg, Bytes, ClusterId, DeviceUuid, Epoch, Generation, Incarnation, Millicores, ModelName, Revision, RuntimeName,
    SlotId, WorkloadKind,
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
    /// Proves that this cluster's server gave this answer. The agent keeps the code of the newest answer that it obeyed,
    /// and shows it with every report and poll.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// The protocol that the server speaks: see [`crate::PROTOCOL`].
    #[serde(default = "crate::oldest_protocol")]
    pub protocol: u32,
    /// What to run, what to stop, and what to account for.
    #[serde(default)]
    pub slots: Vec<DesiredSlot>,
    /// What else the server would like; an agent leaves what it does not know.
    #[serde(default)]
    pub requests: Vec<AgentRequest>,
}

/// One slot that the server mentions to a runner: run it, stop it, or account for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DesiredSlot {
    /// Which slot.
    #[schema(value_type = schema::SlotId)]
    pub id: SlotId,
    /// Which start of it.
    #[schema(value_type = schema::Generation)]
    pub generation: Generation,
    /// Its devices in rank order.
    #[serde(default)]
    pub gpus: Vec<DesiredGpu>,
    /// What to do.
    #[serde(flatten)]
    pub action: DesiredAction,
}

/// What an agent should do about a slot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "action", rename_all = "snake_case")]
pub enum DesiredAction {
    /// Run it like this.
    Run(RunSpec),
    /// End it, and prove that it is gone.
    Stop,
    /// Say whether it exists: it lives, it is gone with evidence, or it cannot be told and why. Start and stop nothing.
    Account,
}

/// How a slot is run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunSpec {
    /// The model that it serves.
    #[schema(value_type = schema::ModelName)]
    pub model: ModelName,
    /// What starts it.
    #[schema(value_type = schema::RuntimeName)]
    pub runtime: RuntimeName,
    /// Whether it serves leases or is one job.
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

/// What an agent knows already, and how long it waits for more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
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
    /// The `code` of the newest answer that the agent obeyed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(inline, max_length = 256)]
    pub obeyed: Option<String>,
}
