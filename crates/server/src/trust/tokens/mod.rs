//! Tokens: made once, shown once, kept as hashes in one file of the data directory.
//!
//! | file | what |
//! | --- | --- |
//! | `stored` | one token: as the file holds it, and how a secret is compared with it |
//! | `revocation` | tokens that stop counting while something is under way for them, and the file read anew |
//! | `joining` | join tokens, which become tokens of runners |

mod joining;
mod revocation;
mod stored;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use berth_domain::{RunnerId, Span, Timestamp};
use berth_wire::{NewToken, Role, Time, Token, TokenId, TokenName, TokenRequest};
use parking_lot::RwLock;
use tokio::sync::watch;
use uuid::Uuid;

use super::Caller;
use super::private_file::{self, to_hex};
use stored::{Mismatch, NextSecret, Row, SecretHash, Shown, StoredToken};

/// The name of the tokens' file below the data directory.
pub const FILE: &str = "tokens.json";
const PREFIX: &str = "berth_";
const SECRET_BYTES: usize = 32;
/// How long a join token is worth something if nobody says otherwise.
const JOIN_LIFETIME: Span = Span::from_secs(60 * 60);

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
    #[error(
        "the first token, and the last one, must be an admin's that does not expire: else nobody could make another one"
    )]
    NoAdmin,
    /// No such token.
    #[error("no token {0}")]
    Unknown(TokenId),
    /// The name is taken.
    #[error("there is a token of the name {0}: revoke it first, or take another name")]
    NameTaken(TokenName),
    /// The join token was used as often as it may be.
    #[error("this join token is used up: let an admin make another one (`berth join-token create`)")]
    UsedUp,
    /// The join token is for another runner.
    #[error("this join token is for runner {0} only: make another one for this runner")]
    OtherRunner(RunnerId),
    /// A runner of this id is part of the fleet already.
    #[error(
        "runner {0} is known already: if this machine takes its place, let an admin make a join token for exactly that \
         runner (`berth join-token create --runner {0}`); otherwise give the agent another id"
    )]
    RunnerKnown(RunnerId),
}

/// Why a secret opens nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// Nobody has this secret.
    Unknown,
    /// It was somebody's, until then.
    Expired(Time),
}

/// All tokens of a data directory.
#[derive(Debug)]
pub struct Tokens {
    path: PathBuf,
    rows: RwLock<BTreeMap<TokenId, Row>>,
    /// Told of every change. Whoever hears of it can look at the rows once they are changed, too.
    changes: watch::Sender<()>,
}

