//! The audit log: what callers changed, and what was refused.

use berth_domain::Revision;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Role, Time, schema};

/// One action of a caller, carried out or refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditEntry {
    /// When the action happened.
    pub time: Time,
    /// The name of the caller's token, or `local` without tokens.
    pub by: String,
    /// The role of the caller.
    #[serde(default)]
    pub role: Option<Role>,
    /// The action.
    #[schema(example = "force_release")]
    pub action: String,
    /// The object of the action.
    #[serde(default)]
    pub target: String,
    /// The outcome: `done`, or the code of the refusal.
    #[schema(example = "done")]
    pub outcome: String,
    /// The revision after the action.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Revision>)]
    pub revision: Option<Revision>,
    /// The reason that the caller gave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}
