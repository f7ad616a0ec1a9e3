//! What a model costs, and what it was seen to use.

use berth_domain::{Bytes, GpuCount, GpuMemory, Memory, ModelSpec};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::schema;

/// What one GPU count costs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChargedMemory {
    /// How many GPUs.
    #[schema(value_type = schema::GpuCount)]
    pub gpu_count: GpuCount,
    /// Bytes on each GPU in rank order; absent where it is a share of the device, or unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<schema::Bytes>>)]
    pub gpu_bytes: Option<Vec<Bytes>>,
    /// In words: `bytes`, `fraction`, `whole` or `unknown`.
    #[schema(example = "bytes")]
    pub by: String,
    /// Whose number it is: `stated` or `estimated`, or why it is another: `out_of_memory` (raised since a slot ran out
    /// of memory) or `learned` (by what was seen); absent where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "estimated")]
    pub source: Option<String>,
    /// What the operator stated, where there is an estimate beside it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<schema::Bytes>>)]
    pub stated_bytes: Option<Vec<Bytes>>,
    /// What was estimated, where a number is stated beside it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<schema::Bytes>>)]
    pub estimated_bytes: Option<Vec<Bytes>>,
    /// By how much the estimate is above (or, negative, below) what was stated, in percent of that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = 76)]
    pub difference_percent: Option<i64>,
    /// What the catalogue's number is, where another is charged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<schema::Bytes>>)]
    pub entry_bytes: Option<Vec<Bytes>>,
    /// What slots of this revision were seen to use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed: Option<ObservedMemory>,
}

/// What the slots of a model were seen to use, beside what is charged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ObservedMemory {
    /// The most that any slot used, on each GPU in rank order.
    #[schema(value_type = Vec<schema::Bytes>)]
    pub peak_bytes: Vec<Bytes>,
    /// By how much the peak of the fullest GPU is above (or, negative, below) what is charged, in percent of that.
    #[schema(example = -12)]
    pub drift_percent: Option<i64>,
    /// `watching` (not for long enough to say), `fits`, `under_estimated` (more than 5 % above what is charged) or
    /// `over_estimated` (what is charged is more than 25 % above it).
    #[schema(example = "fits")]
    pub verdict: String,
    /// What would be charged instead by what was seen; applied by itself only where the model says `memory.learn`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<schema::Bytes>>)]
    pub offered_bytes: Option<Vec<Bytes>>,
}

impl ObservedMemory {
    /// Whether somebody should look at it.
    #[must_use]
    pub fn is_drift(&self) -> bool {
        matches!(self.verdict.as_str(), "under_estimated" | "over_estimated")
    }

    /// By how much the peak of the fullest GPU is above what is charged.
    #[must_use]
    pub fn drift(charged: &[Bytes], peaks: &[Bytes]) -> Option<i64> {
        charged.iter().zip(peaks).filter_map(|(charged, peak)| percent_above(*charged, *peak)).max()
    }
}

impl ChargedMemory {
    /// What each GPU count of a model costs.
    #[must_use]
    pub fn of(spec: &ModelSpec) -> Vec<Self> {
        spec.allowed_counts().into_iter().map(|count| Self::on(spec, count)).collect()
    }

    fn on(spec: &ModelSpec, gpu_count: GpuCount) -> Self {
        let memory = spec.memory_on(gpu_count);
        let by = match memory.as_ref().map(|ranks| ranks.first()) {
            None => "unknown",
            Some(None | Some(GpuMemory::Bytes(_))) => "bytes",
            Some(Some(GpuMemory::Fraction(_))) => "fraction",
            Some(Some(GpuMemory::Whole(_))) => "whole",
        };
        let source = match memory.as_ref().map(Vec::is_empty) {
            None | Some(true) => None,
            Some(false) if spec.exclusive => None,
            Some(false) if spec.memory.charges_estimate() => Some("estimated".to_owned()),
            Some(false) => Some("stated".to_owned()),
        };
        let on = |memory: &Option<Memory>| memory.as_ref().and_then(|memory| memory.bytes_on(gpu_count));
        let both = on(&spec.memory.stated).zip(on(&spec.memory.estimated));
        let (stated_bytes, estimated_bytes) = both.unzip();
        Self {
            gpu_count,
            gpu_bytes: memory.and_then(|ranks| ranks.into_iter().map(GpuMemory::bytes).collect()),
            by: by.to_owned(),
            source,
            difference_percent: stated_bytes
                .as_deref()
                .zip(estimated_bytes.as_deref())
                .and_then(|(stated, estimated)| percent_above(sum(stated), sum(estimated))),
            stated_bytes,
            estimated_bytes,
            entry_bytes: None,
            observed: None,
        }
    }
}

fn sum(ranks: &[Bytes]) -> Bytes {
    ranks.iter().fold(Bytes::ZERO, |sum, bytes| sum.saturating_add(*bytes))
}

/// By how much `other` is above `base`, in percent of that, to the nearest whole one.
pub(crate) fn percent_above(base: Bytes, other: Bytes) -> Option<i64> {
    let (base, other) = (i128::from(base.get()), i128::from(other.get()));
    let scaled = (other - base).checked_mul(100)?;
    let rounded = (scaled.checked_mul(2)? + base).checked_div_euclid(base.checked_mul(2)?)?;
    i64::try_from(rounded).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_in_percent_of_what_was_stated() {
        for (stated, estimated, percent) in [(42, 74, Some(76)), (74, 42, Some(-43)), (5, 5, Some(0)), (0, 1, None)] {
            assert_eq!(percent_above(Bytes::gib(stated), Bytes::gib(estimated)), percent);
        }
    }
}
