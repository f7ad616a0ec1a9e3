//! Listings in pages.

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};
use utoipa::IntoParams;

/// The header with the revision of an answer.
pub const REVISION_HEADER: &str = "berth-revision";
/// The header that says that the history of the server went back. It is absent otherwise.
pub const HISTORY_HEADER: &str = "berth-history";

/// The part of a listing that is asked for. The `Link` header of an answer says how to go on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct PageQuery {
    /// The largest number of rows. Default: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(value_type = Option<u32>, minimum = 1, maximum = 4294967295_u32)]
    pub limit: Option<NonZeroU32>,
    /// Only rows after this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}
