//! The header of one file.

use std::io::{Read, Seek};

use super::cursor::Cursor;
use super::error::HeaderError;
use super::tensor::Tensor;
use super::value::Metadata;

/// The most tensors of a model, all parts together. Large models have about two thousand.
pub(super) const TENSOR_LIMIT: u64 = 16_384;
/// The fewest bytes that a header spends on one tensor.
const LEAST_TENSOR: u64 = 8 + 4 + 4 + 8;
/// The fewest bytes that a header spends on one entry of the metadata.
const LEAST_ENTRY: u64 = 8 + 4 + 1;
/// The alignment of the data when the file does not state one.
const DEFAULT_ALIGNMENT: u64 = 32;

/// The header of one file.
#[derive(Clone, Debug)]
pub struct Header {
    /// The version of the format.
    pub version: u32,
    /// The metadata of the file.
    pub metadata: Metadata,
    /// The tensors, in the order of their names.
    pub tensors: Vec<Tensor>,
}

impl Header {
    /// Reads the header of a file that is `length` bytes long. None of its data is read, and no more than a few MiB are
    /// held, whatever the file states.
    pub fn read<R: Read + Seek>(reader: R, length: u64) -> Result<Self, HeaderError> {
        let mut cursor = Cursor::new(reader, length);
        let version = version(&mut cursor)?;
        let tensor_count = count(&mut cursor, "tensors", LEAST_TENSOR)?;
        let entry_count = count(&mut cursor, "keys", LEAST_ENTRY)?;
        if tensor_count > TENSOR_LIMIT {
            return Err(HeaderError::TooMany { what: "tensors", limit: TENSOR_LIMIT });
        }
        let mut metadata = Metadata::default();
        for _ in 0..entry_count {
            metadata.read(&mut cursor)?;
        }
        let tensors: Result<Vec<_>, _> = (0..tensor_count).map(|_| Tensor::read(&mut cursor)).collect();
        let tensors = placed(tensors?, &metadata, cursor.position(), length)?;
        Ok(Self { version, metadata, tensors })
    }
}

/// Reads the magic number and the version. A file of the other byte order is recognised by its version.
fn version<R: Read + Seek>(cursor: &mut Cursor<R>) -> Result<u32, HeaderError> {
    match &cursor.array::<4>("the magic word").map_err(not_gguf)? {
        b"GGUF" => {}
        b"FUGG" => return Err(HeaderError::BigEndian),
        _ => return Err(HeaderError::NotGguf),
    }
    match cursor.u32("the version").map_err(not_gguf)? {
        version @ 2..=3 => Ok(version),
        version if (1..=0xffff).contains(&version.swap_bytes()) => Err(HeaderError::BigEndian),
        version => Err(HeaderError::Version(version)),
    }
}

/// Treats a file that is too short for a version as one of another kind.
fn not_gguf(error: HeaderError) -> HeaderError {
    match error {
        HeaderError::BeyondFile { .. } => HeaderError::NotGguf,
        other => other,
    }
}

/// Reads a count and checks that the rest of the file could hold that many.
fn count<R: Read + Seek>(cursor: &mut Cursor<R>, what: &'static str, least: u64) -> Result<u64, HeaderError> {
    let count = cursor.u64(what)?;
    let needed = count.saturating_mul(least);
    match needed > cursor.remaining() {
        true => {
            let (wanted, length) =
                (cursor.position().saturating_add(needed), cursor.position().saturating_add(cursor.remaining()));
            Err(HeaderError::BeyondFile { what, wanted, length })
        }
        false => Ok(count),
    }
}

/// Checks that each tensor is inside the file, aligned, and overlaps no other, and that its name is unique.
fn placed(
    mut tensors: Vec<Tensor>,
    metadata: &Metadata,
    header_end: u64,
    length: u64,
) -> Result<Vec<Tensor>, HeaderError> {
    let alignment = metadata.count("general.alignment").unwrap_or(DEFAULT_ALIGNMENT);
    if !alignment.is_power_of_two() {
        return Err(HeaderError::Alignment(alignment));
    }
    let data = header_end.checked_next_multiple_of(alignment).map_or(0, |start| length.saturating_sub(start));
    tensors.sort_unstable_by_key(Tensor::offset);
    let mut free_from = 0;
    for tensor in &tensors {
        let end = tensor.offset().saturating_add(tensor.bytes());
        let problem = match () {
            () if !tensor.offset().is_multiple_of(alignment) => "not aligned",
            () if end > data => "beyond the file",
            () if tensor.offset() < free_from => "inside another tensor",
            () => {
                free_from = end;
                continue;
            }
        };
        return Err(HeaderError::Offset { tensor: tensor.name().to_owned(), offset: tensor.offset(), problem });
    }
    tensors.sort_unstable_by(|a, b| a.name().cmp(b.name()));
    match tensors.windows(2).find(|pair| pair[0].name() == pair[1].name()) {
        Some(pair) => Err(HeaderError::DuplicateTensor(pair[0].name().to_owned())),
        None => Ok(tensors),
    }
}
