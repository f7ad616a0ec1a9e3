//! The memory that a model is charged, and the memory that it was seen to use.

use berth_domain::{Bytes, GpuCount, GpuMemory, Memory, ModelSpec};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::schema;

/// The memory that is charged for one GPU count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChargedMemory {
    /// The number of GPUs.
    #[schema(value_type = schema::GpuCount)]
    pub gpu_count: GpuCount,
    /// Bytes on each GPU in rank order; absent where it is a share of the device, or unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<schema::Bytes>>)]
    pub gpu_bytes: Option<Vec<Bytes>>,
    /// The kind of number: `bytes`, `fraction`, `whole` or `unknown`.
    #[schema(example = "bytes")]
    pub by: String,
    /// The source of the number: `stated` or `estimated`, or why it was corrected: `out_of_memory` (raised since a slot
    /// ran out of memory) or `learned` (from observed use); absent where there is no number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "estimated")]
    pub source: Option<String>,
    /// The number that the operator stated, where there is an estimate too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<schema::Bytes>>)]
    pub stated_bytes: Option<Vec<Bytes>>,
    /// The estimate, where a number is stated too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<schema::Bytes>>)]
    pub estimated_bytes: Option<Vec<Bytes>>,
    /// The difference between the estimate and the stated number, in percent of the stated number; negative if the
    /// estimate is below.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = 76)]
    pub difference_percent: Option<i64>,
    /// The number of the catalogue entry, where another one is charged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<schema::Bytes>>)]
    pub entry_bytes: Option<Vec<Bytes>>,
    /// The observed use of slots of this revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed: Option<ObservedMemory>,
}

/// The observed use of a model's slots, compared with what is charged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ObservedMemory {
    /// The most that any slot used, on each GPU in rank order.
    #[schema(value_type = Vec<schema::Bytes>)]
    pub peak_bytes: Vec<Bytes>,
    /// The difference between the peak of the fullest GPU and what is charged, in percent of what is charged; negative
    /// if the peak is below.
    #[schema(example = -12)]
    pub drift_percent: Option<i64>,
    /// The verdict: `watching` (not observed for long enough), `fits`, `under_estimated` (the peak is more than 5 %
    /// above what is charged) or `over_estimated` (what is charged is more than 25 % above the peak).
    #[schema(example = "fits")]
    pub verdict: String,
    /// The number that the observed use suggests. The server charges it only where the model says `memory.learn`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<schema::Bytes>>)]
    pub offered_bytes: Option<Vec<Bytes>>,
}

impl ObservedMemory {
    /// Returns whether the verdict needs attention.
    #[must_use]
    pub fn is_drift(&self) -> bool {
        matches!(self.verdict.as_str(), "under_estimated" | "over_estimated")
    }

    /// Returns by how many percent the peak of the fullest GPU is above what is charged.
    #[must_use]
    pub fn drift(charged: &[Bytes], peaks: &[Bytes]) -> Option<i64> {
        charged.iter().zip(peaks).filter_map(|(charged, peak)| percent_above(*charged, *peak)).max()
    }
}

impl ChargedMemory {
    /// Returns what is charged for each GPU count of a model.
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

/// Returns by how much `other` is above `base`, in whole percent of `base`.
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