impl Tokens {
    /// Reads the tokens of a data directory; there are none if there is no file yet.
    pub fn open(data_dir: &Path) -> Result<Self, TokenError> {
        let path = data_dir.join(FILE);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => "[]".to_owned(),
            Err(source) => return Err(TokenError::File { path, source }),
        };
        let damaged = |why: String| TokenError::Damaged { path: path.clone(), why };
        let stored: Vec<StoredToken> = serde_json::from_str(&text).map_err(|error| damaged(error.to_string()))?;
        let rows = stored.into_iter().map(|stored| (stored.id, Row::new(stored))).collect();
        Ok(Self { path, rows: RwLock::new(rows), changes: watch::Sender::new(()) })
    }

    /// Whether there is none: then whoever reaches the server may do everything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.read().is_empty()
    }

    /// Makes a token. Its secret is in the answer and nowhere else.
    pub fn create(&self, request: TokenRequest, now: Timestamp) -> Result<NewToken, TokenError> {
        let (id, secret) = new_secret()?;
        let is_join = request.role == Role::Join;
        let lifetime = request.expires_in.map(|span| span.0).or(is_join.then_some(JOIN_LIFETIME));
        let stored = StoredToken {
            id,
            name: request.name,
            role: request.role,
            runner_id: request.runner_id,
            grant: request.grant,
            tenant: request.tenant,
            limits: request.limits,
            uses_left: is_join.then(|| request.uses.unwrap_or(1)),
            created: now,
            lifetime,
            sha256: SecretHash::of(&secret),
            next: None,
            join_key: None,
        };
        let mut rows = self.rows.write();
        if rows.is_empty() && !is_lasting_admin(&stored) {
            return Err(TokenError::NoAdmin);
        }
        if rows.values().any(|row| row.stored.name == stored.name) {
            return Err(TokenError::NameTaken(stored.name));
        }
        self.insert(&mut rows, stored, secret)
    }

    /// Ends a token.
    pub fn revoke(&self, id: TokenId) -> Result<Token, TokenError> {
        let mut rows = self.rows.write();
        let row = rows.get(&id).ok_or(TokenError::Unknown(id))?;
        let others = || rows.values().filter(|row| row.stored.id != id);
        if is_lasting_admin(&row.stored) && !others().any(|row| is_lasting_admin(&row.stored)) {
            return Err(TokenError::NoAdmin);
        }
        let about = row.shown();
        self.write(others().map(|row| &row.stored))?;
        rows.remove(&id);
        Ok(about)
    }

    /// Makes another secret for a token. The old one is worth something until the new one is first used, so that nobody
    /// is shut out if the answer is lost.
    pub fn rotate(&self, id: TokenId, now: Timestamp) -> Result<NewToken, TokenError> {
        let mut rows = self.rows.write();
        let secret = secret_of(id)?;
        let mut stored = rows.get(&id).ok_or(TokenError::Unknown(id))?.stored.clone();
        stored.next = Some(NextSecret { sha256: SecretHash::of(&secret), created: now });
        self.replace(&mut rows, stored.clone())?;
        let about = Row::new(StoredToken { created: now, ..stored }).shown();
        Ok(NewToken { token: secret, about })
    }

    /// All tokens, without their secrets, oldest first.
    #[must_use]
    pub fn list(&self) -> Vec<Token> {
        let mut list: Vec<Token> = self.rows.read().values().map(Row::shown).collect();
        list.sort_by_key(|token| (token.created.0, token.id));
        list
    }

    /// The tokens as their file holds them, for a backup.
    pub(crate) fn to_text(&self) -> Result<Vec<u8>, serde_json::Error> {
        let rows = self.rows.read();
        serde_json::to_vec_pretty(&rows.values().map(|row| &row.stored).collect::<Vec<_>>())
    }

    /// Finds out whose secret this is.
    pub fn bearer(&self, secret: &str, now: Timestamp) -> Result<Caller, Rejection> {
        self.bearer_if(secret, now, |_| Ok(()))
    }

    /// Finds out whose secret this is, and whether it counts here. A secret that does not is not used by asking with it.
    pub fn bearer_if<E: From<Rejection>>(
        &self,
        secret: &str,
        now: Timestamp,
        counts: impl FnOnce(&Caller) -> Result<(), E>,
    ) -> Result<Caller, E> {
        // The id in a token is no secret: it finds the row. The rest is compared as a whole, in constant time.
        let id = secret.strip_prefix(PREFIX).and_then(|rest| rest.split_once('_')).map(|(id, _)| id);
        let id = id.and_then(|id| Uuid::try_parse(id).ok()).map(TokenId).ok_or(Rejection::Unknown)?;
        let hash = SecretHash::of(secret);
        let (caller, shown) = {
            let rows = self.rows.read();
            let row = rows.get(&id).ok_or(Rejection::Unknown)?;
            let shown = row.matches(&hash, now).map_err(|mismatch| match mismatch {
                Mismatch::Wrong => Rejection::Unknown,
                Mismatch::Expired(at) => Rejection::Expired(Time(at)),
            })?;
            let caller = row.caller();
            counts(&caller)?;
            row.note_use(now);
            (caller, shown)
        };
        if shown == Shown::Next {
            self.promote(id, hash);
        }
        Ok(caller)
    }

    /// A new secret was used for the first time: the old one is worth nothing from now on.
    fn promote(&self, id: TokenId, hash: SecretHash) {
        let mut rows = self.rows.write();
        let Some(mut stored) = rows.get(&id).map(|row| row.stored.clone()) else { return };
        let Some(next) = stored.next.take().filter(|next| next.sha256 == hash) else { return };
        (stored.sha256, stored.created) = (next.sha256, next.created);
        // Until it can be written down, both secrets are good; the next use tries again.
        if let Err(error) = self.replace(&mut rows, stored) {
            tracing::warn!(token = %id, %error, "the old secret of a rotated token is still good");
        }
    }

    /// Adds a token, on the disk first.
    fn insert(
        &self,
        rows: &mut BTreeMap<TokenId, Row>,
        stored: StoredToken,
        secret: String,
    ) -> Result<NewToken, TokenError> {
        self.write(rows.values().map(|row| &row.stored).chain([&stored]))?;
        let row = Row::new(stored);
        let about = row.shown();
        rows.insert(about.id, row);
        Ok(NewToken { token: secret, about })
    }

    /// Changes a token, on the disk first.
    fn replace(&self, rows: &mut BTreeMap<TokenId, Row>, changed: StoredToken) -> Result<(), TokenError> {
        let id = changed.id;
        let others = rows.values().map(|row| &row.stored).filter(|stored| stored.id != id);
        self.write(others.chain([&changed]))?;
        if let Some(row) = rows.get_mut(&id) {
            row.stored = changed;
        }
        Ok(())
    }

    /// Writes all of them beside the old file, and puts it in its place once it is on the disk. The caller holds the rows,
    /// and changes them after it.
    fn write<'a>(&self, tokens: impl Iterator<Item = &'a StoredToken>) -> Result<(), TokenError> {
        let failed = |source| TokenError::File { path: self.path.clone(), source };
        let text = serde_json::to_vec_pretty(&tokens.collect::<Vec<_>>()).map_err(std::io::Error::other);
        text.and_then(|text| private_file::replace(&self.path, &text)).map_err(failed)?;
        self.changes.send_replace(());
        Ok(())
    }
}

