//! The data of an explanation.

use berth_domain::{
    Bytes, DeviceUuid, GpuCount, GpuMemory, ModelName, Placement, RunnerId, SlotId, SlotState, Span, Timestamp,
    WorkloadId, WorkloadKind,
};
use smallvec::SmallVec;

use super::help::Help;
use crate::lack::{Lack, TooSmall};
use crate::ledger::{Balance, Phase};
use crate::reason::{Closed, Exclusion, Unplaceable, WaitReason};

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// An existing slot took it.
    Reused,
    /// A new slot was placed.
    Placed,
    /// It waits.
    Waiting(WaitReason),
    /// It can never run here.
    Refused(Unplaceable),
}

impl Outcome {
    /// The stable word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Reused => "reused",
            Self::Placed => "placed",
            Self::Waiting(_) => "waiting",
            Self::Refused(_) => "refused",
        }
    }

    /// The stable code to grep for.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::Reused => "reused",
            Self::Placed => "placed",
            Self::Waiting(why) => why.code(),
            Self::Refused(why) => why.code(),
        }
    }
}

/// What became of one GPU count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum CountVerdict {
    /// This one.
    Chosen,
    /// Nowhere now.
    NoRoom,
    /// No runner is large enough, for this reason.
    NeverFits(TooSmall),
    /// No runner matches at all, whatever its size.
    #[strum(serialize = "no_matching_runner")]
    NoMatch,
    /// A smaller one was enough.
    NotNeeded,
}

impl CountVerdict {
    /// The stable code.
    #[must_use]
    pub fn code(self) -> &'static str {
        self.into()
    }
}

/// One GPU count that the model allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountTried {
    /// How many GPUs.
    pub count: GpuCount,
    /// The most that one of them must give; `None` without GPUs.
    pub needed: Option<GpuMemory>,
    /// What became of it.
    pub verdict: CountVerdict,
}

/// What one device said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Chosen.
    Chosen,
    /// It would do, but others rank before it.
    RanksLower,
    /// Too little is free.
    Short {
        /// By how much.
        missing: Bytes,
    },
    /// Somebody has it to themselves.
    Exclusive,
    /// Somebody is there, and it must be nobody.
    NotWhole,
    /// It takes nothing new.
    Closed(Closed),
}

/// A claim on a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimRow {
    /// Whose.
    pub slot: SlotId,
    /// What it serves, if the server made it.
    pub model: Option<ModelName>,
    /// In which state it is.
    pub state: SlotState,
    /// For how long.
    pub for_how_long: Span,
    /// What the claim is.
    pub phase: Phase,
    /// How much.
    pub bytes: Bytes,
    /// Whether anybody uses it.
    pub busy: bool,
}

/// One device that mattered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceRow {
    /// Which.
    pub uuid: DeviceUuid,
    /// Through which runner.
    pub runner: RunnerId,
    /// Its index there.
    pub index: u16,
    /// Its ledger before.
    pub before: Balance<Bytes>,
    /// Its ledger after, if it was chosen.
    pub after: Option<Balance<Bytes>>,
    /// What was asked of it.
    pub asked: GpuMemory,
    /// What that is in bytes on this device.
    pub needed: Bytes,
    /// What it said.
    pub verdict: Verdict,
    /// Who is on it, for the first device of work that waits.
    pub claims: Vec<ClaimRow>,
}

/// A slot that goes for another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Eviction {
    /// Which.
    pub slot: SlotId,
    /// What it served.
    pub model: Option<ModelName>,
    /// What it gives back, on all its devices.
    pub bytes: Bytes,
    /// For how long nobody used it.
    pub idle: Span,
}

/// What was chosen and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// When.
    pub time: Timestamp,
    /// For whom; nobody for slots that their model must have, and for dry runs.
    pub workload: Option<WorkloadId>,
    /// The model.
    pub model: ModelName,
    /// What kind of work it is for.
    pub kind: WorkloadKind,
    /// What came of it.
    pub outcome: Outcome,
    /// Where.
    pub runner: Option<RunnerId>,
    /// In which slot.
    pub slot: Option<SlotId>,
    /// How candidates were ranked.
    pub placement: Placement,
    /// GPU counts that the model allows.
    pub gpu_counts: SmallVec<[CountTried; 5]>,
    /// The chosen devices, then the nearest.
    pub devices: Vec<DeviceRow>,
    /// Who goes for it.
    pub evictions: Vec<Eviction>,
    /// Runners that were not used, by reason.
    pub excluded: Vec<(Exclusion, u32)>,
    /// What the fleet lacks, for work that can never run, or no longer.
    pub lacks: Vec<Lack>,
    /// All runners.
    pub runners: u32,
    /// Devices that were looked at.
    pub examined: u32,
    /// What would help.
    pub help: Vec<Help>,
}
