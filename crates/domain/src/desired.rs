//! What an agent is asked to make true.

use serde::{Deserialize, Serialize};

use crate::{Arg, Bytes, DeviceUuid, Generation, Millicores, ModelName, RuntimeName, SlotId};

/// Run it or stop it. A slot that is not mentioned is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DesiredAction {
    /// It should run.
    Run,
    /// It should end, and be proven gone.
    Stop,
}

/// One device of a desired slot.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DesiredGpu {
    /// Which.
    pub uuid: DeviceUuid,
    /// How much of it belongs to the slot.
    pub memory_bytes: Bytes,
}

/// One slot that a runner should run or stop.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DesiredSlot {
    /// Which slot.
    pub id: SlotId,
    /// Which start of it.
    pub generation: Generation,
    /// What to do.
    pub action: DesiredAction,
    /// The model it serves.
    pub model: ModelName,
    /// What starts it.
    pub runtime: RuntimeName,
    /// Arguments of the model and the job.
    pub args: Vec<Arg>,
    /// Its devices in rank order.
    pub gpus: Vec<DesiredGpu>,
    /// Its CPU.
    pub cpu_millicores: Millicores,
    /// Its RAM.
    pub ram_bytes: Bytes,
    /// How many it serves at once.
    pub concurrency: u32,
}
