//! Metadata of a GGUF file, within limits.

use std::collections::BTreeMap;
use std::io::{Read, Seek};

use super::cursor::Cursor;
use super::error::HeaderError;

/// The longest name of a key, as the format says.
const KEY_LIMIT: u64 = 65_535;
/// A longer text is skipped: only its length is known afterwards. Chat templates are such texts.
const TEXT_LIMIT: u64 = 1 << 10;
/// A longer array is skipped: vocabularies are such arrays, lists by layer are not.
const LIST_LIMIT: u64 = 4_096;
/// How deep arrays may be nested.
const DEPTH_LIMIT: u32 = 4;
/// The most memory for all that is kept of one file.
const KEPT_LIMIT: u64 = 1 << 20;
/// The memory that a map's entry costs in addition to its name and value.
const ENTRY_COST: u64 = 64;

/// A value of the metadata. Integer widths are not kept.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// An unsigned integer.
    Unsigned(u64),
    /// A signed integer.
    Signed(i64),
    /// A floating-point number.
    Float(f64),
    /// A boolean.
    Bool(bool),
    /// A short text. Invalid UTF-8 in it is replaced.
    Text(Box<str>),
    /// A text that was skipped.
    LongText {
        /// Its length in bytes.
        length: u64,
    },
    /// A short array.
    List(Box<[Value]>),
    /// An array that was skipped.
    LongList {
        /// The number of its elements.
        length: u64,
    },
}

impl Value {
    /// Returns the value as a count, if it is a non-negative integer.
    #[must_use]
    pub fn count(&self) -> Option<u64> {
        match self {
            Self::Unsigned(number) => Some(*number),
            Self::Signed(number) => u64::try_from(*number).ok(),
            Self::Bool(truth) => Some(u64::from(*truth)),
            _ => None,
        }
    }
}

/// The metadata of one file.
#[derive(Clone, Debug, Default)]
pub struct Metadata {
    entries: BTreeMap<Box<str>, Value>,
    kept: u64,
}

