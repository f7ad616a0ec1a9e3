//! Decisions and the reasons for them.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use berth_domain::{
    Bytes, DecisionId, DeviceUuid, GpuCount, ModelName, Placement, Revision, RunnerId, SlotId, SlotState, WorkloadId,
    WorkloadKind,
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::{ClaimPhase, Lack, MemoryBalance, Now, PastAttempt, Time, WorkloadState, is_false, schema};

/// The outcome of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// An existing slot took the workload.
    Reused,
    /// A new slot was placed.
    Placed,
    /// The workload waits.
    Waiting,
    /// The workload can never run in this fleet.
    Refused,
    /// The workload has ended, so nothing is chosen. Only explanations have this outcome.
    Ended,
}

impl Outcome {
    /// Returns the name that the API, the logs and the command line use.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Reused => "reused",
            Self::Placed => "placed",
            Self::Waiting => "waiting",
            Self::Refused => "refused",
            Self::Ended => "ended",
        }
    }
}

/// The choice that was, or would be, made, with the numbers of the ledgers that mattered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Judgement {
    /// The model.
    #[schema(value_type = schema::ModelName)]
    pub model: ModelName,
    /// The outcome.
    pub outcome: Outcome,
    /// The stable code to grep for.
    #[schema(example = "full_now")]
    pub code: String,
    /// The text for people: the reason first, then the numbers, then what would help.
    #[serde(default)]
    pub text: String,
    /// The chosen runner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::RunnerId>)]
    pub runner_id: Option<RunnerId>,
    /// The chosen slot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::SlotId>)]
    pub slot_id: Option<SlotId>,
    /// How candidates were ranked.
    #[serde(default)]
    #[schema(value_type = schema::Placement)]
    pub placement: Placement,
    /// The GPU counts that the model allows, with the verdict on each.
    #[serde(default)]
    pub gpu_counts: Vec<CountTried>,
    /// The chosen devices, then the nearest.
    #[serde(default)]
    pub devices: Vec<DeviceRow>,
    /// The slots that are evicted for it.
    #[serde(default)]
    pub evictions: Vec<Eviction>,
    /// Runners that were not used, by reason.
    #[serde(default)]
    #[schema(example = json!({"gpu_memory": 3, "runtime": 11}))]
    pub counts: BTreeMap<String, u32>,
    /// What the fleet lacks, for work that can never run, or no longer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lacks: Vec<Lack>,
    /// The number of all runners.
    #[serde(default)]
    pub runners: u32,
    /// The number of devices that were looked at.
    #[serde(default)]
    pub examined: u32,
    /// What would help, one sentence each.
    #[serde(default)]
    pub help: Vec<String>,
}

/// One GPU count that the model allows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CountTried {
    /// The number of GPUs.
    #[schema(value_type = schema::GpuCount)]
    pub count: GpuCount,
    /// The largest amount that one of the GPUs must give; 0 for a fraction. For whole GPUs, the least memory that each
    /// must have, or 0.
    #[serde(default)]
    #[schema(value_type = schema::Bytes)]
    pub needed_bytes: Bytes,
    /// Whether whole GPUs are needed, without other slots on them.
    #[serde(default, skip_serializing_if = "is_false")]
    pub whole: bool,
    /// The verdict: `chosen`, `no_room`, `never_fits`, `no_matching_runner` or `not_needed`.
    #[schema(example = "no_room")]
    pub verdict: String,
    /// Why no runner is large enough, where the verdict is `never_fits`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "the largest is 80 GiB")]
    pub text: Option<String>,
}

/// One device that mattered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeviceRow {
    /// The UUID of the device.
    #[schema(value_type = schema::DeviceUuid)]
    pub uuid: DeviceUuid,
    /// The runner that has the device.
    #[schema(value_type = schema::RunnerId)]
    pub runner_id: RunnerId,
    /// The index of the device on that runner.
    #[serde(default)]
    pub index: u16,
    /// The ledger before the decision.
    pub before: MemoryBalance,
    /// The ledger after the decision, if the device was chosen.
    #[serde(default)]
    pub after: Option<MemoryBalance>,
    /// The memory that was needed of the device.
    #[schema(value_type = schema::Bytes)]
    pub needed_bytes: Bytes,
    /// Whether a whole GPU was needed, without other slots on it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub whole: bool,
    /// The verdict: `chosen`, `ranks_lower`, `short`, `exclusive`, `not_whole`, or why the device takes nothing new.
    #[schema(example = "short")]
    pub verdict: String,
    /// The memory that was missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Bytes>)]
    pub missing_bytes: Option<Bytes>,
    /// The claims on the device, for the first device of work that waits.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub claims: Vec<RowClaim>,
}

