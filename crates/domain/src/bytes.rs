//! Memory in whole bytes.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// An amount of memory in whole bytes. Arithmetic is checked or saturating by name; there is no operator that wraps.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(u64);

impl Bytes {
    /// No memory.
    pub const ZERO: Self = Self(0);
    /// The largest amount that the type can hold.
    pub const MAX: Self = Self(u64::MAX);

    /// Makes an amount of `count` bytes.
    #[must_use]
    pub const fn new(count: u64) -> Self {
        Self(count)
    }

    /// Makes an amount of `count` mebibytes, or the largest amount if that overflows.
    #[must_use]
    pub const fn mib(count: u64) -> Self {
        Self(count.saturating_mul(1 << 20))
    }

    /// Makes an amount of `count` gibibytes, or the largest amount if that overflows.
    #[must_use]
    pub const fn gib(count: u64) -> Self {
        Self(count.saturating_mul(1 << 30))
    }

    /// Returns the number of bytes.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns whether the amount is zero.
    #[must_use]
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// Returns the sum, or `None` if it overflows.
    #[must_use]
    pub const fn checked_add(self, other: Self) -> Option<Self> {
        match self.0.checked_add(other.0) {
            Some(sum) => Some(Self(sum)),
            None => None,
        }
    }

    /// Returns the sum, or the largest amount if it overflows.
    #[must_use]
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// Returns the difference, or zero if `other` is larger.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// Returns an equal share for each of `parts`, rounded up so that the shares together are not too small.
    #[must_use]
    pub const fn split(self, parts: u16) -> Self {
        if parts == 0 { self } else { Self(self.0.div_ceil(parts as u64)) }
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}B", self.0)
    }
}

/// Formats the amount for people: in decimal megabytes where that is exact and binary units are not (as such sizes are
/// written), else in the largest binary unit with two decimals, rounded down.
impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(&str, u64); 4] = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
        const MEGABYTE: u64 = 1_000_000;
        if self.0 >= MEGABYTE && self.0.is_multiple_of(MEGABYTE) && !self.0.is_multiple_of(1 << 20) {
            return write!(f, "{} MB", self.0 / MEGABYTE);
        }
        for (unit, size) in UNITS {
            if self.0 >= size {
                let whole = self.0 / size;
                let hundredths = u64::try_from(u128::from(self.0 % size) * 100 / u128::from(size)).unwrap_or(99);
                return match hundredths {
                    0 => write!(f, "{whole} {unit}"),
                    h if h % 10 == 0 => write!(f, "{whole}.{} {unit}", h / 10),
                    h => write!(f, "{whole}.{h:02} {unit}"),
                };
            }
        }
        write!(f, "{} B", self.0)
    }
}

/// The error for a text that is no amount of memory.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseBytesError {
    /// The text has no decimal number.
    #[error("{0:?} is not a size: write bytes (79982566400) or a number with a unit (\"74.49GiB\")")]
    NotANumber(String),
    /// The unit is not known.
    #[error("unknown unit {0:?}: use B, KB, MB, GB, TB, KiB, MiB, GiB or TiB")]
    UnknownUnit(String),
    /// The amount does not fit into 64 bits.
    #[error("{0:?} is larger than any memory")]
    TooLarge(String),
}

/// Parses `"74.49GiB"`, `"8000MB"`, `"39 GiB"` or plain bytes. A fraction of a byte is rounded up; a fraction without a
/// unit is refused.
impl FromStr for Bytes {
    type Err = ParseBytesError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let not_a_number = || ParseBytesError::NotANumber(text.to_owned());
        let trimmed = text.trim();
        let digits = trimmed.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(digits);
        let scale = unit_size(unit.trim())?;
        let (whole, fraction) = match number.split_once('.') {
            Some((whole, fraction)) if scale > 1 && !fraction.is_empty() => (whole, fraction),
            Some(_) => return Err(not_a_number()),
            None => (number, ""),
        };
        if whole.is_empty() || fraction.contains('.') || fraction.len() > 18 || whole.len() > 20 {
            return Err(not_a_number());
        }
        let too_large = || ParseBytesError::TooLarge(text.to_owned());
        let whole: u128 = whole.parse().map_err(|_| not_a_number())?;
        let parts: u128 = if fraction.is_empty() { 0 } else { fraction.parse().map_err(|_| not_a_number())? };
        let ten = 10u128.pow(u32::try_from(fraction.len()).unwrap_or(18));
        let rest = (parts * scale).div_ceil(ten);
        let total = whole.checked_mul(scale).and_then(|w| w.checked_add(rest)).ok_or_else(too_large)?;
        u64::try_from(total).map(Self).map_err(|_| too_large())
    }
}

fn unit_size(unit: &str) -> Result<u128, ParseBytesError> {
    Ok(match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        "kib" => 1 << 10,
        "mib" => 1 << 20,
        "gib" => 1 << 30,
        "tib" => 1 << 40,
        _ => return Err(ParseBytesError::UnknownUnit(unit.to_owned())),
    })
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Bytes;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number of bytes or a text such as \"74.49GiB\"")
            }
            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Bytes, E> {
                Ok(Bytes(value))
            }
            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Bytes, E> {
                u64::try_from(value).map(Bytes).map_err(|_| E::custom(format!("{value} is less than nothing")))
            }
            fn visit_str<E: de::Error>(self, value: &str) -> Result<Bytes, E> {
                value.parse().map_err(E::custom)
            }
        }
        if deserializer.is_human_readable() {
            deserializer.deserialize_any(Visitor)
        } else {
            deserializer.deserialize_u64(Visitor)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn incident_sizes_are_read_to_the_byte() {
        assert_eq!("74.49GiB".parse(), Ok(Bytes::new(79_983_028_470)));
        assert_eq!("79982566400".parse(), Ok(Bytes::new(79_982_566_400)));
        assert_eq!("32600 MB".parse(), Ok(Bytes::new(32_600_000_000)));
        assert_eq!("24564MiB".parse(), Ok(Bytes::mib(24_564)));
        assert_eq!("0.3GiB".parse(), Ok(Bytes::new(322_122_548)), "a part of a byte is rounded up");
    }

    #[test]
    fn what_is_no_size_is_refused_by_kind() {
        for bad in ["", "-1", "1.5", "NaN", "1e400", "GiB", "1.GiB", ".5GiB", "1.2.3GiB", "0x10"] {
            assert!(bad.parse::<Bytes>().is_err(), "{bad:?} was taken");
        }
        assert!(matches!("99999999EiB".parse::<Bytes>(), Err(ParseBytesError::UnknownUnit(_))));
        assert!(matches!("99999999999TiB".parse::<Bytes>(), Err(ParseBytesError::TooLarge(_))));
    }

    #[test]
    fn people_read_the_largest_unit() {
        for (bytes, text) in [(0, "0 B"), (1023, "1023 B"), (1 << 30, "1 GiB"), (79_982_566_400, "74.48 GiB")] {
            assert_eq!(Bytes::new(bytes).to_string(), text);
        }
    }

    proptest! {
        #[test]
        fn a_split_is_never_too_small(total in any::<u64>(), parts in 1u16..64) {
            let share = u128::from(Bytes::new(total).split(parts).get());
            prop_assert!(share * u128::from(parts) >= u128::from(total));
            prop_assert!(share.saturating_sub(1) * u128::from(parts) < u128::from(total).max(1));
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,24}") {
            let _ = text.parse::<Bytes>();
        }
    }
}
