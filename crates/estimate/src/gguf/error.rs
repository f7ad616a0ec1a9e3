//! Why a file is refused.

use std::io;
use std::path::PathBuf;

/// What is wrong inside one file.
#[derive(Debug, thiserror::Error)]
pub enum HeaderError {
    /// The file cannot be read.
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
    /// Another kind of file.
    #[error("is not a GGUF file")]
    NotGguf,
    /// Written for another kind of machine.
    #[error("is a big-endian GGUF file; only little-endian ones are read")]
    BigEndian,
    /// A version that is not read.
    #[error("is GGUF version {0}; versions 2 and 3 are read")]
    Version(u32),
    /// Something reaches past the end of the file.
    #[error("ends at byte {length}, but {what} reaches to byte {wanted}")]
    BeyondFile {
        /// What was being read.
        what: &'static str,
        /// How far it would reach, at most the largest number.
        wanted: u64,
        /// How long the file is.
        length: u64,
    },
    /// A header that no model has.
    #[error("has a header of more than {limit} bytes")]
    HeaderTooLong {
        /// The most that is read.
        limit: u64,
    },
    /// More of something than a model has.
    #[error("has more {what} than {limit}")]
    TooMany {
        /// What there is too much of.
        what: &'static str,
        /// The most there may be.
        limit: u64,
    },
    /// A name that no model has.
    #[error("has {what} of {length} bytes; at most {limit} are read")]
    NameTooLong {
        /// Whose name.
        what: &'static str,
        /// How long it says it is.
        length: u64,
        /// The most that is read.
        limit: u64,
    },
    /// A name that is no text.
    #[error("has {0} that is not UTF-8")]
    NotText(&'static str),
    /// A type of value that the format does not have.
    #[error("has a value of type {0}, which the format does not have")]
    ValueType(u32),
    /// A truth that is neither.
    #[error("has a truth value of {0}")]
    NotABool(u8),
    /// Arrays inside arrays inside arrays.
    #[error("has arrays that are nested more than {limit} deep")]
    TooDeep {
        /// The most that is read.
        limit: u32,
    },
    /// The same key twice.
    #[error("has the key {0:?} twice")]
    DuplicateKey(String),
    /// The same tensor twice.
    #[error("has the tensor {0:?} twice")]
    DuplicateTensor(String),
    /// Data does not start where it could.
    #[error("has an alignment of {0}, which is not a power of two")]
    Alignment(u64),
    /// A type of tensor that is not known.
    #[error("has the tensor {tensor:?} of type {kind}, which is not known")]
    TensorType {
        /// Which tensor.
        tensor: String,
        /// The number of its type.
        kind: u32,
    },
    /// More dimensions than the format has.
    #[error("has the tensor {tensor:?} with {dimensions} dimensions; there are at most 4")]
    Dimensions {
        /// Which tensor.
        tensor: String,
        /// How many it says.
        dimensions: u32,
    },
    /// A size that cannot be.
    #[error("has the tensor {0:?} with a size that cannot be")]
    TensorSize(String),
    /// A row that is no whole number of blocks.
    #[error("has the tensor {tensor:?} with rows of {row} values, which are not whole blocks of {block}")]
    BrokenRow {
        /// Which tensor.
        tensor: String,
        /// Values in one row.
        row: u64,
        /// Values in one block.
        block: u64,
    },
    /// A tensor in the wrong place.
    #[error("has the tensor {tensor:?} at offset {offset}, which is {problem}")]
    Offset {
        /// Which tensor.
        tensor: String,
        /// Where it says it is.
        offset: u64,
        /// What is wrong with that.
        problem: &'static str,
    },
}

/// Why a model is refused.
#[derive(Debug, thiserror::Error)]
pub enum GgufError {
    /// One of its files is bad.
    #[error("{} {problem}", path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        problem: HeaderError,
    },
    /// A part whose name does not tell where the others are.
    #[error("{} is one of {count} parts, but is not named like \"...-00001-of-{count:05}.gguf\"", path.display())]
    PartName {
        /// Which file.
        path: PathBuf,
        /// How many parts it says there are.
        count: u64,
    },
    /// More parts than a model has.
    #[error("{} says that it is one of {count} parts; at most {limit} are read", path.display())]
    TooManyParts {
        /// Which file.
        path: PathBuf,
        /// How many parts it says there are.
        count: u64,
        /// The most that are read.
        limit: u64,
    },
    /// A part that belongs somewhere else.
    #[error("{} says it is part {no} of {count}, but stands where part {expected} of {expected_count} belongs", path.display())]
    PartMismatch {
        /// Which file.
        path: PathBuf,
        /// The part it says it is, from 1.
        no: u64,
        /// How many parts it says there are.
        count: u64,
        /// The part that was looked for, from 1.
        expected: u64,
        /// How many parts the first one said.
        expected_count: u64,
    },
    /// Parts that do not add up.
    #[error("the parts have {found} tensors together, but the first says {expected}")]
    TensorCount {
        /// As counted.
        found: u64,
        /// As the first part says.
        expected: u64,
    },
    /// The same tensor in two parts.
    #[error("the tensor {0:?} is in two parts")]
    DuplicateTensor(String),
    /// More tensors than a model has.
    #[error("the parts have more than {limit} tensors together")]
    TooManyTensors {
        /// The most there may be.
        limit: u64,
    },
}
