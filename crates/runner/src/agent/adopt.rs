//! Adopting slots that this agent did not start: by the record of the agent before it, and by the marks on processes.

use berth_domain::{ClusterId, DesiredSlot, Span, WorkloadKind};

use super::AgentError;
use super::act::Executor;
use super::live::LiveSlot;
use super::render::render_adopted;
use super::slots::Slots;
use crate::clock::now;
use crate::process::{Adoption, HealthState, MarkedStart, Process, ProcessTable, find_marked_processes};
use crate::reconcile::{Health, LocalState, SlotRecord};
use crate::runtime::Runtimes;

impl Executor {
    /// Adopts the slots of an agent before this one. Slots that are over have no processes.
    pub(super) fn adopt_recorded_slots(&mut self, slots: &mut Slots, runtimes: &Runtimes) -> Result<(), AgentError> {
        let rows: Vec<SlotRecord> = slots.records().values().filter(|record| !record.is_over()).cloned().collect();
        for record in rows {
            self.adopt_slot(slots, &record, runtimes)?;
        }
        match slots.store.binding().map(|binding| binding.cluster) {
            Some(cluster) => self.find_orphans(slots, cluster, runtimes),
            None => Ok(()),
        }
    }

    /// Adopts one slot on record: finds its process, and follows it from now on.
    pub(super) fn adopt_slot(
        &mut self,
        slots: &mut Slots,
        record: &SlotRecord,
        runtimes: &Runtimes,
    ) -> Result<(), AgentError> {
        record.port.iter().for_each(|port| self.ports.keep(*port));
        let mut live = self.open_live_slot(slots, record, runtimes)?;
        live.launch = render_adopted(&self.settings, runtimes, record);
        live.pids.clone_from(&record.pids);
        self.find_process(&mut live, record)?;
        let is_ready = matches!(record.state, LocalState::Started { ready: true, .. });
        live.health = if is_ready { Health::Ready } else { Health::Pending };
        if let Some(launch) = &live.launch {
            let at = now();
            live.checks =
                Some(if is_ready { HealthState::serving(launch, at) } else { HealthState::starting(launch, at) });
        }
        slots.live.insert(record.id, live);
        Ok(())
    }

    /// Finds the process that is on record of a slot: it lives, has ended, or is unknown.
    fn find_process(&self, live: &mut LiveSlot, record: &SlotRecord) -> Result<(), AgentError> {
        let Some(id) = &record.process else { return Ok(()) };
        let exit_file = live.log.exit_file();
        match Process::adopt(id.clone(), Some(exit_file)).map_err(|error| AgentError::Io("adoption", error))? {
            Adoption::Alive(process) => {
                tracing::info!(slot = %record.id, pid = process.id().pid, "adopted");
                self.watch(live, process, record);
            }
            Adoption::Gone(exit) => {
                let was_asked = !matches!(record.state, LocalState::Planned | LocalState::Started { .. });
                live.note_end(exit, was_asked);
                live.exit = live.exit.or(record.exit);
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
        let found = find_marked_processes(&table, &self.settings.id, &self.users).map_err(unreadable)?;
        for (mark, processes) in found.into_iter().filter(|(mark, _)| mark.slot.is_of(cluster)) {
            if slots.records().get(&mark.slot).is_some_and(|record| record.generation >= mark.generation) {
                continue;
            }
            let Some(found) = MarkedStart::of(&mark, &processes).map_err(unreadable)? else { continue };
            let orphan = SlotRecord {
                id: mark.slot,
                generation: mark.generation,
                gpus: Vec::new(),
                spec: None,
                kind: found.kind,
                state: LocalState::Started { at: now(), ready: true },
                exit: None,
                pids: [found.process.pid].into(),
                process: Some(found.process),
                port: None,
                started_as: None,
            };
            self.adopt_unrecorded(slots, &orphan, runtimes)?;
        }
        Ok(())
    }

    /// Puts a slot on record of which a process was found, and adopts it.
    pub(super) fn adopt_unrecorded(
        &mut self,
        slots: &mut Slots,
        record: &SlotRecord,
        runtimes: &Runtimes,
    ) -> Result<(), AgentError> {
        let pid = record.process.as_ref().map(|process| process.pid);
        tracing::warn!(slot = %record.id, generation = record.generation.get(), ?pid, "found running, but not on record");
        slots.store.update(record.clone())?;
        self.adopt_slot(slots, record, runtimes)
    }

    /// Completes the record of a slot that was found running with what the server says of it.
    pub(super) fn complete_record(
        &mut self,
        slots: &mut Slots,
        slot: &DesiredSlot,
        runtimes: &Runtimes,
    ) -> Result<(), AgentError> {
        let Some(mut record) = slots.records().get(&slot.id).cloned() else { return Ok(()) };
        if record.spec.is_none() {
            record.spec = slot.run_spec().cloned();
        }
        if record.gpus.is_empty() {
            record.gpus.clone_from(&slot.gpus);
            record.process.iter().for_each(|process| self.occupancy.occupy(process.pid, &record.gpus));
        }
        if let Some(live) = slots.live.get_mut(&slot.id) {
            live.kind = kind_of(runtimes, &record);
            (live.grace, live.loading_grace) = graces_of(runtimes, &record);
        }
        Ok(slots.store.update(record)?)
    }
}

/// Returns whether a slot is a job: as it was started, or as its runtime and its spec say.
pub(super) fn kind_of(runtimes: &Runtimes, record: &SlotRecord) -> WorkloadKind {
    let by_spec = record
        .spec
        .as_ref()
        .map(|spec| runtimes.get(&spec.runtime).map_or(spec.kind, |runtime| runtime.kind_of_slot(spec.kind)));
    record.kind.or(by_spec).unwrap_or_default()
}

/// Returns the time between SIGTERM and SIGKILL, where the slot's runtime states one: for a slot that was ready, and
/// for one that loads.
pub(super) fn graces_of(runtimes: &Runtimes, record: &SlotRecord) -> (Option<Span>, Option<Span>) {
    let runtime = record.spec.as_ref().and_then(|spec| runtimes.get(&spec.runtime));
    runtime.map_or((None, None), |runtime| (runtime.stop_grace(), runtime.loading_grace()))
}
