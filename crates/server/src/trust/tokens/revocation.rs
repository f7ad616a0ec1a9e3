//! Tokens that stop counting while something is under way for them, and the file of tokens read anew.

use std::path::Path;
use std::time::Duration;

use berth_domain::{Span, Timestamp};
use berth_wire::{Role, TokenId};

use super::stored::{Row, SecretHash};
use super::{TokenError, Tokens};
use crate::clock;

/// How long nobody looks whether a token has expired. A token changes less often than this, and a change is told.
const LONGEST_SLEEP: Span = Span::from_secs(60 * 60);

/// What a token was when something began for it.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Worth {
    /// The secret, where a new one ends what began with the old one. A runner renews its own by itself, and goes on.
    secret: Option<SecretHash>,
    expires: Option<Timestamp>,
}

impl Worth {
    fn of(row: &Row) -> Self {
        let stored = &row.stored;
        Self { secret: (stored.role != Role::Runner).then_some(stored.sha256), expires: stored.expires() }
    }
}

impl Tokens {
    fn worth(&self, id: TokenId) -> Option<Worth> {
        self.rows.read().get(&id).map(Worth::of)
    }

    /// Waits until this token does not count any more: it was revoked, it expired, or its secret is another one now.
    pub async fn until_revoked(&self, id: TokenId) {
        let mut changes = self.changes.subscribe();
        let Some(began) = self.worth(id) else { return };
        loop {
            let now = clock::now();
            let is_same = self.worth(id).is_some_and(|worth| worth.secret == began.secret);
            if !is_same || began.expires.is_some_and(|expires| now >= expires) {
                return;
            }
            let left = began.expires.map_or(LONGEST_SLEEP, |expires| expires.since(now).min(LONGEST_SLEEP));
            drop(tokio::time::timeout(Duration::from_millis(left.millis()), changes.changed()).await);
        }
    }

    /// Reads the file again, and returns how many tokens it has. Keeps the tokens that there are if the file is damaged,
    /// or has none: a server with tokens does not become an open one because a file is gone.
    pub fn reload(&self) -> Result<usize, TokenError> {
        let mut rows = self.rows.write();
        let fresh = Self::open(self.path.parent().unwrap_or(Path::new(".")))?.rows.into_inner();
        if fresh.is_empty() && !rows.is_empty() {
            return Err(TokenError::Damaged { path: self.path.clone(), why: "there is no token in it".into() });
        }
        for (id, row) in &fresh {
            row.note_use(rows.get(id).map_or(Timestamp::default(), Row::last_used));
        }
        *rows = fresh;
        self.changes.send_replace(());
        Ok(rows.len())
    }
}
