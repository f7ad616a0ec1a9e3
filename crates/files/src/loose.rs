//! Files of the operator that hold secrets and are open to other users.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The permission bits that are too much for a secret: everything for all users, and writing for the group. Group read
/// is allowed, because that is how a service is given a key.
const TOO_MUCH: u32 = 0o027;

/// Returns the mode of a file that every user of the machine can read, or that others can change. Returns `None` for a
/// file that does not exist: the code that reads it reports that.
#[must_use]
pub fn loose_mode(path: &Path) -> Option<u32> {
    let mode = fs::metadata(path).ok()?.mode() & 0o7777;
    (mode & TOO_MUCH != 0).then_some(mode)
}

/// Logs a warning if a file with a secret is open to other users.
pub fn warn_if_loose(path: &Path, what: &str) {
    if let Some(mode) = loose_mode(path) {
        tracing::warn!(
            path = %path.display(),
            mode = format!("{mode:o}"),
            "{what} is open to other users of this machine: chmod 600 it"
        );
    }
}
