//! Logarithms to the base of two in fixed point: integers only, so that every machine gets the same.

use serde::{Deserialize, Serialize};

/// Bits after the point.
const FRACTION_BITS: u32 = 16;
const ONE: i64 = 1 << FRACTION_BITS;

/// `2^(-1/2)`, `2^(-1/4)`, `2^(-1/8)` and so on, as parts of `2^32`.
const ROOTS: [u64; 16] = [
    3_037_000_500,
    3_611_622_603,
    3_938_502_376,
    4_112_874_773,
    4_202_935_003,
    4_248_701_965,
    4_271_771_996,
    4_283_353_945,
    4_289_156_690,
    4_292_061_010,
    4_293_513_907,
    4_294_240_540,
    4_294_603_903,
    4_294_785_595,
    4_294_876_445,
    4_294_921_870,
];

/// The logarithm of a positive number, to 1/65 536.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Log2(i64);

impl Log2 {
    /// The logarithm of a number; that of 0 is taken for that of 1.
    pub(crate) fn of(number: u64) -> Self {
        let number = number.max(1);
        let whole = number.ilog2();
        // The number as 1.63 fixed point; each squaring yields one more bit of its logarithm.
        let mut mantissa = u128::from(number) << (63 - whole);
        let mut fraction = 0;
        for _ in 0..FRACTION_BITS {
            mantissa = (mantissa * mantissa) >> 63;
            fraction <<= 1;
            if mantissa >> 64 != 0 {
                mantissa >>= 1;
                fraction |= 1;
            }
        }
        Self((i64::from(whole) << FRACTION_BITS) | fraction)
    }

    /// The logarithm of `2^(numerator / denominator)`.
    pub(crate) fn of_power(numerator: u64, denominator: u64) -> Self {
        let scaled = (u128::from(numerator) << FRACTION_BITS) / u128::from(denominator.max(1));
        Self(i64::try_from(scaled).unwrap_or(i64::MAX))
    }

    /// The same to 1/16, rounded down: numbers that differ by less than a twentieth are mostly equal.
    pub(crate) fn coarse(self) -> Self {
        Self(self.0 & !(ONE / 16 - 1))
    }

    /// The logarithm of the product.
    pub(crate) fn times(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// The logarithm of the quotient.
    pub(crate) fn over(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// The logarithm of the sum of both numbers.
    pub(crate) fn plus(self, other: Self) -> Self {
        let (larger, smaller) = (self.0.max(other.0), self.0.min(other.0));
        let ratio = Self(smaller.saturating_sub(larger)).scaled(32);
        let ratio = u64::try_from(ratio).unwrap_or(u64::MAX);
        let sum = Self::of((1u64 << 32).saturating_add(ratio)).0 - 32 * ONE;
        Self(larger.saturating_add(sum))
    }

    /// The number times `2^bits`, rounded down, at most `2^120`.
    pub(crate) fn scaled(self, bits: u32) -> u128 {
        let scaled = self.0.saturating_add(i64::from(bits) << FRACTION_BITS);
        let whole = scaled.div_euclid(ONE);
        if whole < 0 {
            return 0;
        }
        let whole = u32::try_from(whole).unwrap_or(u32::MAX);
        if whole >= 120 {
            return 1 << 120;
        }
        // 2^fraction as 2 * 2^-(1 - fraction), so that every factor is below one.
        let below = ONE - scaled.rem_euclid(ONE);
        let mut mantissa: u64 = 1 << 33;
        if below < ONE {
            for (bit, root) in ROOTS.iter().enumerate() {
                if below & (ONE >> (bit + 1)) != 0 {
                    mantissa = u64::try_from((u128::from(mantissa) * u128::from(*root)) >> 32).unwrap_or(u64::MAX);
                }
            }
        } else {
            mantissa = 1 << 32;
        }
        let mantissa = u128::from(mantissa);
        if whole >= 32 { mantissa << (whole - 32) } else { mantissa >> (32 - whole) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn powers_of_two_are_exact() {
        for power in 0..63 {
            assert_eq!(Log2::of(1 << power), Log2::of_power(power, 1));
            assert_eq!(Log2::of(1 << power).scaled(0), 1 << power);
        }
    }

    #[test]
    fn a_number_plus_itself_is_twice_as_large() {
        let ten = Log2::of(10);
        assert_eq!(ten.plus(ten), ten.times(Log2::of(2)));
    }

    proptest! {
        #[test]
        fn it_is_close_to_the_logarithm_and_back(number in 1..u64::MAX / 4, other in 1..u64::MAX / 4) {
            let close = |log: Log2, expected: f64| (log.0 as f64 / ONE as f64 - expected).abs() < 1e-4;
            prop_assert!(close(Log2::of(number), (number as f64).log2()));
            let sum = Log2::of(number).plus(Log2::of(other));
            prop_assert!(close(sum, (number as f64 + other as f64).log2()));
            let back = Log2::of(number).scaled(16) as f64 / 65_536.0;
            prop_assert!((back / number as f64 - 1.0).abs() < 1e-4);
        }

        #[test]
        fn it_keeps_the_order(number in 1..u64::MAX, other in 1..u64::MAX) {
            prop_assert!((number <= other) <= (Log2::of(number) <= Log2::of(other)));
        }
    }
}
