//! Doing what was decided. Everything is on the disk before it is done.

use std::collections::BTreeMap;
use std::sync::Arc;

use berth_domain::{Bytes, ClusterId, DesiredSlot, DeviceUuid, FailureReason, SlotId, Timestamp};

use super::live::Live;
use super::observe::end_of;
use super::{Agent, AgentError};
use crate::process::{Adoption, HealthState, Process, ProcessId, SlotMark, Tree, marked};
use crate::reconcile::{Action, End, Health, Kept, Life};
use crate::record::Obeys;
use crate::runtime::{Launch, RenderError, Runtime, Surroundings, render};

impl Agent {
    /// Takes over what an agent before this one started: by its record, and by the marks on processes.
    pub(super) fn adopt(&mut self) -> Result<(), AgentError> {
        let rows: Vec<Kept> = self.record.kept().values().cloned().collect();
        for kept in rows {
            self.take_over(&kept)?;
        }
        match self.record.obeys() {
            Some(obeys) => self.find_orphans(obeys.cluster),
            None => Ok(()),
        }
    }

    /// The first server that this agent hears of is the one it obeys. Only now can it tell which processes are its own:
    /// another agent of this name may serve another cluster on this machine.
    pub(super) fn join(&mut self, server: Obeys) -> Result<(), AgentError> {
        self.news = true;
        self.record.obey(server)?;
        self.find_orphans(server.cluster)
    }

    fn take_over(&mut self, kept: &Kept) -> Result<(), AgentError> {
        let slot = &kept.slot;
        kept.port.iter().for_each(|port| self.ports.keep(*port));
        let launch = self.render_again(slot, kept.port.unwrap_or(0));
        let mut live = self.at_hand(slot, kept.process.clone(), launch.as_ref())?;
        live.launch = launch;
        live.pids.clone_from(&kept.pids);
        if let Some(id) = &kept.process {
            let exit_file = live.log.exit_file();
            match Process::adopt(id.clone(), Some(exit_file)).map_err(|error| AgentError::Io("adoption", error))? {
                Adoption::Alive(process) => {
                    tracing::info!(slot = %slot.id, pid = process.id().pid, "adopted");
                    self.watch(&mut live, process, slot);
                }
                Adoption::Gone(exit) => live.ended = Some(end_of(&live, exit)),
                Adoption::Unknown => {}
            }
            if !id.is_of_this_boot() {
                live.pids.clear();
            }
        }
        if let Some(launch) = &live.launch {
            let is_ready = matches!(kept.life, Life::Started { ready: true, .. });
            let at = super::now();
            live.health = if is_ready { Health::Ready } else { Health::Pending };
            live.checks =
                Some(if is_ready { HealthState::serving(launch, at) } else { HealthState::starting(launch, at) });
        }
        self.live.insert(slot.id, live);
        Ok(())
    }

    /// Has the first process of a slot watched: its end wakes the agent.
    fn watch(&self, live: &mut Live, process: Process, slot: &DesiredSlot) {
        for gpu in &slot.gpus {
            self.eyes.occupy(process.id().pid, gpu.uuid.clone(), gpu.memory_bytes);
        }
        let process = Arc::new(process);
        let (watched, wake) = (Arc::clone(&process), Arc::clone(&self.somebody_ended));
        tokio::spawn(async move {
            watched.exited().await;
            wake.notify_one();
        });
        live.process = Some(process);
    }

    /// Processes that carry the mark of a slot of the cluster that is not on record: an agent lost its record. They are
    /// put on it.
    fn find_orphans(&mut self, cluster: ClusterId) -> Result<(), AgentError> {
        let table =
            crate::process::ProcessTable::read().map_err(|error| AgentError::Io("/proc cannot be read", error))?;
        let found = marked(&table, &self.settings.id).map_err(|error| AgentError::Io("/proc cannot be read", error))?;
        for (mark, processes) in found.into_iter().filter(|(mark, _)| mark.slot.is_of(cluster)) {
            let known = self.record.kept().get(&mark.slot).is_some_and(|kept| kept.generation() >= mark.generation);
            let Some(first) = processes.first().filter(|_| !known) else { continue };
            tracing::warn!(slot = %mark.slot, pid = first.pid, "found running, but not on record");
            let slot = DesiredSlot {
                id: mark.slot,
                generation: mark.generation,
                action: berth_domain::DesiredAction::Run,
                model: unnamed("unknown"),
                runtime: unnamed("unknown"),
                args: Vec::new(),
                gpus: Vec::new(),
                cpu_millicores: berth_domain::Millicores::ZERO,
                ram_bytes: Bytes::ZERO,
                concurrency: 0,
            };
            let life = Life::Started { at: super::now(), ready: true };
            let kept = Kept { process: Some(first.clone()), ..Kept::new(slot, life) };
            self.record.put(kept.clone())?;
            self.take_over(&kept)?;
        }
        Ok(())
    }

