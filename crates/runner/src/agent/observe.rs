//! Observing: the processes and the driver's view of each slot.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use berth_domain::{DeviceUuid, GpuHealth, RunnerId, SlotEnd, SlotId, Span, Timestamp, WorkloadKind};

use super::AgentError;
use super::config::AgentSettings;
use super::inventory_log::InventoryLog;
use super::inventory_thread::{InventoryThread, Occupancy};
use super::live::LiveSlot;
use super::slots::Slots;
use crate::inventory::{self, GpuSeen, Inventory, ProcessesSeen};
use crate::process::{Depth, Exit, ExitFile, ExitNote, Process, ProcessId, ProcessTable, UnexpectedEnd, classify};
use crate::reconcile::{DeviceObservation, DriverView, LocalState, SlotObservation, SlotRecord, TreeState};
use crate::runtime::UserId;

/// How many bytes of a slot's log are classified for the reason of its end.
const CLASSIFIED_LOG_BYTES: usize = 16 * 1024;

/// Looks at the machine: the driver through a thread of its own, and the processes of each slot.
///
/// An observer changes nothing on the machine. What it learns of a slot that outlives one look (its pids, its memory,
/// how its process ended) is kept in [`LiveSlot`].
pub(super) struct Observer {
    inventory_thread: InventoryThread,
    /// How long the driver may take for one look.
    deadline: Span,
    inventory_log: InventoryLog,
    pub(super) runner: RunnerId,
    /// The users that slots run as: a mark counts on their processes only.
    pub(super) users: BTreeSet<UserId>,
}

/// What is observed at one time.
pub(super) struct Observation {
    /// The slots on record whose processes this agent follows.
    pub(super) slots: BTreeMap<SlotId, SlotObservation>,
    /// The free memory of each device.
    pub(super) devices: Vec<DeviceObservation>,
}

impl Observer {
    pub(super) fn start(settings: &AgentSettings, users: BTreeSet<UserId>) -> Result<Self, AgentError> {
        let inventory_thread =
            InventoryThread::open(settings.inventory.clone()).map_err(|error| AgentError::Io("no thread", error))?;
        let (runner, deadline) = (settings.id.clone(), settings.inventory.deadline);
        Ok(Self { inventory_thread, deadline, inventory_log: InventoryLog::default(), runner, users })
    }

    /// Returns the latest inventory.
    pub(super) fn inventory(&self) -> Option<Arc<Inventory>> {
        self.inventory_thread.inventory()
    }

    /// Returns the way to tell simulated GPUs which process uses them.
    pub(super) fn occupancy(&self) -> Occupancy {
        self.inventory_thread.occupancy()
    }

    /// Requests a reading of the driver, and does not wait for it.
    pub(super) fn look_soon(&mut self) {
        self.inventory_thread.look_soon();
    }

    /// Reads the driver and waits for the answer. Returns false if the driver takes too long.
    pub(super) async fn look_now(&mut self) -> bool {
        self.inventory_thread.look_now(self.deadline).await
    }

    /// Observes the processes and devices of each slot on record.
    pub(super) fn observe(
        &mut self,
        slots: &mut Slots,
        table: &ProcessTable,
        inventory: Option<&Inventory>,
        now: Timestamp,
    ) -> Observation {
        if let Some(inventory) = inventory {
            self.inventory_log.log_changes(inventory);
        }
        let mut seen = BTreeMap::new();
        for (id, record) in slots.store.records() {
            let Some(live) = slots.live.get_mut(id) else { continue };
            let unknown = live.unknown.clone();
            seen.insert(*id, look(record, live, table, inventory, now));
            slots.has_news |= live.unknown != unknown;
        }
        Observation { slots: seen, devices: devices(inventory) }
    }
}

