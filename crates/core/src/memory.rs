//! What a model was seen to use, beside what it is charged; and what is charged instead.
//!
//! Rows are kept per GPU count of a model's current revision. They change in steps, by events that carry the numbers, so
//! the journal stays small and a replay needs no second thought. A claim that exists never changes by any of it: the
//! next one does.

use std::collections::BTreeMap;

use berth_domain::{Bytes, GpuCount, GpuMemory, ModelSpec};
use serde::{Deserialize, Serialize};

/// More than this above its claim, in percent, is under-estimated.
const UNDER: u64 = 5;
/// A claim more than this above what is used, in percent, is over-estimated.
const OVER: u64 = 25;
/// What is added to a peak to make a claim of it, in percent.
const MARGIN: u64 = 5;
/// A peak that rises by less than this part of the claim, in percent, is not noted.
const STEP: u64 = 1;

/// How a model's claim compares with what its slots were seen to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum MemoryVerdict {
    /// Not for long enough to say.
    #[default]
    Watching,
    /// As it should be.
    Fits,
    /// They use more.
    UnderEstimated,
    /// They use much less.
    OverEstimated,
}

impl MemoryVerdict {
    /// The stable code.
    #[must_use]
    pub fn code(self) -> &'static str {
        self.into()
    }

    /// Whether somebody should look at it.
    #[must_use]
    pub const fn is_drift(self) -> bool {
        matches!(self, Self::UnderEstimated | Self::OverEstimated)
    }

    /// More than 5 % above the claim on any GPU at once; less on every GPU only once slots have served for a while.
    #[must_use]
    pub fn of(claim: &[Bytes], peaks: &[Bytes], settled: bool) -> Self {
        let mut pairs = claim.iter().zip(peaks);
        if pairs.clone().any(|(claim, peak)| *peak > plus_percent(*claim, UNDER)) {
            Self::UnderEstimated
        } else if !settled || peaks.is_empty() {
            Self::Watching
        } else if pairs.all(|(claim, peak)| *claim > plus_percent(*peak, OVER)) {
            Self::OverEstimated
        } else {
            Self::Fits
        }
    }
}

/// Why something else is charged than the catalogue says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum CorrectionReason {
    /// A slot ran out of memory with what was charged.
    OutOfMemory,
    /// The model says that it learns, and its slots used more or less.
    Learned,
}

impl CorrectionReason {
    /// The stable code.
    #[must_use]
    pub fn code(self) -> &'static str {
        self.into()
    }
}

/// What is charged instead of what the catalogue says.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Correction {
    /// In rank order.
    pub(crate) bytes: Vec<Bytes>,
    pub(crate) why: CorrectionReason,
    /// A slot ran out of memory once: from then on it is never lowered.
    pub(crate) raised: bool,
}

/// What is known of one GPU count of a model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Watched {
    /// The most that any of its slots was seen to use, in rank order. Empty before anything was seen.
    pub(crate) peaks: Vec<Bytes>,
    /// A slot served for a while: less than the claim means something from then on.
    pub(crate) settled: bool,
    pub(crate) verdict: MemoryVerdict,
    pub(crate) correction: Option<Correction>,
}

impl Watched {
    /// Whether these peaks are so much higher than what is known that they should be noted.
    pub(crate) fn is_step(&self, claim: &[Bytes], peaks: &[Bytes]) -> bool {
        let least = |rank: usize| percent_of(claim.get(rank).copied().unwrap_or_default(), STEP).max(Bytes::new(1));
        let known = |rank: usize| self.peaks.get(rank).copied().unwrap_or_default();
        peaks.iter().enumerate().any(|(rank, peak)| *peak >= known(rank).saturating_add(least(rank)))
    }

    /// The higher of what is known and what was seen, rank by rank.
    pub(crate) fn with(&self, seen: &[Bytes]) -> Vec<Bytes> {
        let known = |rank: usize| self.peaks.get(rank).copied().unwrap_or_default();
        seen.iter().enumerate().map(|(rank, peak)| known(rank).max(*peak)).collect()
    }
}

/// What each GPU of a slot must give: the catalogue's number, or what is charged instead.
pub(crate) fn charged_on(
    spec: &ModelSpec,
    watched: &BTreeMap<GpuCount, Watched>,
    count: GpuCount,
) -> Option<Vec<GpuMemory>> {
    let stated = spec.memory_on(count)?;
    match watched.get(&count).and_then(|row| row.correction.as_ref()) {
        Some(correction) if correction.bytes.len() == stated.len() => {
            Some(correction.bytes.iter().copied().map(GpuMemory::Bytes).collect())
        }
        _ => Some(stated),
    }
}

