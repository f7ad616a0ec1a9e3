//! Tokens: made once, shown once, kept as hashes in one file of the data directory.

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use berth_domain::{RunnerId, Timestamp};
use berth_wire::{NewToken, Role, Time, Token, TokenId, TokenName, TokenRequest};
use parking_lot::RwLock;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use uuid::Uuid;

use super::Caller;

const FILE: &str = "tokens.json";
const PREFIX: &str = "berth_";
const SECRET_BYTES: usize = 32;

/// A token as it is kept.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    id: TokenId,
    name: TokenName,
    role: Role,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    runner_id: Option<RunnerId>,
    created: Timestamp,
    /// Of the secret. The secret has 256 random bits, so a plain hash is enough.
    sha256: String,
}

#[derive(Debug)]
struct Row {
    kept: Kept,
    hash: [u8; 32],
    last_used: AtomicU64,
}

/// Why the tokens cannot be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The file cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is no list of tokens.
    #[error("{}: {why}: restore it from a backup, or remove it and make new tokens", path.display())]
    Damaged {
        /// Which.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// No randomness.
    #[error("the operating system gives no random bytes: {0}")]
    Random(getrandom::Error),
    /// There would be nobody left to make another one.
    #[error("the first token, and the last one, must be an admin's: else nobody could make another one")]
    NoAdmin,
    /// No such token.
    #[error("no token {0}")]
    Unknown(TokenId),
    /// The name is taken.
    #[error("there is a token of the name {0}: revoke it first, or take another name")]
    NameTaken(TokenName),
}

/// All tokens of a data directory.
#[derive(Debug)]
pub struct Tokens {
    path: PathBuf,
    rows: RwLock<BTreeMap<TokenId, Row>>,
}

impl Tokens {
    /// The tokens of a data directory; none if there is no file yet.
    pub fn open(data_dir: &Path) -> Result<Self, TokenError> {
        let path = data_dir.join(FILE);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => "[]".to_owned(),
            Err(source) => return Err(TokenError::File { path, source }),
        };
        let damaged = |why: String| TokenError::Damaged { path: path.clone(), why };
        let kept: Vec<Kept> = serde_json::from_str(&text).map_err(|error| damaged(error.to_string()))?;
        let mut rows = BTreeMap::new();
        for kept in kept {
            let hash = read_hash(&kept.sha256).ok_or_else(|| damaged(format!("token {} has no hash", kept.name)))?;
            rows.insert(kept.id, Row { kept, hash, last_used: AtomicU64::new(0) });
        }
        Ok(Self { path, rows: RwLock::new(rows) })
    }

    /// Whether there is none: then whoever reaches the server may do everything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.read().is_empty()
    }

    /// Makes a token. Its secret is in the answer and nowhere else.
    pub fn create(&self, request: TokenRequest, now: Timestamp) -> Result<NewToken, TokenError> {
        let mut bytes = [0; 16 + SECRET_BYTES];
        getrandom::fill(&mut bytes).map_err(TokenError::Random)?;
        let (for_id, for_secret) = bytes.split_at(16);
        let id = TokenId(uuid::Builder::from_slice(for_id).map_or_else(
            |_| Uuid::nil(),
            |mut id| {
                id.set_version(uuid::Version::Random).set_variant(uuid::Variant::RFC4122);
                id.into_uuid()
            },
        ));
        let secret = format!("{PREFIX}{}_{}", id.0.simple(), hex(for_secret));
        let hash: [u8; 32] = Sha256::digest(secret.as_bytes()).into();
        let kept = Kept {
            id,
            name: request.name,
            role: request.role,
            runner_id: request.runner_id,
            created: now,
            sha256: hex(&hash),
        };
        let mut rows = self.rows.write();
        if rows.is_empty() && kept.role != Role::Admin {
            return Err(TokenError::NoAdmin);
        }
        if rows.values().any(|row| row.kept.name == kept.name) {
            return Err(TokenError::NameTaken(kept.name));
        }
        let about = shown(&kept, 0);
        self.write(rows.values().map(|row| &row.kept).chain([&kept]))?;
        rows.insert(id, Row { kept, hash, last_used: AtomicU64::new(0) });
        Ok(NewToken { token: secret, about })
    }

    /// Ends a token.
    pub fn revoke(&self, id: TokenId) -> Result<Token, TokenError> {
        let mut rows = self.rows.write();
        let row = rows.get(&id).ok_or(TokenError::Unknown(id))?;
        let others = || rows.values().filter(|row| row.kept.id != id);
        if row.kept.role == Role::Admin && !others().any(|row| row.kept.role == Role::Admin) {
            return Err(TokenError::NoAdmin);
        }
        let about = shown(&row.kept, row.last_used.load(Ordering::Relaxed));
        self.write(others().map(|row| &row.kept))?;
        rows.remove(&id);
        Ok(about)
    }

    /// All tokens, without their secrets, oldest first.
    #[must_use]
    pub fn list(&self) -> Vec<Token> {
        let rows = self.rows.read();
        let mut list: Vec<Token> =
            rows.values().map(|row| shown(&row.kept, row.last_used.load(Ordering::Relaxed))).collect();
        list.sort_by_key(|token| (token.created.0, token.id));
        list
    }

    /// Whose secret this is.
    #[must_use]
    pub fn bearer(&self, secret: &str, now: Timestamp) -> Option<Caller> {
        // The id in a token is no secret: it finds the row. The rest is compared as a whole, in constant time.
        let (id, _) = secret.strip_prefix(PREFIX)?.split_once('_')?;
        let id = TokenId(Uuid::try_parse(id).ok()?);
        let hash: [u8; 32] = Sha256::digest(secret.as_bytes()).into();
        let rows = self.rows.read();
        let row = rows.get(&id)?;
        if !bool::from(row.hash.ct_eq(&hash)) {
            return None;
        }
        row.last_used.store(now.millis(), Ordering::Relaxed);
        let Kept { name, role, runner_id, .. } = &row.kept;
        Some(Caller { name: name.to_string().into(), token: Some(id), role: *role, runner: runner_id.clone() })
    }

    /// Writes all of them beside the old file, and puts it in its place once it is on the disk.
    fn write<'a>(&self, tokens: impl Iterator<Item = &'a Kept>) -> Result<(), TokenError> {
        let failed = |source| TokenError::File { path: self.path.clone(), source };
        let text = serde_json::to_vec_pretty(&tokens.collect::<Vec<_>>()).map_err(std::io::Error::other);
        let beside = self.path.with_extension("json.tmp");
        let put = || -> std::io::Result<()> {
            let mut file =
                std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
            file.write_all(&text?)?;
            file.sync_all()?;
            std::fs::rename(&beside, &self.path)?;
            self.path.parent().map_or(Ok(()), |parent| std::fs::File::open(parent)?.sync_all())
        };
        put().map_err(failed)
    }
}

