//! The errors of an estimate. The result itself, the memory of each GPU by part, is a type of the domain.

use berth_domain::Bytes;
pub use berth_domain::estimate::{DeviceEstimate, Estimate, ModelSummary, Note, Parts};

use crate::gguf::ShapeError;
use crate::inputs::InputError;

/// Why no estimate was made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EstimateError {
    /// The file does not state enough.
    #[error(transparent)]
    ModelShape(#[from] ShapeError),
    /// The request is not possible.
    #[error(transparent)]
    Input(#[from] InputError),
    /// The result is larger than any memory.
    #[error("the estimate is larger than any memory")]
    TooLarge,
    /// None of the GPU counts is possible.
    #[error("the heads of the model ({heads} and {kv_heads} for keys) can be divided by none of the GPU counts")]
    NoCount {
        /// The number of query heads.
        heads: u64,
        /// The number of key and value heads.
        kv_heads: u64,
    },
}

/// Converts a computed amount to bytes.
pub(crate) fn bytes(amount: u128) -> Result<Bytes, EstimateError> {
    u64::try_from(amount).map(Bytes::new).map_err(|_| EstimateError::TooLarge)
}
