//! The journal: numbered records, stored durably.
//!
//! The journal promises that what [`Journal::append`] acknowledged is there after a crash, in order and complete, and
//! that nothing is there which was never appended. Payloads are bytes: the journal does not look into them. It starts
//! no threads, reads no clock and logs nothing; what happened is returned as data.
//!
//! ```text
//! reserve(bytes)              room is allocated, or the caller learns that there is none before it decides anything
//! append(epoch, expected, ..) one write, one fdatasync: the whole batch, or nothing
//! open(directory)             snapshot, then the records after it; a torn tail is cut, damage is refused
//! seed(directory, ..)         a new journal that begins with a snapshot, from a backup
//! Compactor                   beside the writer: snapshot, prove it readable, remove what it replaces
//! ```
//!
//! Below a data directory:
//!
//! ```text
//! LOCK                            locked while a server runs; holds its process id
//! journal/<first revision>.log    segments; 20 digits, so that names sort as numbers
//! journal/<revision>.snapshot     the state after that revision
//! journal/next.prepared           room for the next segment, allocated ahead
//! journal/*.tmp                   a snapshot that was not finished; removed at start
//! ```
//!
//! # What is on the disk, and what it proves
//!
//! A batch is one frame with one checksum, so it is there as a whole or not at all. Three rules of writing make a
//! crash tellable from damage:
//!
//! 1. A batch is written only after the one before it was synced. A frame of a later batch therefore proves that all
//!    before it were acknowledged.
//! 2. A segment gets its name only after its header and its first batch were synced. A named segment that lacks them
//!    is damaged, and so is any flaw in a segment that is not the last.
//! 3. What lies after the last good frame is zero, durably, before anything is appended. Bytes of a batch that was cut
//!    never come back to life behind a shorter one.
//!
//! So a crash can damage only the tail of the last segment, and there only one batch. Bytes after the last good frame
//! are *cut* if they can be what a crash leaves of one batch, in whatever order its sectors reached the disk: some of
//! it never arrived and still reads as zero, or lies beyond the end of the file. They are *refused* if a later batch
//! follows, or if the frame is complete and only its content is wrong: a crash does not change bytes, so a batch that
//! may have been acknowledged is not discarded. The code is in `segment.rs`.
//!
//! The journal trusts the disk in two things: a sync that returned is durable, and writing into a sector does not
//! damage the bytes in it that stay the same. After a sync that *failed* nothing is trusted: the journal then refuses
//! all calls until it is opened anew, and opening writes the last batch again before it relies on it.

mod compact;
mod disk;
mod error;
mod frame;
mod header;
mod journal;
mod lock;
mod log;
#[cfg(feature = "sim")]
mod memory;
mod names;
mod records;
mod segment;
#[cfg(feature = "sim")]
pub mod sim;
mod snapshot;

pub use compact::{CompactError, Compactor, Keep, Removed, SealedSegment};
pub use disk::{Disk, DiskFile, RealDisk};
pub use error::{Damage, FileError, Flaw, OpenError, ReadError};
pub use header::FORMAT;
pub use journal::{AppendError, Journal, NoSpace, Record, RecordRef};
pub use lock::{DirectoryLock, LockError};
pub use log::{LogJournal, Opened, Options, Recovered, SeedError, TornTail, open, seed};
#[cfg(feature = "sim")]
pub use memory::MemoryJournal;
pub use records::Records;
pub use snapshot::Snapshot;
