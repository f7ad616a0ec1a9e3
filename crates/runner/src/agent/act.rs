//! Doing what was decided. Everything is on the disk before it is done.

use berth_domain::{DesiredSlot, FailureReason, SlotId, Timestamp};

use super::live::Live;
use super::{Agent, AgentError};
use crate::process::{Adoption, HealthState, Process, SlotMark, SpawnError, Tree, marked, read_exit_file};
use crate::reconcile::{Action, End, Health, Kept, Life};
use crate::runtime::{Launch, Surroundings, render};

impl Agent {
    /// Takes over what an agent before this one started: by its record, and by the marks on processes.
    pub(super) fn adopt(&mut self) -> Result<(), AgentError> {
        let rows: Vec<Kept> = self.record.kept().values().cloned().collect();
        for kept in rows {
            self.take_over(&kept)?;
        }
        self.find_orphans()
    }

    fn take_over(&mut self, kept: &Kept) -> Result<(), AgentError> {
        let slot = &kept.slot;
        let port = match &kept.life {
            Life::Started { port, .. } => *port,
            _ => None,
        };
        port.iter().for_each(|port| self.ports.keep(*port));
        let launch = self.render(slot, port.unwrap_or(0)).ok();
        let process = match &kept.life {
            Life::Started { process, .. } => Some(process.clone()),
            _ => None,
        };
        let mut live = self.at_hand(slot, process.clone(), launch.as_ref())?;
        if let Some(id) = process {
            let exit_file = live.log.exit_file();
            match Process::adopt(id, Some(exit_file.clone())).map_err(|error| AgentError::Io("adoption", error))? {
                Adoption::Alive(process) => {
                    tracing::info!(slot = %slot.id, pid = process.id().pid, "adopted");
                    live.process = Some(process);
                }
                Adoption::Gone(exit) => {
                    let is_job = launch.as_ref().is_some_and(|launch| launch.kind == crate::runtime::RuntimeKind::Job);
                    let known = match exit {
                        crate::process::Exit::Unknown => read_exit_file(&exit_file),
                        known => known,
                    };
                    live.ended = Some(match known {
                        crate::process::Exit::Code(code) if is_job => End::Exited(code),
                        _ => End::Failed(FailureReason::Crashed),
                    });
                }
                Adoption::Unknown => tracing::warn!(slot = %slot.id, "nobody can tell whether its process lives"),
            }
        }
        if let Some(launch) = launch {
            let ready = matches!(kept.life, Life::Started { ready: true, .. });
            let at = super::now();
            live.health = if ready { Health::Ready } else { Health::Pending };
            live.checks =
                Some(if ready { HealthState::serving(&launch, at) } else { HealthState::starting(&launch, at) });
            live.launch = Some(launch);
        }
        self.live.insert(slot.id, live);
        Ok(())
    }

