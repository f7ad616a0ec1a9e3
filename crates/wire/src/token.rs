//! Who may do what.

use std::fmt;
use std::str::FromStr;

use berth_domain::RunnerId;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::{Invalid, Time, schema};

/// What the bearer of a token may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Everything.
    Admin,
    /// Submit and follow workloads.
    Submitter,
    /// Report and poll, for one runner only.
    Runner,
    /// Read.
    Viewer,
}

impl Role {
    /// The word used everywhere.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Submitter => "submitter",
            Self::Runner => "runner",
            Self::Viewer => "viewer",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why a word is no role.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no role: admin, submitter, runner or viewer")]
pub struct UnknownRole(String);

impl FromStr for Role {
    type Err = UnknownRole;

    fn from_str(word: &str) -> Result<Self, UnknownRole> {
        [Self::Admin, Self::Submitter, Self::Runner, Self::Viewer]
            .into_iter()
            .find(|role| role.as_str() == word)
            .ok_or_else(|| UnknownRole(word.to_owned()))
    }
}

/// A token's id. It is no secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
#[schema(value_type = String, format = "uuid", example = "01932c07-3a5b-7cc2-b7d1-58a1f7f4a921")]
pub struct TokenId(pub Uuid);

impl fmt::Display for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl FromStr for TokenId {
    type Err = uuid::Error;

    fn from_str(text: &str) -> Result<Self, uuid::Error> {
        text.parse().map(Self)
    }
}

/// What people call a token: 1 to 128 bytes, no control characters, no white space at the ends.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(try_from = "String", into = "String")]
#[schema(value_type = String, min_length = 1, max_length = 128, example = "gateway")]
pub struct TokenName(String);

impl TokenName {
    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for TokenName {
    type Error = Invalid;

    fn try_from(text: String) -> Result<Self, Invalid> {
        let refuse = |detail: &str| Err(Invalid::new("name", detail));
        match text.len() {
            0 => refuse("a token must have a name"),
            129.. => refuse("a token's name has at most 128 bytes"),
            _ if text.chars().any(char::is_control) => refuse("a token's name must not contain control characters"),
            _ if text.trim() != text => refuse("a token's name must not begin or end with white space"),
            _ => Ok(Self(text)),
        }
    }
}

impl FromStr for TokenName {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        Self::try_from(text.to_owned())
    }
}

impl From<TokenName> for String {
    fn from(name: TokenName) -> Self {
        name.0
    }
}

impl fmt::Display for TokenName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A token to be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenRequest {
    /// What people call it.
    pub name: TokenName,
    /// What its bearer may do.
    pub role: Role,
    /// For which runner; for the role `runner`, and only for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::RunnerId>)]
    pub runner_id: Option<RunnerId>,
}

impl TokenRequest {
    /// A runner's token is for one runner; other tokens are for none.
    pub fn validate(&self) -> Result<(), Invalid> {
        match (self.role, &self.runner_id) {
            (Role::Runner, None) => Err(Invalid::new("runner_id", "a token of role runner names its runner")),
            (Role::Admin | Role::Submitter | Role::Viewer, Some(_)) => {
                Err(Invalid::new("runner_id", "only a token of role runner names a runner"))
            }
            (Role::Runner, Some(_)) | (Role::Admin | Role::Submitter | Role::Viewer, None) => Ok(()),
        }
    }
}

/// A token that exists, without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Token {
    /// Which.
    pub id: TokenId,
    /// What people call it.
    pub name: TokenName,
    /// What its bearer may do.
    pub role: Role,
    /// For which runner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::RunnerId>)]
    pub runner_id: Option<RunnerId>,
    /// When it was made.
    pub created: Time,
    /// When it was last used.
    #[serde(default)]
    pub last_used: Option<Time>,
}

/// A token that was just made. Its secret is shown this once.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NewToken {
    /// The secret itself.
    #[schema(value_type = String)]
    pub token: String,
    /// Everything else.
    #[serde(flatten)]
    pub about: Token,
}

/// The secret stays out of logs.
impl fmt::Debug for NewToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewToken").field("token", &"(secret)").field("about", &self.about).finish()
    }
}
