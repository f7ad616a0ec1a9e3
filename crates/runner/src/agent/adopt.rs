//! Taking over slots that this agent did not start: by the record of the one before it, and by the marks on processes.

use std::sync::Arc;

use berth_domain::{ClusterId, DesiredSlot, SlotId, Span, Timestamp, WorkloadKind};

use super::live::Live;
use super::{Agent, AgentError};
use crate::process::{Adoption, Carrier, HealthState, Process, ProcessId, ProcessTable, marked};
use crate::reconcile::{Health, Kept, Life};
use crate::record::Obeys;

impl Agent {
    /// Takes over what an agent before this one started. What is over has nothing that could be followed.
    pub(super) fn take_over_all(&mut self) -> Result<(), AgentError> {
        let rows: Vec<Kept> = self.record.kept().values().filter(|kept| !kept.is_over()).cloned().collect();
        for kept in rows {
            self.take_over(&kept)?;
        }
        match self.record.obeys().map(|obeys| obeys.cluster) {
            Some(cluster) => self.find_orphans(cluster),
            None => Ok(()),
        }
    }

    /// The first server that this agent hears of is the one it obeys. Only now can it tell which processes are its own:
    /// another agent of this name may serve another cluster on this machine.
    pub(super) fn join(&mut self, server: Obeys) -> Result<(), AgentError> {
        self.news = true;
        let cluster = server.cluster;
        self.record.obey(server)?;
        self.find_orphans(cluster)
    }

    fn take_over(&mut self, kept: &Kept) -> Result<(), AgentError> {
        kept.port.iter().for_each(|port| self.ports.keep(*port));
        let mut live = self.at_hand(kept)?;
        live.launch = self.render_again(kept);
        live.pids.clone_from(&kept.pids);
        if let Some(id) = &kept.process {
            let exit_file = live.log.exit_file();
            match Process::adopt(id.clone(), Some(exit_file)).map_err(|error| AgentError::Io("adoption", error))? {
                Adoption::Alive(process) => {
                    tracing::info!(slot = %kept.id, pid = process.id().pid, "adopted");
                    self.watch(&mut live, process, kept);
                }
                Adoption::Gone(exit) => {
                    let was_asked = !matches!(kept.life, Life::Planned | Life::Started { .. });
                    live.note_end(exit, was_asked);
                    live.exit = live.exit.or(kept.exit);
                }
                Adoption::Unknown => {}
            }
            if !id.is_of_this_boot() {
                live.pids.clear();
            }
        }
        let is_ready = matches!(kept.life, Life::Started { ready: true, .. });
        live.health = if is_ready { Health::Ready } else { Health::Pending };
        if let Some(launch) = &live.launch {
            let at = super::now();
            live.checks =
                Some(if is_ready { HealthState::serving(launch, at) } else { HealthState::starting(launch, at) });
        }
        self.live.insert(kept.id, live);
        Ok(())
    }

    /// Has the first process of a slot watched: its end wakes the agent.
    pub(super) fn watch(&self, live: &mut Live, process: Process, kept: &Kept) {
        self.occupy(process.id().pid, kept);
        let process = Arc::new(process);
        let (watched, wake) = (Arc::clone(&process), Arc::clone(&self.somebody_ended));
        tokio::spawn(async move {
            watched.exited().await;
            wake.notify_one();
        });
        live.process = Some(process);
    }

    /// Tells simulated GPUs who uses them.
    fn occupy(&self, pid: u32, kept: &Kept) {
        for gpu in &kept.gpus {
            self.eyes.occupy(pid, gpu.uuid.clone(), gpu.memory_bytes);
        }
    }

    /// Processes that carry the mark of a slot of the cluster that is not on record: an agent lost its record. They are
    /// put on it.
    fn find_orphans(&mut self, cluster: ClusterId) -> Result<(), AgentError> {
        let unreadable = |error| AgentError::Io("/proc cannot be read", error);
        let table = ProcessTable::read().map_err(unreadable)?;
        let found = marked(&table, &self.settings.id, &self.users).map_err(unreadable)?;
        for (mark, processes) in found.into_iter().filter(|(mark, _)| mark.slot.is_of(cluster)) {
            if self.record.kept().get(&mark.slot).is_some_and(|kept| kept.generation >= mark.generation) {
                continue;
            }
            let Some(carrier) = Carrier::of(&mark, &processes).map_err(unreadable)? else { continue };
            self.adopt(&Kept {
                id: mark.slot,
                generation: mark.generation,
                gpus: Vec::new(),
                spec: None,
                kind: carrier.kind,
                life: Life::Started { at: super::now(), ready: true },
                exit: None,
                pids: [carrier.process.pid].into(),
                process: Some(carrier.process),
                port: None,
                started_as: None,
            })?;
        }
        Ok(())
    }

    /// Puts a slot on record of which a process was found.
    pub(super) fn adopt(&mut self, kept: &Kept) -> Result<(), AgentError> {
        let pid = kept.process.as_ref().map(|process| process.pid);
        tracing::warn!(slot = %kept.id, generation = kept.generation.get(), ?pid, "found running, but not on record");
        self.record.note(kept.clone())?;
        self.take_over(kept)
    }

    /// Notes how a slot is run that was found without a record, as the server says it.
    pub(super) fn learn(&mut self, slot: &DesiredSlot) -> Result<(), AgentError> {
        let Some(mut kept) = self.record.kept().get(&slot.id).cloned() else { return Ok(()) };
        if kept.spec.is_none() {
            kept.spec = slot.run_spec().cloned();
        }
        if kept.gpus.is_empty() {
            kept.gpus.clone_from(&slot.gpus);
            kept.process.iter().for_each(|process| self.occupy(process.pid, &kept));
        }
        let (kind, graces) = (self.kind_of(&kept), self.graces_of(&kept));
        if let Some(live) = self.live.get_mut(&slot.id) {
            live.kind = kind;
            (live.grace, live.loading_grace) = graces;
        }
        Ok(self.record.note(kept)?)
    }

    /// An agent before this one died between starting it and noting it: it is taken over after all.
    pub(super) fn found(&mut self, id: SlotId, process: ProcessId, now: Timestamp) -> Result<(), AgentError> {
        let Some(mut kept) = self.record.kept().get(&id).cloned() else { return Ok(()) };
        kept.process = Some(process);
        kept.life = Life::Started { at: now, ready: false };
        self.record.note(kept.clone())?;
        self.take_over(&kept)
    }

    /// Whether a slot is a job: as it was started, or as its runtime and its spec have it.
    pub(super) fn kind_of(&self, kept: &Kept) -> WorkloadKind {
        let by_spec = kept
            .spec
            .as_ref()
            .map(|spec| self.runtimes.get(&spec.runtime).map_or(spec.kind, |runtime| runtime.kind_of_slot(spec.kind)));
        kept.kind.or(by_spec).unwrap_or_default()
    }

    /// Between asking a slot to end and ending it, where its runtime says: of one that was ready, and of one that loads.
    pub(super) fn graces_of(&self, kept: &Kept) -> (Option<Span>, Option<Span>) {
        let runtime = kept.spec.as_ref().and_then(|spec| self.runtimes.get(&spec.runtime));
        runtime.map_or((None, None), |runtime| (runtime.stop_grace(), runtime.loading_grace()))
    }
}