    /// Processes that carry the mark of a slot that is not on record: an agent lost its record. They are put on it.
    fn find_orphans(&mut self) -> Result<(), AgentError> {
        let table =
            crate::process::ProcessTable::read().map_err(|error| AgentError::Io("/proc cannot be read", error))?;
        let found = marked(&table, &self.settings.id).map_err(|error| AgentError::Io("/proc cannot be read", error))?;
        for (mark, processes) in found {
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
                ram_bytes: berth_domain::Bytes::ZERO,
                concurrency: 0,
            };
            let life = Life::Started { process: first.clone(), port: None, at: super::now(), ready: true };
            let kept = Kept { slot, life };
            self.record.put(kept.clone())?;
            self.take_over(&kept)?;
        }
        Ok(())
    }

    /// Does one thing.
    pub(super) fn act(&mut self, action: Action, now: Timestamp) -> Result<(), AgentError> {
        self.news = true;
        match action {
            Action::Start(slot) => self.start_slot(*slot, now),
            Action::Refuse(slot) => {
                tracing::warn!(slot = %slot.id, "not started: the driver shows too little free memory");
                Ok(self.record.put(Kept { slot: *slot, life: Life::Refused })?)
            }
            Action::LookFor(slot) => self.look_for(*slot, now),
            Action::Ready(id) => self.change(id, |life| match life {
                Life::Started { process, port, at, .. } => Life::Started { process, port, at, ready: true },
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
            Action::TreeGone(id, why) => self.change(id, |_| Life::TreeGone { since: now, why }),
            Action::Gone(id) => self.gone(id),
            Action::GiveUp(id) => {
                tracing::error!(slot = %id, "it cannot be ended, or the driver will not let go of it");
                self.change(id, |_| Life::GivenUp)
            }
            Action::Forget(id) => {
                self.live.remove(&id);
                Ok(self.record.forget(id)?)
            }
        }
    }

    fn change(&mut self, id: SlotId, change: impl FnOnce(Life) -> Life) -> Result<(), AgentError> {
        let Some(kept) = self.record.kept().get(&id).cloned() else { return Ok(()) };
        Ok(self.record.put(Kept { life: change(kept.life), slot: kept.slot })?)
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
        let id = slot.id;
        self.record.put(Kept { slot: slot.clone(), life: Life::Planned })?;
        let launch = match self.plan(&slot) {
            Ok(launch) => launch,
            Err(why) => return self.never_started(slot, why, now),
        };
        let mut live = self.at_hand(&slot, None, Some(&launch))?;
        match self.spawner.spawn(&launch, &live.log) {
            Ok(process) => {
                let at = process.id().clone();
                tracing::info!(slot = %id, model = %slot.model, pid = at.pid, "started");
                for gpu in &slot.gpus {
                    self.eyes.occupy(at.pid, gpu.uuid.clone(), gpu.memory_bytes);
                }
                live.tree = self.tree(&slot, Some(at.clone()), Some(&launch));
                live.checks = Some(HealthState::starting(&launch, now));
                let port = Some(launch.probe.port());
                live.process = Some(process);
                live.launch = Some(launch);
                self.live.insert(id, live);
                let life = Life::Started { process: at, port, at: now, ready: false };
                Ok(self.record.put(Kept { slot, life })?)
            }
            Err(error) => {
                self.ports.release(launch.probe.port());
                self.never_started(slot, failure(&error, id), now)
            }
        }
    }

    /// Nothing was started: there is nothing to end, and nothing that the driver could list.
    fn never_started(&mut self, slot: DesiredSlot, why: FailureReason, now: Timestamp) -> Result<(), AgentError> {
        let life = Life::TreeGone { since: now, why: End::Failed(why) };
        let live = self.at_hand(&slot, None, None)?;
        self.live.insert(slot.id, live);
        Ok(self.record.put(Kept { slot, life })?)
    }

    /// A slot that should stop but is not on record: whatever carries its mark is its tree, and is ended.
    fn look_for(&mut self, slot: DesiredSlot, now: Timestamp) -> Result<(), AgentError> {
        let live = self.at_hand(&slot, None, None)?;
        self.live.insert(slot.id, live);
        let life = Life::Ending { since: now, killed: false, why: End::Asked };
        Ok(self.record.put(Kept { slot, life })?)
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
        let surroundings = Surroundings {
            runner: &self.settings.id,
            address: &self.settings.address,
            bind: self.settings.bind,
            port,
            totals: &totals,
            environment: &self.settings.environment,
        };
        render(runtime, slot, &surroundings).map_err(|error| {
            tracing::error!(slot = %slot.id, %error, "not started");
            FailureReason::BadBinary
        })
    }

    fn at_hand(
        &self,
        slot: &DesiredSlot,
        process: Option<crate::process::ProcessId>,
        launch: Option<&Launch>,
    ) -> Result<Live, AgentError> {
        let log = self
            .logs
            .slot(slot.id, slot.generation)
            .map_err(|error| AgentError::Io("its log cannot be kept", error))?;
        Ok(Live::new(self.tree(slot, process, launch), log))
    }

    fn tree(&self, slot: &DesiredSlot, process: Option<crate::process::ProcessId>, launch: Option<&Launch>) -> Tree {
        let mark = SlotMark { runner: self.settings.id.clone(), slot: slot.id, generation: slot.generation };
        Tree::new(mark, process, launch.and_then(|launch| self.spawner.cgroup(launch)))
    }
}

fn failure(error: &SpawnError, slot: SlotId) -> FailureReason {
    tracing::error!(%slot, %error, "not started");
    FailureReason::BadBinary
}

/// A name that keeps the rules of names.
fn unnamed<T: std::str::FromStr>(text: &str) -> T
where
    T::Err: std::fmt::Debug,
{
    text.parse().unwrap_or_else(|_| unreachable!("a plain word is a name"))
}