impl Metadata {
    /// Returns the value of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.entries.get(key)
    }

    /// Returns the value of a key as a count.
    #[must_use]
    pub fn count(&self, key: &str) -> Option<u64> {
        self.get(key).and_then(Value::count)
    }

    /// Returns the value of a key as a text.
    #[must_use]
    pub fn text(&self, key: &str) -> Option<&str> {
        match self.get(key) {
            Some(Value::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// Returns the number of elements of an array, whether it was kept or not.
    #[must_use]
    pub fn length(&self, key: &str) -> Option<u64> {
        match self.get(key) {
            Some(Value::List(list)) => Some(list.len() as u64),
            Some(Value::LongList { length }) => Some(*length),
            _ => None,
        }
    }

    /// Returns all keys with their values, in the order of the keys.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.entries.iter().map(|(key, value)| (key.as_ref(), value))
    }

    /// Reads one entry.
    pub(super) fn read<R: Read + Seek>(&mut self, cursor: &mut Cursor<R>) -> Result<(), HeaderError> {
        let key = name(cursor, "a key", KEY_LIMIT)?;
        self.charge(ENTRY_COST + key.len() as u64)?;
        let kind = Kind::read(cursor)?;
        let value = self.value(cursor, kind, 0)?;
        match self.entries.entry(key) {
            std::collections::btree_map::Entry::Vacant(place) => {
                place.insert(value);
                Ok(())
            }
            std::collections::btree_map::Entry::Occupied(place) => {
                Err(HeaderError::DuplicateKey(place.key().to_string()))
            }
        }
    }

    fn charge(&mut self, bytes: u64) -> Result<(), HeaderError> {
        self.kept = self.kept.saturating_add(bytes);
        match self.kept > KEPT_LIMIT {
            true => Err(HeaderError::TooMany { what: "bytes of small metadata", limit: KEPT_LIMIT }),
            false => Ok(()),
        }
    }

    fn value<R: Read + Seek>(&mut self, cursor: &mut Cursor<R>, kind: Kind, depth: u32) -> Result<Value, HeaderError> {
        const WHAT: &str = "a value";
        Ok(match kind {
            Kind::U8 => Value::Unsigned(cursor.array::<1>(WHAT)?[0].into()),
            Kind::I8 => Value::Signed(i8::from_le_bytes(cursor.array(WHAT)?).into()),
            Kind::U16 => Value::Unsigned(u16::from_le_bytes(cursor.array(WHAT)?).into()),
            Kind::I16 => Value::Signed(i16::from_le_bytes(cursor.array(WHAT)?).into()),
            Kind::U32 => Value::Unsigned(cursor.u32(WHAT)?.into()),
            Kind::I32 => Value::Signed(i32::from_le_bytes(cursor.array(WHAT)?).into()),
            Kind::F32 => Value::Float(f32::from_le_bytes(cursor.array(WHAT)?).into()),
            Kind::U64 => Value::Unsigned(cursor.u64(WHAT)?),
            Kind::I64 => Value::Signed(i64::from_le_bytes(cursor.array(WHAT)?)),
            Kind::F64 => Value::Float(f64::from_le_bytes(cursor.array(WHAT)?)),
            Kind::Bool => match cursor.array::<1>(WHAT)?[0] {
                0 => Value::Bool(false),
                1 => Value::Bool(true),
                other => return Err(HeaderError::NotABool(other)),
            },
            Kind::Text => self.text_value(cursor)?,
            Kind::Array => self.list(cursor, depth)?,
        })
    }

    fn text_value<R: Read + Seek>(&mut self, cursor: &mut Cursor<R>) -> Result<Value, HeaderError> {
        let length = cursor.u64("a text")?;
        if length > TEXT_LIMIT {
            cursor.skip(length, "a text")?;
            return Ok(Value::LongText { length });
        }
        // An invalid byte may become three.
        self.charge(length.saturating_mul(3))?;
        let bytes = cursor.bytes(length, "a text")?;
        Ok(Value::Text(String::from_utf8_lossy(&bytes).into_owned().into_boxed_str()))
    }

    fn list<R: Read + Seek>(&mut self, cursor: &mut Cursor<R>, depth: u32) -> Result<Value, HeaderError> {
        if depth >= DEPTH_LIMIT {
            return Err(HeaderError::TooDeep { limit: DEPTH_LIMIT });
        }
        let kind = Kind::read(cursor)?;
        let length = cursor.u64("an array")?;
        // Each element takes at least this many bytes, so a count that the file cannot hold fails here.
        let least = length.saturating_mul(kind.least_size());
        if least > cursor.remaining() {
            let (wanted, end) = (cursor.position().saturating_add(least), cursor.position() + cursor.remaining());
            return Err(HeaderError::BeyondFile { what: "an array", wanted, length: end });
        }
        if length > LIST_LIMIT {
            skip_elements(cursor, kind, length, depth)?;
            return Ok(Value::LongList { length });
        }
        self.charge(length.saturating_mul(size_of::<Value>() as u64))?;
        let elements: Result<Vec<_>, _> = (0..length).map(|_| self.value(cursor, kind, depth + 1)).collect();
        elements.map(|elements| Value::List(elements.into_boxed_slice()))
    }
}

/// Skips the elements of an array.
fn skip_elements<R: Read + Seek>(
    cursor: &mut Cursor<R>,
    kind: Kind,
    length: u64,
    depth: u32,
) -> Result<(), HeaderError> {
    match kind {
        Kind::Text => {
            for _ in 0..length {
                let bytes = cursor.u64("a text")?;
                cursor.skip(bytes, "a text")?;
            }
            Ok(())
        }
        Kind::Array if depth + 1 >= DEPTH_LIMIT => Err(HeaderError::TooDeep { limit: DEPTH_LIMIT }),
        Kind::Array => {
            for _ in 0..length {
                let inner = Kind::read(cursor)?;
                let count = cursor.u64("an array")?;
                skip_elements(cursor, inner, count, depth + 1)?;
            }
            Ok(())
        }
        fixed => cursor.skip(length.saturating_mul(fixed.least_size()), "an array"),
    }
}

/// Reads a name. Unlike other texts it must be complete, because it is looked up.
pub(super) fn name<R: Read + Seek>(
    cursor: &mut Cursor<R>,
    what: &'static str,
    limit: u64,
) -> Result<Box<str>, HeaderError> {
    let length = cursor.u64(what)?;
    if length > limit {
        return Err(HeaderError::NameTooLong { what, length, limit });
    }
    let bytes = cursor.bytes(length, what)?;
    String::from_utf8(bytes).map(String::into_boxed_str).map_err(|_| HeaderError::NotText(what))
}

/// The types of values, by the numbers that the format assigns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    F32,
    Bool,
    Text,
    Array,
    U64,
    I64,
    F64,
}

impl Kind {
    const ALL: [Self; 13] = [
        Self::U8,
        Self::I8,
        Self::U16,
        Self::I16,
        Self::U32,
        Self::I32,
        Self::F32,
        Self::Bool,
        Self::Text,
        Self::Array,
        Self::U64,
        Self::I64,
        Self::F64,
    ];

    fn read<R: Read + Seek>(cursor: &mut Cursor<R>) -> Result<Self, HeaderError> {
        let number = cursor.u32("a value's type")?;
        let known = usize::try_from(number).ok().and_then(|number| Self::ALL.get(number));
        known.copied().ok_or(HeaderError::ValueType(number))
    }

    /// Returns the bytes of one value, or the fewest that it can have.
    const fn least_size(self) -> u64 {
        match self {
            Self::U8 | Self::I8 | Self::Bool => 1,
            Self::U16 | Self::I16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 | Self::Text => 8,
            Self::Array => 12,
        }
    }
}
