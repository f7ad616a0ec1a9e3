//! Whether the server lives, and whether it can work.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The server lives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Health {
    /// Always `ok`.
    #[schema(example = "ok")]
    pub status: String,
}

/// Whether the server can work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Ready {
    /// It can.
    pub ready: bool,
    /// Why it cannot.
    #[serde(default)]
    pub reasons: Vec<String>,
}

/// Which server this is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Version {
    /// The program's version.
    #[schema(example = "0.1.0")]
    pub version: String,
    /// The version of the API.
    #[serde(default)]
    #[schema(example = "v1")]
    pub api: String,
}