/// Whether somebody can still make tokens with this one tomorrow.
fn is_lasting_admin(stored: &StoredToken) -> bool {
    stored.role == Role::Admin && stored.lifetime.is_none()
}

/// Makes an id and a secret.
fn new_secret() -> Result<(TokenId, String), TokenError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(TokenError::Random)?;
    let id = TokenId(uuid::Builder::from_random_bytes(bytes).into_uuid());
    Ok((id, secret_of(id)?))
}

/// Makes a secret of a token.
fn secret_of(id: TokenId) -> Result<String, TokenError> {
    let mut bytes = [0; SECRET_BYTES];
    getrandom::fill(&mut bytes).map_err(TokenError::Random)?;
    Ok(format!("{PREFIX}{}_{}", id.0.simple(), to_hex(&bytes)))
}

#[cfg(test)]
mod tests {
    use berth_wire::{JoinKey, JoinRequest, RunnerGrant, TimeSpan};

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(7);

    fn request(name: &str, role: Role) -> TokenRequest {
        TokenRequest::new(name.parse().unwrap(), role)
    }

    /// Tokens in a directory of their own, with an admin's.
    fn tokens() -> (tempfile::TempDir, Tokens, NewToken) {
        let dir = tempfile::tempdir().unwrap();
        let tokens = Tokens::open(dir.path()).unwrap();
        let admin = tokens.create(request("ops", Role::Admin), NOW).unwrap();
        (dir, tokens, admin)
    }

    fn after(millis: u64) -> Timestamp {
        Timestamp::from_millis(NOW.millis() + millis)
    }

    #[test]
    fn a_token_is_known_by_its_secret_alone_and_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let tokens = Tokens::open(dir.path()).unwrap();
        assert!(matches!(tokens.create(request("view", Role::Viewer), NOW), Err(TokenError::NoAdmin)));
        let admin = tokens.create(request("ops", Role::Admin), NOW).unwrap();
        let viewer = tokens.create(request("view", Role::Viewer), NOW).unwrap();
        assert!(matches!(tokens.create(request("view", Role::Admin), NOW), Err(TokenError::NameTaken(_))));

        let again = Tokens::open(dir.path()).unwrap();
        assert_eq!(again.bearer(&viewer.token, NOW).unwrap().role, Role::Viewer);
        let mut other = viewer.token.clone();
        let last = if other.ends_with('0') { "1" } else { "0" };
        other.replace_range(other.len() - 1.., last);
        assert_eq!(again.bearer(&other, NOW), Err(Rejection::Unknown), "one digit is another secret");
        assert_eq!(again.bearer("", NOW), Err(Rejection::Unknown));