/// Returns the free memory of each device.
fn devices(inventory: Option<&Inventory>) -> Vec<DeviceObservation> {
    let gpus = inventory.map(|inventory| inventory.gpus.as_slice()).unwrap_or_default();
    let seen = |gpu: &GpuSeen| {
        let memory = gpu.memory;
        let free = memory.total.saturating_sub(memory.reserved).saturating_sub(memory.used);
        DeviceObservation { uuid: gpu.uuid.clone(), free: (gpu.health == GpuHealth::Ok).then_some(free) }
    };
    gpus.iter().map(seen).collect()
}

fn look(
    record: &SlotRecord,
    live: &mut LiveSlot,
    table: &ProcessTable,
    inventory: Option<&Inventory>,
    now: Timestamp,
) -> SlotObservation {
    if live.ended.is_none()
        && let Some(exit) = live.process.as_deref().and_then(Process::poll_exit)
    {
        drop(live.log.pump());
        let was_asked = !matches!(record.state, LocalState::Planned | LocalState::Started { .. });
        let end = live.note_end(exit, was_asked);
        // The exit status of a process that was asked to end says nothing of the slot: a signal is then no crash.
        match was_asked {
            true => tracing::info!(slot = %record.id, ?exit, "its process has ended, as it was asked to"),
            false => tracing::info!(slot = %record.id, ?exit, ?end, "its process has ended by itself"),
        }
    }
    let tree = match find(record, live, table) {
        Ok(members) => {
            remember_pids(live, &members, inventory, now);
            live.unknown = None;
            seen_of(&members)
        }
        // A look that fails proves nothing.
        Err(error) => {
            if live.unknown.is_none() {
                tracing::warn!(slot = %record.id, %error, "its processes cannot be told: it stays as it is");
            }
            live.unknown = Some(error.to_string());
            TreeState::Unknown
        }
    };
    note_memory(record, live, table, inventory);
    SlotObservation {
        driver: on_driver(record, live, inventory),
        // The exit file is read last: while a process lives, it may not have made its exit file yet.
        ended: live.ended.or_else(|| planned_end(record, live, &tree)),
        tree,
        health: live.health,
        grace: live.grace,
        loading_grace: live.loading_grace,
    }
}

/// Returns how a job ended whose agent died before it could note the start, or `None` if it was not started.
fn planned_end(record: &SlotRecord, live: &LiveSlot, tree: &TreeState) -> Option<SlotEnd> {
    let is_over = record.state == LocalState::Planned && *tree == TreeState::Empty && live.kind == WorkloadKind::Job;
    if is_over { noted_end(live) } else { None }
}

/// Returns how a job ended by its exit file, or `None` if there is none: then it was not started.
pub(super) fn noted_end(live: &LiveSlot) -> Option<SlotEnd> {
    match ExitFile::at(live.log.exit_file()).read()? {
        ExitNote::Started => Some(end_of(live, Exit::Unknown)),
        ExitNote::Ended(exit) => Some(end_of(live, exit)),
    }
}

/// Finds the slot's processes. A thorough look is needed to find that none is left; otherwise a quick one will do.
fn find(record: &SlotRecord, live: &mut LiveSlot, table: &ProcessTable) -> io::Result<Vec<ProcessId>> {
    let is_steady = matches!(record.state, LocalState::Started { .. }) && live.ended.is_none();
    let mut members = if is_steady { live.tree.look(table, Depth::Quick)? } else { Vec::new() };
    if members.is_empty() {
        members = live.tree.look(table, Depth::Thorough)?;
    }
    Ok(members)
}

/// Remembers the pids of living processes, and of those that the driver may still list.
fn remember_pids(live: &mut LiveSlot, members: &[ProcessId], inventory: Option<&Inventory>, now: Timestamp) {
    let LiveSlot { pids, last_alive, .. } = live;
    pids.extend(members.iter().map(|process| process.pid));
    last_alive.extend(members.iter().map(|process| (process.pid, now)));
    // A pid from the record may have been alive until now.
    for pid in pids.iter() {
        last_alive.entry(*pid).or_insert(now);
    }
    let gpus = inventory.map(|inventory| inventory.gpus.as_slice()).unwrap_or_default();
    let may_be_listed = |pid: u32, alive: Timestamp| {
        gpus.iter().any(|gpu| gpu.taken <= alive || !gpu.processes.is_clear_of(&BTreeSet::from([pid])))
    };
    last_alive.retain(|pid, alive| *alive >= now || inventory.is_none() || may_be_listed(*pid, *alive));
    pids.retain(|pid| last_alive.contains_key(pid));
}

