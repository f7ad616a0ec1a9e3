//! GGUF files: what their headers say, and nothing of their data.
//!
//! A file is untrusted input. Every count and length is held against the rest of the file before anything is made
//! for it; long texts and arrays (chat templates, vocabularies) are passed over; what is kept has a limit.

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
