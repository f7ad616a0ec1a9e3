//! Tensors: their types, sizes and offsets.

use std::fmt;
use std::io::{Read, Seek};

use super::cursor::Cursor;
use super::error::HeaderError;
use super::value::name;

/// The longest name of a tensor that is read. llama.cpp itself accepts 63 bytes.
const NAME_LIMIT: u64 = 127;
/// The most dimensions of a tensor.
const DIMENSIONS: usize = 4;

/// How the values of a tensor are stored: in blocks of a fixed number of values and bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TensorType {
    id: u8,
    name: &'static str,
    block: u16,
    bytes: u16,
}

macro_rules! tensor_types {
    ($($id:literal $name:ident $block:literal $bytes:literal;)*) => {
        impl TensorType {
            /// All types of the format. The format no longer uses the missing numbers.
            pub const ALL: &'static [Self] = &[
                $(Self { id: $id, name: stringify!($name), block: $block, bytes: $bytes },)*
            ];
        }
    };
}

tensor_types! {
    0 F32 1 4;
    1 F16 1 2;
    2 Q4_0 32 18;
    3 Q4_1 32 20;
    6 Q5_0 32 22;
    7 Q5_1 32 24;
    8 Q8_0 32 34;
    9 Q8_1 32 40;
    10 Q2_K 256 84;
    11 Q3_K 256 110;
    12 Q4_K 256 144;
    13 Q5_K 256 176;
    14 Q6_K 256 210;
    15 Q8_K 256 292;
    16 IQ2_XXS 256 66;
    17 IQ2_XS 256 74;
    18 IQ3_XXS 256 98;
    19 IQ1_S 256 50;
    20 IQ4_NL 32 18;
    21 IQ3_S 256 110;
    22 IQ2_S 256 82;
    23 IQ4_XS 256 136;
    24 I8 1 1;
    25 I16 1 2;
    26 I32 1 4;
    27 I64 1 8;
    28 F64 1 8;
    29 IQ1_M 256 56;
    30 BF16 1 2;
    34 TQ1_0 256 54;
    35 TQ2_0 256 66;
    39 MXFP4 32 17;
    40 NVFP4 64 36;
    41 Q1_0 128 18;
    42 Q2_0 64 18;
}

impl TensorType {
    /// Returns the type with this number.
    #[must_use]
    pub fn by_id(id: u32) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| u32::from(kind.id) == id)
    }

    /// Returns the number of the type.
    #[must_use]
    pub const fn id(self) -> u32 {
        self.id as u32
    }

    /// Returns the name of the type.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.name
    }

    /// Returns the number of values in one block.
    #[must_use]
    pub const fn block(self) -> u64 {
        self.block as u64
    }

    /// Returns the bytes of one block.
    #[must_use]
    pub const fn block_bytes(self) -> u64 {
        self.bytes as u64
    }

    /// Returns whether several values share a block.
    #[must_use]
    pub const fn is_quantized(self) -> bool {
        self.block > 1
    }
}

impl fmt::Debug for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// One tensor, without its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    name: Box<str>,
    kind: TensorType,
    dimensions: [u64; DIMENSIONS],
    offset: u64,
    bytes: u64,
}

impl Tensor {
    /// Returns the tensor's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns how the values are stored.
    #[must_use]
    pub const fn kind(&self) -> TensorType {
        self.kind
    }

    /// Returns the four dimensions, the one that varies fastest first. Missing ones are 1.
    #[must_use]
    pub const fn dimensions(&self) -> [u64; DIMENSIONS] {
        self.dimensions
    }

    /// Returns the size in bytes.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the offset of the data, from the start of all data.
    #[must_use]
    pub const fn offset(&self) -> u64 {
        self.offset
    }

    /// Reads the description of one tensor.
    pub(super) fn read<R: Read + Seek>(cursor: &mut Cursor<R>) -> Result<Self, HeaderError> {
        let name = name(cursor, "a tensor's name", NAME_LIMIT)?;
        let used = cursor.u32("a tensor's dimensions")?;
        let mut dimensions = [1; DIMENSIONS];
        let Some(given) = usize::try_from(used).ok().and_then(|used| dimensions.get_mut(..used)) else {
            return Err(HeaderError::Dimensions { tensor: name.into(), dimensions: used });
        };
        for dimension in given {
            *dimension = cursor.u64("a tensor's dimensions")?;
        }
        let id = cursor.u32("a tensor's type")?;
        let offset = cursor.u64("a tensor's offset")?;
        let Some(kind) = TensorType::by_id(id) else {
            return Err(HeaderError::TensorType { tensor: name.into(), kind: id });
        };
        let bytes = size(&name, kind, dimensions)?;
        Ok(Self { name, kind, dimensions, offset, bytes })
    }
}

/// Returns the bytes of a tensor, or an error if its dimensions are not possible.
fn size(name: &str, kind: TensorType, dimensions: [u64; DIMENSIONS]) -> Result<u64, HeaderError> {
    let row = dimensions[0];
    if !row.is_multiple_of(kind.block()) {
        return Err(HeaderError::BrokenRow { tensor: name.to_owned(), row, block: kind.block() });
    }
    let blocks = dimensions[1..].iter().try_fold(row / kind.block(), |product, next| product.checked_mul(*next));
    let bytes = blocks.and_then(|blocks| blocks.checked_mul(kind.block_bytes()));
    // All programs address a tensor with signed numbers.
    bytes
        .filter(|bytes| i64::try_from(*bytes).is_ok() && dimensions.iter().all(|d| i64::try_from(*d).is_ok()))
        .ok_or_else(|| HeaderError::TensorSize(name.to_owned()))
}
