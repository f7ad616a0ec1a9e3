//! A value that is expected: exactly this one, within bounds, or one of several.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::{F64Deserializer, I64Deserializer, MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Error, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// A value as a file writes it, and as it is found.
pub(crate) trait Expectable {
    /// What it is compared with.
    type Found: PartialEq + PartialOrd + ?Sized;
    /// Whether "at most" means something.
    const HAS_ORDER: bool;
    /// What the file says, as it would be found.
    fn as_found(&self) -> &Self::Found;
    /// The value in words.
    fn show(found: &Self::Found) -> String;
}

/// What is expected of a value: `3`, `{ at_least = 2, at_most = 4 }`, or `{ one_of = [2, 3] }`.
#[derive(Debug, Clone)]
pub(crate) enum Wanted<T> {
    Exactly(T),
    Within { at_least: Option<T>, at_most: Option<T> },
    OneOf(Vec<T>),
}

impl<T: Expectable> Wanted<T> {
    /// Whether this value is as expected.
    pub(crate) fn admits(&self, found: &T::Found) -> bool {
        match self {
            Self::Exactly(value) => value.as_found() == found,
            Self::Within { at_least, at_most } => {
                at_least.as_ref().is_none_or(|least| least.as_found() <= found)
                    && at_most.as_ref().is_none_or(|most| found <= most.as_found())
            }
            Self::OneOf(values) => values.iter().any(|value| value.as_found() == found),
        }
    }

    /// Every value that the file names here.
    pub(crate) fn values(&self) -> Vec<&T> {
        match self {
            Self::Exactly(value) => vec![value],
            Self::Within { at_least, at_most } => at_least.iter().chain(at_most).collect(),
            Self::OneOf(values) => values.iter().collect(),
        }
    }
}

impl<T: Expectable> fmt::Display for Wanted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let show = |value: &T| T::show(value.as_found());
        match self {
            Self::Exactly(value) => f.write_str(&show(value)),
            Self::Within { at_least, at_most } => {
                let least = at_least.iter().map(|least| format!("at least {}", show(least)));
                let most = at_most.iter().map(|most| format!("at most {}", show(most)));
                f.write_str(&least.chain(most).collect::<Vec<_>>().join(" and "))
            }
            Self::OneOf(values) => write!(f, "one of {}", values.iter().map(show).collect::<Vec<_>>().join(", ")),
        }
    }
}

/// Bounds or a choice, as they are written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table<T> {
    at_least: Option<T>,
    at_most: Option<T>,
    one_of: Option<Vec<T>>,
}

impl<T: Expectable> Table<T> {
    fn read(self) -> Result<Wanted<T>, String> {
        let Self { at_least, at_most, one_of } = self;
        let is_bounded = at_least.is_some() || at_most.is_some();
        match one_of {
            Some(_) if is_bounded => Err("one_of stands alone, without at_least and at_most".to_owned()),
            Some(values) if values.is_empty() => Err("one_of needs a value".to_owned()),
            Some(values) => Ok(Wanted::OneOf(values)),
            None if !is_bounded => Err("this table needs at_least, at_most or one_of".to_owned()),
            None if !T::HAS_ORDER => {
                Err("at_least and at_most are for numbers, sizes and durations; write one_of".to_owned())
            }
            None => match (&at_least, &at_most) {
                (Some(least), Some(most)) if least.as_found() > most.as_found() => Err(format!(
                    "no value is at least {} and at most {}",
                    T::show(least.as_found()),
                    T::show(most.as_found())
                )),
                _ => Ok(Wanted::Within { at_least, at_most }),
            },
        }
    }
}

impl<'de, T: Expectable + Deserialize<'de>> Deserialize<'de> for Wanted<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ValueOrTable<T>(PhantomData<T>);

        impl<'de, T: Expectable + Deserialize<'de>> Visitor<'de> for ValueOrTable<T> {
            type Value = Wanted<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value, or a table with at_least, at_most or one_of")
            }

            fn visit_bool<E: Error>(self, value: bool) -> Result<Wanted<T>, E> {
                T::deserialize(value.into_deserializer()).map(Wanted::Exactly)
            }

            fn visit_i64<E: Error>(self, value: i64) -> Result<Wanted<T>, E> {
                T::deserialize(I64Deserializer::new(value)).map(Wanted::Exactly)
            }

            fn visit_f64<E: Error>(self, value: f64) -> Result<Wanted<T>, E> {
                T::deserialize(F64Deserializer::new(value)).map(Wanted::Exactly)
            }

            fn visit_str<E: Error>(self, value: &str) -> Result<Wanted<T>, E> {
                T::deserialize(value.into_deserializer()).map(Wanted::Exactly)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Wanted<T>, A::Error> {
                T::deserialize(SeqAccessDeserializer::new(list)).map(Wanted::Exactly)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Wanted<T>, A::Error> {
                Table::deserialize(MapAccessDeserializer::new(map))?.read().map_err(A::Error::custom)
            }
        }

        deserializer.deserialize_any(ValueOrTable(PhantomData))
    }
}
