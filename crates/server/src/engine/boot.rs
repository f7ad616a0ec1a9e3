//! From what a journal kept back to a state: the snapshot, then every record after it.

use berth_core::invariants::Violation;
use berth_core::{Settings, Snapshot, State, replay};
use berth_domain::Revision;

use super::record::{Record, RecordError};

/// Why the journal gives no state.
#[derive(Debug, thiserror::Error)]
pub enum BootError {
    /// The snapshot is no snapshot.
    #[error("the snapshot cannot be read: {0}. It was written by another version of berth; use that one")]
    Snapshot(serde_json::Error),
    /// The snapshot contradicts itself.
    #[error("the snapshot contradicts itself: {0}")]
    Contradiction(#[from] Violation),
    /// A record is no record.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The events of a record do not lead to its revision.
    #[error("a record of the journal says that it leads to revision {said}, but its events lead to {led}")]
    Revision {
        /// What it says.
        said: Revision,
        /// Where its events lead.
        led: Revision,
    },
}

/// A state that is being put together again.
#[derive(Debug)]
pub struct Recovery {
    state: State,
}

impl Recovery {
    /// Begins with a snapshot, or with nothing.
    pub fn begin(settings: Settings, snapshot: Option<&[u8]>) -> Result<Self, BootError> {
        let Some(bytes) = snapshot else { return Ok(Self { state: State::new(settings) }) };
        let snapshot: Snapshot = serde_json::from_slice(bytes).map_err(BootError::Snapshot)?;
        Ok(Self { state: State::restore(settings, snapshot)? })
    }

    /// Makes one record true.
    pub fn replay(&mut self, last: Revision, payload: &[u8]) -> Result<(), BootError> {
        let record = Record::decode(payload)?;
        for event in record.events.iter() {
            replay(&mut self.state, event, record.at);
        }
        match self.state.revision() {
            led if led == last => Ok(()),
            led => Err(BootError::Revision { said: last, led }),
        }
    }

    /// The state as it was when the last record was written.
    #[must_use]
    pub fn finish(mut self) -> State {
        self.state.finish_replay();
        self.state
    }
}