    /// Does one thing.
    pub(super) fn act(&mut self, action: Action) -> Result<(), AgentError> {
        let now = super::now();
        self.news = true;
        match action {
            Action::Start(slot) => self.start_slot(*slot, now),
            Action::Refuse(slot) => {
                tracing::warn!(slot = %slot.id, "not started: the driver shows too little free memory");
                Ok(self.record.put(Kept::new(*slot, Life::Refused))?)
            }
            Action::LookFor(slot) => self.look_for(*slot, now),
            Action::Found(id, process) => self.found(id, process, now),
            Action::Ready(id) => self.change(id, |life| match life {
                Life::Started { at, .. } => Life::Started { at, ready: true },
                other => other,
            }),
            Action::Term(id, why) => {
                tracing::info!(slot = %id, ?why, "asked to end");
                self.change(id, |_| Life::Ending { since: now, killed: false, why })?;
                self.live.get(&id).into_iter().for_each(|live| live.tree.term());
                Ok(())
            }
            Action::Kill(id) => {
                self.change(id, |life| match life {
                    Life::Ending { since, why, .. } => Life::Ending { since, killed: true, why },
                    other => other,
                })?;
                self.live.get(&id).into_iter().for_each(|live| live.tree.kill());
                Ok(())
            }
            Action::TreeGone(id, why) => {
                self.live.get(&id).into_iter().for_each(|live| live.log.close());
                self.change(id, |_| Life::TreeGone { since: now, why })
            }
            Action::Gone(id) => self.gone(id),
            Action::GiveUp(id) => {
                tracing::error!(slot = %id, "it cannot be ended, or the driver will not let go of it");
                self.change(id, |_| Life::GivenUp)
            }
            Action::Forget(id) => {
                self.live.remove(&id);
                self.record.forget(id)?;
                self.prune_logs();
                Ok(())
            }
        }
    }

    fn change(&mut self, id: SlotId, change: impl FnOnce(Life) -> Life) -> Result<(), AgentError> {
        let Some(mut kept) = self.record.kept().get(&id).cloned() else { return Ok(()) };
        kept.life = change(kept.life);
        if let Some(live) = self.live.get(&id) {
            kept.pids.clone_from(&live.pids);
        }
        Ok(self.record.put(kept)?)
    }

    /// An agent before this one died between starting it and noting it: it is taken over after all.
    fn found(&mut self, id: SlotId, process: ProcessId, now: Timestamp) -> Result<(), AgentError> {
        let Some(mut kept) = self.record.kept().get(&id).cloned() else { return Ok(()) };
        kept.process = Some(process);
        kept.life = Life::Started { at: now, ready: false };
        self.record.put(kept.clone())?;
        self.take_over(&kept)
    }

    /// Removes what is too old of what slots wrote that are no more. Logs that cannot be removed are no reason to end.
    pub(super) fn prune_logs(&self) {
        let living = self.record.kept().keys().copied().collect();
        if let Err(error) = self.logs.prune(&living, self.settings.logs.ended) {
            tracing::warn!(%error, "old logs cannot be removed");
        }
    }

    fn gone(&mut self, id: SlotId) -> Result<(), AgentError> {
        tracing::info!(slot = %id, "gone, and the driver agrees");
        if let Some(live) = self.live.get(&id) {
            live.launch.iter().for_each(|launch| self.ports.release(launch.probe.port()));
            live.tree.cgroup().into_iter().for_each(|cgroup| drop(cgroup.remove()));
        }
        self.change(id, |life| match life {
            Life::TreeGone { why, .. } | Life::Ending { why, .. } => Life::Gone { why, told_why: why == End::Asked },
            _ => Life::Gone { why: End::Failed(FailureReason::Unkillable), told_why: true },
        })
    }

