//! The lock of a data directory: one server at a time.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{self, Read, Seek, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    process,
};

/// The lock's file name below the data directory.
const FILE: &str = "LOCK";

/// A data directory that this process holds until the lock is dropped. The operating system releases the lock when the
/// process ends, however it ends.
#[derive(Debug)]
pub struct DirectoryLock {
    _file: File,
}

/// Why a data directory could not be locked.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process holds the lock.
    #[error(
        "the data directory {} is in use by {}: stop that server first, or give this one a directory of its own",
        directory.display(),
        holder(*pid)
    )]
    Held {
        /// The data directory.
        directory: PathBuf,
        /// The process id of the holder, if it could be read.
        pid: Option<u32>,
    },
    /// The lock file could not be opened or locked.
    #[error("cannot lock the data directory {}: {source}", directory.display())]
    Io {
        /// The data directory.
        directory: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
}

fn holder(pid: Option<u32>) -> String {
    pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
}

impl DirectoryLock {
    /// Locks an existing data directory.
    ///
    /// # Errors
    ///
    /// Another process holds it, or the operating system refused.
    pub fn acquire(directory: &Path) -> Result<Self, LockError> {
        let io = |source| LockError::Io { directory: directory.to_owned(), source };
        // The file is never removed: a lock on a removed file would exclude no other process.
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(directory.join(FILE))
            .map_err(io)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(LockError::Held { directory: directory.to_owned(), pid: read_pid(&mut file) });
            }
            Err(TryLockError::Error(source)) => return Err(io(source)),
        }
        write_pid(&mut file).map_err(io)?;
        Ok(Self { _file: file })
    }
}

fn read_pid(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.take(32).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

/// Writes the process id for the error message of the next process. A full disk must not keep a server from starting,
/// so a failed write is ignored.
fn write_pid(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    let _ = writeln!(file, "{}", process::id());
    Ok(())
}
