//! Values that may be written short: a name instead of a table, one thing instead of a list.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// A table that may also be written as a text.
pub(crate) trait FromText: Sized {
    /// The table that a text stands for.
    fn from_text(text: &str) -> Result<Self, String>;
    /// What to say to something that is neither.
    const EXPECTED: &'static str;
}

/// Reads a text or a table; for use with `deserialize_with`-like impls.
pub(crate) fn text_or_table<'de, D, T, U>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: FromText + From<U>,
    U: Deserialize<'de>,
{
    struct Either<T, U>(PhantomData<(T, U)>);

    impl<'de, T: FromText + From<U>, U: Deserialize<'de>> Visitor<'de> for Either<T, U> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(T::EXPECTED)
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
            T::from_text(text).map_err(E::custom)
        }

        fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
            T::from_text(&number.to_string()).map_err(E::custom)
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
            U::deserialize(MapAccessDeserializer::new(map)).map(T::from)
        }
    }

    deserializer.deserialize_any(Either(PhantomData))
}

/// One thing or a list of them.
#[derive(Debug, Clone)]
pub(crate) struct Many<T>(pub(crate) Vec<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Many<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneOrMore<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for OneOrMore<T> {
            type Value = Many<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("one or a list")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Many<T>, E> {
                T::deserialize(serde::de::value::StrDeserializer::new(text)).map(|one| Many(vec![one]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Many<T>, A::Error> {
                let all: Vec<T> = Vec::deserialize(SeqAccessDeserializer::new(list))?;
                if all.is_empty() { Err(A::Error::custom("an empty list names nothing")) } else { Ok(Many(all)) }
            }
        }

        deserializer.deserialize_any(OneOrMore(PhantomData))
    }
}
