//! Why, as a code and in words.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Why something is as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Reason {
    /// The stable code to grep for.
    #[schema(example = "full_now")]
    pub code: String,
    /// The same for people.
    #[schema(example = "too little GPU memory is free now")]
    pub text: String,
}

impl Reason {
    /// A code and its words.
    #[must_use]
    pub fn new(code: impl Into<String>, text: impl Into<String>) -> Self {
        Self { code: code.into(), text: text.into() }
    }
}
