//! What an agent is asked to do about its slots.

use serde::{Deserialize, Serialize};

use crate::{
    Arg, Bytes, DeviceUuid, Generation, Millicores, ModelName, RuntimeKind, RuntimeName, SlotId, WorkloadKind,
};

/// One slot that the server mentions to a runner. A slot that is not mentioned is kept.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DesiredSlot {
    /// Which slot.
    pub id: SlotId,
    /// Which start of it.
    pub generation: Generation,
    /// Its devices in rank order.
    pub gpus: Vec<DesiredGpu>,
    /// What to do.
    pub action: DesiredAction,
}

/// What an agent should do about a slot.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DesiredAction {
    /// Run it like this.
    Run(Box<RunSpec>),
    /// End it, and prove that it is gone.
    Stop,
    /// Say whether it exists: it lives, it is gone with evidence, or it cannot be told and why. Start and stop nothing.
    Account,
}

/// How a slot is run.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RunSpec {
    /// The model it serves.
    pub model: ModelName,
    /// What starts it.
    pub runtime: RuntimeName,
    /// Whether it serves leases or is one job.
    pub kind: WorkloadKind,
    /// Arguments of the model, then those of the job.
    pub args: Vec<Arg>,
    /// How many of the arguments are the model's. Of a job that a server started without saying so, all are the job's.
    #[serde(default)]
    pub model_args: usize,
    /// Its CPU.
    pub cpu_millicores: Millicores,
    /// Its RAM.
    pub ram_bytes: Bytes,
    /// How many it serves at once.
    pub concurrency: u32,
}

/// One device of a desired slot.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DesiredGpu {
    /// Which.
    pub uuid: DeviceUuid,
    /// How much of it belongs to the slot.
    pub memory_bytes: Bytes,
}

impl DesiredSlot {
    /// How it is run, if it should run.
    #[must_use]
    pub fn run_spec(&self) -> Option<&RunSpec> {
        match &self.action {
            DesiredAction::Run(spec) => Some(spec),
            DesiredAction::Stop | DesiredAction::Account => None,
        }
    }

    /// Whether it should run.
    #[must_use]
    pub fn should_run(&self) -> bool {
        self.run_spec().is_some()
    }
}

impl RunSpec {
    /// The arguments of the model entry, and those of the job. A slot that serves leases has only the former.
    #[must_use]
    pub fn args_by_owner(&self) -> (&[Arg], &[Arg]) {
        match self.kind {
            WorkloadKind::Lease => (&self.args, &[]),
            WorkloadKind::Job => self.args.split_at(self.model_args.min(self.args.len())),
        }
    }
}

impl RuntimeKind {
    /// Whether a runtime of this kind starts work of that kind.
    #[must_use]
    pub const fn takes(self, kind: WorkloadKind) -> bool {
        match kind {
            WorkloadKind::Lease => matches!(self, Self::Server | Self::Both),
            WorkloadKind::Job => matches!(self, Self::Job | Self::Both),
        }
    }
}
