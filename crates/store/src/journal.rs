//! The interface of a journal, whatever it stores its records in.

use std::io;

use berth_domain::{Epoch, Revision};

/// All events of one step, as bytes.
///
/// A record may carry several events, so the revisions of consecutive records need not be consecutive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The revision after this record.
    pub last: Revision,
    /// The events, encoded by the caller.
    pub payload: Vec<u8>,
}

/// A borrowed record to append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordRef<'a> {
    /// The revision after this record.
    pub last: Revision,
    /// The events, encoded by the caller.
    pub payload: &'a [u8],
}

impl<'a> From<&'a Record> for RecordRef<'a> {
    fn from(record: &'a Record) -> Self {
        Self { last: record.last, payload: &record.payload }
    }
}

/// An append-only list of records with one writer.
pub trait Journal: Send {
    /// Returns the revision after the last record.
    fn revision(&self) -> Revision;

    /// Returns the newest epoch that appended. Older ones are fenced off.
    fn epoch(&self) -> Epoch;

    /// Makes sure that the next append may carry this many payload bytes without failing for want of space.
    ///
    /// Calls do not add up: each speaks of the whole next append. `spare` is for commands that must get through when
    /// nothing else does (proofs of release); they may use the last space, which others must leave.
    ///
    /// # Errors
    ///
    /// There is not enough space now. Nothing changed; asking again later may succeed.
    fn reserve(&mut self, bytes: usize, spare: bool) -> Result<(), NoSpace>;

    /// Appends a batch. When it returns `Ok`, all its records are durable; on an error, none is acknowledged.
    ///
    /// `expected` is what the caller believes [`Journal::revision`] to be.
    ///
    /// # Errors
    ///
    /// See [`AppendError`]; [`AppendError::is_fatal`] tells which ones end this journal.
    fn append(&mut self, epoch: Epoch, expected: Revision, records: &[RecordRef<'_>]) -> Result<(), AppendError>;
}

/// Why there is no space for a batch.
#[derive(Debug, thiserror::Error)]
pub enum NoSpace {
    /// The file system or a disk quota is full.
    #[error("the disk is full: no room for {bytes} more bytes; free some space and it goes on by itself")]
    DiskFull {
        /// The number of bytes that were asked for.
        bytes: u64,
    },
    /// The configured limit is reached.
    #[error(
        "the journal has reached its limit of {limit} bytes: no room for {bytes} more; compact it or raise the limit"
    )]
    Limit {
        /// The number of bytes that were asked for.
        bytes: u64,
        /// The limit for all segments together.
        limit: u64,
    },
    /// A batch of this size exceeds the maximum.
    #[error("a batch of {bytes} bytes is larger than the largest one allowed, {most} bytes")]
    TooLarge {
        /// The number of bytes that were asked for.
        bytes: u64,
        /// The largest batch.
        most: u64,
    },
    /// An earlier append failed.
    #[error("the journal failed before and takes nothing more; restart the server")]
    Poisoned,
    /// The disk failed in another way.
    #[error("cannot allocate room in the journal: {0}")]
    Io(#[source] io::Error),
}

/// Why a batch was not acknowledged.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// Another writer appended, or the caller counted wrongly. Nothing was written.
    #[error("the journal is at revision {actual}, not at {expected}")]
    Conflict {
        /// The revision that the caller believed.
        expected: Revision,
        /// The journal's revision.
        actual: Revision,
    },
    /// A newer epoch has appended; the caller is a server that was replaced. Nothing was written.
    #[error("epoch {epoch} is over: epoch {newest} has written to the journal")]
    Fenced {
        /// The caller's epoch.
        epoch: Epoch,
        /// The newest epoch that appended.
        newest: Epoch,
    },
    /// A record's revision does not follow the one before it. Nothing was written.
    #[error("a record that ends at revision {last} cannot follow revision {previous}")]
    OutOfOrder {
        /// The record's revision.
        last: Revision,
        /// The revision before it.
        previous: Revision,
    },
    /// The batch has more records than one batch may carry. Nothing was written.
    #[error("{records} records are more than the {most} that one batch may carry")]
    TooMany {
        /// The number of records.
        records: usize,
        /// The maximum number of records.
        most: usize,
    },
    /// There was no space, and none was reserved. Nothing was written.
    #[error(transparent)]
    NoSpace(#[from] NoSpace),
    /// An earlier append failed. Open the journal anew to learn what is on the disk.
    #[error("the journal failed before and takes nothing more; restart the server")]
    Poisoned,
    /// A write or a sync failed. Opening the journal anew tells whether the batch is on the disk.
    #[error("cannot write the journal: {0}")]
    Io(#[source] io::Error),
}

impl AppendError {
    /// Returns whether this journal cannot be used any more: the process should exit and recover from the disk.
    #[must_use]
    pub const fn is_fatal(&self) -> bool {
        matches!(self, Self::Poisoned | Self::Io(_) | Self::Fenced { .. } | Self::NoSpace(NoSpace::Poisoned))
    }
}

/// Makes the checks that each journal makes before it writes anything.
pub(crate) fn check(
    revision: Revision,
    newest: Epoch,
    epoch: Epoch,
    expected: Revision,
    records: &[RecordRef<'_>],
) -> Result<(), AppendError> {
    if epoch < newest {
        return Err(AppendError::Fenced { epoch, newest });
    }
    if expected != revision {
        return Err(AppendError::Conflict { expected, actual: revision });
    }
    let mut previous = expected;
    for record in records {
        if record.last <= previous {
            return Err(AppendError::OutOfOrder { last: record.last, previous });
        }
        previous = record.last;
    }
    Ok(())
}
