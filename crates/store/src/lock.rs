//! One server for one data directory.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{self, Read, Seek, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    process,
};

/// The lock's file name below the data directory.
const FILE: &str = "LOCK";

/// A data directory that is ours until this is dropped. The operating system takes the lock back when the process
/// ends, however it ends.
#[derive(Debug)]
pub struct DirectoryLock {
    _file: File,
}

/// Why a data directory could not be locked.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process has it.
    #[error(
        "the data directory {} is in use by {}: stop that server first, or give this one a directory of its own",
        directory.display(),
        holder(*pid)
    )]
    Held {
        /// The data directory.
        directory: PathBuf,
        /// Who holds it, if that could be read.
        pid: Option<u32>,
    },
    /// The lock file could not be opened or locked.
    #[error("cannot lock the data directory {}: {source}", directory.display())]
    Io {
        /// The data directory.
        directory: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
}

fn holder(pid: Option<u32>) -> String {
    pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
}

impl DirectoryLock {
    /// Locks a data directory that exists.
    ///
    /// # Errors
    ///
    /// Another process holds it, or the operating system refused.
    pub fn acquire(directory: &Path) -> Result<Self, LockError> {
        let io = |source| LockError::Io { directory: directory.to_owned(), source };
        // The file is never removed: a lock on a removed file would exclude nobody.
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

/// The pid is only for the message that the next one gets. A full disk must not keep a server from starting, so a
/// failed write is no failure.
fn write_pid(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    let _ = writeln!(file, "{}", process::id());
    Ok(())
}
