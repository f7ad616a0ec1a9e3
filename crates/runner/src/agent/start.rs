//! Starting slots: rendered, put on record, started, watched.

use std::sync::Arc;
use std::time::{Duration, Instant};

use berth_domain::{DesiredSlot, FailureReason, SlotEnd, Timestamp, WorkloadKind};

use super::AgentError;
use super::act::{Circumstances, Executor};
use super::adopt::{graces_of, kind_of};
use super::live::Live;
use super::observe::noted_end;
use super::render::Unstartable;
use super::slots::Slots;
use crate::process::{HealthState, MarkTrust, Process, ProcessId, SlotMark, SlotSecret, StartedAs, Tree};
use crate::reconcile::{Kept, Life, Wish};
use crate::record::{Record, is_full_disk};
use crate::runtime::{Launch, Runtimes};

/// How long nothing is started after the record could not be written.
const PAUSE_WITHOUT_ROOM: Duration = Duration::from_secs(1);

impl Executor {
    /// Returns whether a start could be put on record. On a full disk it cannot, and is tried again now and then.
    pub(super) fn can_record(&self, record: &Record) -> bool {
        !record.is_behind() && self.no_starts_before.is_none_or(|until| Instant::now() >= until)
    }

    /// Starts a slot. The record of it is on the disk before its process exists.
    pub(super) fn start_slot(
        &mut self,
        slots: &mut Slots,
        slot: &DesiredSlot,
        circumstances: &Circumstances<'_>,
    ) -> Result<(), AgentError> {
        // The agent may have been frozen since this was decided.
        if circumstances.wish.is_none_or(|wish: &Wish| wish.is_expired(Instant::now())) {
            return Ok(());
        }
        let planned = Kept { started_as: started_as(circumstances.runtimes, slot)?, ..Kept::of(slot, Life::Planned) };
        let live = match self.at_hand(slots, &planned, circumstances.runtimes) {
            Err(AgentError::Io(_, error)) if is_full_disk(&error) => {
                self.wait_for_room(&error);
                return Ok(());
            }
            live => live?,
        };
        match self.plan(&planned, circumstances) {
            Ok(launch) => self.start_launch(slots, planned, live, launch, circumstances.now),
            Err(unstartable) => never_started(slots, planned, live, &unstartable, circumstances.now),
        }
    }

    fn start_launch(
        &mut self,
        slots: &mut Slots,
        planned: Kept,
        mut live: Live,
        launch: Launch,
        now: Timestamp,
    ) -> Result<(), AgentError> {
        let port = launch.probe.port();
        let mut kept = Kept { port: Some(port), kind: Some(launch.kind), ..planned };
        live.kind = launch.kind;
        if launch.kind == WorkloadKind::Job
            && let Some(why) = noted_end(&live)
        {
            tracing::error!(slot = %kept.id, ?why, "not started: its exit file says that it was started before");
            self.ports.release(port);
            slots.live.insert(kept.id, live);
            kept.life = Life::TreeGone { since: now, why };
            return Ok(slots.record.note(kept)?);
        }
        if let Err(error) = slots.record.put(kept.clone()) {
            self.ports.release(port);
            if !error.is_full_disk() {
                return Err(error.into());
            }
            self.wait_for_room(&error);
            return Ok(());
        }
        self.no_starts_before = None;
        match self.spawner.spawn(&launch, &live.log) {
            Ok(process) => {
                let id = process.id().clone();
                let model = kept.spec.as_ref().map(|spec| spec.model.as_str());
                tracing::info!(slot = %kept.id, model, pid = id.pid, "started");
                live.tree = self.tree(&kept, Some(id.clone()));
                live.checks = Some(HealthState::starting(&launch, now));
                live.launch = Some(launch);
                self.watch(&mut live, process, &kept);
                slots.live.insert(kept.id, live);
                kept.process = Some(id);
                kept.life = Life::Started { at: now, ready: false };
                Ok(slots.record.note(kept)?)
            }
            Err(error) => {
                self.ports.release(port);
                never_started(slots, kept, live, &Unstartable::new(FailureReason::BadBinary, &error), now)
            }
        }
    }

    /// Pauses all starts. Nothing is started that is not on record, so nothing is started until the disk has room.
    fn wait_for_room(&mut self, error: &dyn std::fmt::Display) {
        if self.no_starts_before.is_none() {
            tracing::error!(%error, "nothing is started: it cannot be put on record before there is room on the disk");
        }
        self.no_starts_before = Some(Instant::now() + PAUSE_WITHOUT_ROOM);
    }

    /// Makes what is needed to follow a slot: its tree and its log.
    pub(super) fn at_hand(&self, slots: &Slots, kept: &Kept, runtimes: &Runtimes) -> Result<Live, AgentError> {
        let mut live = Live::new(self.tree(kept, kept.process.clone()), slots.open_log(kept)?);
        live.kind = kind_of(runtimes, kept);
        (live.grace, live.loading_grace) = graces_of(runtimes, kept);
        Ok(live)
    }

    /// Watches the first process of a slot: its end wakes the agent.
    pub(super) fn watch(&self, live: &mut Live, process: Process, kept: &Kept) {
        self.occupancy.occupy(process.id().pid, &kept.gpus);
        let process = Arc::new(process);
        let (watched, wake) = (Arc::clone(&process), Arc::clone(&self.process_ended));
        tokio::spawn(async move {
            watched.exited().await;
            wake.notify_one();
        });
        live.process = Some(process);
    }

    fn tree(&self, kept: &Kept, process: Option<ProcessId>) -> Tree {
        let mark = SlotMark { runner: self.settings.id.clone(), slot: kept.id, generation: kept.generation };
        let trust = match &kept.started_as {
            Some(start) => MarkTrust::Start(start.clone()),
            None => MarkTrust::Users(self.users.clone()),
        };
        Tree::new(mark, trust, process, self.spawner.cgroup(kept.id, kept.generation))
    }
}

/// Returns what the processes of a slot will be known by. Returns `None` for a runtime that this agent does not have: such
/// a slot is not started.
fn started_as(runtimes: &Runtimes, slot: &DesiredSlot) -> Result<Option<StartedAs>, AgentError> {
    let runtime = slot.run_spec().and_then(|spec| runtimes.get(&spec.runtime));
    let Some(runtime) = runtime else { return Ok(None) };
    let secret = SlotSecret::random().map_err(|error| AgentError::Io("no random numbers", error))?;
    Ok(Some(StartedAs { user: runtime.user_id(), secret }))
}

/// Records that nothing was started: there is nothing to end, and nothing that the driver could list. The slot's log says
/// why.
fn never_started(
    slots: &mut Slots,
    kept: Kept,
    live: Live,
    unstartable: &Unstartable,
    now: Timestamp,
) -> Result<(), AgentError> {
    let Unstartable { why, text } = unstartable;
    tracing::error!(slot = %kept.id, error = text, "not started");
    live.log.note(&format!("not started: {text}"));
    let life = Life::TreeGone { since: now, why: SlotEnd::Failed(*why) };
    slots.live.insert(kept.id, live);
    Ok(slots.record.note(Kept { life, port: None, ..kept })?)
}
