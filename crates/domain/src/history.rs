//! Points in a server's history, so that a server whose data went back in time can find out.
//!
//! A server that was restored from a backup, or whose disk was rolled back, does not know what it did after that copy
//! was made. Its agents do: each keeps the newest answer that it obeyed, and shows it with every request.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Epoch, Revision};

/// A random number that a server draws at each start.
///
/// Two servers that go on from copies of one data directory both number their next start with the same epoch. The tag
/// tells those starts apart. It is also part of the id of every slot made in that epoch, so no id is given out twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EpochTag(u32);

impl EpochTag {
    /// Wraps a number.
    #[must_use]
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// Returns the plain number.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Display for EpochTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

/// A point in the history of one cluster: a revision of one start of its server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct HistoryPoint {
    /// The start of the server.
    pub epoch: Epoch,
    /// The tag of that start.
    pub tag: EpochTag,
    /// The revision that the server had reached.
    pub revision: Revision,
}

impl fmt::Display for HistoryPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "epoch {} ({}), revision {}", self.epoch, self.tag, self.revision)
    }
}

/// The newest answer that an agent says it obeyed, after the server has checked the answer's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ObeyedAnswer {
    /// The code is right: a server with this cluster's key gave that answer.
    Verified(HistoryPoint),
    /// The code is wrong: no server with this cluster's key gave that answer.
    Invalid,
}
