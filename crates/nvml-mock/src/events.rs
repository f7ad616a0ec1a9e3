//! Event sets: which events each is registered for, and which were delivered already.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::error_code::{ErrorCode, NvmlResult};
use crate::script::{Event, Script};

/// All event sets that were made and not freed.
#[derive(Debug, Default)]
pub(crate) struct EventSets {
    made: usize,
    sets: BTreeMap<usize, EventSet>,
}

#[derive(Debug, Default)]
struct EventSet {
    /// The registered types of events, by UUID.
    wanted: BTreeMap<Arc<str>, u64>,
    delivered: BTreeSet<u64>,
}

impl EventSets {
    /// Makes a set and returns its number. Numbers are not reused.
    pub(crate) fn make(&mut self) -> usize {
        let number = self.made;
        self.made += 1;
        self.sets.insert(number, EventSet::default());
        number
    }

    /// Frees a set.
    pub(crate) fn free(&mut self, number: usize) -> NvmlResult {
        self.sets.remove(&number).map(drop).ok_or(ErrorCode::InvalidArgument)
    }

    /// Registers a set for types of events of one GPU.
    pub(crate) fn register(&mut self, number: usize, uuid: &str, types: u64) -> NvmlResult {
        let set = self.sets.get_mut(&number).ok_or(ErrorCode::InvalidArgument)?;
        *set.wanted.entry(Arc::from(uuid)).or_default() |= types;
        Ok(())
    }

    /// Returns the next event for a set, if there is one. Once all are delivered, a lost GPU in the set is reported as
    /// an error.
    pub(crate) fn next<'a>(&mut self, number: usize, script: &'a Script) -> NvmlResult<Option<&'a Event>> {
        let set = self.sets.get_mut(&number).ok_or(ErrorCode::InvalidArgument)?;
        let next = script.events.iter().find(|event| {
            let wanted = set.wanted.get(event.gpu.as_str()).copied().unwrap_or_default();
            wanted & event.bit() != 0 && !set.delivered.contains(&event.id)
        });
        if let Some(event) = next {
            set.delivered.insert(event.id);
            return Ok(Some(event));
        }
        let is_lost = |uuid: &str| script.find(uuid).is_none_or(|(gpu, _)| gpu.lost);
        if set.wanted.keys().any(|uuid| is_lost(uuid)) { Err(ErrorCode::GpuIsLost) } else { Ok(None) }
    }
}
