//! A token as its file holds it, and as the server compares it.

use std::sync::atomic::{AtomicU64, Ordering};

use berth_domain::{RunnerId, Span, TenantName, Timestamp};
use berth_wire::{Role, RunnerGrant, SubmitterLimits, Time, Token, TokenId, TokenName};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};

use crate::trust::Caller;
use crate::trust::private_file::{from_hex, to_hex};

/// The hash of a secret. A secret has 256 random bits, so a plain hash is enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(super) struct SecretHash([u8; 32]);

impl SecretHash {
    pub(super) fn of(secret: &str) -> Self {
        Self(Sha256::digest(secret.as_bytes()).into())
    }

    /// Compares in constant time.
    fn is(&self, other: &Self) -> Choice {
        self.0.ct_eq(&other.0)
    }
}

impl TryFrom<String> for SecretHash {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        from_hex(&text).map(Self).ok_or_else(|| "a token has no hash of 64 digits".to_owned())
    }
}

impl From<SecretHash> for String {
    fn from(hash: SecretHash) -> Self {
        to_hex(&hash.0)
    }
}

/// A token as it is kept on the disk.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StoredToken {
    pub(super) id: TokenId,
    pub(super) name: TokenName,
    pub(super) role: Role,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) runner_id: Option<RunnerId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) grant: Option<RunnerGrant>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) tenant: Option<TenantName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) limits: Option<SubmitterLimits>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) uses_left: Option<u32>,
    pub(super) created: Timestamp,
    /// How long each secret of it is worth something.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) lifetime: Option<Span>,
    pub(super) sha256: SecretHash,
    /// The secret that takes over when it is first used: whoever asked for it may never have got it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) next: Option<NextSecret>,
    /// The hash of the key with which a runner joined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) join_key: Option<SecretHash>,
}

/// A secret that was handed out and not used yet.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NextSecret {
    pub(super) sha256: SecretHash,
    pub(super) created: Timestamp,
}

impl StoredToken {
    /// When its secret is worth nothing any more.
    pub(super) fn expires(&self) -> Option<Timestamp> {
        expiry(self.created, self.lifetime)
    }
}

fn expiry(created: Timestamp, lifetime: Option<Span>) -> Option<Timestamp> {
    lifetime.map(|lifetime| Timestamp::from_millis(created.millis().saturating_add(lifetime.millis())))
}

/// Which secret of a token was shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    Current,
    Next,
}

/// A token in memory.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) stored: StoredToken,
    last_used: AtomicU64,
}

impl Row {
    pub(super) fn new(stored: StoredToken) -> Self {
        Self { stored, last_used: AtomicU64::new(0) }
    }

    /// Which of its secrets this is, if it is one and still worth something.
    pub(super) fn matches(&self, hash: &SecretHash, now: Timestamp) -> Result<Shown, Mismatch> {
        let StoredToken { sha256, next, lifetime, .. } = &self.stored;
        // Both are compared, whatever the first says: how long it takes tells nobody anything.
        let is_current = bool::from(sha256.is(hash));
        let is_next = next.as_ref().is_some_and(|next| bool::from(next.sha256.is(hash)));
        let (shown, created) = match (is_current, is_next, next) {
            (_, true, Some(next)) => (Shown::Next, next.created),
            (true, ..) => (Shown::Current, self.stored.created),
            _ => return Err(Mismatch::Wrong),
        };
        match expiry(created, *lifetime) {
            Some(expires) if now >= expires => Err(Mismatch::Expired(expires)),
            _ => Ok(shown),
        }
    }

    pub(super) fn note_use(&self, now: Timestamp) {
        self.last_used.store(now.millis(), Ordering::Relaxed);
    }

    /// Whoever shows its secret.
    pub(super) fn caller(&self) -> Caller {
        let StoredToken { id, name, role, runner_id, grant, tenant, limits, .. } = &self.stored;
        Caller {
            name: name.to_string().into(),
            token: Some(*id),
            role: *role,
            runner: runner_id.clone(),
            grant: grant.clone().map(Into::into),
            tenant: tenant.clone(),
            limits: limits.unwrap_or_default(),
        }
    }

    /// When it was last used; the beginning of time if it was not.
    pub(super) fn last_used(&self) -> Timestamp {
        Timestamp::from_millis(self.last_used.load(Ordering::Relaxed))
    }

    /// What everybody may know of it who may list tokens.
    pub(super) fn shown(&self) -> Token {
        let StoredToken { id, name, role, runner_id, grant, tenant, limits, uses_left, created, .. } =
            self.stored.clone();
        let last_used = self.last_used.load(Ordering::Relaxed);
        Token {
            id,
            name,
            role,
            runner_id,
            grant,
            tenant,
            limits,
            uses_left,
            created: Time(created),
            expires: self.stored.expires().map(Time),
            last_used: (last_used > 0).then(|| Time(Timestamp::from_millis(last_used))),
        }
    }
}

/// Why a secret is not the one of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mismatch {
    Wrong,
    Expired(Timestamp),
}
