//! Errors of a data directory. Their messages say what to do.

use std::{fmt, io, path::PathBuf};

use berth_domain::Revision;

use crate::lock::LockError;

/// Why a journal could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The directory is in use, or cannot be locked.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The journal's files cannot be read or trusted.
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// Why a part of the journal could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The content is not what was written.
    #[error(transparent)]
    Damaged(#[from] Damage),
    /// A newer version of berth wrote the file.
    #[error(
        "{} has format {found}, and this berth reads formats up to {known}: upgrade berth to the version that wrote \
         it, or restore a backup that was made before the upgrade",
        file.display()
    )]
    NewerFormat {
        /// The file that has the newer format.
        file: PathBuf,
        /// The format of the file.
        found: u32,
        /// The newest format that this code reads.
        known: u32,
    },
    /// A version of berth wrote the file whose records this one cannot read any more.
    #[error(
        "{} has format {found}, and this berth reads formats from {oldest} on: start it with the version that wrote it, \
         or begin with an empty data directory (agents then stop nothing by themselves)",
        file.display()
    )]
    OlderFormat {
        /// The file that has the older format.
        file: PathBuf,
        /// The format of the file.
        found: u32,
        /// The oldest format that this code reads.
        oldest: u32,
    },
    /// The operating system refused an operation.
    #[error(transparent)]
    Io(#[from] FileError),
}

/// An operation on a file that failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {}: {source}", file.display())]
pub struct FileError {
    /// The operation, as a verb.
    pub action: &'static str,
    /// The file that it was tried on.
    pub file: PathBuf,
    /// The error of the operating system.
    pub source: io::Error,
}

/// A place in the journal whose content is not what was written.
///
/// The server must not start on it: an acknowledged claim may be missing, and its memory would be promised twice.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the journal is damaged: {} at byte {offset}: {flaw}. Records that were acknowledged may be lost, so it is not \
     opened. Restore the data directory from a backup; keep the damaged one to look into",
    file.display()
)]
pub struct Damage {
    /// The damaged file.
    pub file: PathBuf,
    /// The offset of the damage.
    pub offset: u64,
    /// The kind of damage.
    pub flaw: Flaw,
}

/// The kinds of damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// The file's header is not one of berth's, or its checksum is wrong.
    Header,
    /// The header names another first revision than the file's name.
    Name {
        /// The revision that the header names.
        header: Revision,
    },
    /// A record that must be complete is not, and a later one follows or the segment is complete.
    BeforeOthers,
    /// The first records of a segment are not complete, though they were before it got its name.
    First,
    /// The last records are complete, but their content is wrong; a crash leaves gaps, not other bytes.
    Content,
    /// Revisions are missing between two records or files.
    Gap {
        /// The last revision before the gap.
        after: Revision,
        /// The revision that the next record begins after.
        next: Revision,
    },
    /// A snapshot is newer than the last record, so segments are missing.
    Behind {
        /// The last revision in the segments.
        end: Revision,
        /// The snapshot's revision.
        snapshot: Revision,
    },
    /// A snapshot's revision lies inside a record.
    Inside,
    /// A snapshot's content does not match its checksum or length.
    Snapshot,
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header => f.write_str("the file's header is not one that berth writes"),
            Self::Name { header } => write!(f, "the header says that it begins with revision {header}"),
            Self::BeforeOthers => f.write_str("a record is not whole, and later ones follow it"),
            Self::First => f.write_str("the first records of the segment are not whole"),
            Self::Content => f.write_str("the last records are complete, but do not match their checksum"),
            Self::Gap { after, next } => {
                write!(f, "the record before it ends at revision {after}, this one begins after {next}")
            }
            Self::Behind { end, snapshot } => {
                write!(f, "the segments end at revision {end}, before the snapshot of revision {snapshot}")
            }
            Self::Inside => f.write_str("a record begins before the snapshot's revision and ends after it"),
            Self::Snapshot => f.write_str("the snapshot does not match its checksum"),
        }
    }
}

/// Wraps an I/O error into one that names the file.
pub(crate) fn failed(action: &'static str, file: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> FileError {
    let file = file.into();
    move |source| FileError { action, file, source }
}