    fn start_slot(&mut self, slot: DesiredSlot, now: Timestamp) -> Result<(), AgentError> {
        let launch = match self.plan(&slot) {
            Ok(launch) => launch,
            Err(why) => return self.never_started(slot, why, now),
        };
        let port = launch.probe.port();
        let mut kept = Kept { port: Some(port), ..Kept::new(slot, Life::Planned) };
        self.record.put(kept.clone())?;
        let mut live = self.at_hand(&kept.slot, None, Some(&launch))?;
        match self.spawner.spawn(&launch, &live.log) {
            Ok(process) => {
                let id = process.id().clone();
                tracing::info!(slot = %kept.slot.id, model = %kept.slot.model, pid = id.pid, "started");
                live.tree = self.tree(&kept.slot, Some(id.clone()), Some(&launch));
                live.checks = Some(HealthState::starting(&launch, now));
                live.launch = Some(launch);
                self.watch(&mut live, process, &kept.slot);
                self.live.insert(kept.slot.id, live);
                kept.process = Some(id);
                kept.life = Life::Started { at: now, ready: false };
                Ok(self.record.put(kept)?)
            }
            Err(error) => {
                tracing::error!(slot = %kept.slot.id, %error, "not started");
                self.ports.release(port);
                self.never_started(kept.slot, FailureReason::BadBinary, now)
            }
        }
    }

    /// Nothing was started: there is nothing to end, and nothing that the driver could list.
    fn never_started(&mut self, slot: DesiredSlot, why: FailureReason, now: Timestamp) -> Result<(), AgentError> {
        let life = Life::TreeGone { since: now, why: End::Failed(why) };
        let live = self.at_hand(&slot, None, None)?;
        self.live.insert(slot.id, live);
        Ok(self.record.put(Kept::new(slot, life))?)
    }

    /// A slot that should stop but is not on record: whatever carries its mark is its tree, and is ended.
    fn look_for(&mut self, slot: DesiredSlot, now: Timestamp) -> Result<(), AgentError> {
        let live = self.at_hand(&slot, None, None)?;
        self.live.insert(slot.id, live);
        let life = Life::Ending { since: now, killed: false, why: End::Asked };
        Ok(self.record.put(Kept::new(slot, life))?)
    }

    fn plan(&mut self, slot: &DesiredSlot) -> Result<Launch, FailureReason> {
        let port = self.ports.lease().map_err(|error| {
            tracing::error!(slot = %slot.id, %error, "not started");
            FailureReason::PortTaken
        })?;
        self.render(slot, port).inspect_err(|_| self.ports.release(port))
    }

    fn render(&self, slot: &DesiredSlot, port: u16) -> Result<Launch, FailureReason> {
        let runtime = self.runtimes.get(&slot.runtime).ok_or(FailureReason::BadBinary)?;
        let inventory = self.eyes.inventory();
        let gpus = inventory.iter().flat_map(|inventory| &inventory.gpus);
        let totals = gpus.map(|gpu| (gpu.uuid.clone(), gpu.memory.total)).collect();
        self.render_on(&totals, runtime, slot, port).map_err(|error| {
            tracing::error!(slot = %slot.id, %error, "not started");
            FailureReason::BadBinary
        })
    }

    /// What was rendered for a slot that an agent before this one started: where it answers, and how it is asked. Its
    /// devices are those on record, since the driver may not have been looked at yet, or may not have them any more.
    fn render_again(&self, slot: &DesiredSlot, port: u16) -> Option<Launch> {
        let totals = slot.gpus.iter().map(|gpu| (gpu.uuid.clone(), gpu.memory_bytes)).collect();
        self.render_on(&totals, self.runtimes.get(&slot.runtime)?, slot, port).ok()
    }

    fn render_on(
        &self,
        totals: &BTreeMap<DeviceUuid, Bytes>,
        runtime: &Runtime,
        slot: &DesiredSlot,
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
        render(runtime, slot, &surroundings)
    }

    fn at_hand(
        &self,
        slot: &DesiredSlot,
        process: Option<ProcessId>,
        launch: Option<&Launch>,
    ) -> Result<Live, AgentError> {
        let log = self
            .logs
            .slot(slot.id, slot.generation)
            .map_err(|error| AgentError::Io("its log cannot be kept", error))?;
        Ok(Live::new(self.tree(slot, process, launch), log))
    }

    fn tree(&self, slot: &DesiredSlot, process: Option<ProcessId>, launch: Option<&Launch>) -> Tree {
        let mark = SlotMark { runner: self.settings.id.clone(), slot: slot.id, generation: slot.generation };
        Tree::new(mark, process, launch.and_then(|launch| self.spawner.cgroup(launch)))
    }
}

/// A name that keeps the rules of names.
fn unnamed<T: std::str::FromStr>(text: &str) -> T
where
    T::Err: std::fmt::Debug,
{
    text.parse().unwrap_or_else(|_| unreachable!("a plain word is a name"))
}
