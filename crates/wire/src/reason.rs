//! Why, as a code and in words.

use berth_domain::Attempt;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::schema;

/// Why something is as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Reason {
    /// The stable code to grep for.
    #[schema(example = "full_now")]
    pub code: String,
    /// The same for people.
    #[schema(example = "too little GPU memory is free now")]
    pub text: String,
    /// The attempt that it is of, where that is not the present one: it says nothing of how things are now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Attempt>)]
    pub attempt: Option<Attempt>,
}

impl Reason {
    /// A code and its words.
    #[must_use]
    pub fn new(code: impl Into<String>, text: impl Into<String>) -> Self {
        Self { code: code.into(), text: text.into(), attempt: None }
    }

    /// The same, as the reason of an earlier attempt.
    #[must_use]
    pub fn of_attempt(self, attempt: Attempt) -> Self {
        Self { text: format!("attempt {attempt}: {}", self.text), attempt: Some(attempt), ..self }
    }
}