/// A claim on a device that mattered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RowClaim {
    /// The slot that has the claim.
    #[schema(value_type = schema::SlotId)]
    pub slot_id: SlotId,
    /// The model of the slot, if the server made the slot.
    #[serde(default)]
    #[schema(value_type = Option<schema::ModelName>)]
    pub model: Option<ModelName>,
    /// The state of the slot.
    #[schema(value_type = schema::SlotState)]
    pub state: SlotState,
    /// How long the slot has been in that state.
    #[serde(default)]
    pub age_ms: u64,
    /// The phase of the claim.
    pub phase: ClaimPhase,
    /// The amount of the claim.
    #[schema(value_type = schema::Bytes)]
    pub bytes: Bytes,
    /// Whether a workload uses the slot.
    pub busy: bool,
}

/// A slot that is evicted for another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Eviction {
    /// The slot that is evicted.
    #[schema(value_type = schema::SlotId)]
    pub slot_id: SlotId,
    /// The model of the slot.
    #[serde(default)]
    #[schema(value_type = Option<schema::ModelName>)]
    pub model: Option<ModelName>,
    /// The memory that the slot gives back, on all its devices.
    #[schema(value_type = schema::Bytes)]
    pub bytes: Bytes,
    /// How long the slot was idle.
    #[serde(default)]
    pub idle_ms: u64,
}

/// A decision on record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Decision {
    /// The number of the decision.
    #[schema(value_type = schema::DecisionId)]
    pub id: DecisionId,
    /// When the decision was made.
    pub time: Time,
    /// The revision after the decision.
    #[schema(value_type = schema::Revision)]
    pub revision: Revision,
    /// The workload that the decision is for; absent for slots that a model must have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::WorkloadId>)]
    pub workload_id: Option<WorkloadId>,
    /// The choice and its reasons.
    #[serde(flatten)]
    pub judgement: Judgement,
    /// How long the decision took.
    #[serde(default)]
    pub duration_us: u64,
}

/// The result of a dry run: whether a slot would fit, where, and which slots would be evicted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Fit {
    /// The kind that was asked about.
    #[serde(default)]
    #[schema(value_type = schema::WorkloadKind)]
    pub kind: WorkloadKind,
    /// The choice that would be made, and its reasons.
    #[serde(flatten)]
    pub judgement: Judgement,
}

/// The parameters of a dry run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct FitQuery {
    /// The kind of work. Default: `lease`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(value_type = Option<schema::WorkloadKind>, inline)]
    pub kind: Option<WorkloadKind>,
}

/// The explanation of a workload: its present situation (`now`), the present decision, then its history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Explanation {
    /// The id of the workload.
    #[schema(value_type = schema::WorkloadId)]
    pub workload_id: WorkloadId,
    /// The state of the workload.
    pub state: WorkloadState,
    /// The position in the queue, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<u64>,
    /// When the workload was submitted.
    pub created: Time,
    /// The situation at this instant.
    pub now: Now,
    /// The present decision and its reasons. For a workload that waits, it is made on the state of this instant; for
    /// one that has a slot, it says how the workload got the slot; for one that has ended, that it has ended.
    #[serde(flatten)]
    pub judgement: Judgement,
    /// The last attempts that are over, oldest first.
    #[serde(default)]
    pub attempts: Vec<PastAttempt>,
    /// The decisions about the workload that are still on record, oldest first.
    #[serde(default)]
    pub decisions: Vec<Decision>,
}

/// Which decisions to list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct DecisionQuery {
    /// Only those about this workload.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(value_type = Option<schema::WorkloadId>, inline)]
    pub workload_id: Option<WorkloadId>,
    /// Only those about this model.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(value_type = Option<schema::ModelName>, inline)]
    pub model: Option<ModelName>,
    /// Only those that chose this runner.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(value_type = Option<schema::RunnerId>, inline)]
    pub runner_id: Option<RunnerId>,
    /// The largest number of decisions; the newest are listed. Default: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(value_type = Option<u32>, minimum = 1, maximum = 4294967295_u32)]
    pub limit: Option<NonZeroU32>,
    /// Only decisions after this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(value_type = Option<schema::DecisionId>, inline)]
    pub after: Option<DecisionId>,
}