        assert!(matches!(again.revoke(admin.about.id), Err(TokenError::NoAdmin)), "the last admin stays");
        again.revoke(viewer.about.id).unwrap();
        assert_eq!(again.bearer(&viewer.token, NOW), Err(Rejection::Unknown));
        let file = std::fs::read_to_string(dir.path().join(FILE)).unwrap();
        assert!(!file.contains(&admin.token), "secrets are not on the disk");
    }

    #[test]
    fn a_token_expires_and_an_admin_that_lasts_is_always_left() {
        let (dir, tokens, admin) = tokens();
        let for_a_second = |role| TokenRequest {
            expires_in: Some(TimeSpan(Span::from_secs(1))),
            ..request(&format!("short {role}"), role)
        };
        let short = tokens.create(for_a_second(Role::Viewer), NOW).unwrap();
        let _ = tokens.create(for_a_second(Role::Admin), NOW).unwrap();
        assert!(tokens.bearer(&short.token, after(999)).is_ok());
        let again = Tokens::open(dir.path()).unwrap();
        assert!(matches!(again.bearer(&short.token, after(1_000)), Err(Rejection::Expired(_))));
        assert!(matches!(again.revoke(admin.about.id), Err(TokenError::NoAdmin)), "the other admin expires");
    }

    #[test]
    fn a_rotated_token_has_two_secrets_until_the_new_one_is_used() {
        let (dir, tokens, _) = tokens();
        let old = tokens.create(request("view", Role::Viewer), NOW).unwrap();
        let lost = tokens.rotate(old.about.id, NOW).unwrap();
        let new = tokens.rotate(old.about.id, NOW).unwrap();
        assert!(tokens.bearer(&old.token, NOW).is_ok(), "the answer may have been lost");
        assert_eq!(tokens.bearer(&lost.token, NOW), Err(Rejection::Unknown), "only the last one counts");
        assert!(tokens.bearer(&new.token, NOW).is_ok());
        for tokens in [tokens, Tokens::open(dir.path()).unwrap()] {
            assert_eq!(tokens.bearer(&old.token, NOW), Err(Rejection::Unknown));
            assert!(tokens.bearer(&new.token, NOW).is_ok());
        }
    }

    #[test]
    fn a_rotated_token_lives_as_long_again() {
        let (_dir, tokens, _) = tokens();
        let short = TokenRequest { expires_in: Some(TimeSpan(Span::from_secs(10))), ..request("s", Role::Submitter) };
        let old = tokens.create(short, NOW).unwrap();
        let new = tokens.rotate(old.about.id, after(9_000)).unwrap();
        assert!(matches!(tokens.bearer(&old.token, after(10_000)), Err(Rejection::Expired(_))));
        assert!(tokens.bearer(&new.token, after(18_999)).is_ok());
        assert!(matches!(tokens.bearer(&new.token, after(19_000)), Err(Rejection::Expired(_))));
    }

    fn joining(runner: &str, key: &str) -> JoinRequest {
        JoinRequest { runner_id: runner.parse().unwrap(), key: JoinKey::try_from(key.repeat(32)).unwrap() }
    }

    #[test]
    fn a_join_token_makes_as_many_runners_as_it_says() {
        let (dir, tokens, _) = tokens();
        let grant = RunnerGrant { pool: "big".parse().unwrap(), ..RunnerGrant::default() };
        let asked = TokenRequest { uses: Some(2), grant: Some(grant.clone()), ..request("rack 7", Role::Join) };
        let join = tokens.create(asked, NOW).unwrap().about.id;
        let lifetime = Some(Span::from_secs(100));
        let enter = |runner, key, is_known| tokens.join(join, &joining(runner, key), is_known, lifetime, NOW);
        let first = enter("a", "x", false).unwrap();
        let caller = tokens.bearer(&first.token, NOW).unwrap();
        assert_eq!((caller.role, caller.runner), (Role::Runner, Some("a".parse().unwrap())));
        assert_eq!(caller.grant.as_deref(), Some(&grant));
        assert!(matches!(enter("a", "y", false), Err(TokenError::RunnerKnown(_))), "another agent of that id");
        assert!(matches!(enter("b", "y", true), Err(TokenError::RunnerKnown(_))), "the fleet has such a runner");
        // The answer was lost: the same agent asks again, and nothing is used up.
        let again = enter("a", "x", false).unwrap();
        assert_eq!(tokens.bearer(&first.token, NOW), Err(Rejection::Unknown));
        assert!(tokens.bearer(&again.token, NOW).is_ok());
        let _ = enter("b", "z", false).unwrap();
        assert!(matches!(enter("c", "z", false), Err(TokenError::UsedUp)), "it is used up");
        assert!(enter("b", "z", true).is_ok(), "but an answer may still have been lost");
        let reopened = Tokens::open(dir.path()).unwrap();
        assert!(matches!(reopened.join(join, &joining("c", "z"), false, lifetime, NOW), Err(TokenError::UsedUp)));
    }

    #[test]
    fn a_join_token_for_one_runner_replaces_its_token_and_is_for_no_other() {
        let (_dir, tokens, _) = tokens();
        let old = TokenRequest { runner_id: Some("a".parse().unwrap()), ..request("a", Role::Runner) };
        let old = tokens.create(old, NOW).unwrap();
        let asked = TokenRequest { runner_id: Some("a".parse().unwrap()), ..request("again", Role::Join) };
        let join = tokens.create(asked, NOW).unwrap().about.id;
        assert!(matches!(tokens.join(join, &joining("b", "x"), false, None, NOW), Err(TokenError::OtherRunner(_))));
        let new = tokens.join(join, &joining("a", "x"), true, None, NOW).unwrap();
        assert_eq!(tokens.bearer(&old.token, NOW), Err(Rejection::Unknown), "one runner, one token");
        assert!(tokens.bearer(&new.token, NOW).is_ok());
    }
}
