//! Which files may be read.
//!
//! A person at a command line may read what the system allows. A server that reads on behalf of clients may read only
//! below directories that its operator named, whatever links lie there: each path is resolved before the file is
//! opened, and checked again once it is open, so that a link which changes in between gains nothing.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

/// The files that may be read.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReadScope {
    /// Resolved directories; `None`: all files.
    below: Option<Vec<PathBuf>>,
}

/// Why a file may not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OutsideScope {
    /// The file is elsewhere, or does not exist. The message does not say which, because that would tell what exists
    /// elsewhere.
    #[error("there is no such file below the directories that may be read")]
    Outside,
    /// The path is a pipe, a socket or a device.
    #[error("it is no file")]
    NoFile,
}

impl ReadScope {
    /// Allows all files that the system allows.
    #[must_use]
    pub(crate) const fn everything() -> Self {
        Self { below: None }
    }

    /// Allows files below these directories. A directory that does not exist holds nothing.
    #[must_use]
    pub(crate) fn below<P: AsRef<Path>>(directories: &[P]) -> Self {
        Self { below: Some(directories.iter().filter_map(|path| std::fs::canonicalize(path).ok()).collect()) }
    }

    /// Returns whether a resolved path may be read.
    fn covers(&self, path: &Path) -> bool {
        self.below.as_ref().is_none_or(|below| below.iter().any(|directory| path.starts_with(directory)))
    }

    /// Resolves the links of a path.
    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        let real = std::fs::canonicalize(path).ok().filter(|real| self.covers(real));
        real.ok_or_else(|| refused(OutsideScope::Outside))
    }

    /// Returns whether a path leads to something that may be read.
    pub(crate) fn has(&self, path: &Path) -> bool {
        self.resolve(path).is_ok()
    }

    /// Returns whether a path is a folder that may be read.
    pub(crate) fn is_folder(&self, path: &Path) -> io::Result<bool> {
        match self.below {
            None => Ok(path.is_dir()),
            Some(_) => Ok(self.resolve(path)?.is_dir()),
        }
    }

    /// Opens a file that may be read.
    pub(crate) fn open(&self, path: &Path) -> io::Result<File> {
        if self.below.is_none() {
            return File::open(path);
        }
        let real = self.resolve(path)?;
        // Opening a pipe would block until another process writes to it.
        let flags = i32::try_from((OFlags::NONBLOCK | OFlags::NOFOLLOW).bits()).map_err(io::Error::other)?;
        let file = OpenOptions::new().read(true).custom_flags(flags).open(real)?;
        // A link may have changed between the two checks.
        let opened = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
        match (self.covers(&opened), file.metadata()?.is_file()) {
            (true, true) => Ok(file),
            (true, false) => Err(refused(OutsideScope::NoFile)),
            (false, _) => Err(refused(OutsideScope::Outside)),
        }
    }
}

fn refused(why: OutsideScope) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, why)
}
