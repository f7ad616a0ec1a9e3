//! The users that the slots of an agent run as.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::config::{AgentSettings, ConfigError};
use crate::runtime::{Runtimes, SlotUser, UserId};

/// Logs which user the slots of each runtime on this machine run as, and warns of those that can read what the agent
/// can.
pub fn log_slot_users(settings: &AgentSettings, runtimes: &Runtimes) {
    let own = UserId::own();
    if !own.is_root() {
        tracing::warn!(
            uid = own.get(),
            "slots run as the agent's own user and can read whatever it can, its token too: run the agent as root and \
             name a `user` for each runtime"
        );
        return;
    }
    let offered = runtimes.installed(&settings.path());
    for runtime in runtimes.iter().filter(|runtime| offered.contains_key(runtime.name())) {
        match runtime.user() {
            Some(user) => tracing::info!(
                runtime = %runtime.name(),
                uid = user.uid.get(),
                gid = user.gid,
                groups = ?user.groups,
                "slots of this runtime run as a user of their own"
            ),
            None => tracing::warn!(
                runtime = %runtime.name(),
                "slots of this runtime run as root, as the agent does, and can read its token: name a `user` for it"
            ),
        }
    }
}

/// Refuses a file with the agent's token or key that the user of a runtime can read. The permissions of the directories
/// above it are not checked. A missing file is reported where it is read.
pub(super) fn check_secret_file(field: &'static str, path: &Path, runtimes: &Runtimes) -> Result<(), ConfigError> {
    let Ok(found) = std::fs::metadata(path) else { return Ok(()) };
    let may_read = |user: &SlotUser| {
        let bits = match () {
            () if found.uid() == user.uid.get() => 0o400,
            () if found.gid() == user.gid || user.groups.contains(&found.gid()) => 0o040,
            () => 0o004,
        };
        !user.uid.is_root() && found.mode() & bits != 0
    };
    let reader = runtimes.iter().find(|runtime| runtime.user().is_some_and(may_read));
    let Some(runtime) = reader else { return Ok(()) };
    let why = format!(
        "{} can be read by slots of runtime {} (user {}): make it the agent's alone (chmod 600)",
        path.display(),
        runtime.name(),
        runtime.user_id()
    );
    Err(ConfigError::Field { field, why })
}
