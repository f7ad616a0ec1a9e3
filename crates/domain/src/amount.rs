//! Amounts other than memory: CPU time and fractions of a device.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::Bytes;

/// Thousandths of a CPU core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Millicores(u64);

impl Millicores {
    /// No CPU.
    pub const ZERO: Self = Self(0);

    /// Makes an amount of `count` thousandths of a core.
    #[must_use]
    pub const fn new(count: u64) -> Self {
        Self(count)
    }

    /// Returns the number of thousandths.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Millicores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} m", self.0)
    }
}

/// A fraction of one device's capacity, in millionths: more than nothing, at most the whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fraction(u32);

impl Fraction {
    /// One whole, in millionths.
    pub const WHOLE: u32 = 1_000_000;

    /// Makes a fraction of `millionths`, or returns `None` unless it is more than nothing and at most one.
    #[must_use]
    pub const fn from_millionths(millionths: u32) -> Option<Self> {
        if millionths == 0 || millionths > Self::WHOLE { None } else { Some(Self(millionths)) }
    }

    /// Returns the fraction in millionths.
    #[must_use]
    pub const fn millionths(self) -> u32 {
        self.0
    }

    /// Returns this fraction of `capacity`, rounded up to a byte.
    #[must_use]
    pub fn of(self, capacity: Bytes) -> Bytes {
        let product = u128::from(capacity.get()) * u128::from(self.0);
        Bytes::new(u64::try_from(product.div_ceil(u128::from(Self::WHOLE))).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for Fraction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{}.{:06}", self.0 / Self::WHOLE, self.0 % Self::WHOLE);
        f.write_str(text.trim_end_matches('0').trim_end_matches('.'))
    }
}

/// The error for a number that is no fraction of a device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0} is not a fraction of a GPU: it must be more than 0, at most 1, with at most six decimals")]
pub struct ParseFractionError(String);

impl FromStr for Fraction {
    type Err = ParseFractionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refuse = || ParseFractionError(text.to_owned());
        let (whole, decimals) = text.trim().split_once('.').unwrap_or((text.trim(), ""));
        let digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
        if !digits(whole) || !digits(decimals) || whole.len() > 4 || decimals.len() > 6 || whole.is_empty() {
            return Err(refuse());
        }
        let whole: u32 = whole.parse().map_err(|_| refuse())?;
        let parts: u32 = format!("{decimals:0<6}").parse().map_err(|_| refuse())?;
        whole
            .checked_mul(Self::WHOLE)
            .and_then(|w| w.checked_add(parts))
            .and_then(Self::from_millionths)
            .ok_or_else(refuse)
    }
}

impl Serialize for Fraction {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() { serializer.collect_str(self) } else { serializer.serialize_u32(self.0) }
    }
}

impl<'de> Deserialize<'de> for Fraction {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Fraction;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a fraction of a GPU, more than 0 and at most 1")
            }
            // A float's shortest text is what its author wrote, so 0.1 is a tenth and not a little more.
            fn visit_f64<E: de::Error>(self, value: f64) -> Result<Fraction, E> {
                value.to_string().parse().map_err(E::custom)
            }
            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Fraction, E> {
                value.to_string().parse().map_err(E::custom)
            }
            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Fraction, E> {
                value.to_string().parse().map_err(E::custom)
            }
            fn visit_str<E: de::Error>(self, value: &str) -> Result<Fraction, E> {
                value.parse().map_err(E::custom)
            }
        }
        if deserializer.is_human_readable() {
            deserializer.deserialize_any(Visitor)
        } else {
            let millionths = u32::deserialize(deserializer)?;
            Self::from_millionths(millionths)
                .ok_or_else(|| de::Error::custom(ParseFractionError(millionths.to_string())))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fraction_is_bytes_rounded_up() {
        let half: Fraction = "0.5".parse().unwrap_or(Fraction(1));
        assert_eq!(half.of(Bytes::gib(80)), Bytes::gib(40));
        assert_eq!(half.of(Bytes::new(3)), Bytes::new(2));
        assert_eq!(half.to_string(), "0.5");
    }

    #[test]
    fn what_is_no_fraction_is_refused() {
        for bad in ["0", "1.000001", "-0.5", "NaN", "inf", "1e-3", "0.1234567", "", "."] {
            assert!(bad.parse::<Fraction>().is_err(), "{bad:?} was taken");
        }
    }
}
