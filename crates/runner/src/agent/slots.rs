//! The slots of this agent: their records, their processes, and slots that may or may not exist.
//!
//! The other parts of the agent read and change slots through this type, one after the other: the observer fills in
//! what it sees, the executor changes the record, and the reporter reads both.

use std::collections::BTreeMap;
use std::io;
use std::time::Instant;

use berth_domain::{DesiredAction, DesiredSlot, Generation, SlotId, Timestamp};

use super::AgentError;
use super::config::AgentSettings;
use super::live::LiveSlot;
use crate::process::{LogDir, SlotLog};
use crate::reconcile::{Action, DesiredState, Doubt, SlotRecord};
use crate::record::RecordStore;

/// Holds everything that the agent knows of its slots.
pub(super) struct Slots {
    pub(super) store: RecordStore,
    pub(super) live: BTreeMap<SlotId, LiveSlot>,
    /// Slots that the server asks about, that are not on record, and that may or may not exist.
    doubts: BTreeMap<SlotId, Doubt>,
    logs: LogDir,
    /// How many ended slots keep their logs.
    ended_logs: usize,
    /// Something changed that the server should hear of.
    pub(super) has_news: bool,
}

impl Slots {
    /// Opens the record and the directory of logs.
    pub(super) fn open(settings: &AgentSettings) -> Result<Self, AgentError> {
        let store = RecordStore::open(&settings.data_dir)?;
        let logs = LogDir::open(&settings.data_dir.join("logs"), settings.logs.limits())
            .map_err(|error| AgentError::Io("logs cannot be kept", error))?;
        Ok(Self {
            store,
            live: BTreeMap::new(),
            doubts: BTreeMap::new(),
            logs,
            ended_logs: settings.logs.ended,
            has_news: true,
        })
    }

    /// Returns all slots on record.
    pub(super) fn records(&self) -> &BTreeMap<SlotId, SlotRecord> {
        self.store.records()
    }

    /// Returns the slots that may or may not exist.
    pub(super) fn doubts(&self) -> &BTreeMap<SlotId, Doubt> {
        &self.doubts
    }

    /// Moves a slot to the state that follows from `action`, and notes what is known of its processes by then.
    pub(super) fn apply(&mut self, id: SlotId, action: &Action, now: Timestamp) -> Result<(), AgentError> {
        let Some(mut record) = self.records().get(&id).cloned() else { return Ok(()) };
        record.state = record.state.after(action, now);
        if let Some(live) = self.live.get(&id) {
            record.pids.clone_from(&live.pids);
            record.exit = live.exit.or(record.exit);
        }
        Ok(self.store.update(record)?)
    }

    /// Takes a slot off the record.
    pub(super) fn forget(&mut self, id: SlotId) -> Result<(), AgentError> {
        self.live.remove(&id);
        self.store.forget(id)?;
        self.prune_logs();
        Ok(())
    }

    /// Notes why it is unknown whether a slot exists. The server hears of it when the reason is a new one.
    pub(super) fn doubt(&mut self, id: SlotId, doubt: Doubt) {
        let is_known = self.doubts.get(&id).is_some_and(|known| known.why == doubt.why);
        if !is_known {
            tracing::warn!(slot = %id, why = doubt.why, "it cannot be told whether this slot exists");
            self.has_news = true;
        }
        self.doubts.insert(id, doubt);
    }

    /// Notes `why` for all slots that the server asks about and that are not on record.
    pub(super) fn doubt_asked(&mut self, desired: Option<&DesiredState>, why: &str) {
        let slots = desired.iter().flat_map(|desired| &desired.slots);
        let is_asked = |slot: &&DesiredSlot| {
            let is_unrecorded = self.records().get(&slot.id).is_none_or(|record| record.is_replaced_by(slot));
            is_unrecorded && matches!(slot.action, DesiredAction::Stop | DesiredAction::Account)
        };
        let asked: Vec<_> = slots.filter(is_asked).map(|slot| (slot.id, slot.generation)).collect();
        for (id, generation) in asked {
            self.doubt(id, Doubt { generation, why: why.to_owned(), looked: Instant::now() });
        }
    }

    /// Forgets doubts about slots that are on record by now, or that the server no longer asks about.
    pub(super) fn drop_settled_doubts(&mut self, desired: Option<&DesiredState>) {
        let records = self.store.records();
        self.doubts.retain(|id, doubt| {
            let is_wanted = |slot: &DesiredSlot| slot.id == *id && slot.generation == doubt.generation;
            let is_settled = records.get(id).is_some_and(|record| record.generation >= doubt.generation);
            !is_settled && desired.is_some_and(|desired| desired.slots.iter().any(is_wanted))
        });
    }

    /// Notes that processes could not be listed, so that nothing is known of any slot.
    pub(super) fn doubt_all(&mut self, desired: Option<&DesiredState>, error: &io::Error) {
        let why = format!("/proc cannot be read: {error}");
        tracing::error!(%error, "/proc cannot be read: nothing is concluded and nothing is done");
        for live in self.live.values_mut() {
            self.has_news |= live.unknown.as_ref() != Some(&why);
            live.unknown = Some(why.clone());
        }
        self.doubt_asked(desired, &why);
    }

    /// Opens the log of one start of a slot, to write to it.
    pub(super) fn open_log(&self, record: &SlotRecord) -> Result<SlotLog, AgentError> {
        let log = self.logs.slot(record.id, record.generation);
        log.map_err(|error| AgentError::Io("its log cannot be kept", error))
    }

    /// Finds the log of a slot to read it: of the start that is meant, or of the newest one if none is named.
    pub(super) fn find_log(&self, id: SlotId, generation: Option<Generation>) -> io::Result<Option<SlotLog>> {
        let recorded = self.records().get(&id).map(|record| record.generation);
        let is_meant = recorded.is_some() && generation.is_none_or(|generation| recorded == Some(generation));
        match self.live.get(&id).filter(|_| is_meant) {
            Some(live) => Ok(Some(live.log.clone())),
            // A restarted agent has no live slot of one that was over before.
            None => self.logs.past(id, generation),
        }
    }

    /// Reads what slots wrote since the last time. A log that cannot be read is not shown.
    pub(super) fn read_logs(&self) {
        self.live.values().for_each(|live| drop(live.log.pump()));
    }

    /// Removes the oldest logs of ended slots. Failing to remove one is no reason for the agent to end.
    pub(super) fn prune_logs(&self) {
        let living = self.records().keys().copied().collect();
        if let Err(error) = self.logs.prune(&living, self.ended_logs) {
            tracing::warn!(%error, "old logs cannot be removed");
        }
    }
}
