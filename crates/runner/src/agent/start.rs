//! Starting slots: rendered, put on record, started, watched.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use berth_domain::{Bytes, DesiredSlot, DeviceUuid, FailureReason, SlotEnd, Timestamp, WorkloadKind};

use super::live::Live;
use super::observe::noted_end;
use super::{Agent, AgentError};
use crate::process::{HealthState, SlotMark, Tree};
use crate::reconcile::{Kept, Life, Wish};
use crate::record::is_full_disk;
use crate::runtime::{Launch, RenderError, Runtime, StartRequest, Surroundings, render};

/// How long nothing is started after the record could not be written.
const PAUSE_WITHOUT_ROOM: Duration = Duration::from_secs(1);

impl Agent {
    /// Whether what is started could be put on record. On a full disk it cannot, and is tried again now and then.
    pub(super) fn can_record(&self) -> bool {
        !self.record.is_behind() && self.no_starts_before.is_none_or(|until| Instant::now() >= until)
    }

    pub(super) fn start_slot(&mut self, slot: &DesiredSlot, now: Timestamp) -> Result<(), AgentError> {
        // The agent may have been frozen since this was decided.
        if self.wish.as_ref().is_none_or(|wish: &Wish| wish.is_expired(Instant::now())) {
            return Ok(());
        }
        let planned = Kept::of(slot, Life::Planned);
        let live = match self.at_hand(&planned) {
            Err(AgentError::Io(_, error)) if is_full_disk(&error) => return self.wait_for_room(&error),
            live => live?,
        };
        match self.plan(&planned) {
            Ok(launch) => self.start_launch(planned, live, launch, now),
            Err(why) => self.never_started(planned, live, why, now),
        }
    }

    fn start_launch(
        &mut self,
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
            self.live.insert(kept.id, live);
            kept.life = Life::TreeGone { since: now, why };
            return Ok(self.record.note(kept)?);
        }
        if let Err(error) = self.record.put(kept.clone()) {
            self.ports.release(port);
            return if error.is_full_disk() { self.wait_for_room(&error) } else { Err(error.into()) };
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
                self.live.insert(kept.id, live);
                kept.process = Some(id);
                kept.life = Life::Started { at: now, ready: false };
                Ok(self.record.note(kept)?)
            }
            Err(error) => {
                tracing::error!(slot = %kept.id, %error, "not started");
                self.ports.release(port);
                self.never_started(kept, live, FailureReason::BadBinary, now)
            }
        }
    }

    /// Nothing is started that is not on record, so nothing is started until there is room.
    fn wait_for_room(&mut self, error: &dyn std::fmt::Display) -> Result<(), AgentError> {
        if self.no_starts_before.is_none() {
            tracing::error!(%error, "nothing is started: it cannot be put on record before there is room on the disk");
        }
        self.no_starts_before = Some(Instant::now() + PAUSE_WITHOUT_ROOM);
        Ok(())
    }

    /// Nothing was started: there is nothing to end, and nothing that the driver could list.
    fn never_started(&mut self, kept: Kept, live: Live, why: FailureReason, now: Timestamp) -> Result<(), AgentError> {
        let life = Life::TreeGone { since: now, why: SlotEnd::Failed(why) };
        self.live.insert(kept.id, live);
        Ok(self.record.note(Kept { life, port: None, ..kept })?)
    }

    fn plan(&mut self, kept: &Kept) -> Result<Launch, FailureReason> {
        let port = self.ports.lease().map_err(|error| {
            tracing::error!(slot = %kept.id, %error, "not started");
            FailureReason::PortTaken
        })?;
        self.render(kept, port).inspect_err(|_| self.ports.release(port))
    }

    fn render(&self, kept: &Kept, port: u16) -> Result<Launch, FailureReason> {
        let request = request(kept).ok_or(FailureReason::BadBinary)?;
        let runtime = self.runtimes.get(&request.spec.runtime).ok_or(FailureReason::BadBinary)?;
        let inventory = self.eyes.inventory();
        let gpus = inventory.iter().flat_map(|inventory| &inventory.gpus);
        let totals = gpus.map(|gpu| (gpu.uuid.clone(), gpu.memory.total)).collect();
        self.render_on(&totals, runtime, request, port).map_err(|error| {
            tracing::error!(slot = %kept.id, %error, "not started");
            FailureReason::BadBinary
        })
    }

    /// What was rendered for a slot that an agent before this one started: where it answers, and how it is asked. Its
    /// devices are those on record, since the driver may not have been looked at yet, or may not have them any more.
    /// Nothing where nobody noted its port: then nobody knows where it answers.
    pub(super) fn render_again(&self, kept: &Kept) -> Option<Launch> {
        let request = request(kept)?;
        let totals = request.gpus.iter().map(|gpu| (gpu.uuid.clone(), gpu.memory_bytes)).collect();
        self.render_on(&totals, self.runtimes.get(&request.spec.runtime)?, request, kept.port?).ok()
    }

    fn render_on(
        &self,
        totals: &BTreeMap<DeviceUuid, Bytes>,
        runtime: &Runtime,
        request: StartRequest<'_>,
        port: u16,
    ) -> Result<Launch, RenderError> {
        let surroundings = Surroundings {
            runner: &self.settings.id,
            address: &self.settings.address,
            bind: self.settings.bind,
            port,
            totals,
            environment: &self.settings.environment,
        };
        render(runtime, request, &surroundings)
    }

    /// What is needed to follow a slot: its tree and its log.
    pub(super) fn at_hand(&self, kept: &Kept) -> Result<Live, AgentError> {
        let log = self
            .logs
            .slot(kept.id, kept.generation)
            .map_err(|error| AgentError::Io("its log cannot be kept", error))?;
        let mut live = Live::new(self.tree(kept, kept.process.clone()), log);
        (live.kind, live.grace) = (self.kind_of(kept), self.grace_of(kept));
        Ok(live)
    }

    fn tree(&self, kept: &Kept, process: Option<crate::process::ProcessId>) -> Tree {
        let mark = SlotMark { runner: self.settings.id.clone(), slot: kept.id, generation: kept.generation };
        Tree::new(mark, process, self.spawner.cgroup(kept.id, kept.generation))
    }
}

fn request(kept: &Kept) -> Option<StartRequest<'_>> {
    let spec = kept.spec.as_ref()?;
    Some(StartRequest { slot: kept.id, generation: kept.generation, gpus: &kept.gpus, spec })
}
