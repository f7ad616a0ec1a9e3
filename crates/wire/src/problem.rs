//! Problems in the form of RFC 9457.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The media type of a [`Problem`].
pub const PROBLEM_MEDIA_TYPE: &str = "application/problem+json";

/// A problem with a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// The type of the problem: `about:blank` unless there is a page for it.
    #[serde(rename = "type", default = "no_page")]
    #[schema(example = "about:blank")]
    pub kind: String,
    /// The HTTP status in words.
    #[serde(default)]
    #[schema(example = "Unprocessable Content")]
    pub title: String,
    /// The HTTP status.
    #[schema(minimum = 400, maximum = 599, example = 422)]
    pub status: u16,
    /// What happened this time, and what to do.
    #[serde(default)]
    #[schema(example = "memory: -1 is less than nothing")]
    pub detail: String,
    /// The stable code to grep for.
    #[schema(example = "invalid_field")]
    pub code: String,
    /// The field that is wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "memory")]
    pub field: Option<String>,
    /// How long to wait before the next try.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
}

fn no_page() -> String {
    "about:blank".to_owned()
}

impl Problem {
    /// Makes a problem of a status, a code and its texts.
    #[must_use]
    pub fn new(status: u16, code: impl Into<String>, title: impl Into<String>, detail: impl Into<String>) -> Self {
        Self {
            kind: no_page(),
            title: title.into(),
            status,
            detail: detail.into(),
            code: code.into(),
            field: None,
            retry_after_ms: None,
        }
    }

    /// Adds the field that is wrong.
    #[must_use]
    pub fn with_field(self, field: impl Into<String>) -> Self {
        Self { field: Some(field.into()), ..self }
    }

    /// Adds how long to wait before the next try.
    #[must_use]
    pub fn with_retry_after_ms(self, millis: u64) -> Self {
        Self { retry_after_ms: Some(millis), ..self }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = if self.detail.is_empty() { &self.title } else { &self.detail };
        write!(f, "{words} ({})", self.code)
    }
}
