//! GPU memory that no work can use because the CPU beside it is gone.
//!
//! With `r` bytes of GPU memory for each millicore that work asks for ([`Learned`](crate::state::Learned)), a runner
//! with `G` bytes and `C` millicores free has an *excess* of `G - r * C`. What is above zero is stranded: the CPU runs out
//! first. Work that takes `g` bytes and `c` millicores moves the excess by `r * c - g`, so the change in what is stranded
//! only depends on the excess, and never falls with it or never rises with it. A range of excesses is therefore all that
//! a subtree of the index must know for a bound.

use super::ranked::Summary;

/// Changes in what is stranded count in steps of this part of a GPU.
const STEPS_OF_A_GPU: i64 = 5;

/// The excesses of the runners of a subtree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Strand {
    least: i64,
    most: i64,
}

impl Default for Strand {
    fn default() -> Self {
        Self { least: i64::MAX, most: i64::MIN }
    }
}

impl Summary for Strand {
    fn merge(&mut self, other: &Self) {
        self.least = self.least.min(other.least);
        self.most = self.most.max(other.most);
    }
}

impl Strand {
    /// A runner with so much GPU memory and CPU free, if each millicore comes with so many bytes.
    pub(crate) fn of(gpu_bytes: u64, millicores: u64, bytes_per_millicore: u64) -> Self {
        // Nobody asks for CPU, so none can be missing.
        if bytes_per_millicore == 0 {
            return Self { least: 0, most: 0 };
        }
        let usable = signed(millicores.saturating_mul(bytes_per_millicore));
        let excess = signed(gpu_bytes).saturating_sub(usable);
        Self { least: excess, most: excess }
    }
}

/// How work would move the excess of a runner.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StrandChange {
    by: i64,
    step: i64,
}

impl StrandChange {
    /// Work that strands nothing, wherever it goes.
    pub(crate) const NONE: Self = Self { by: 0, step: 1 };

    /// Work that takes so much, on GPUs of this size.
    pub(crate) fn of(gpu_bytes: u64, millicores: u64, bytes_per_millicore: u64, largest_gpu: u64) -> Self {
        if bytes_per_millicore == 0 {
            return Self::NONE;
        }
        let used = signed(millicores.saturating_mul(bytes_per_millicore));
        Self { by: used.saturating_sub(signed(gpu_bytes)), step: (signed(largest_gpu) / STEPS_OF_A_GPU).max(1) }
    }

    /// The least change in what is stranded on any runner of a subtree, in steps, rounded down. Exact for one runner.
    pub(crate) fn least_steps(self, strand: &Strand) -> i64 {
        // Work that needs more CPU than its GPU memory brings strands the least where the excess is least, other work
        // relieves the most where it is most.
        let excess = if self.by >= 0 { strand.least } else { strand.most };
        let stranded = |excess: i64| excess.max(0);
        (stranded(excess.saturating_add(self.by)) - stranded(excess)).div_euclid(self.step)
    }
}

fn signed(amount: u64) -> i64 {
    i64::try_from(amount).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn work_without_gpus_strands_what_its_cpu_would_have_served() {
        // 80 GiB for 8 cores: 10 MiB for each millicore.
        let ratio = 10 << 20;
        let work = StrandChange::of(0, 8000, ratio, 80 * GIB);
        let no_cpu_to_spare = Strand::of(160 * GIB, 16_000, ratio);
        let spare_cpu = Strand::of(160 * GIB, 32_000, ratio);
        assert_eq!(work.least_steps(&no_cpu_to_spare), 4, "80 000 MiB of 81 920");
        assert_eq!(work.least_steps(&spare_cpu), 0);
    }

    #[test]
    fn work_that_needs_little_cpu_relieves_what_is_stranded() {
        let ratio = 10 << 20;
        let work = StrandChange::of(80 * GIB, 0, ratio, 80 * GIB);
        assert_eq!(work.least_steps(&Strand::of(160 * GIB, 0, ratio)), -5);
        assert_eq!(work.least_steps(&Strand::of(80 * GIB, 16_000, ratio)), 0);
    }

    #[test]
    fn nothing_is_stranded_where_nobody_asks_for_cpu() {
        let work = StrandChange::of(GIB, 1000, 0, 80 * GIB);
        assert_eq!(work.least_steps(&Strand::of(160 * GIB, 0, 0)), 0);
    }

    proptest! {
        #[test]
        fn a_subtree_is_never_worse_than_one_of_its_runners(
            runners in proptest::collection::vec((0..640 * GIB, 0..128_000u64), 1..9),
            (bytes, cpu, ratio) in (0..640 * GIB, 0..64_000u64, 0..(40u64 << 20)),
        ) {
            let work = StrandChange::of(bytes, cpu, ratio, 80 * GIB);
            let mut all = Strand::default();
            let each: Vec<Strand> = runners.iter().map(|(gpu, cpu)| Strand::of(*gpu, *cpu, ratio)).collect();
            each.iter().for_each(|one| all.merge(one));
            let least = each.iter().map(|one| work.least_steps(one)).min().unwrap_or(0);
            prop_assert_eq!(work.least_steps(&all), least);
        }
    }
}
