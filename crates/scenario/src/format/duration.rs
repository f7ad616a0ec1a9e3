//! Durations as a file writes them.

use std::fmt;

use berth_domain::Span;
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer};

/// A length of time: a text with a unit. A bare number is refused, because it does not say whether it means seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SpanText(pub(crate) Span);

impl From<SpanText> for Span {
    fn from(text: SpanText) -> Self {
        text.0
    }
}

/// What is said to anything else.
fn refused<E: Error>(written: impl fmt::Display) -> E {
    E::custom(format_args!(
        "{written}: a duration is a text with a unit, such as \"30s\", \"1h 30m\" or \"500ms\", in whole milliseconds"
    ))
}

impl<'de> Deserialize<'de> for SpanText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = SpanText;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a duration such as \"30s\"")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<SpanText, E> {
                let has_unit = text.contains(char::is_alphabetic);
                let duration = humantime::parse_duration(text).ok().filter(|_| has_unit);
                // Time passes in milliseconds: less than one would be lost.
                let whole = duration.filter(|duration| duration.subsec_nanos() % 1_000_000 == 0);
                let millis = whole.and_then(|duration| u64::try_from(duration.as_millis()).ok());
                let span = millis.map(|millis| SpanText(Span::from_millis(millis)));
                span.ok_or_else(|| refused(format_args!("{text:?}")))
            }
            fn visit_i64<E: Error>(self, number: i64) -> Result<SpanText, E> {
                Err(refused(number))
            }
            fn visit_u64<E: Error>(self, number: u64) -> Result<SpanText, E> {
                Err(refused(number))
            }
            fn visit_f64<E: Error>(self, number: f64) -> Result<SpanText, E> {
                Err(refused(number))
            }
        }
        deserializer.deserialize_any(Text)
    }
}
