//! Starting slots: rendered, put on record, started, watched.

use std::sync::Arc;
use std::time::{Duration, Instant};

use berth_domain::{DesiredSlot, FailureReason, SlotEnd, Timestamp, WorkloadKind};

use super::AgentError;
use super::act::{ActionContext, Executor};
use super::adopt::{graces_of, kind_of};
use super::live::LiveSlot;
use super::observe::noted_end;
use super::render::StartFailure;
use super::slots::Slots;
use crate::process::{HealthState, MarkTrust, Process, ProcessId, SlotMark, SlotSecret, StartedAs, Tree};
use crate::reconcile::{DesiredState, LocalState, SlotRecord};
use crate::record::{RecordStore, is_full_disk};
use crate::runtime::{Launch, Runtimes};

/// How long nothing is started after the record could not be written.
const FULL_DISK_PAUSE: Duration = Duration::from_secs(1);

impl Executor {
    /// Returns whether a start could be put on record. On a full disk it cannot, and is tried again later.
    pub(super) fn can_record(&self, store: &RecordStore) -> bool {
        !store.has_unwritten() && self.no_starts_before.is_none_or(|until| Instant::now() >= until)
    }

    /// Starts a slot. Its record is on disk before its process exists.
    pub(super) fn start_slot(
        &mut self,
        slots: &mut Slots,
        slot: &DesiredSlot,
        context: &ActionContext<'_>,
    ) -> Result<(), AgentError> {
        // The agent may have been frozen since this was decided.
        if context.desired.is_none_or(|desired: &DesiredState| desired.is_expired(Instant::now())) {
            return Ok(());
        }
        let planned =
            SlotRecord { started_as: started_as(context.runtimes, slot)?, ..SlotRecord::of(slot, LocalState::Planned) };
        let live = match self.open_live_slot(slots, &planned, context.runtimes) {
            Err(AgentError::Io(_, error)) if is_full_disk(&error) => {
                self.pause_starts(&error);
                return Ok(());
            }
            live => live?,
        };
        match self.prepare_launch(&planned, context) {
            Ok(launch) => self.start_launch(slots, planned, live, launch, context.now),
            Err(failure) => record_failed_start(slots, planned, live, &failure, context.now),
        }
    }

    fn start_launch(
        &mut self,
        slots: &mut Slots,
        planned: SlotRecord,
        mut live: LiveSlot,
        launch: Launch,
        now: Timestamp,
    ) -> Result<(), AgentError> {
        let port = launch.probe.port();
        let mut record = SlotRecord { port: Some(port), kind: Some(launch.kind), ..planned };
        live.kind = launch.kind;
        if launch.kind == WorkloadKind::Job
            && let Some(why) = noted_end(&live)
        {
            tracing::error!(slot = %record.id, ?why, "not started: its exit file says that it was started before");
            self.ports.release(port);
            slots.live.insert(record.id, live);
            record.state = LocalState::TreeGone { since: now, why };
            return Ok(slots.store.update(record)?);
        }
        if let Err(error) = slots.store.put(record.clone()) {
            self.ports.release(port);
            if !error.is_full_disk() {
                return Err(error.into());
            }
            self.pause_starts(&error);
            return Ok(());
        }
        self.no_starts_before = None;
        match self.spawner.spawn(&launch, &live.log) {
            Ok(process) => {
                let id = process.id().clone();
                let model = record.spec.as_ref().map(|spec| spec.model.as_str());
                tracing::info!(slot = %record.id, model, pid = id.pid, "started");
                live.tree = self.tree(&record, Some(id.clone()));
                live.checks = Some(HealthState::starting(&launch, now));
                live.launch = Some(launch);
                self.watch(&mut live, process, &record);
                slots.live.insert(record.id, live);
                record.process = Some(id);
                record.state = LocalState::Started { at: now, ready: false };
                Ok(slots.store.update(record)?)
            }
            Err(error) => {
                self.ports.release(port);
                record_failed_start(slots, record, live, &StartFailure::new(FailureReason::BadBinary, &error), now)
            }
        }
    }

    /// Pauses all starts. Nothing is started that is not on record, so nothing is started until the disk has room.
    fn pause_starts(&mut self, error: &dyn std::fmt::Display) {
        if self.no_starts_before.is_none() {
            tracing::error!(%error, "nothing is started: it cannot be put on record before there is room on the disk");
        }
        self.no_starts_before = Some(Instant::now() + FULL_DISK_PAUSE);
    }

    /// Opens what is needed to follow a slot: its tree and its log.
    pub(super) fn open_live_slot(
        &self,
        slots: &Slots,
        record: &SlotRecord,
        runtimes: &Runtimes,
    ) -> Result<LiveSlot, AgentError> {
        let mut live = LiveSlot::new(self.tree(record, record.process.clone()), slots.open_log(record)?);
        live.kind = kind_of(runtimes, record);
        (live.grace, live.loading_grace) = graces_of(runtimes, record);
        Ok(live)
    }

    /// Watches the first process of a slot: its end wakes the agent.
    pub(super) fn watch(&self, live: &mut LiveSlot, process: Process, record: &SlotRecord) {
        self.occupancy.occupy(process.id().pid, &record.gpus);
        let process = Arc::new(process);
        let (watched, wake) = (Arc::clone(&process), Arc::clone(&self.process_ended));
        tokio::spawn(async move {
            watched.exited().await;
            wake.notify_one();
        });
        live.process = Some(process);
    }

    fn tree(&self, record: &SlotRecord, process: Option<ProcessId>) -> Tree {
        let mark = SlotMark { runner: self.settings.id.clone(), slot: record.id, generation: record.generation };
        let trust = match &record.started_as {
            Some(start) => MarkTrust::Start(start.clone()),
            None => MarkTrust::Users(self.users.clone()),
        };
        Tree::new(mark, trust, process, self.spawner.cgroup(record.id, record.generation))
    }
}

/// Returns what will identify the processes of a slot. Returns `None` for a runtime that this agent does not have: such
/// a slot is not started.
fn started_as(runtimes: &Runtimes, slot: &DesiredSlot) -> Result<Option<StartedAs>, AgentError> {
    let runtime = slot.run_spec().and_then(|spec| runtimes.get(&spec.runtime));
    let Some(runtime) = runtime else { return Ok(None) };
    let secret = SlotSecret::random().map_err(|error| AgentError::Io("no random numbers", error))?;
    Ok(Some(StartedAs { user: runtime.user_id(), secret }))
}

/// Records that nothing was started: there is no process to end, and none that the driver could list. The slot's log
/// says why.
fn record_failed_start(
    slots: &mut Slots,
    record: SlotRecord,
    live: LiveSlot,
    failure: &StartFailure,
    now: Timestamp,
) -> Result<(), AgentError> {
    let StartFailure { why, text } = failure;
    tracing::error!(slot = %record.id, error = text, "not started");
    live.log.note(&format!("not started: {text}"));
    let state = LocalState::TreeGone { since: now, why: SlotEnd::Failed(*why) };
    slots.live.insert(record.id, live);
    Ok(slots.store.update(SlotRecord { state, port: None, ..record })?)
}
