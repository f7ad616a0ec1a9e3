//! What every journal does, whatever it keeps its records in.

use std::io;

use berth_domain::{Epoch, Revision};

/// All events of one step, as bytes.
///
/// `last` is the revision after it. A record may carry several events, so revisions skip.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The revision after this record.
    pub last: Revision,
    /// The events, in whatever form the caller chose.
    pub payload: Vec<u8>,
}

/// A record to append, borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordRef<'a> {
    /// The revision after this record.
    pub last: Revision,
    /// The events, in whatever form the caller chose.
    pub payload: &'a [u8],
}

impl<'a> From<&'a Record> for RecordRef<'a> {
    fn from(record: &'a Record) -> Self {
        Self { last: record.last, payload: &record.payload }
    }
}

/// An append-only list of records with one writer.
pub trait Journal: Send {
    /// The revision after the last record.
    fn revision(&self) -> Revision;

    /// The newest epoch that appended. Older ones are fenced off.
    fn epoch(&self) -> Epoch;

    /// Makes sure that the next append may carry this many payload bytes without failing for want of space.
    ///
    /// Not a sum: each call speaks of the whole next append. `spare` is for what must get through when nothing else
    /// does (proofs of release); it may use the last room, which others must leave.
    ///
    /// # Errors
    ///
    /// There is no such room now. Nothing changed; asking again later may succeed.
    fn reserve(&mut self, bytes: usize, spare: bool) -> Result<(), NoRoom>;

    /// Appends a batch. When it returns `Ok`, all its records are durable; on an error, none is acknowledged.
    ///
    /// `expected` is what the caller believes [`Journal::revision`] to be.
    ///
    /// # Errors
    ///
    /// See [`AppendError`]; [`AppendError::is_fatal`] tells which ones end this journal.
    fn append(&mut self, epoch: Epoch, expected: Revision, records: &[RecordRef<'_>]) -> Result<(), AppendError>;
}

/// Why there is no room for a batch.
#[derive(Debug, thiserror::Error)]
pub enum NoRoom {
    /// The file system or a disk quota is full.
    #[error("the disk is full: no room for {bytes} more bytes; free some space and it goes on by itself")]
    DiskFull {
        /// What was asked for.
        bytes: u64,
    },
    /// The configured limit is reached.
    #[error(
        "the journal has reached its limit of {limit} bytes: no room for {bytes} more; compact it or raise the limit"
    )]
    Limit {
        /// What was asked for.
        bytes: u64,
        /// The limit for all segments together.
        limit: u64,
    },
    /// No batch may ever be this large.
    #[error("a batch of {bytes} bytes is larger than the largest one allowed, {most} bytes")]
    TooLarge {
        /// What was asked for.
        bytes: u64,
        /// The largest batch.
        most: u64,
    },
    /// An append failed before.
    #[error("the journal failed before and takes nothing more; restart the server")]
    Poisoned,
    /// Something else is wrong with the disk.
    #[error("cannot allocate room in the journal: {0}")]
    Io(#[source] io::Error),
}

/// Why a batch was not acknowledged.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// Someone else appended, or the caller counted wrongly. Nothing was written.
    #[error("the journal is at revision {actual}, not at {expected}")]
    Conflict {
        /// What the caller believed.
        expected: Revision,
        /// What is true.
        actual: Revision,
    },
    /// A newer epoch has appended; the caller is a server that was replaced. Nothing was written.
    #[error("epoch {epoch} is over: epoch {newest} has written to the journal")]
    Fenced {
        /// The caller's epoch.
        epoch: Epoch,
        /// The newest that appended.
        newest: Epoch,
    },
    /// A record's revision does not follow the one before it. Nothing was written.
    #[error("a record that ends at revision {last} cannot follow revision {previous}")]
    OutOfOrder {
        /// The record's revision.
        last: Revision,
        /// The one before it.
        previous: Revision,
    },
    /// More records than one batch may carry. Nothing was written.
    #[error("{records} records are more than the {most} that one batch may carry")]
    TooMany {
        /// How many there were.
        records: usize,
        /// How many there may be.
        most: usize,
    },
    /// There was no room, and none was reserved. Nothing was written.
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
    /// An earlier append failed. The truth is on the disk: open the journal anew.
    #[error("the journal failed before and takes nothing more; restart the server")]
    Poisoned,
    /// A write or a sync failed. Whether the batch is on the disk is known only after opening the journal anew.
    #[error("cannot write the journal: {0}")]
    Io(#[source] io::Error),
}

impl AppendError {
    /// Whether this journal is at its end: the process should exit and read the truth from the disk.
    #[must_use]
    pub const fn is_fatal(&self) -> bool {
        matches!(self, Self::Poisoned | Self::Io(_) | Self::Fenced { .. } | Self::NoRoom(NoRoom::Poisoned))
    }
}

/// The checks that every journal makes before it writes anything.
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
