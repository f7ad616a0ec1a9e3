//! The server's history, and whether it went back.

use berth_domain::{Epoch, ReasonText, Revision, RunnerId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::schema;

/// A point of a server's history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HistoryPoint {
    /// The start of the server.
    #[schema(value_type = schema::Epoch)]
    pub epoch: Epoch,
    /// A random number of that start, in hexadecimal digits: two starts with one epoch are told apart by it.
    #[schema(example = "5f3c0a91")]
    pub epoch_tag: String,
    /// The revision that it had reached.
    #[schema(value_type = schema::Revision)]
    pub revision: Revision,
}

impl From<berth_domain::HistoryPoint> for HistoryPoint {
    fn from(point: berth_domain::HistoryPoint) -> Self {
        Self { epoch: point.epoch, epoch_tag: point.tag.to_string(), revision: point.revision }
    }
}

/// The starts of the server that its data knows of, and whether any is missing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct History {
    /// The point that the server has reached.
    pub now: HistoryPoint,
    /// Where each known epoch began, oldest first.
    pub epochs: Vec<HistoryPoint>,
    /// The newest answer that a runner obeyed and that this server does not know of. Nothing is placed, started or
    /// stopped while it is set: an operator has to say that the server goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub went_back: Option<HistoryPoint>,
    /// Runners that have not reported since the history went back; nothing is placed on their machines until they do.
    #[serde(default)]
    #[schema(value_type = Vec<schema::RunnerId>)]
    pub waits_for: Vec<RunnerId>,
}

/// An operator's decision that the server goes on although its history went back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ContinueHistory {
    /// The reason, which goes on record.
    #[schema(value_type = schema::ReasonText)]
    pub reason: ReasonText,
}
