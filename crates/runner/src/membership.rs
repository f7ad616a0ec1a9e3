//! Membership in a fleet: an agent exchanges a join token for a token of its own, keeps it in its data directory, and
//! rotates it before it expires.
//!
//! Each token is on disk before it is used. A crash in between loses nothing: the server accepts the old secret until
//! the new one was used, and answers a repeated join with the same key again.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use berth_client::{Client, ClientError};
use berth_domain::{RunnerId, Timestamp};
use berth_wire::{JoinKey, JoinRequest, NewToken, Time};
use secrecy::SecretString;
use serde::{Deserialize, Serialize};

use crate::clock::now;
use crate::record::{self, RecordError};

/// The name of the file below the agent's data directory.
pub const FILE: &str = "membership.json";
/// How long to wait before a failed rotation is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(60);
/// The longest sleep at a time, so that a change of the clock is noticed.
const LONGEST_SLEEP: Duration = Duration::from_secs(60 * 60);

/// Why an agent is not a member of the fleet.
#[derive(Debug, thiserror::Error)]
pub enum MembershipError {
    /// The file cannot be read or written.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The file has invalid content.
    #[error("{}: {why}: remove it and join again", path.display())]
    Damaged {
        /// The path of the file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The agent joined as another runner.
    #[error(
        "{} belongs to runner {joined}, and this agent is runner {configured}: give it another data directory, or \
         remove the file and join again",
        path.display()
    )]
    OtherRunner {
        /// The path of the file.
        path: PathBuf,
        /// The runner that joined.
        joined: RunnerId,
        /// The runner that the agent is configured as.
        configured: RunnerId,
    },
    /// The server refused the join.
    #[error("the server does not let runner {runner} join: {source}")]
    Refused {
        /// The runner that asked to join.
        runner: RunnerId,
        /// The server's answer.
        source: ClientError,
    },
    /// The operating system has no random bytes.
    #[error("the operating system gives no random bytes: {0}")]
    Random(getrandom::Error),
}

/// The content of the file.
#[derive(Clone, Serialize, Deserialize)]
struct Stored {
    runner_id: RunnerId,
    /// The key under which the agent joined, or is about to.
    join_key: JoinKey,
    token: Option<StoredToken>,
}

#[derive(Clone, Serialize, Deserialize)]
struct StoredToken {
    secret: String,
    created: Time,
    expires: Option<Time>,
}

impl From<NewToken> for StoredToken {
    fn from(new: NewToken) -> Self {
        Self { secret: new.token, created: new.about.created, expires: new.about.expires }
    }
}

impl StoredToken {
    /// Returns when the token is rotated: after half of its lifetime.
    fn renew_at(&self) -> Option<Timestamp> {
        let (created, expires) = (self.created.0.millis(), self.expires?.0.millis());
        Some(Timestamp::from_millis(created + expires.saturating_sub(created) / 2))
    }
}

/// The membership of an agent in a fleet.
pub struct Membership {
    path: PathBuf,
    stored: Stored,
}

impl std::fmt::Debug for Membership {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Membership").field("runner", &self.stored.runner_id).finish_non_exhaustive()
    }
}

impl Membership {
    /// Reads the membership of a data directory. Returns `None` if its agent never joined.
    pub fn load(data_dir: &Path, runner: &RunnerId) -> Result<Option<Self>, MembershipError> {
        let path = data_dir.join(FILE);
        let damaged = |why: String| MembershipError::Damaged { path: path.clone(), why };
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(damaged(error.to_string())),
        };
        let stored: Stored = serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?;
        if stored.runner_id != *runner {
            let (joined, configured) = (stored.runner_id, runner.clone());
            return Err(MembershipError::OtherRunner { path, joined, configured });
        }
        Ok(Some(Self { path, stored }))
    }

    /// Exchanges the join token of `client` for a token of this runner's own.
    pub async fn join(data_dir: &Path, runner: &RunnerId, client: &Client) -> Result<Self, MembershipError> {
        record::make_data_directory(data_dir)?;
        let mut membership = match Self::load(data_dir, runner)? {
            Some(begun) => begun,
            None => {
                let stored = Stored { runner_id: runner.clone(), join_key: random_key()?, token: None };
                Self { path: data_dir.join(FILE), stored }
            }
        };
        // The key is on disk before it is sent: an agent that dies before the answer arrives asks again with it.
        record::write(&membership.path, &membership.stored)?;
        let request = JoinRequest { runner_id: runner.clone(), key: membership.stored.join_key.clone() };
        let joined = client.join(&request).await;
        let joined = joined.map_err(|source| MembershipError::Refused { runner: runner.clone(), source })?;
        membership.take(joined)?;
        Ok(membership)
    }

    /// Returns the agent's own token, if the join was completed.
    #[must_use]
    pub fn token(&self) -> Option<SecretString> {
        self.stored.token.as_ref().map(|token| SecretString::from(token.secret.clone()))
    }

    fn take(&mut self, new: NewToken) -> Result<(), RecordError> {
        self.stored.token = Some(new.into());
        record::write(&self.path, &self.stored)
    }

    /// Rotates the token after half of its lifetime, again and again. Returns only if the token does not expire.
    pub async fn rotate_before_expiry(mut self, client: Client) {
        while let Some(at) = self.stored.token.as_ref().and_then(StoredToken::renew_at) {
            let wait = Duration::from_millis(at.since(now()).millis());
            if !wait.is_zero() {
                tokio::time::sleep(wait.min(LONGEST_SLEEP)).await;
                continue;
            }
            match self.rotate(&client).await {
                Ok(()) => tracing::info!("the agent's token was rotated"),
                Err(why) => {
                    tracing::warn!(why, "the agent's token could not be rotated; it is tried again in a minute");
                    tokio::time::sleep(RETRY_AFTER).await;
                }
            }
        }
    }

    async fn rotate(&mut self, client: &Client) -> Result<(), String> {
        let new = client.rotate_own_token(&self.stored.runner_id).await.map_err(|error| error.to_string())?;
        let secret = SecretString::from(new.token.clone());
        self.take(new).map_err(|error| error.to_string())?;
        client.set_token(&secret).map_err(|error| error.to_string())
    }
}

fn random_key() -> Result<JoinKey, MembershipError> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(MembershipError::Random)?;
    let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    JoinKey::try_from(text).map_err(|_| MembershipError::Random(getrandom::Error::UNEXPECTED))
}
