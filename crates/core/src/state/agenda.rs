//! What a change may have made possible. Applying an event notes it here; settling works it off.
//!
//! The agenda is empty between commands and is no part of the state's meaning: noting everything again changes
//! nothing, because whatever could be done was done.

use std::collections::BTreeSet;

use crate::table::{DeviceKey, ModelKey, RunnerKey, SlotKey};

/// Notes for settling.
#[derive(Clone, Debug, Default)]
pub(crate) struct Agenda {
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
    /// Reservations should be looked at.
    pub(crate) reservations: bool,
}
