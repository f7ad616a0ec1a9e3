//! Which files may be read.
//!
//! A person at a command line may read what the system lets them. A server that reads on behalf of others may read only
//! below directories that its operator named, whatever links lie there: each file is looked up before it is opened, and
//! looked at again once it is open, so that a link which changes in between gains nothing.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

/// Which files may be read.
#[derive(Clone, Debug, Default)]
pub struct Reach {
    /// Directories without links in them; nothing: everywhere.
    below: Option<Vec<PathBuf>>,
}

/// A file that may not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OutOfReach {
    /// Elsewhere, or nowhere. Whoever asks is not told which: it would tell them what is elsewhere.
    #[error("there is no such file below the directories that may be read")]
    Outside,
    /// A pipe, a socket, a device.
    #[error("it is no file")]
    NoFile,
}

impl Reach {
    /// All that the system allows.
    #[must_use]
    pub const fn everything() -> Self {
        Self { below: None }
    }

    /// Only below these directories. One that is not there holds nothing.
    #[must_use]
    pub fn below<P: AsRef<Path>>(directories: &[P]) -> Self {
        Self { below: Some(directories.iter().filter_map(|path| std::fs::canonicalize(path).ok()).collect()) }
    }

    /// Whether a path without links is within reach.
    fn covers(&self, path: &Path) -> bool {
        self.below.as_ref().is_none_or(|below| below.iter().any(|directory| path.starts_with(directory)))
    }

    /// Where a path leads.
    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        let real = std::fs::canonicalize(path).ok().filter(|real| self.covers(real));
        real.ok_or_else(|| refused(OutOfReach::Outside))
    }

    /// Whether a path leads to something within reach.
    pub(crate) fn has(&self, path: &Path) -> bool {
        self.resolve(path).is_ok()
    }

    /// Whether a path is a folder within reach.
    pub(crate) fn is_folder(&self, path: &Path) -> io::Result<bool> {
        match self.below {
            None => Ok(path.is_dir()),
            Some(_) => Ok(self.resolve(path)?.is_dir()),
        }
    }

    /// Opens a file within reach.
    pub(crate) fn open(&self, path: &Path) -> io::Result<File> {
        if self.below.is_none() {
            return File::open(path);
        }
        let real = self.resolve(path)?;
        // A pipe would keep whoever opens it waiting for somebody to write.
        let flags = i32::try_from((OFlags::NONBLOCK | OFlags::NOFOLLOW).bits()).map_err(io::Error::other)?;
        let file = OpenOptions::new().read(true).custom_flags(flags).open(real)?;
        // A link may have changed between the two looks.
        let opened = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
        match (self.covers(&opened), file.metadata()?.is_file()) {
            (true, true) => Ok(file),
            (true, false) => Err(refused(OutOfReach::NoFile)),
            (false, _) => Err(refused(OutOfReach::Outside)),
        }
    }
}

fn refused(why: OutOfReach) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, why)
}
