//! Secrets of the operator whose files are open to others.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Everything for everybody, and writing for the group. A group that may read is how a service is given a key, so that
/// is the operator's choice.
const TOO_MUCH: u32 = 0o027;

/// Returns the mode of a file that every user of the machine can read, or that others can change. Nothing for one that
/// is not there: whoever reads it says so.
#[must_use]
pub fn loose_mode(path: &Path) -> Option<u32> {
    let mode = fs::metadata(path).ok()?.mode() & 0o7777;
    (mode & TOO_MUCH != 0).then_some(mode)
}

/// Logs that a file with a secret is open to others.
pub fn warn_if_loose(path: &Path, what: &str) {
    if let Some(mode) = loose_mode(path) {
        tracing::warn!(
            path = %path.display(),
            mode = format!("{mode:o}"),
            "{what} is open to other users of this machine: chmod 600 it"
        );
    }
}
