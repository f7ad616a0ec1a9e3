//! Random numbers that are the same in every run, on every machine and for every policy.

/// `SplitMix64`: small, fast and fully determined by its seed.
#[derive(Clone, Debug)]
pub struct SplitMix(u64);

impl SplitMix {
    /// The numbers that follow from `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn next_number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        let scaled = u128::from(self.next_number()) * (end as u128);
        usize::try_from(scaled >> 64).unwrap_or(0)
    }

    /// A time until the next of events that come once in a unit of time.
    pub fn exponential(&mut self) -> f64 {
        let unit = (self.next_number() >> 11) as f64 / (1u64 << 53) as f64;
        -(1.0 - unit).ln()
    }

    /// Puts a list into a random order, from its end to its beginning.
    pub fn shuffle<T>(&mut self, list: &mut [T]) {
        for last in (1..list.len()).rev() {
            list.swap(last, self.below(last + 1));
        }
    }
}
