//! A new journal that begins with a snapshot: the first step of a restore.

use std::{
    io,
    path::Path,
    sync::{Arc, Mutex},
};

use berth_domain::{Epoch, Revision};

use super::{LogJournal, Options, Shared, Table, open::DIRECTORY};
use crate::{
    compact::{CompactError, write_snapshot},
    disk::{Disk, RealDisk},
    error::failed,
    lock::{DirectoryLock, LockError},
    names::Names,
};

/// Why no journal could be made.
#[derive(Debug, thiserror::Error)]
pub enum SeedError {
    /// Another process holds the data directory.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The directory already has a journal.
    #[error("there is a journal in {0}: a backup is restored into a directory of its own")]
    NotEmpty(String),
    /// The snapshot could not be written.
    #[error(transparent)]
    Snapshot(#[from] CompactError),
}

/// Makes a journal in an empty data directory that begins with the state after a revision.
///
/// A journal is complete with its first record: until that is appended, [`crate::open`] refuses the directory.
///
/// # Errors
///
/// Another process holds the directory, it has a journal already, or the snapshot could not be written and proven.
pub fn seed(
    data_directory: &Path,
    options: Options,
    revision: Revision,
    write: impl FnOnce(&mut dyn io::Write) -> io::Result<()>,
    prove: impl FnOnce(&[u8]) -> io::Result<()>,
) -> Result<LogJournal, SeedError> {
    let disk = RealDisk;
    let dir = data_directory.join(DIRECTORY);
    let create = |path: &Path| disk.create_dir(path).map_err(failed("create", path)).map_err(CompactError::from);
    create(data_directory)?;
    let lock = DirectoryLock::acquire(data_directory)?;
    create(&dir)?;
    let names = Names::sort(disk.list(&dir).map_err(failed("list", &dir)).map_err(CompactError::from)?);
    if !names.segments.is_empty() || !names.snapshots.is_empty() {
        return Err(SeedError::NotEmpty(data_directory.display().to_string()));
    }
    write_snapshot(&disk, &dir, revision, write, prove)?;
    let table = Table { sealed: Vec::new(), open: None, revision };
    let shared = Arc::new(Shared { disk, dir, table: Mutex::new(table), _lock: Some(lock) });
    Ok(LogJournal {
        shared,
        options,
        revision,
        epoch: Epoch::default(),
        current: None,
        prepared: None,
        buffer: Vec::new(),
        poisoned: false,
    })
}
