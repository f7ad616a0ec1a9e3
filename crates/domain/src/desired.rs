//! What the server asks an agent to do about its slots.

use serde::{Deserialize, Serialize};

use crate::{
    Arg, Bytes, DeviceUuid, Generation, Millicores, ModelName, RuntimeKind, RuntimeName, SlotId, WorkloadKind,
};

/// One slot that the server mentions to a runner. An agent keeps a slot that is not mentioned.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DesiredSlot {
    /// The id of the slot.
    pub id: SlotId,
    /// The start of the slot that is meant.
    pub generation: Generation,
    /// The slot's devices in rank order.
    pub gpus: Vec<DesiredGpu>,
    /// What the agent should do about the slot.
    pub action: DesiredAction,
}

/// What an agent should do about a slot.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DesiredAction {
    /// The agent should run the slot in this way.
    Run(Box<RunSpec>),
    /// The agent should end the slot and prove that it is gone.
    Stop,
    /// The agent should say whether the slot exists, and start and stop nothing: the slot lives, it is gone with
    /// evidence, or the agent cannot tell and says why.
    Account,
}

/// Everything that an agent needs to run a slot.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RunSpec {
    /// The model that the slot serves.
    pub model: ModelName,
    /// The runtime that starts the slot.
    pub runtime: RuntimeName,
    /// Whether the slot serves leases or is one job.
    pub kind: WorkloadKind,
    /// Arguments of the model, then those of the job.
    pub args: Vec<Arg>,
    /// How many of the arguments are the model's. If the server of an earlier version did not say so, all arguments of
    /// a job count as the job's.
    #[serde(default)]
    pub model_args: usize,
    /// The CPU of the slot.
    pub cpu_millicores: Millicores,
    /// The RAM of the slot.
    pub ram_bytes: Bytes,
    /// How many leases the slot serves at once.
    pub concurrency: u32,
}

/// One device of a desired slot.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DesiredGpu {
    /// The UUID of the device.
    pub uuid: DeviceUuid,
    /// How much of the device's memory belongs to the slot.
    pub memory_bytes: Bytes,
}

impl DesiredSlot {
    /// Returns how the slot is run, if it should run.
    #[must_use]
    pub fn run_spec(&self) -> Option<&RunSpec> {
        match &self.action {
            DesiredAction::Run(spec) => Some(spec),
            DesiredAction::Stop | DesiredAction::Account => None,
        }
    }

    /// Returns whether the slot should run.
    #[must_use]
    pub fn should_run(&self) -> bool {
        self.run_spec().is_some()
    }
}

impl RunSpec {
    /// Returns the arguments of the model entry, and those of the job. A slot that serves leases has only the former.
    #[must_use]
    pub fn args_by_owner(&self) -> (&[Arg], &[Arg]) {
        match self.kind {
            WorkloadKind::Lease => (&self.args, &[]),
            WorkloadKind::Job => self.args.split_at(self.model_args.min(self.args.len())),
        }
    }
}

impl RuntimeKind {
    /// Returns whether a runtime of this kind starts work of that kind.
    #[must_use]
    pub const fn takes(self, kind: WorkloadKind) -> bool {
        match kind {
            WorkloadKind::Lease => matches!(self, Self::Server | Self::Both),
            WorkloadKind::Job => matches!(self, Self::Job | Self::Both),
        }
    }
}
