//! Why a GGUF file is refused.

use std::io;
use std::path::PathBuf;

/// An error inside one file.
#[derive(Debug, thiserror::Error)]
pub enum HeaderError {
    /// The file cannot be read.
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
    /// The file is of another kind.
    #[error("is not a GGUF file")]
    NotGguf,
    /// The file has big-endian numbers.
    #[error("is a big-endian GGUF file; only little-endian ones are read")]
    BigEndian,
    /// The version of the format is not supported.
    #[error("is GGUF version {0}; versions 2 and 3 are read")]
    Version(u32),
    /// A value reaches past the end of the file.
    #[error("ends at byte {length}, but {what} reaches to byte {wanted}")]
    BeyondFile {
        /// The part of the header that was being read.
        what: &'static str,
        /// The end that it would have, saturated at the largest number.
        wanted: u64,
        /// The length of the file.
        length: u64,
    },
    /// The header is longer than that of any model.
    #[error("has a header of more than {limit} bytes")]
    HeaderTooLong {
        /// The limit in bytes.
        limit: u64,
    },
    /// The header lists more of something than any model has.
    #[error("has more {what} than {limit}")]
    TooMany {
        /// The kind of thing that is listed.
        what: &'static str,
        /// The limit.
        limit: u64,
    },
    /// A name is longer than that of any model.
    #[error("has {what} of {length} bytes; at most {limit} are read")]
    NameTooLong {
        /// The kind of thing that is named.
        what: &'static str,
        /// The stated length.
        length: u64,
        /// The limit.
        limit: u64,
    },
    /// A name is not UTF-8.
    #[error("has {0} that is not UTF-8")]
    NotText(&'static str),
    /// A value has a type that the format does not have.
    #[error("has a value of type {0}, which the format does not have")]
    ValueType(u32),
    /// A boolean is neither 0 nor 1.
    #[error("has a truth value of {0}")]
    NotABool(u8),
    /// Arrays are nested too deeply.
    #[error("has arrays that are nested more than {limit} deep")]
    TooDeep {
        /// The limit.
        limit: u32,
    },
    /// A key appears twice.
    #[error("has the key {0:?} twice")]
    DuplicateKey(String),
    /// A tensor appears twice.
    #[error("has the tensor {0:?} twice")]
    DuplicateTensor(String),
    /// The alignment of the data is not possible.
    #[error("has an alignment of {0}, which is not a power of two")]
    Alignment(u64),
    /// A tensor has an unknown type.
    #[error("has the tensor {tensor:?} of type {kind}, which is not known")]
    TensorType {
        /// The tensor's name.
        tensor: String,
        /// The number of its type.
        kind: u32,
    },
    /// A tensor has more dimensions than the format allows.
    #[error("has the tensor {tensor:?} with {dimensions} dimensions; there are at most 4")]
    Dimensions {
        /// The tensor's name.
        tensor: String,
        /// The stated number of dimensions.
        dimensions: u32,
    },
    /// A tensor has a size that is not possible.
    #[error("has the tensor {0:?} with a size that cannot be")]
    TensorSize(String),
    /// A row of a tensor is not a whole number of blocks.
    #[error("has the tensor {tensor:?} with rows of {row} values, which are not whole blocks of {block}")]
    BrokenRow {
        /// The tensor's name.
        tensor: String,
        /// The number of values in one row.
        row: u64,
        /// The number of values in one block.
        block: u64,
    },
    /// A tensor is in the wrong place.
    #[error("has the tensor {tensor:?} at offset {offset}, which is {problem}")]
    Offset {
        /// The tensor's name.
        tensor: String,
        /// The stated offset.
        offset: u64,
        /// What is wrong with the offset.
        problem: &'static str,
    },
}

/// Why a model is refused.
#[derive(Debug, thiserror::Error)]
pub enum GgufError {
    /// One of its files is refused.
    #[error("{} {problem}", path.display())]
    File {
        /// The path of the file.
        path: PathBuf,
        /// The error inside the file.
        #[source]
        problem: HeaderError,
    },
    /// The name of a part does not tell where the others are.
    #[error("{} is one of {count} parts, but is not named like \"...-00001-of-{count:05}.gguf\"", path.display())]
    PartName {
        /// The path of the part.
        path: PathBuf,
        /// The stated number of parts.
        count: u64,
    },
    /// The model has more parts than any other.
    #[error("{} says that it is one of {count} parts; at most {limit} are read", path.display())]
    TooManyParts {
        /// The path of the first part.
        path: PathBuf,
        /// The stated number of parts.
        count: u64,
        /// The limit.
        limit: u64,
    },
    /// A part belongs to another model.
    #[error("{} says it is part {no} of {count}, but stands where part {expected} of {expected_count} belongs", path.display())]
    PartMismatch {
        /// The path of the part.
        path: PathBuf,
        /// The stated number of the part, from 1.
        no: u64,
        /// The stated number of parts.
        count: u64,
        /// The number of the part that was looked for, from 1.
        expected: u64,
        /// The number of parts that the first one stated.
        expected_count: u64,
    },
    /// The parts do not have as many tensors as the first one states.
    #[error("the parts have {found} tensors together, but the first says {expected}")]
    TensorCount {
        /// The number of tensors that were found.
        found: u64,
        /// The number that the first part states.
        expected: u64,
    },
    /// Two parts have the same tensor.
    #[error("the tensor {0:?} is in two parts")]
    DuplicateTensor(String),
    /// The model has more tensors than any other.
    #[error("the parts have more than {limit} tensors together")]
    TooManyTensors {
        /// The limit.
        limit: u64,
    },
}
