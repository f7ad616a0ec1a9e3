//! Who did what.

use berth_domain::Revision;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Role, Time, schema};

/// One thing that somebody did, or tried to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditEntry {
    /// When.
    pub time: Time,
    /// Who: the name of their token, or `local` without tokens.
    pub by: String,
    /// In which role.
    #[serde(default)]
    pub role: Option<Role>,
    /// What they did.
    #[schema(example = "force_release")]
    pub action: String,
    /// To what.
    #[serde(default)]
    pub target: String,
    /// What came of it: `done`, or the code of the refusal.
    #[schema(example = "done")]
    pub outcome: String,
    /// The revision after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Revision>)]
    pub revision: Option<Revision>,
    /// The reason that they gave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}
