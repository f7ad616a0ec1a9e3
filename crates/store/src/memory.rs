//! A journal in memory, for simulators and tests.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use berth_domain::{Epoch, Revision};

use crate::journal::{self, AppendError, Journal, NoRoom, Record, RecordRef};

/// A journal in memory that lives as long as its last handle.
///
/// A clone is another handle on the same records: a test gives one to the writer, inspects the other, and starts a
/// second server on it after the first has "crashed".
#[derive(Clone, Debug, Default)]
pub struct MemoryJournal {
    kept: Arc<Mutex<Kept>>,
}

#[derive(Debug, Default)]
struct Kept {
    records: Vec<Record>,
    epoch: Epoch,
    bytes: u64,
    limit: Option<u64>,
    spare: u64,
}

impl Kept {
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
        self.kept().records.clone()
    }

    /// Returns a separate journal with the same records.
    #[must_use]
    pub fn fork(&self) -> Self {
        let kept = self.kept();
        let copy = Kept { records: kept.records.clone(), ..*kept };
        Self { kept: Arc::new(Mutex::new(copy)) }
    }

    /// Limits the payload bytes of all records together; the last `spare` of them are for `spare` callers.
    pub fn set_limit(&self, limit: Option<u64>, spare: u64) {
        let mut kept = self.kept();
        kept.limit = limit;
        kept.spare = spare;
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Journal for MemoryJournal {
    fn revision(&self) -> Revision {
        self.kept().revision()
    }

    fn epoch(&self) -> Epoch {
        self.kept().epoch
    }

    fn reserve(&mut self, bytes: usize, spare: bool) -> Result<(), NoRoom> {
        let kept = self.kept();
        let Some(limit) = kept.limit else { return Ok(()) };
        let bytes = bytes as u64;
        let untouchable = if spare { 0 } else { kept.spare };
        if kept.bytes.saturating_add(bytes).saturating_add(untouchable) > limit {
            return Err(NoRoom::Limit { bytes, limit });
        }
        Ok(())
    }

    fn append(&mut self, epoch: Epoch, expected: Revision, records: &[RecordRef<'_>]) -> Result<(), AppendError> {
        let bytes = records.iter().map(|record| record.payload.len()).sum();
        {
            let kept = self.kept();
            journal::check(kept.revision(), kept.epoch, epoch, expected, records)?;
        }
        self.reserve(bytes, true)?;
        let mut kept = self.kept();
        kept.bytes = kept.bytes.saturating_add(bytes as u64);
        if !records.is_empty() {
            kept.epoch = epoch;
        }
        kept.records
            .extend(records.iter().map(|record| Record { last: record.last, payload: record.payload.to_vec() }));
        Ok(())
    }
}
