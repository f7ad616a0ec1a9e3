//! Starting slots: rendered, put on record, started, watched.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use berth_domain::{Bytes, DesiredSlot, DeviceUuid, FailureReason, InlineSecret, SlotEnd, Timestamp, WorkloadKind};

use super::live::Live;
use super::observe::noted_end;
use super::{Agent, AgentError};
use crate::process::{HealthState, MarkTrust, SlotMark, SlotSecret, StartedAs, Tree};
use crate::reconcile::{Kept, Life, Wish};
use crate::record::is_full_disk;
use crate::runtime::{Launch, RenderError, StartRequest, Surroundings, render, render_started};

/// How long nothing is started after the record could not be written.
const PAUSE_WITHOUT_ROOM: Duration = Duration::from_secs(1);

/// Why nothing was started for a slot: the class of it, and what exactly is wrong.
struct Unstartable {
    why: FailureReason,
    text: String,
}

impl Unstartable {
    fn new(why: FailureReason, text: &impl ToString) -> Self {
        Self { why, text: text.to_string() }
    }
}

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
        let planned = Kept { started_as: self.started_as(slot)?, ..Kept::of(slot, Life::Planned) };
        let live = match self.at_hand(&planned) {
            Err(AgentError::Io(_, error)) if is_full_disk(&error) => return self.wait_for_room(&error),
            live => live?,
        };
        match self.plan(&planned) {
            Ok(launch) => self.start_launch(planned, live, launch, now),
            Err(unstartable) => self.never_started(planned, live, &unstartable, now),
        }
    }

    /// What the processes of a slot will be known by. Nothing for a runtime that this agent does not have: it is not
    /// started.
    fn started_as(&self, slot: &DesiredSlot) -> Result<Option<StartedAs>, AgentError> {
        let runtime = slot.run_spec().and_then(|spec| self.runtimes.get(&spec.runtime));
        let Some(runtime) = runtime else { return Ok(None) };
        let secret = SlotSecret::random().map_err(|error| AgentError::Io("no random numbers", error))?;
        Ok(Some(StartedAs { user: runtime.user_id(), secret }))
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
                self.ports.release(port);
                self.never_started(kept, live, &Unstartable::new(FailureReason::BadBinary, &error), now)
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

    /// Nothing was started: there is nothing to end, and nothing that the driver could list. Its log says why, for
    /// whoever may read it.
    fn never_started(
        &mut self,
        kept: Kept,
        live: Live,
        unstartable: &Unstartable,
        now: Timestamp,
    ) -> Result<(), AgentError> {
        let Unstartable { why, text } = unstartable;
        tracing::error!(slot = %kept.id, error = text, "not started");
        live.log.note(&format!("not started: {text}"));
        let life = Life::TreeGone { since: now, why: SlotEnd::Failed(*why) };
        self.live.insert(kept.id, live);
        Ok(self.record.note(Kept { life, port: None, ..kept })?)
    }

    fn plan(&mut self, kept: &Kept) -> Result<Launch, Unstartable> {
        let port = self.ports.lease().map_err(|error| Unstartable::new(FailureReason::PortTaken, &error))?;
        let planned = self.render(kept, port).and_then(|launch| self.with_secrets(kept, launch));
        planned.inspect_err(|_| self.ports.release(port))
    }

    /// Gives a slot its runtime's secrets, and refuses one that would show a secret to every user of the machine. A slot
    /// that was started before it could be refused is still taken over.
    fn with_secrets(&mut self, kept: &Kept, mut launch: Launch) -> Result<Launch, Unstartable> {
        let Some(spec) = &kept.spec else { return Ok(launch) };
        if let Some(secret) = InlineSecret::find(&spec.args) {
            return Err(Unstartable::new(FailureReason::ForbiddenArgument, &secret));
        }
        let runtime = self.runtimes.get(&spec.runtime).cloned();
        let added = runtime.map_or(Ok(()), |runtime| self.add_secrets(&mut launch, &runtime));
        added.map_err(|error| Unstartable::new(FailureReason::BadBinary, &error))?;
        Ok(launch)
    }

    fn render(&self, kept: &Kept, port: u16) -> Result<Launch, Unstartable> {
        let bad = |text: String| Unstartable { why: FailureReason::BadBinary, text };
        let request = request(kept).ok_or_else(|| bad("the server does not say what to run".to_owned()))?;
        let name = &request.spec.runtime;
        let runtime = self.runtimes.get(name).ok_or_else(|| bad(format!("this agent has no runtime {name}")))?;
        let inventory = self.eyes.inventory();
        let gpus = inventory.iter().flat_map(|inventory| &inventory.gpus);
        let totals = gpus.map(|gpu| (gpu.uuid.clone(), gpu.memory.total)).collect();
        let launch = render(runtime, request, &self.surroundings(&totals, port));
        launch.map_err(|error| Unstartable::new(reason_of(&error), &error))
    }

    /// What was rendered for a slot that an agent before this one started: where it answers, and how it is asked. Its
    /// devices are those on record, since the driver may not have been looked at yet, or may not have them any more.
    /// Nothing where nobody noted its port: then nobody knows where it answers.
    pub(super) fn render_again(&self, kept: &Kept) -> Option<Launch> {
        let request = request(kept)?;
        let totals = request.gpus.iter().map(|gpu| (gpu.uuid.clone(), gpu.memory_bytes)).collect();
        let runtime = self.runtimes.get(&request.spec.runtime)?;
        render_started(runtime, request, &self.surroundings(&totals, kept.port?)).ok()
    }

    fn surroundings<'a>(&'a self, totals: &'a BTreeMap<DeviceUuid, Bytes>, port: u16) -> Surroundings<'a> {
        Surroundings {
            runner: &self.settings.id,
            // The server puts its own word for the host into the endpoint; programs that want one get this.
            address: self.settings.address.as_deref().unwrap_or("127.0.0.1"),
            bind: self.settings.bind,
            port,
            totals,
            environment: &self.settings.environment,
        }
    }

    /// What is needed to follow a slot: its tree and its log.
    pub(super) fn at_hand(&self, kept: &Kept) -> Result<Live, AgentError> {
        let log = self
            .logs
            .slot(kept.id, kept.generation)
            .map_err(|error| AgentError::Io("its log cannot be kept", error))?;
        let mut live = Live::new(self.tree(kept, kept.process.clone()), log);
        live.kind = self.kind_of(kept);
        (live.grace, live.loading_grace) = self.graces_of(kept);
        Ok(live)
    }

    fn tree(&self, kept: &Kept, process: Option<crate::process::ProcessId>) -> Tree {
        let mark = SlotMark { runner: self.settings.id.clone(), slot: kept.id, generation: kept.generation };
        let trust = match &kept.started_as {
            Some(start) => MarkTrust::Start(start.clone()),
            None => MarkTrust::Users(self.users.clone()),
        };
        Tree::new(mark, trust, process, self.spawner.cgroup(kept.id, kept.generation))
    }
}

/// What the server is told of a slot that cannot be rendered.
fn reason_of(error: &RenderError) -> FailureReason {
    match error {
        RenderError::Option { .. }
        | RenderError::Reserved(_)
        | RenderError::Unused(_)
        | RenderError::Forbidden(_)
        | RenderError::Nul => FailureReason::ForbiddenArgument,
        RenderError::UnknownDevice(_) => FailureReason::DeviceLost,
        RenderError::NotForJobs(_) | RenderError::NoDevice | RenderError::Share { .. } | RenderError::Endpoint(_) => {
            FailureReason::BadBinary
        }
    }
}

fn request(kept: &Kept) -> Option<StartRequest<'_>> {
    let spec = kept.spec.as_ref()?;
    let secret = kept.started_as.as_ref().map(|start| &start.secret);
    Some(StartRequest { slot: kept.id, generation: kept.generation, gpus: &kept.gpus, spec, secret })
}