/// The same, where it is a number of bytes.
pub(crate) fn bytes_on(spec: &ModelSpec, watched: &BTreeMap<GpuCount, Watched>, count: GpuCount) -> Option<Vec<Bytes>> {
    charged_on(spec, watched, count)?.into_iter().map(GpuMemory::bytes).collect()
}

/// What a claim would be by what was seen: the peak and a margin, at most `limit` percent above what the catalogue says
/// and at least half of it, so that a runner which reports nonsense cannot make it absurd.
pub(crate) fn corrected(original: &[Bytes], peaks: &[Bytes], limit: u64) -> Vec<Bytes> {
    let one = |(original, peak): (&Bytes, &Bytes)| {
        let (least, most) = (original.split(2), plus_percent(*original, limit));
        plus_percent(*peak, MARGIN).max(least).min(most)
    };
    original.iter().zip(peaks).map(one).collect()
}

/// A step up from what is charged, at most `limit` percent above what the catalogue says.
pub(crate) fn raised(original: &[Bytes], charged: &[Bytes], step: u64, limit: u64) -> Vec<Bytes> {
    let one = |(original, charged): (&Bytes, &Bytes)| {
        let most = plus_percent(*original, limit);
        charged.saturating_add(percent_of(*original, step)).min(most).max(*charged)
    };
    original.iter().zip(charged).map(one).collect()
}

/// So many percent of it, rounded up.
fn percent_of(bytes: Bytes, percent: u64) -> Bytes {
    let scaled = (u128::from(bytes.get()) * u128::from(percent)).div_ceil(100);
    u64::try_from(scaled).map_or(Bytes::MAX, Bytes::new)
}

fn plus_percent(bytes: Bytes, percent: u64) -> Bytes {
    bytes.saturating_add(percent_of(bytes, percent))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gib(amounts: &[u64]) -> Vec<Bytes> {
        amounts.iter().copied().map(Bytes::gib).collect()
    }

    #[test]
    fn five_percent_over_is_under_estimated_and_a_quarter_under_is_over_estimated() {
        let claim = gib(&[100]);
        let of = |peak: u64, settled| MemoryVerdict::of(&claim, &[Bytes::new(peak)], settled);
        let whole = Bytes::gib(105).get();
        assert_eq!(of(whole, true), MemoryVerdict::Fits, "exactly 5 % is within");
        assert_eq!(of(whole + 1, true), MemoryVerdict::UnderEstimated);
        assert_eq!(of(whole + 1, false), MemoryVerdict::UnderEstimated, "too much is too much at once");
        assert_eq!(of(Bytes::gib(80).get(), true), MemoryVerdict::Fits, "100 is exactly 25 % over 80");
        assert_eq!(of(Bytes::gib(79).get(), true), MemoryVerdict::OverEstimated);
        assert_eq!(of(Bytes::gib(79).get(), false), MemoryVerdict::Watching, "it may yet grow");
    }

    #[test]
    fn one_rank_that_uses_its_share_keeps_the_claim() {
        assert_eq!(MemoryVerdict::of(&gib(&[40, 40]), &gib(&[10, 39]), true), MemoryVerdict::Fits);
        assert_eq!(MemoryVerdict::of(&gib(&[40, 40]), &gib(&[10, 10]), true), MemoryVerdict::OverEstimated);
        assert_eq!(MemoryVerdict::of(&gib(&[40, 40]), &gib(&[10, 43]), true), MemoryVerdict::UnderEstimated);
    }

    #[test]
    fn what_is_offered_fits_what_was_seen_and_stays_in_bounds() {
        for peak in [20, 60, 79, 106, 149, 151, 1_000] {
            let offered = corrected(&gib(&[100]), &gib(&[peak]), 50);
            assert!(offered >= gib(&[50]) && offered <= gib(&[150]), "{peak}: {offered:?}");
            if (50..=140).contains(&peak) {
                assert_eq!(MemoryVerdict::of(&offered, &gib(&[peak]), true), MemoryVerdict::Fits, "{peak}");
            }
        }
    }

    #[test]
    fn steps_end_at_the_limit() {
        let original = gib(&[10]);
        let mut charged = original.clone();
        let mut steps = 0;
        loop {
            let next = raised(&original, &charged, 10, 50);
            if next == charged {
                break;
            }
            (charged, steps) = (next, steps + 1);
        }
        assert_eq!((charged, steps), (gib(&[15]), 5));
    }
}
