//! What the server logs, and what slots wrote.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// Which lines the server logs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LogLevel {
    /// A level, or levels by target.
    #[schema(example = "info,berth_server=debug", min_length = 1, max_length = 1024)]
    pub filter: String,
}

/// Which part of a slot's log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct LogQuery {
    /// Go on as it is written.
    pub follow: bool,
    /// Only the last so many bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tail_bytes: Option<u64>,
}
