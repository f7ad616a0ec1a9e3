//! Backups: everything that a server needs to go on, in one file, taken while it serves.
//!
//! | part of the file | what |
//! | --- | --- |
//! | header | which cluster, at which point of its history, when, and which format |
//! | `cluster.key` | the key that signs answers to agents, so that a restored server knows codes of the one before it |
//! | `tokens.json` | hashes of tokens |
//! | `state` | the state after one revision, all of it durable when it was copied |
//!
//! The audit log is not part of it, nor is anything that agents keep.

mod format;
mod restore;

use std::io::{self, Write};

use berth_core::Snapshot;
use berth_domain::{ClusterId, HistoryPoint, Timestamp};
use berth_wire::Time;
use serde::{Deserialize, Serialize};

pub use format::{BackupError, Checked, check};
pub use restore::{RestoreError, Restored, UNFINISHED, restore};

use crate::trust::{cluster_key, tokens};
use format::BackupWriter;

/// The name of the part that holds the state.
const STATE: &str = "state";

/// What a backup is of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// The cluster.
    pub cluster_id: ClusterId,
    /// The point of its history that the state is of.
    pub point: HistoryPoint,
    /// When the backup was made.
    pub created: Time,
    /// The version of the server that made it.
    pub version: String,
    /// The format of the state in it: that of the journal.
    pub format: u32,
}

/// What goes into a backup.
#[derive(Debug)]
pub struct Contents {
    /// The cluster.
    pub cluster: ClusterId,
    /// The text of the key's file.
    pub key: String,
    /// The text of the tokens' file.
    pub tokens: Vec<u8>,
    /// The state.
    pub state: Snapshot,
}

/// Writes a backup.
pub fn write(contents: &Contents, now: Timestamp, to: &mut impl Write) -> io::Result<()> {
    let header = Header {
        cluster_id: contents.cluster,
        point: contents.state.point(),
        created: Time(now),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        format: berth_store::FORMAT,
    };
    let mut backup = BackupWriter::begin(to, &header)?;
    backup.part(cluster_key::FILE, |to| to.write_all(contents.key.as_bytes()))?;
    backup.part(tokens::FILE, |to| to.write_all(&contents.tokens))?;
    backup.part(STATE, |to| Ok(serde_json::to_writer(to, &contents.state)?))?;
    backup.finish()
}
