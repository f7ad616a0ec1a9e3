//! What can be wrong with a data directory, in words that say what to do.

use std::{fmt, io, path::PathBuf};

use berth_domain::Revision;

use crate::lock::LockError;

/// Why a journal could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The directory is in use, or cannot be locked.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// What is there cannot be read or trusted.
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// Why something in the journal could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// What is there is not what was written.
    #[error(transparent)]
    Damaged(#[from] Damage),
    /// A newer berth wrote it.
    #[error(
        "{} has format {found}, and this berth reads formats up to {known}: upgrade berth to the version that wrote \
         it, or restore a backup that was made before the upgrade",
        file.display()
    )]
    NewerFormat {
        /// The file.
        file: PathBuf,
        /// Its format.
        found: u32,
        /// The newest format that this code reads.
        known: u32,
    },
    /// A berth wrote it whose records this one cannot read any more.
    #[error(
        "{} has format {found}, and this berth reads formats from {oldest} on: start it with the version that wrote it, \
         or begin with an empty data directory (agents then stop nothing by themselves)",
        file.display()
    )]
    OlderFormat {
        /// The file.
        file: PathBuf,
        /// Its format.
        found: u32,
        /// The oldest format that this code reads.
        oldest: u32,
    },
    /// The operating system refused.
    #[error(transparent)]
    Io(#[from] FileError),
}

/// An operation on a file that failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {}: {source}", file.display())]
pub struct FileError {
    /// What was tried, as a verb.
    pub action: &'static str,
    /// On which file.
    pub file: PathBuf,
    /// What the operating system said.
    pub source: io::Error,
}

/// A place in the journal that is not what was written there.
///
/// The server must not start on it: an acknowledged claim may be missing, and its memory would be given away twice.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the journal is damaged: {} at byte {offset}: {flaw}. Records that were acknowledged may be lost, so it is not \
     opened. Restore the data directory from a backup; keep the damaged one to look into",
    file.display()
)]
pub struct Damage {
    /// The file.
    pub file: PathBuf,
    /// Where in it.
    pub offset: u64,
    /// What is wrong there.
    pub flaw: Flaw,
}

/// What is wrong at a damaged place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// The file's header is not one of ours, or its checksum is wrong.
    Header,
    /// The header names another first revision than the file's name.
    Name {
        /// What the header says.
        header: Revision,
    },
    /// A record that must be whole is not, and a later one follows or the segment is complete.
    BeforeOthers,
    /// The first records of a segment are not whole, though they were before it got its name.
    First,
    /// The last records are all there, but their content is wrong; a crash leaves gaps, not other bytes.
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
        /// The snapshot's.
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

/// Turns an I/O error into one that names the file.
pub(crate) fn failed(action: &'static str, file: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> FileError {
    let file = file.into();
    move |source| FileError { action, file, source }
}