fn seen_of(members: &[ProcessId]) -> TreeState {
    let oldest = members.iter().min_by_key(|process| (process.start_ticks, process.pid));
    oldest.cloned().map_or(TreeState::Empty, TreeState::Alive)
}

/// Returns what the end of a slot's first process means.
pub(super) fn end_of(live: &LiveSlot, exit: Exit) -> SlotEnd {
    match exit {
        Exit::Code(code) if live.kind == WorkloadKind::Job => SlotEnd::Exited(code),
        exit => {
            let oom_kills = live.tree.cgroup().map_or(0, crate::process::Cgroup::oom_kills);
            let log_end = live.log.tail(CLASSIFIED_LOG_BYTES).unwrap_or_default();
            SlotEnd::Failed(classify(&UnexpectedEnd { exit, log: &log_end, oom_kills }))
        }
    }
}

/// Returns the devices on which the driver lists one of a slot's pids, and the slot's own devices whose processes are
/// unknown.
fn on_driver(record: &SlotRecord, live: &LiveSlot, inventory: Option<&Inventory>) -> DriverView {
    let own: BTreeSet<&DeviceUuid> = record.gpus.iter().map(|gpu| &gpu.uuid).collect();
    let Some(inventory) = inventory else { return DriverView::Unknown };
    let is_clear = |gpu: &GpuSeen| match gpu.health {
        GpuHealth::Ok => gpu.processes.is_clear_of(&live.pids),
        // A lost device holds no memory that could be used.
        GpuHealth::Lost => true,
        GpuHealth::Stale | GpuHealth::Failed => false,
    };
    let lists_it = |gpu: &GpuSeen| matches!(&gpu.processes, ProcessesSeen::Listed(_)) && !is_clear(gpu);
    let seen = inventory.gpus.iter().filter(|gpu| if own.contains(&gpu.uuid) { !is_clear(gpu) } else { lists_it(gpu) });
    // A device that the driver does not have holds nothing; if the driver cannot be asked, it may.
    let is_driver_sure = !matches!(inventory.driver, inventory::DriverStatus::Absent(_)) && inventory.notes.is_empty();
    let is_seen = |uuid: &DeviceUuid| inventory.gpus.iter().any(|gpu| gpu.uuid == *uuid);
    let unseen = own.iter().copied().filter(|uuid| !is_driver_sure && !is_seen(uuid));
    let busy: Vec<DeviceUuid> = seen.map(|gpu| gpu.uuid.clone()).chain(unseen.cloned()).collect();
    if busy.is_empty() { DriverView::Clear } else { DriverView::Busy(busy) }
}

/// Notes the memory that the driver attributes to a slot: on its own devices, and on any other where it is found.
fn note_memory(record: &SlotRecord, live: &mut LiveSlot, table: &ProcessTable, inventory: Option<&Inventory>) {
    let gpus = inventory.map(|inventory| inventory.gpus.as_slice()).unwrap_or_default();
    for gpu in gpus.iter().filter(|gpu| gpu.health == GpuHealth::Ok) {
        let is_own = record.gpus.iter().any(|own| own.uuid == gpu.uuid);
        match gpu.used_by(&live.pids, |pid| table.get(pid).is_some()) {
            Some(used) if is_own || !used.is_zero() || live.memory.contains_key(&gpu.uuid) => {
                let row = live.memory.entry(gpu.uuid.clone()).or_default();
                row.now = used;
                row.peak = row.peak.max(used);
            }
            Some(_) => {}
            None => drop(live.memory.remove(&gpu.uuid)),
        }
    }
}
