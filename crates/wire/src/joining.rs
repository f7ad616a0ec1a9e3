//! How a machine becomes part of the fleet: a join token is exchanged for a runner's own token.

use std::fmt;

use berth_domain::RunnerId;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Invalid, schema};

/// The request of an agent that joins the fleet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct JoinRequest {
    /// The runner that the agent wants to be.
    #[schema(value_type = schema::RunnerId)]
    pub runner_id: RunnerId,
    /// A random text that the agent keeps. An agent that asks again with the same text, because the answer was lost,
    /// gets a token again and uses the join token up only once.
    pub key: JoinKey,
}

/// A random text of 32 to 128 letters and digits by which an agent's join is known.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(try_from = "String", into = "String")]
#[schema(value_type = String, min_length = 32, max_length = 128, pattern = "^[A-Za-z0-9]{32,128}$")]
pub struct JoinKey(String);

impl JoinKey {
    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for JoinKey {
    type Error = Invalid;

    fn try_from(text: String) -> Result<Self, Invalid> {
        let is_random = (32..=128).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if is_random { Ok(Self(text)) } else { Err(Invalid::new("key", "write 32 to 128 letters and digits")) }
    }
}

impl From<JoinKey> for String {
    fn from(key: JoinKey) -> Self {
        key.0
    }
}

/// Hides the key, so that it stays out of logs: with the key and the join token another program could join in the
/// agent's place.
impl fmt::Debug for JoinKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JoinKey(secret)")
    }
}
