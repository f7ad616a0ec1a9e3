//! Join tokens: an agent exchanges one for a token of its own.

use std::collections::BTreeMap;

use berth_domain::{Span, Timestamp};
use berth_wire::{JoinRequest, NewToken, Role, TokenId, TokenName};

use super::stored::{Row, SecretHash, StoredToken};
use super::{TokenError, Tokens, new_secret};

impl Tokens {
    /// Makes the token of a runner that joins, with what the join token grants.
    ///
    /// A runner id that is known already, by its token or to the fleet (`is_known`), is taken over only with a join token
    /// that was made for exactly that runner: otherwise one machine with a join token could become any other. An agent
    /// that lost the answer asks again with the same key; its first token is replaced, and no use is counted.
    pub fn join(
        &self,
        join_token: TokenId,
        request: &JoinRequest,
        is_known: bool,
        lifetime: Option<Span>,
        now: Timestamp,
    ) -> Result<NewToken, TokenError> {
        let key = SecretHash::of(request.key.as_str());
        let mut rows = self.rows.write();
        let join = rows.get(&join_token).ok_or(TokenError::Unknown(join_token))?.stored.clone();
        if let Some(only) = join.runner_id.as_ref().filter(|only| **only != request.runner_id) {
            return Err(TokenError::OtherRunner(only.clone()));
        }
        let is_of_runner = |row: &&Row| row.stored.runner_id.as_ref() == Some(&request.runner_id);
        let old: Vec<TokenId> = (rows.values().filter(|row| row.stored.role == Role::Runner).filter(is_of_runner))
            .map(|row| row.stored.id)
            .collect();
        let asks_again = rows.values().filter(is_of_runner).any(|row| row.stored.join_key == Some(key));
        let takes_over = join.runner_id.is_some();
        if !asks_again && !takes_over && (is_known || !old.is_empty()) {
            return Err(TokenError::RunnerKnown(request.runner_id.clone()));
        }
        let uses_left = join.uses_left.unwrap_or(0);
        let uses_left = if asks_again { uses_left } else { uses_left.checked_sub(1).ok_or(TokenError::UsedUp)? };
        let (id, secret) = new_secret()?;
        let joined = StoredToken {
            id,
            name: free_name(&rows, &old, TokenName::of_runner(&request.runner_id)),
            role: Role::Runner,
            runner_id: Some(request.runner_id.clone()),
            grant: Some(join.grant.clone().unwrap_or_default()),
            tenant: None,
            limits: None,
            uses_left: None,
            created: now,
            lifetime,
            sha256: SecretHash::of(&secret),
            next: None,
            join_key: Some(key),
        };
        let used = StoredToken { uses_left: Some(uses_left), ..join };
        // What the join token has left and the new token are written in one go: a crash leaves both or neither.
        let kept = rows.values().map(|row| &row.stored);
        let kept = kept.filter(|stored| stored.id != used.id && !old.contains(&stored.id));
        self.write(kept.chain([&used, &joined]))?;
        rows.retain(|id, _| !old.contains(id));
        if let Some(row) = rows.get_mut(&join_token) {
            row.stored = used;
        }
        let row = Row::new(joined);
        let about = row.shown();
        rows.insert(id, row);
        Ok(NewToken { token: secret, about })
    }
}

/// A name that no other token has.
fn free_name(rows: &BTreeMap<TokenId, Row>, replaced: &[TokenId], wanted: TokenName) -> TokenName {
    let is_taken =
        |name: &TokenName| rows.values().any(|row| !replaced.contains(&row.stored.id) && row.stored.name == *name);
    let numbered = |number: u32| format!("{number} {wanted}").parse().ok();
    let mut names = std::iter::once(Some(wanted.clone())).chain((2..).map(numbered)).flatten();
    names.find(|name| !is_taken(name)).unwrap_or(wanted)
}