fn shown(kept: &Kept, last_used: u64) -> Token {
    Token {
        id: kept.id,
        name: kept.name.clone(),
        role: kept.role,
        runner_id: kept.runner_id.clone(),
        created: Time(kept.created),
        last_used: (last_used > 0).then(|| Time(Timestamp::from_millis(last_used))),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn read_hash(text: &str) -> Option<[u8; 32]> {
    let mut hash = [0; 32];
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    for (place, byte) in hash.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(place * 2..place * 2 + 2)?, 16).ok()?;
    }
    Some(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(name: &str, role: Role) -> TokenRequest {
        TokenRequest { name: name.parse().unwrap(), role, runner_id: None }
    }

    #[test]
    fn a_token_is_known_by_its_secret_alone_and_after_a_restart() {
        let dir = std::env::temp_dir().join(format!("berth-tokens-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let now = Timestamp::from_millis(7);
        let tokens = Tokens::open(&dir).unwrap();
        assert!(matches!(tokens.create(request("view", Role::Viewer), now), Err(TokenError::NoAdmin)));
        let admin = tokens.create(request("ops", Role::Admin), now).unwrap();
        let viewer = tokens.create(request("view", Role::Viewer), now).unwrap();
        assert!(matches!(tokens.create(request("view", Role::Admin), now), Err(TokenError::NameTaken(_))));

        let again = Tokens::open(&dir).unwrap();
        assert_eq!(again.bearer(&viewer.token, now).unwrap().role, Role::Viewer);
        let mut other = viewer.token.clone();
        let last = if other.ends_with('0') { "1" } else { "0" };
        other.replace_range(other.len() - 1.., last);
        assert_eq!(again.bearer(&other, now), None, "one digit is another secret");
        assert_eq!(again.bearer("", now), None);

        assert!(matches!(again.revoke(admin.about.id), Err(TokenError::NoAdmin)), "the last admin stays");
        again.revoke(viewer.about.id).unwrap();
        assert_eq!(again.bearer(&viewer.token, now), None);
        let file = std::fs::read_to_string(dir.join(FILE)).unwrap();
        assert!(!file.contains(&admin.token), "secrets are not on the disk");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
