//! Acting: each action is put on record, then done. If the disk is full, see [`crate::record`].
//!
//! This file defines what each action means. Starting is in [`super::start`], the command of a slot in
//! [`super::render`], and adopting slots that run already in [`super::adopt`].

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use berth_domain::{SlotId, Timestamp};
use tokio::sync::Notify;

use super::AgentError;
use super::config::AgentSettings;
use super::inventory_thread::Occupancy;
use super::secrets::SlotSecrets;
use super::slots::Slots;
use crate::inventory::Inventory;
use crate::process::{Ports, ProcessTable, SpawnOptions, Spawner};
use crate::reconcile::{Action, DesiredState, LocalState, SlotRecord};
use crate::runtime::{Runtimes, UserId};

/// Executes actions: starts, signals and adopts processes, and keeps the record of them.
pub(super) struct Executor {
    pub(super) settings: Arc<AgentSettings>,
    pub(super) spawner: Spawner,
    pub(super) ports: Ports,
    /// The users that slots may run as.
    pub(super) users: BTreeSet<UserId>,
    pub(super) secrets: SlotSecrets,
    pub(super) occupancy: Occupancy,
    /// Fires when the first process of a slot ends.
    pub(super) process_ended: Arc<Notify>,
    /// When starts are allowed again, after the disk was full.
    pub(super) no_starts_before: Option<Instant>,
}

/// What an action may use beside the slots.
pub(super) struct ActionContext<'a> {
    pub(super) runtimes: &'a Runtimes,
    pub(super) desired: Option<&'a DesiredState>,
    pub(super) inventory: Option<&'a Inventory>,
    pub(super) now: Timestamp,
}

impl Executor {
    pub(super) fn start(
        settings: Arc<AgentSettings>,
        spawning: SpawnOptions,
        users: BTreeSet<UserId>,
        occupancy: Occupancy,
    ) -> Result<Self, AgentError> {
        let spawner = Spawner::start(spawning).map_err(|error| AgentError::Io("processes cannot be started", error))?;
        Ok(Self {
            spawner,
            ports: Ports::new(settings.ports.clone()),
            users,
            secrets: SlotSecrets::new(Arc::clone(&settings)),
            settings,
            occupancy,
            process_ended: Arc::default(),
            no_starts_before: None,
        })
    }

    /// Reaps ended processes that slots left behind.
    pub(super) fn reap(&self, table: &ProcessTable) {
        self.spawner.reap(table);
    }

    /// Executes one action.
    pub(super) fn act(
        &mut self,
        slots: &mut Slots,
        action: Action,
        context: &ActionContext<'_>,
    ) -> Result<(), AgentError> {
        let now = context.now;
        if let Action::NoteDoubt(id, doubt) = action {
            slots.doubt(id, doubt);
            return Ok(());
        }
        slots.has_news = true;
        match &action {
            Action::Start(slot) => self.start_slot(slots, slot, context),
            Action::Refuse(slot) => {
                tracing::warn!(slot = %slot.id, "not started: the driver shows too little free memory");
                Ok(slots.store.update(SlotRecord::of(slot, LocalState::Refused))?)
            }
            Action::Adopt(record) => self.adopt_unrecorded(slots, record, context.runtimes),
            Action::RecordAbsence(record) => {
                tracing::info!(slot = %record.id, "not on record, no process carries its mark, and the driver lists none");
                slots.live.remove(&record.id);
                Ok(slots.store.update((**record).clone())?)
            }
            Action::CompleteRecord(slot) => self.complete_record(slots, slot, context.runtimes),
            Action::NoteProcess(id, process) => {
                let Some(mut record) = slots.records().get(id).cloned() else { return Ok(()) };
                record.process = Some(process.clone());
                record.state = record.state.after(&action, now);
                slots.store.update(record.clone())?;
                self.adopt_slot(slots, &record, context.runtimes)
            }
            Action::Ready(id) => slots.apply(*id, &action, now),
            Action::Term(id, why) => {
                tracing::info!(slot = %id, ?why, "asked to end");
                slots.apply(*id, &action, now)?;
                slots.live.get(id).into_iter().for_each(|live| live.tree.term());
                Ok(())
            }
            Action::Kill(id) => {
                slots.apply(*id, &action, now)?;
                slots.live.get(id).into_iter().for_each(|live| live.tree.kill());
                Ok(())
            }
            Action::TreeGone(id, _) => {
                slots.live.get(id).into_iter().for_each(|live| live.log.close());
                slots.apply(*id, &action, now)
            }
            Action::Gone(id, _) => {
                tracing::info!(slot = %id, "gone, and the driver agrees");
                self.release(slots, *id);
                slots.apply(*id, &action, now)
            }
            Action::GiveUp(id) => {
                tracing::error!(slot = %id, "it cannot be ended, or the driver will not let go of it");
                slots.apply(*id, &action, now)
            }
            Action::Forget(id) => slots.forget(*id),
            // A search was made before the action came here, and a doubt was noted above.
            Action::Search(_) | Action::NoteDoubt(..) => Ok(()),
        }
    }

    /// Releases the port and the cgroup of a slot that is gone.
    fn release(&mut self, slots: &Slots, id: SlotId) {
        let port = slots.records().get(&id).and_then(|record| record.port);
        port.into_iter().for_each(|port| self.ports.release(port));
        let cgroup = slots.live.get(&id).and_then(|live| live.tree.cgroup());
        cgroup.into_iter().for_each(|cgroup| drop(cgroup.remove()));
    }
}
