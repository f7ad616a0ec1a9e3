//! The kinds of values that may be expected.

use std::fmt;
use std::marker::PhantomData;

use berth_domain::{Bytes, Span};
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::duration::SpanText;
use super::wanted::Expectable;
use crate::vocabulary::Vocabulary;

impl Expectable for u64 {
    type Found = Self;
    const HAS_ORDER: bool = true;
    fn as_found(&self) -> &Self {
        self
    }
    fn show(found: &Self) -> String {
        found.to_string()
    }
}

impl Expectable for SpanText {
    type Found = Span;
    const HAS_ORDER: bool = true;
    fn as_found(&self) -> &Span {
        &self.0
    }
    /// Long spans are shown without their milliseconds elsewhere; here they may be all that differs.
    fn show(found: &Span) -> String {
        match found.millis() % 1000 {
            0 => found.to_string(),
            _ => format!("{found} ({} ms)", found.millis()),
        }
    }
}

/// A size, exact to the byte. A list is the sum of its parts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size(pub(crate) Bytes);

impl Expectable for Size {
    type Found = Bytes;
    const HAS_ORDER: bool = true;
    fn as_found(&self) -> &Bytes {
        &self.0
    }
    fn show(found: &Bytes) -> String {
        format!("{found} ({} B)", found.get())
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Sum;
        impl<'de> Visitor<'de> for Sum {
            type Value = Size;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes, a text such as \"39GiB\", or a list of them to be added up")
            }
            fn visit_i64<E: Error>(self, value: i64) -> Result<Size, E> {
                u64::try_from(value).map(|bytes| Size(Bytes::new(bytes))).map_err(E::custom)
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Size, E> {
                text.parse().map(Size).map_err(E::custom)
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Size, A::Error> {
                let mut sum = Bytes::ZERO;
                while let Some(Size(part)) = list.next_element()? {
                    sum = sum.saturating_add(part);
                }
                Ok(Size(sum))
            }
        }
        deserializer.deserialize_any(Sum)
    }
}

/// A word of a closed list. One that is not in the list is refused where it is read.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Word<V> {
    text: String,
    of: PhantomData<V>,
}

impl<V> AsRef<str> for Word<V> {
    fn as_ref(&self) -> &str {
        &self.text
    }
}

impl<V> Word<V> {
    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }
}

impl<V: Vocabulary> Word<V> {
    /// The word, if the list has it.
    pub(crate) fn new(text: &str) -> Result<Self, String> {
        let known = V::known();
        if known.contains(&text) {
            return Ok(Self { text: text.to_owned(), of: PhantomData });
        }
        let known: Vec<String> = known.iter().map(|word| format!("`{word}`")).collect();
        Err(format!("unknown {} `{text}`, expected one of {}", V::WHAT, known.join(", ")))
    }
}

impl<V> Expectable for Word<V> {
    type Found = str;
    const HAS_ORDER: bool = false;
    fn as_found(&self) -> &str {
        &self.text
    }
    fn show(found: &str) -> String {
        found.to_owned()
    }
}

impl<'de, V: Vocabulary> Deserialize<'de> for Word<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::new(&text).map_err(D::Error::custom)
    }
}

/// A name of something in the file.
#[derive(Debug, Clone, Deserialize)]
#[serde(transparent)]
pub(crate) struct Name(pub(crate) String);

impl Expectable for Name {
    type Found = str;
    const HAS_ORDER: bool = false;
    fn as_found(&self) -> &str {
        &self.0
    }
    fn show(found: &str) -> String {
        found.to_owned()
    }
}

/// Names whose order says something.
#[derive(Debug, Clone, Deserialize)]
#[serde(transparent)]
pub(crate) struct NameList(pub(crate) Vec<String>);

impl Expectable for NameList {
    type Found = [String];
    const HAS_ORDER: bool = false;
    fn as_found(&self) -> &[String] {
        &self.0
    }
    fn show(found: &[String]) -> String {
        format!("[{}]", found.join(", "))
    }
}

/// Names whose order says nothing; they are kept in order.
#[derive(Debug, Clone, Deserialize)]
#[serde(from = "Vec<String>")]
pub(crate) struct NameSet(pub(crate) Vec<String>);

impl From<Vec<String>> for NameSet {
    fn from(mut names: Vec<String>) -> Self {
        names.sort();
        Self(names)
    }
}

impl Expectable for NameSet {
    type Found = [String];
    const HAS_ORDER: bool = false;
    fn as_found(&self) -> &[String] {
        &self.0
    }
    fn show(found: &[String]) -> String {
        NameList::show(found)
    }
}
