//! The health and readiness of the server.

use berth_domain::{ClusterId, Epoch};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::schema;

/// The answer of a server that is alive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Health {
    /// Always `ok`.
    #[schema(example = "ok")]
    pub status: String,
}

/// Whether the server can work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Ready {
    /// Whether the server takes requests and writes.
    pub ready: bool,
    /// Why the server is not ready.
    #[serde(default)]
    pub reasons: Vec<String>,
}

/// The identity and version of the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Version {
    /// The program's version.
    #[schema(example = "0.1.0")]
    pub version: String,
    /// The version of the API.
    #[serde(default)]
    #[schema(example = "v1")]
    pub api: String,
    /// The cluster, which is the identity of its data directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::ClusterId>)]
    pub cluster_id: Option<ClusterId>,
    /// The present start of the server.
    #[serde(default)]
    #[schema(value_type = schema::Epoch)]
    pub epoch: Epoch,
    /// The protocol that it speaks with agents: see [`crate::PROTOCOL`].
    #[serde(default = "crate::oldest_protocol")]
    #[schema(example = 2)]
    pub protocol: u32,
}
