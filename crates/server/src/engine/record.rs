//! What the journal keeps of one step, as bytes. JSON: an operator can read it, and a field can be added later.

use std::borrow::Cow;

use berth_core::Event;
use berth_domain::Timestamp;
use serde::{Deserialize, Serialize};

/// All events of one step that must be kept, and when they happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record<'a> {
    /// When.
    pub at: Timestamp,
    /// What happened, in order.
    pub events: Cow<'a, [Event]>,
}

/// A record that is no record.
#[derive(Debug, thiserror::Error)]
#[error("a record of the journal cannot be read: {0}. It was written by another version of berth; use that one")]
pub struct RecordError(#[from] serde_json::Error);

impl<'a> Record<'a> {
    /// What happened at `at`.
    #[must_use]
    pub fn new(at: Timestamp, events: &'a [Event]) -> Self {
        Self { at, events: Cow::Borrowed(events) }
    }

    /// As bytes.
    pub fn encode(&self) -> Result<Vec<u8>, RecordError> {
        let mut bytes = Vec::with_capacity(256 * self.events.len());
        self.encode_to(&mut bytes)?;
        Ok(bytes)
    }

    /// Puts its bytes behind others.
    pub fn encode_to(&self, bytes: &mut Vec<u8>) -> Result<(), RecordError> {
        Ok(serde_json::to_writer(bytes, self)?)
    }
}

impl Record<'static> {
    /// From bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, RecordError> {
        Ok(serde_json::from_slice(bytes)?)
    }
}
