//! The result: what each GPU must give, and what for. What it looks like is a word of the domain.

use berth_domain::Bytes;
pub use berth_domain::estimate::{DeviceEstimate, Estimate, ModelSummary, Note, Parts};

use crate::gguf::ShapeError;
use crate::inputs::InputError;

/// Why no estimate was made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EstimateError {
    /// The file does not say enough.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// It was asked for something that cannot be.
    #[error(transparent)]
    Input(#[from] InputError),
    /// A number that no memory holds.
    #[error("the estimate is larger than any memory")]
    TooLarge,
    /// None of the counts is possible.
    #[error("the heads of the model ({heads} and {kv_heads} for keys) can be divided by none of the GPU counts")]
    NoCount {
        /// Heads that ask.
        heads: u64,
        /// Heads that answer.
        kv_heads: u64,
    },
}

/// A computed amount as bytes.
pub(crate) fn bytes(amount: u128) -> Result<Bytes, EstimateError> {
    u64::try_from(amount).map(Bytes::new).map_err(|_| EstimateError::TooLarge)
}
