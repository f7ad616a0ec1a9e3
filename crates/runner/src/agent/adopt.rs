//! Taking over slots that this agent did not start: by the record of the agent before it, and by the marks on processes.

use berth_domain::{ClusterId, DesiredSlot, Span, WorkloadKind};

use super::act::Executor;
use super::live::Live;
use super::render::render_again;
use super::slots::Slots;
use super::{AgentError, now};
use crate::process::{Adoption, Carrier, HealthState, Process, ProcessTable, marked};
use crate::reconcile::{Health, Kept, Life};
use crate::runtime::Runtimes;

impl Executor {
    /// Takes over what an agent before this one started. Slots that are over have nothing that could be followed.
    pub(super) fn take_over_all(&mut self, slots: &mut Slots, runtimes: &Runtimes) -> Result<(), AgentError> {
        let rows: Vec<Kept> = slots.kept().values().filter(|kept| !kept.is_over()).cloned().collect();
        for kept in rows {
            self.take_over(slots, &kept, runtimes)?;
        }
        match slots.record.obeys().map(|obeys| obeys.cluster) {
            Some(cluster) => self.find_orphans(slots, cluster, runtimes),
            None => Ok(()),
        }
    }

    /// Takes over one slot on record: finds its process, and follows it from now on.
    pub(super) fn take_over(&mut self, slots: &mut Slots, kept: &Kept, runtimes: &Runtimes) -> Result<(), AgentError> {
        kept.port.iter().for_each(|port| self.ports.keep(*port));
        let mut live = self.at_hand(slots, kept, runtimes)?;
        live.launch = render_again(&self.settings, runtimes, kept);
        live.pids.clone_from(&kept.pids);
        self.find_process(&mut live, kept)?;
        let is_ready = matches!(kept.life, Life::Started { ready: true, .. });
        live.health = if is_ready { Health::Ready } else { Health::Pending };
        if let Some(launch) = &live.launch {
            let at = now();
            live.checks =
                Some(if is_ready { HealthState::serving(launch, at) } else { HealthState::starting(launch, at) });
        }
        slots.live.insert(kept.id, live);
        Ok(())
    }

    /// Finds the process that is on record of a slot: it lives, or has ended, or cannot be told.
    fn find_process(&self, live: &mut Live, kept: &Kept) -> Result<(), AgentError> {
        let Some(id) = &kept.process else { return Ok(()) };
        let exit_file = live.log.exit_file();
        match Process::adopt(id.clone(), Some(exit_file)).map_err(|error| AgentError::Io("adoption", error))? {
            Adoption::Alive(process) => {
                tracing::info!(slot = %kept.id, pid = process.id().pid, "adopted");
                self.watch(live, process, kept);
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
        Ok(())
    }

    /// Puts slots on record whose processes carry a mark of this cluster: an agent lost its record of them.
    pub(super) fn find_orphans(
        &mut self,
        slots: &mut Slots,
        cluster: ClusterId,
        runtimes: &Runtimes,
    ) -> Result<(), AgentError> {
        let unreadable = |error| AgentError::Io("/proc cannot be read", error);
        let table = ProcessTable::read().map_err(unreadable)?;
        let found = marked(&table, &self.settings.id, &self.users).map_err(unreadable)?;
        for (mark, processes) in found.into_iter().filter(|(mark, _)| mark.slot.is_of(cluster)) {
            if slots.kept().get(&mark.slot).is_some_and(|kept| kept.generation >= mark.generation) {
                continue;
            }
            let Some(carrier) = Carrier::of(&mark, &processes).map_err(unreadable)? else { continue };
            let orphan = Kept {
                id: mark.slot,
                generation: mark.generation,
                gpus: Vec::new(),
                spec: None,
                kind: carrier.kind,
                life: Life::Started { at: now(), ready: true },
                exit: None,
                pids: [carrier.process.pid].into(),
                process: Some(carrier.process),
                port: None,
                started_as: None,
            };
            self.adopt(slots, &orphan, runtimes)?;
        }
        Ok(())
    }

    /// Puts a slot on record of which a process was found, and takes it over.
    pub(super) fn adopt(&mut self, slots: &mut Slots, kept: &Kept, runtimes: &Runtimes) -> Result<(), AgentError> {
        let pid = kept.process.as_ref().map(|process| process.pid);
        tracing::warn!(slot = %kept.id, generation = kept.generation.get(), ?pid, "found running, but not on record");
        slots.record.note(kept.clone())?;
        self.take_over(slots, kept, runtimes)
    }

    /// Completes the record of a slot that was found running, by what the server says of it.
    pub(super) fn learn(
        &mut self,
        slots: &mut Slots,
        slot: &DesiredSlot,
        runtimes: &Runtimes,
    ) -> Result<(), AgentError> {
        let Some(mut kept) = slots.kept().get(&slot.id).cloned() else { return Ok(()) };
        if kept.spec.is_none() {
            kept.spec = slot.run_spec().cloned();
        }
        if kept.gpus.is_empty() {
            kept.gpus.clone_from(&slot.gpus);
            kept.process.iter().for_each(|process| self.occupancy.occupy(process.pid, &kept.gpus));
        }
        if let Some(live) = slots.live.get_mut(&slot.id) {
            live.kind = kind_of(runtimes, &kept);
            (live.grace, live.loading_grace) = graces_of(runtimes, &kept);
        }
        Ok(slots.record.note(kept)?)
    }
}

/// Returns whether a slot is a job: as it was started, or as its runtime and its spec have it.
pub(super) fn kind_of(runtimes: &Runtimes, kept: &Kept) -> WorkloadKind {
    let by_spec = kept
        .spec
        .as_ref()
        .map(|spec| runtimes.get(&spec.runtime).map_or(spec.kind, |runtime| runtime.kind_of_slot(spec.kind)));
    kept.kind.or(by_spec).unwrap_or_default()
}

/// Returns how long a slot may take to end before it is killed, where its runtime says: once it was ready, and while it
/// loads.
pub(super) fn graces_of(runtimes: &Runtimes, kept: &Kept) -> (Option<Span>, Option<Span>) {
    let runtime = kept.spec.as_ref().and_then(|spec| runtimes.get(&spec.runtime));
    runtime.map_or((None, None), |runtime| (runtime.stop_grace(), runtime.loading_grace()))
}
