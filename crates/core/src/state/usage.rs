//! How much a model is used, and what it costs to bring one of its slots back: together, what is lost with an idle slot.
//!
//! Each request counts as one use, and a use counts half after [`HALF_LIFE`] more requests, whoever they are for. The
//! logarithm of that count, taken at the number of the request instead of now, stays as it is until the next use. So an
//! ordered index can hold it, and only the order between models matters.

use berth_domain::{Bytes, GpuName, Span};
use serde::{Deserialize, Serialize};

use crate::log2::Log2;

/// Requests after which a use counts half.
const HALF_LIFE: u64 = 200;
/// How long a start takes for each GiB, as long as nobody has seen one.
const MILLIS_PER_GIB: u64 = 1000;

/// How much a model is used and how long its slots take to start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Usage {
    /// The sum over all uses of `2^(number of the request / half-life)`.
    uses: Option<Log2>,
    /// How long its slots took to start, in milliseconds, on runners with each kind of GPU. Later ones count more.
    starts: Vec<(Option<GpuName>, u64)>,
}

/// One use at this request, as [`Usage`] adds it up. To divide by it gives a count as it is at that request.
pub(crate) fn use_at(request: u64) -> Log2 {
    Log2::of_power(request, HALF_LIFE)
}

impl Usage {
    /// A request for the model came, and it was the one of this number.
    pub(crate) fn note_request(&mut self, request: u64) {
        let one = use_at(request);
        self.uses = Some(self.uses.map_or(one, |uses| uses.plus(one)));
    }

    /// A slot took so long to start on a runner with this GPU.
    pub(crate) fn note_start(&mut self, gpu: Option<&GpuName>, took: Span) {
        let millis = took.millis();
        match self.starts.iter_mut().find(|(name, _)| name.as_ref() == gpu) {
            Some((_, known)) => *known = known.saturating_mul(3).saturating_add(millis) / 4,
            None => self.starts.push((gpu.cloned(), millis)),
        }
    }

    /// What is lost with a slot: the uses, times what it costs to start it again. A start that took no time was not
    /// measured. It is rounded, so that between nearly equal slots others things decide: bytes, then how long it is idle.
    pub(crate) fn loss(&self, gpu: Option<&GpuName>, bytes: Bytes) -> Log2 {
        let seen = self.starts.iter().find(|(name, _)| name.as_ref() == gpu).map(|(_, millis)| *millis);
        let estimated = || (u128::from(bytes.get()) * u128::from(MILLIS_PER_GIB)) >> 30;
        let millis =
            seen.filter(|millis| *millis > 0).unwrap_or_else(|| u64::try_from(estimated()).unwrap_or(u64::MAX));
        self.uses.unwrap_or_default().times(Log2::of(millis)).coarse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used_at(requests: &[u64]) -> Usage {
        let mut usage = Usage::default();
        requests.iter().for_each(|request| usage.note_request(*request));
        usage
    }

    #[test]
    fn a_use_counts_half_after_a_half_life() {
        let (often, lately) = (used_at(&[1, 1, 1]), used_at(&[2 * HALF_LIFE]));
        assert!(often.loss(None, Bytes::gib(1)) < lately.loss(None, Bytes::gib(1)), "3 / 4 of a use");
        let more = used_at(&[1, 1, 1, 1, 1]);
        assert!(more.loss(None, Bytes::gib(1)) > lately.loss(None, Bytes::gib(1)), "5 / 4 of a use");
    }

    #[test]
    fn a_start_that_was_seen_counts_instead_of_bytes() {
        let mut usage = used_at(&[1]);
        let gpu = GpuName::new("A").unwrap();
        usage.note_start(Some(&gpu), Span::from_secs(100));
        assert!(usage.loss(Some(&gpu), Bytes::gib(1)) > usage.loss(None, Bytes::gib(50)));
        assert!(usage.loss(None, Bytes::gib(2)) > usage.loss(None, Bytes::gib(1)), "nobody saw it start there");
    }
}
