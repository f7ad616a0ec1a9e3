//! What the server logs, and what slots wrote.

use berth_domain::{Attempt, RunnerId};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::schema;

/// Which lines the server logs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LogLevel {
    /// A level, or levels by target.
    #[schema(example = "info,berth_server=debug", min_length = 1, max_length = 1024)]
    pub filter: String,
}

/// Which part of a slot's log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct LogQuery {
    /// Go on as it is written, until the slot is gone.
    #[serde(deserialize_with = "flag")]
    pub follow: bool,
    /// Begin so many bytes before the end; 1 MiB unless given, and no more than `limits.log`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tail_bytes: Option<u64>,
    /// The runner that has it, for a slot that ended before the server was started.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(value_type = Option<schema::RunnerId>, inline)]
    pub runner_id: Option<RunnerId>,
}

/// Which part of what a workload's slot wrote.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct WorkloadLogQuery {
    /// Go on as it is written, until the slot is gone.
    #[serde(deserialize_with = "flag")]
    pub follow: bool,
    /// Begin so many bytes before the end; 1 MiB unless given, and no more than `limits.log`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tail_bytes: Option<u64>,
    /// Of this attempt; of the present or the last one unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(value_type = Option<schema::Attempt>, inline)]
    pub attempt: Option<Attempt>,
}

/// A parameter that is there says yes, unless it says no.
fn flag<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    match String::deserialize(deserializer)?.as_str() {
        "" | "true" => Ok(true),
        "false" => Ok(false),
        other => Err(D::Error::custom(format!("{other:?} is neither true nor false"))),
    }
}
