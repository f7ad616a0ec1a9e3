//! What the server logs, and what slots wrote.

use berth_domain::{Attempt, RunnerId};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::schema;

/// The log filter of the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LogLevel {
    /// A level, or levels by target.
    #[schema(example = "info,berth_server=debug", min_length = 1, max_length = 1024)]
    pub filter: String,
}

/// The part of a slot's log that is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct LogQuery {
    /// Whether the answer goes on with what the slot writes, until it is gone.
    #[serde(deserialize_with = "flag")]
    pub follow: bool,
    /// How many bytes before the end the answer begins. Default: 1 MiB; at most `limits.log`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tail_bytes: Option<u64>,
    /// The runner that has the log, for a slot that ended before the server was started.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(value_type = Option<schema::RunnerId>, inline)]
    pub runner_id: Option<RunnerId>,
}

/// The part of the log of a workload's slot that is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct WorkloadLogQuery {
    /// Whether the answer goes on with what the slot writes, until it is gone.
    #[serde(deserialize_with = "flag")]
    pub follow: bool,
    /// How many bytes before the end the answer begins. Default: 1 MiB; at most `limits.log`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tail_bytes: Option<u64>,
    /// The attempt. Default: the present or the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(value_type = Option<schema::Attempt>, inline)]
    pub attempt: Option<Attempt>,
}

/// Parses a flag: a parameter that is present means yes, unless its value means no.
fn flag<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    match String::deserialize(deserializer)?.as_str() {
        "" | "true" => Ok(true),
        "false" => Ok(false),
        other => Err(D::Error::custom(format!("{other:?} is neither true nor false"))),
    }
}
