//! What was decided and why.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use berth_domain::{
    Bytes, DecisionId, DeviceUuid, GpuCount, ModelName, Placement, Revision, RunnerId, SlotId, SlotState, WorkloadId,
    WorkloadKind,
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::{ClaimPhase, Lack, MemoryBalance, Now, PastAttempt, Time, WorkloadState, is_false, schema};

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// An existing slot took it.
    Reused,
    /// A new slot was placed.
    Placed,
    /// It waits.
    Waiting,
    /// It can never run here.
    Refused,
    /// The workload has ended: nothing is chosen any more. Only in explanations.
    Ended,
}

impl Outcome {
    /// The word used everywhere.
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

/// What was, or would be, chosen, with the numbers of every ledger that mattered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Judgement {
    /// The model.
    #[schema(value_type = schema::ModelName)]
    pub model: ModelName,
    /// What came of it.
    pub outcome: Outcome,
    /// The stable code to grep for.
    #[schema(example = "full_now")]
    pub code: String,
    /// What a person reads: the reason first, then the numbers, then what would help.
    #[serde(default)]
    pub text: String,
    /// Where.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::RunnerId>)]
    pub runner_id: Option<RunnerId>,
    /// In which slot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::SlotId>)]
    pub slot_id: Option<SlotId>,
    /// How candidates were ranked.
    #[serde(default)]
    #[schema(value_type = schema::Placement)]
    pub placement: Placement,
    /// GPU counts that the model allows, and what became of each.
    #[serde(default)]
    pub gpu_counts: Vec<CountTried>,
    /// The chosen devices, then the nearest.
    #[serde(default)]
    pub devices: Vec<DeviceRow>,
    /// Who goes for it.
    #[serde(default)]
    pub evictions: Vec<Eviction>,
    /// Runners that were not used, by reason.
    #[serde(default)]
    #[schema(example = json!({"gpu_memory": 3, "runtime": 11}))]
    pub counts: BTreeMap<String, u32>,
    /// What the fleet lacks, for work that can never run, or no longer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lacks: Vec<Lack>,
    /// All runners.
    #[serde(default)]
    pub runners: u32,
    /// Devices that were looked at.
    #[serde(default)]
    pub examined: u32,
    /// What would help, one sentence each.
    #[serde(default)]
    pub help: Vec<String>,
}

/// One GPU count that the model allows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CountTried {
    /// How many GPUs.
    #[schema(value_type = schema::GpuCount)]
    pub count: GpuCount,
    /// The most that one of them must give; 0 for a fraction. Of a whole GPU it is the least that it must have, or 0.
    #[serde(default)]
    #[schema(value_type = schema::Bytes)]
    pub needed_bytes: Bytes,
    /// Whether whole GPUs are needed, with nobody else on them.
    #[serde(default, skip_serializing_if = "is_false")]
    pub whole: bool,
    /// What became of it: `chosen`, `no_room`, `never_fits`, `no_matching_runner` or `not_needed`.
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
    /// Which.
    #[schema(value_type = schema::DeviceUuid)]
    pub uuid: DeviceUuid,
    /// Through which runner.
    #[schema(value_type = schema::RunnerId)]
    pub runner_id: RunnerId,
    /// Its index there.
    #[serde(default)]
    pub index: u16,
    /// Its ledger before.
    pub before: MemoryBalance,
    /// Its ledger after, if it was chosen.
    #[serde(default)]
    pub after: Option<MemoryBalance>,
    /// What was needed of it.
    #[schema(value_type = schema::Bytes)]
    pub needed_bytes: Bytes,
    /// Whether a whole GPU was needed, with nobody else on it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub whole: bool,
    /// What it said: `chosen`, `ranks_lower`, `short`, `exclusive`, `not_whole`, or why it takes nothing new.
    #[schema(example = "short")]
    pub verdict: String,
    /// By how much it was too small.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Bytes>)]
    pub missing_bytes: Option<Bytes>,
    /// Who is on it, for the first device of work that waits.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub claims: Vec<RowClaim>,
}

/// A claim on a device that mattered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RowClaim {
    /// Whose.
    #[schema(value_type = schema::SlotId)]
    pub slot_id: SlotId,
    /// What it serves, if the server made it.
    #[serde(default)]
    #[schema(value_type = Option<schema::ModelName>)]
    pub model: Option<ModelName>,
    /// In which state the slot is.
    #[schema(value_type = schema::SlotState)]
    pub state: SlotState,
    /// For how long.
    #[serde(default)]
    pub age_ms: u64,
    /// What the claim is.
    pub phase: ClaimPhase,
    /// How much.
    #[schema(value_type = schema::Bytes)]
    pub bytes: Bytes,
    /// Whether anybody uses it.
    pub busy: bool,
}

/// A slot that goes for another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Eviction {
    /// Which.
    #[schema(value_type = schema::SlotId)]
    pub slot_id: SlotId,
    /// What it served.
    #[serde(default)]
    #[schema(value_type = Option<schema::ModelName>)]
    pub model: Option<ModelName>,
    /// What it gives back, on all its devices.
    #[schema(value_type = schema::Bytes)]
    pub bytes: Bytes,
    /// For how long nobody used it.
    #[serde(default)]
    pub idle_ms: u64,
}

/// A decision on record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Decision {
    /// Which.
    #[schema(value_type = schema::DecisionId)]
    pub id: DecisionId,
    /// When.
    pub time: Time,
    /// The revision after it.
    #[schema(value_type = schema::Revision)]
    pub revision: Revision,
    /// For whom; nobody for slots that their model must have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::WorkloadId>)]
    pub workload_id: Option<WorkloadId>,
    /// What was chosen and why.
    #[serde(flatten)]
    pub judgement: Judgement,
    /// How long it took to decide.
    #[serde(default)]
    pub duration_us: u64,
}

/// Would it fit, where, and who would be evicted? Nothing was done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Fit {
    /// The kind that was asked about.
    #[serde(default)]
    #[schema(value_type = schema::WorkloadKind)]
    pub kind: WorkloadKind,
    /// What would be chosen and why.
    #[serde(flatten)]
    pub judgement: Judgement,
}

/// What to try for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct FitQuery {
    /// A `lease` unless said otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(value_type = Option<schema::WorkloadKind>, inline)]
    pub kind: Option<WorkloadKind>,
}

/// Why a workload is where it is: the present first (`now`), then what holds now, then the history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Explanation {
    /// Which workload.
    #[schema(value_type = schema::WorkloadId)]
    pub workload_id: WorkloadId,
    /// Where it is in its life.
    pub state: WorkloadState,
    /// Where it stands in the queue, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<u64>,
    /// When it was submitted.
    pub created: Time,
    /// Where it is at this instant.
    pub now: Now,
    /// What holds now and why: for one that waits, judged on the state of this instant; for one that has a slot, how it
    /// got that slot; for one that has ended, that it has.
    #[serde(flatten)]
    pub judgement: Judgement,
    /// The last attempts that are over, oldest first.
    #[serde(default)]
    pub attempts: Vec<PastAttempt>,
    /// The decisions about it that are still on record, oldest first.
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
    /// At most so many, the newest; all unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(value_type = Option<u32>, minimum = 1, maximum = 4294967295_u32)]
    pub limit: Option<NonZeroU32>,
    /// Only those after this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(value_type = Option<schema::DecisionId>, inline)]
    pub after: Option<DecisionId>,
}
