//! The first token of a data directory: an admin's, made by the first start, so that no server is open by accident.

use std::path::Path;

use berth_domain::Timestamp;
use berth_wire::{Role, TokenRequest};

use super::private_file;
use super::tokens::{TokenError, Tokens};

/// The name of the file below the data directory that holds the secret of the first admin's token.
pub const FILE: &str = "admin.token";
/// What the first token is called.
const NAME: &str = "admin";

/// The secret of an admin's token that is kept in the data directory.
#[derive(Clone)]
pub struct LocalAdmin {
    /// The secret.
    pub secret: String,
    /// It was made just now.
    pub is_new: bool,
}

impl std::fmt::Debug for LocalAdmin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LocalAdmin").field("is_new", &self.is_new).finish_non_exhaustive()
    }
}

/// Makes an admin's token if there is none at all, and writes its secret into the data directory for the server's user
/// alone. Where a start before made one, reads it again, if the file is still there and the token still good.
pub(crate) fn provide(tokens: &Tokens, data_dir: &Path, now: Timestamp) -> Result<Option<LocalAdmin>, TokenError> {
    let path = data_dir.join(FILE);
    let failed = |source| TokenError::File { path: path.clone(), source };
    if tokens.is_empty() {
        let name = NAME.parse().map_err(|_| failed(std::io::ErrorKind::InvalidInput.into()))?;
        let made = tokens.create(TokenRequest::new(name, Role::Admin), now)?;
        private_file::replace(&path, format!("{}\n", made.token).as_bytes()).map_err(failed)?;
        return Ok(Some(LocalAdmin { secret: made.token, is_new: true }));
    }
    let secret = match std::fs::read_to_string(&path) {
        Ok(text) => text.trim().to_owned(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(failed(source)),
    };
    let is_good = tokens.bearer(&secret, now).is_ok_and(|caller| caller.role == Role::Admin);
    Ok(is_good.then_some(LocalAdmin { secret, is_new: false }))
}
