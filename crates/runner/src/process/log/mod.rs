//! The output of slots.
//!
//! A program writes to a file itself: its output is a descriptor of the file, opened to append. So the agent can never
//! block it, and what it writes while no agent runs is there for the next one. The agent reads the file behind it and
//! keeps the last part in memory, a ring of fixed size for each slot.
//!
//! A file that has grown past its limit is copied, and the copied part is removed from its beginning, where the file
//! system can do that (ext4, XFS); the program goes on at the end and nothing is lost. On other file systems the file
//! is truncated, and what is written between the last read and the cut, some microseconds, is lost; that is the price
//! of never blocking the program. A program that writes very fast fills the disk no further than it can write between
//! two reads, and only the last part of it is kept.
//!
//! Logs are bytes, not text. What leaves the machine goes through a [`Redactor`].

mod directory;
mod follow;
mod redact;
mod ring;
mod slot_log;

pub use directory::{LogDir, LogLimits};
pub use follow::Follower;
pub use redact::{RedactedPieces, Redactor};
pub use ring::Chunk;
pub use slot_log::SlotLog;
