//! The dirty set: what a change may have made possible. Applying an event adds to it; settling works it off.
//!
//! The dirty set is empty between commands and is no part of the state's meaning: noting everything again changes
//! nothing, because whatever could be done was done.

use std::collections::BTreeSet;

use crate::table::{DeviceKey, ModelKey, RunnerKey, SlotKey};

/// Changes to reservations that one review makes, at most.
const CHANGES_PER_REVIEW: u32 = 32;

/// The rows that settling has to look at.
#[derive(Clone, Debug, Default)]
pub(crate) struct DirtySet {
    /// Devices that have more to give than before.
    pub(crate) devices: BTreeSet<DeviceKey>,
    /// Runners whose host has more to give than before.
    pub(crate) hosts: BTreeSet<RunnerKey>,
    /// Models whose slots have spare concurrency or whose limit was raised.
    pub(crate) models: BTreeSet<ModelKey>,
    /// Slots that should be looked at: pending, draining or promised ones.
    pub(crate) slots: BTreeSet<SlotKey>,
    /// Runners that may be drained now, or whose slots must drain.
    pub(crate) runners: BTreeSet<RunnerKey>,
    /// Models that may have too few slots.
    pub(crate) replicas: BTreeSet<ModelKey>,
    /// How many more changes to reservations may be made before the next review. A review that never ended would hold up
    /// everybody.
    pub(crate) reservations: u32,
}

impl DirtySet {
    /// Has reservations looked at.
    pub(crate) fn review_reservations(&mut self) {
        self.reservations = CHANGES_PER_REVIEW;
    }
}
