//! Requests of the server to an agent, beside its slots.

use std::fmt;
use std::str::FromStr;

use berth_domain::estimate::Question;
use berth_domain::{Generation, SlotId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::schema;

/// The id of a request. The answer names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
#[schema(value_type = String, format = "uuid", example = "01932c07-3a5b-7cc2-b7d1-58a1f7f4a921")]
pub struct RequestId(pub Uuid);

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl FromStr for RequestId {
    type Err = uuid::Error;

    fn from_str(text: &str) -> Result<Self, uuid::Error> {
        text.parse().map(Self)
    }
}

/// A request to an agent. The agent answers with `POST /runners/{id}/requests/{request_id}`: bytes
/// (`application/octet-stream`), JSON, or a problem that says why not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgentRequest {
    /// The id that the answer names.
    pub id: RequestId,
    /// The kind of request.
    #[serde(flatten)]
    pub kind: RequestKind,
}

/// The kind of request. An agent ignores a kind that it does not know, and the request times out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum RequestKind {
    /// The log of a slot. The answer is bytes.
    Logs {
        /// The id of the slot.
        #[schema(value_type = schema::SlotId)]
        slot_id: SlotId,
        /// The start of the slot. Default: the last one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(value_type = Option<schema::Generation>)]
        generation: Option<Generation>,
        /// How many bytes before the end the answer begins.
        tail_bytes: u64,
        /// Whether the answer goes on with what the slot writes, until it is gone.
        #[serde(default)]
        follow: bool,
    },
    /// An estimate of a model's memory, from files on the runner's disk. The answer is JSON.
    Estimate {
        /// The question.
        #[schema(value_type = Object)]
        question: Box<Question>,
    },
    /// A kind that this version does not know.
    #[serde(other)]
    Unknown,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_request_says_its_kind_beside_what_it_is_about() {
        let id = RequestId(Uuid::from_u128(7));
        let kind = RequestKind::Logs {
            slot_id: SlotId::new(Uuid::from_u128(9)),
            generation: None,
            tail_bytes: 64,
            follow: true,
        };
        let request = AgentRequest { id, kind };
        let text = json!({
            "id": "00000000-0000-0000-0000-000000000007", "kind": "logs",
            "slot_id": "00000000-0000-0000-0000-000000000009", "tail_bytes": 64, "follow": true,
        });
        assert_eq!(serde_json::to_value(&request).unwrap(), text);
        assert_eq!(serde_json::from_value::<AgentRequest>(text).unwrap(), request);
    }

    #[test]
    fn a_kind_of_a_newer_server_is_left_and_the_others_are_read() {
        let text = json!({ "id": Uuid::from_u128(7), "kind": "dance", "steps": [1, 2] });
        assert_eq!(serde_json::from_value::<AgentRequest>(text).unwrap().kind, RequestKind::Unknown);
    }
}
