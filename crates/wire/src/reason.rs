//! Reasons, each as a code and a text.

use berth_domain::Attempt;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::schema;

/// A reason for a state or a decision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Reason {
    /// The stable code to grep for.
    #[schema(example = "full_now")]
    pub code: String,
    /// The text for people.
    #[schema(example = "too little GPU memory is free now")]
    pub text: String,
    /// The attempt that the reason belongs to, if that is not the present one. Such a reason does not describe the
    /// present.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Attempt>)]
    pub attempt: Option<Attempt>,
}

impl Reason {
    /// Makes a reason of a code and a text.
    #[must_use]
    pub fn new(code: impl Into<String>, text: impl Into<String>) -> Self {
        Self { code: code.into(), text: text.into(), attempt: None }
    }

    /// Marks this as the reason of an earlier attempt.
    #[must_use]
    pub fn of_attempt(self, attempt: Attempt) -> Self {
        Self { text: format!("attempt {attempt}: {}", self.text), attempt: Some(attempt), ..self }
    }
}
