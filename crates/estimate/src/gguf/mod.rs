//! GGUF files: reads their headers, and none of their data.
//!
//! A file is untrusted input. Each count and length is checked against the rest of the file before memory is allocated
//! for it; long texts and arrays (chat templates, vocabularies) are skipped; what is kept has a limit.

mod build;
mod cursor;
mod error;
mod header;
mod parts;
mod shape;
mod tensor;
mod value;

pub use error::{GgufError, HeaderError};
pub use header::Header;
pub use parts::GgufModel;
pub use shape::ShapeError;
pub use tensor::{Tensor, TensorType};
pub use value::{Metadata, Value};
