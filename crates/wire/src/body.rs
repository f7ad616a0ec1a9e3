//! JSON text that becomes a type of this crate, or an error that names the field.

use serde::de::DeserializeOwned;
use serde_json::error::Category;

/// A value that is well formed but makes no sense: the field, and what is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {detail}")]
pub struct Invalid {
    /// The field, as a path: `memory.per_gpu.2`.
    pub field: String,
    /// What is wrong with it.
    pub detail: String,
}

impl Invalid {
    /// Makes the error that `field` is wrong because of `detail`.
    #[must_use]
    pub fn new(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { field: field.into(), detail: detail.into() }
    }
}

/// The error for a body that was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// The body is not JSON: cut off, misspelt, or nested too deeply.
    #[error("not valid JSON: {0}")]
    Malformed(String),
    /// The body is JSON, but not of the expected type.
    #[error(transparent)]
    Invalid(#[from] Invalid),
}

/// Parses a body. A number that does not fit is an error of its field, not of the JSON.
pub fn read<T: DeserializeOwned>(text: &[u8]) -> Result<T, BodyError> {
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let value = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let path = error.path().to_string();
        classify(&path, &error.into_inner())
    })?;
    deserializer.end().map_err(|error| BodyError::Malformed(error.to_string()))?;
    Ok(value)
}

fn classify(path: &str, error: &serde_json::Error) -> BodyError {
    let text = error.to_string();
    let out_of_range = text.starts_with("number out of range");
    match error.classify() {
        Category::Syntax | Category::Eof | Category::Io if !out_of_range => BodyError::Malformed(text),
        _ => {
            // The position says nothing that the path does not say better.
            let detail = text.rsplit_once(" at line ").map_or(text.as_str(), |(detail, _)| detail);
            let field = if path == "." { missing_or_unknown(detail).unwrap_or("body") } else { path };
            BodyError::Invalid(Invalid::new(field, detail))
        }
    }
}

/// Returns the name of a missing or unknown field, which serde puts only into its message for the outermost object.
fn missing_or_unknown(detail: &str) -> Option<&str> {
    let rest = detail.strip_prefix("missing field `").or_else(|| detail.strip_prefix("unknown field `"))?;
    rest.split_once('`').map(|(field, _)| field)
}
