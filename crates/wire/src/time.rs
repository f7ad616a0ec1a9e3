//! Times and lengths of time as text.

use std::fmt;
use std::str::FromStr;

use berth_domain::{ParseSpanError, Span, Timestamp};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::json;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{KnownFormat, ObjectBuilder, OneOfBuilder, Schema, SchemaFormat, SchemaType, Type};
use utoipa::{PartialSchema, ToSchema};

/// A point in time: RFC 3339 in UTC, with milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub Timestamp);

impl From<Timestamp> for Time {
    fn from(timestamp: Timestamp) -> Self {
        Self(timestamp)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = i64::try_from(self.0.millis()).unwrap_or(i64::MAX);
        // Past the year 9999 there is no such text; nobody reads on from there.
        let time = jiff::Timestamp::from_millisecond(millis).unwrap_or(jiff::Timestamp::MAX);
        write!(f, "{time:.3}")
    }
}

/// The error for a text that is no time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a time: write it as 2026-01-31T09:30:00.000Z, not before 1970")]
pub struct ParseTimeError(String);

impl FromStr for Time {
    type Err = ParseTimeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refuse = || ParseTimeError(text.to_owned());
        let time: jiff::Timestamp = text.parse().map_err(|_| refuse())?;
        u64::try_from(time.as_millisecond()).map(|millis| Self(Timestamp::from_millis(millis))).map_err(|_| refuse())
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl PartialSchema for Time {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(SchemaType::new(Type::String))
            .format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime)))
            .description(Some("A point in time: RFC 3339 in UTC, with milliseconds."))
            .examples([json!("2026-01-31T09:30:00.000Z")])
            .into()
    }
}

impl ToSchema for Time {}

/// A length of time: text such as `"10m"`; milliseconds are read too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimeSpan(pub Span);

impl From<Span> for TimeSpan {
    fn from(span: Span) -> Self {
        Self(span)
    }
}

/// Formats the length to the millisecond, so that it can be parsed again without loss.
impl fmt::Display for TimeSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", humantime::format_duration(std::time::Duration::from_millis(self.0.millis())))
    }
}

impl FromStr for TimeSpan {
    type Err = ParseSpanError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // In a query everything is text, milliseconds too.
        match text.parse() {
            Ok(millis) => Ok(Self(Span::from_millis(millis))),
            Err(_) => text.parse().map(Self),
        }
    }
}

impl Serialize for TimeSpan {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for TimeSpan {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = TimeSpan;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a length of time such as \"10m\", or whole milliseconds")
            }
            fn visit_u64<E: de::Error>(self, millis: u64) -> Result<TimeSpan, E> {
                Ok(TimeSpan(Span::from_millis(millis)))
            }
            fn visit_i64<E: de::Error>(self, millis: i64) -> Result<TimeSpan, E> {
                u64::try_from(millis)
                    .map(|millis| TimeSpan(Span::from_millis(millis)))
                    .map_err(|_| E::custom(format!("{millis} ms is less than nothing")))
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<TimeSpan, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

impl PartialSchema for TimeSpan {
    fn schema() -> RefOr<Schema> {
        let text = ObjectBuilder::new()
            .schema_type(SchemaType::new(Type::String))
            .min_length(Some(1))
            .description(Some("Numbers with units (ms, s, m, h, days), or milliseconds."))
            .examples([json!("10m"), json!("1h 30m")]);
        let millis = ObjectBuilder::new()
            .schema_type(SchemaType::new(Type::Integer))
            .format(Some(SchemaFormat::KnownFormat(KnownFormat::UInt64)))
            .minimum(Some(0))
            .maximum(Some(u64::MAX))
            .description(Some("Milliseconds."));
        OneOfBuilder::new().item(text).item(millis).description(Some("A length of time; goes out as text.")).into()
    }
}

impl ToSchema for TimeSpan {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_time_goes_out_with_milliseconds() {
        let time = Time(Timestamp::from_millis(1_769_851_800_007));
        assert_eq!(serde_json::to_string(&time).unwrap(), "\"2026-01-31T09:30:00.007Z\"");
        assert_eq!(Time(Timestamp::default()).to_string(), "1970-01-01T00:00:00.000Z");
        assert_eq!("2026-01-31T10:30:00.007+01:00".parse(), Ok(time), "other zones are read");
        assert_eq!(Time(Timestamp::from_millis(u64::MAX)).to_string(), "9999-12-30T22:00:00.999Z", "no panic");
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for bad in ["", "yesterday", "2026-01-31", "2026-13-01T00:00:00Z", "1969-12-31T23:59:59Z"] {
            assert!(bad.parse::<Time>().is_err(), "{bad:?} was taken");
        }
    }

    #[test]
    fn lengths_of_time_are_text_or_milliseconds() {
        for text in ["\"10m\"", "600000", "\"600000\""] {
            assert_eq!(serde_json::from_str::<TimeSpan>(text).unwrap(), TimeSpan(Span::from_secs(600)), "{text}");
        }
        assert_eq!(serde_json::to_string(&TimeSpan(Span::from_secs(600))).unwrap(), "\"10m\"");
        for bad in ["-1", "1.5", "\"\"", "\"soon\"", "\"-5s\"", "1e400", "\"99999999999999999999h\""] {
            assert!(serde_json::from_str::<TimeSpan>(bad).is_err(), "{bad} was taken");
        }
    }

    proptest! {
        #[test]
        fn what_goes_out_comes_back(millis in 0u64..100_000_000_000_000) {
            let (time, span) = (Time(Timestamp::from_millis(millis)), TimeSpan(Span::from_millis(millis)));
            prop_assert_eq!(time.to_string().parse(), Ok(time));
            prop_assert_eq!(span.to_string().parse(), Ok(span));
        }
    }
}
