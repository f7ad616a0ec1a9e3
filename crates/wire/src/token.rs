//! Tokens and their roles.

use std::fmt;
use std::str::FromStr;

use berth_domain::{Bytes, Priority, RunnerId, TenantName};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::{Invalid, RunnerGrant, Time, TimeSpan, schema};

/// What the bearer of a token may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The bearer may do everything except what runners do.
    Admin,
    /// The bearer may submit and follow workloads.
    Submitter,
    /// The bearer may report and poll, for one runner only.
    Runner,
    /// The bearer may read.
    Viewer,
    /// The bearer may exchange the token for a runner's token, and do nothing else.
    Join,
}

impl Role {
    /// Every role.
    pub const ALL: [Self; 5] = [Self::Admin, Self::Submitter, Self::Runner, Self::Viewer, Self::Join];

    /// Returns the name that the API, the logs and the command line use.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Submitter => "submitter",
            Self::Runner => "runner",
            Self::Viewer => "viewer",
            Self::Join => "join",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The error for a word that is no role.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no role: admin, submitter, runner, viewer or join")]
pub struct UnknownRole(String);

impl FromStr for Role {
    type Err = UnknownRole;

    fn from_str(word: &str) -> Result<Self, UnknownRole> {
        Self::ALL.into_iter().find(|role| role.as_str() == word).ok_or_else(|| UnknownRole(word.to_owned()))
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

/// The name of a token: 1 to 128 bytes, no control characters, no white space at the ends.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(try_from = "String", into = "String")]
#[schema(value_type = String, min_length = 1, max_length = 128, example = "gateway")]
pub struct TokenName(String);

impl TokenName {
    /// Returns the text.
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
            _ if text.chars().any(berth_domain::is_misleading) => {
                refuse("a token's name must not contain characters that change the direction of text or end a line")
            }
            _ if text.trim() != text => refuse("a token's name must not begin or end with white space"),
            _ => Ok(Self(text)),
        }
    }
}

impl TokenName {
    /// Names the token that a runner gets when it joins.
    #[must_use]
    pub fn of_runner(runner: &RunnerId) -> Self {
        // A long id is cut, so that there is room for these words, and for a number if the name is taken.
        let mut text = format!("joined {runner}");
        text.truncate((0..=112).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0));
        Self(text.trim_end().to_owned())
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
    /// The name of the token.
    pub name: TokenName,
    /// What its bearer may do.
    pub role: Role,
    /// The runner that it is for: needed with the role `runner`; with the role `join` the only runner that may join
    /// with it, also if that runner is known already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::RunnerId>)]
    pub runner_id: Option<RunnerId>,
    /// What the runner may be; with the roles `runner` and `join`. Left out: in the pool `default`, without labels, on a
    /// machine of its own, at the address from which it connects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant: Option<RunnerGrant>,
    /// The tenant whose work its bearer submits; with the role `submitter`. Tokens of one tenant see and end each other's
    /// work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::TenantName>)]
    pub tenant: Option<TenantName>,
    /// How much its bearer may have at once; with the role `submitter`. What is left out is as configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<SubmitterLimits>,
    /// How often the token may be used; with the role `join`. Default: once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub uses: Option<u32>,
    /// How long the token is valid. Default: a join token for an hour, any other until it is revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in: Option<TimeSpan>,
}

impl TokenRequest {
    /// Makes a request for a token that grants nothing beside its role.
    #[must_use]
    pub const fn new(name: TokenName, role: Role) -> Self {
        Self { name, role, runner_id: None, grant: None, tenant: None, limits: None, uses: None, expires_in: None }
    }

    /// Refuses fields that do not go with the role.
    pub fn validate(&self) -> Result<(), Invalid> {
        let refuse = |field: &str, why: &str| Err(Invalid::new(field, why));
        let is_of_runner = matches!(self.role, Role::Runner | Role::Join);
        if self.role == Role::Runner && self.runner_id.is_none() {
            return refuse("runner_id", "a token of role runner names its runner");
        }
        if !is_of_runner && self.runner_id.is_some() {
            return refuse("runner_id", "only a token of role runner or join names a runner");
        }
        if !is_of_runner && self.grant.is_some() {
            return refuse("grant", "only a token of role runner or join grants what a runner may be");
        }
        if self.role != Role::Submitter && self.tenant.is_some() {
            return refuse("tenant", "only a token of role submitter has a tenant");
        }
        if self.role != Role::Submitter && self.limits.is_some() {
            return refuse("limits", "only a token of role submitter has limits");
        }
        match (self.role, self.uses) {
            (Role::Join, Some(0)) => return refuse("uses", "a join token is used at least once"),
            (Role::Join, _) | (_, None) => {}
            (_, Some(_)) => return refuse("uses", "only a token of role join counts its uses"),
        }
        if self.expires_in.is_some_and(|span| span.0.millis() == 0) {
            return refuse("expires_in", "a token must be worth something for a while");
        }
        Ok(())
    }
}

/// How much a submitter may have at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SubmitterLimits {
    /// Workloads that wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queued: Option<u32>,
    /// Workloads that have a slot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running: Option<u32>,
    /// The highest priority that it may ask for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Priority>)]
    pub priority: Option<Priority>,
    /// The arguments of one job, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Bytes>)]
    pub job_args_bytes: Option<Bytes>,
}

/// A token that exists, without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Token {
    /// The id of the token.
    pub id: TokenId,
    /// The name of the token.
    pub name: TokenName,
    /// What its bearer may do.
    pub role: Role,
    /// The runner that the token is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::RunnerId>)]
    pub runner_id: Option<RunnerId>,
    /// What the runner may be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant: Option<RunnerGrant>,
    /// The tenant whose work its bearer submits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::TenantName>)]
    pub tenant: Option<TenantName>,
    /// How much its bearer may have at once, where that differs from what is configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<SubmitterLimits>,
    /// How often the token may still be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uses_left: Option<u32>,
    /// When the token was made, or last rotated.
    pub created: Time,
    /// When the token expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Time>,
    /// When the token was last used.
    #[serde(default)]
    pub last_used: Option<Time>,
}

/// A token that was just made. Its secret is shown this once.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NewToken {
    /// The secret.
    #[schema(value_type = String)]
    pub token: String,
    /// The token without its secret.
    #[serde(flatten)]
    pub about: Token,
}

/// Hides the secret, so that it stays out of logs.
impl fmt::Debug for NewToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewToken").field("token", &"(secret)").field("about", &self.about).finish()
    }
}
