//! What is learned from the work that was submitted: how much CPU comes with GPU memory, and which GPUs are asked for by
//! name.
//!
//! It is a fold of events, in integers, so that every machine learns the same and a replayed journal learns it again.
//! Old work counts less and less: after [`WINDOW`] pieces of work all sums are halved.

use std::collections::BTreeMap;

use berth_domain::{Bytes, GpuMemory, GpuName};
use serde::{Deserialize, Serialize};

use crate::state::Shape;

/// Pieces of work after which everything learned counts half.
const WINDOW: u32 = 1 << 14;

/// What was learned.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Learned {
    /// Pieces of work in the sums.
    asks: u32,
    /// Millicores that work on GPUs asked for.
    cpu: u64,
    /// MiB of GPU memory that it asked for.
    memory_mib: u64,
    /// MiB that were asked for by the name of the GPU. Work that takes one of several counts for each.
    named_mib: BTreeMap<GpuName, u64>,
    /// The memory of the largest GPU that was ever attached: what a fraction is a fraction of, as long as no GPU is
    /// chosen.
    largest_gpu: Bytes,
    /// The bytes of GPU memory that come with one millicore, as the placement index uses it. It follows the sums in
    /// steps, since every runner's entry depends on it.
    bytes_per_millicore: u64,
}

impl Learned {
    /// The bytes of GPU memory that work asks for with each millicore; 0 while no work on GPUs asked for CPU.
    pub(crate) fn bytes_per_millicore(&self) -> u64 {
        self.bytes_per_millicore
    }

    /// Whether any work named a GPU.
    pub(crate) fn has_names(&self) -> bool {
        !self.named_mib.is_empty()
    }

    /// MiB that were asked for by this name.
    pub(crate) fn named_mib(&self, name: &GpuName) -> u64 {
        self.named_mib.get(name).copied().unwrap_or(0)
    }

    /// Takes note of a GPU.
    pub(crate) fn note_gpu(&mut self, capacity: Bytes) {
        self.largest_gpu = self.largest_gpu.max(capacity);
    }

    /// Takes note of what a slot of this shape asks for on the fewest GPUs that it may have. Says whether the ratio that
    /// the placement index uses changed.
    pub(crate) fn note_shape(&mut self, shape: &Shape) -> bool {
        let Some((_, needs)) = shape.counts.first().filter(|(_, needs)| !needs.is_empty()) else { return false };
        let bytes = |need: &GpuMemory| match need {
            GpuMemory::Bytes(bytes) => *bytes,
            GpuMemory::Fraction(part) => part.of(self.largest_gpu),
            GpuMemory::Whole(least) => self.largest_gpu.max(*least),
        };
        let mib = needs.iter().map(bytes).fold(0u64, |sum, bytes| sum.saturating_add(bytes.get() >> 20));
        self.asks += 1;
        self.cpu = self.cpu.saturating_add(shape.cpu.get());
        self.memory_mib = self.memory_mib.saturating_add(mib);
        for name in &shape.constraints.gpu_names {
            let sum = self.named_mib.entry(name.clone()).or_default();
            *sum = sum.saturating_add(mib);
        }
        if self.asks >= WINDOW {
            self.halve();
        }
        self.follow_ratio()
    }

    fn halve(&mut self) {
        self.asks /= 2;
        self.cpu /= 2;
        self.memory_mib /= 2;
        self.named_mib.retain(|_, sum| {
            *sum /= 2;
            *sum > 0
        });
    }

    /// The ratio is looked at less and less often, and follows if it is a 32nd off: every entry of the index depends
    /// on it.
    fn follow_ratio(&mut self) -> bool {
        let is_time = self.asks.is_power_of_two() && (self.asks >= 64 || self.asks.trailing_zeros().is_multiple_of(2));
        if !is_time {
            return false;
        }
        let bytes = u128::from(self.memory_mib) << 20;
        let ratio = bytes.checked_div(u128::from(self.cpu)).and_then(|ratio| u64::try_from(ratio).ok()).unwrap_or(0);
        let (now, next) = (u128::from(self.bytes_per_millicore), u128::from(ratio));
        let is_close = next * 32 <= now * 33 && now * 32 <= next * 33;
        if is_close {
            return false;
        }
        self.bytes_per_millicore = ratio;
        true
    }
}
