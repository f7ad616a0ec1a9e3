//! A journal in memory, for simulators and tests.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use berth_domain::{Epoch, Revision};

use crate::journal::{self, AppendError, Journal, NoSpace, Record, RecordRef};

/// A journal in memory that lives as long as its last handle.
///
/// A clone is another handle on the same records: a test gives one to the writer, inspects the other, and starts a
/// second server on it after the first has "crashed".
#[derive(Clone, Debug, Default)]
pub struct MemoryJournal {
    contents: Arc<Mutex<Contents>>,
}

#[derive(Debug, Default)]
struct Contents {
    records: Vec<Record>,
    epoch: Epoch,
    bytes: u64,
    limit: Option<u64>,
    spare: u64,
}

impl Contents {
    fn revision(&self) -> Revision {
        self.records.last().map(|record| record.last).unwrap_or_default()
    }
}

impl MemoryJournal {
    /// Returns an empty journal.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns all records so far.
    #[must_use]
    pub fn records(&self) -> Vec<Record> {
        self.contents().records.clone()
    }

    /// Returns a separate journal with the same records.
    #[must_use]
    pub fn fork(&self) -> Self {
        let contents = self.contents();
        let copy = Contents { records: contents.records.clone(), ..*contents };
        Self { contents: Arc::new(Mutex::new(copy)) }
    }

    /// Limits the payload bytes of all records together; the last `spare` of them are for `spare` callers.
    pub fn set_limit(&self, limit: Option<u64>, spare: u64) {
        let mut contents = self.contents();
        contents.limit = limit;
        contents.spare = spare;
    }

    fn contents(&self) -> MutexGuard<'_, Contents> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Journal for MemoryJournal {
    fn revision(&self) -> Revision {
        self.contents().revision()
    }

    fn epoch(&self) -> Epoch {
        self.contents().epoch
    }

    fn reserve(&mut self, bytes: usize, spare: bool) -> Result<(), NoSpace> {
        let contents = self.contents();
        let Some(limit) = contents.limit else { return Ok(()) };
        let bytes = bytes as u64;
        let untouchable = if spare { 0 } else { contents.spare };
        if contents.bytes.saturating_add(bytes).saturating_add(untouchable) > limit {
            return Err(NoSpace::Limit { bytes, limit });
        }
        Ok(())
    }

    fn append(&mut self, epoch: Epoch, expected: Revision, records: &[RecordRef<'_>]) -> Result<(), AppendError> {
        let bytes = records.iter().map(|record| record.payload.len()).sum();
        {
            let contents = self.contents();
            journal::check(contents.revision(), contents.epoch, epoch, expected, records)?;
        }
        self.reserve(bytes, true)?;
        let mut contents = self.contents();
        contents.bytes = contents.bytes.saturating_add(bytes as u64);
        if !records.is_empty() {
            contents.epoch = epoch;
        }
        contents
            .records
            .extend(records.iter().map(|record| Record { last: record.last, payload: record.payload.to_vec() }));
        Ok(())
    }
}
