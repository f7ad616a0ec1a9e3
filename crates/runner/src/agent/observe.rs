//! What is: processes and the driver's view, slot by slot.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use berth_domain::{DeviceUuid, GpuHealth, RunnerId, SlotEnd, SlotId, Span, Timestamp, WorkloadKind};

use super::config::AgentSettings;
use super::eyes::{Eyes, Occupancy};
use super::findings::Findings;
use super::live::Live;
use super::slots::Slots;
use super::{AgentError, Look};
use crate::inventory::{self, GpuSeen, Inventory, ProcessesSeen};
use crate::process::{Death, Depth, Exit, ExitFile, ExitNote, Process, ProcessId, ProcessTable, classify};
use crate::reconcile::{DeviceSeen, DriverSeen, Kept, Life, Seen, TreeSeen};
use crate::runtime::UserId;

/// How much of a slot's log is looked at for the reason of its end.
const LAST_WORDS: usize = 16 * 1024;

/// Looks at the machine: the driver through a thread of its own, and the processes of each slot.
///
/// An observer changes nothing on the machine. What it sees of a slot that outlives one look (its pids, its memory, how
/// its process ended) is noted in [`Live`].
pub(super) struct Observer {
    eyes: Eyes,
    /// How long the driver may take for one look.
    deadline: Span,
    findings: Findings,
    pub(super) runner: RunnerId,
    /// The users that slots run as: only their processes can carry a mark that counts.
    pub(super) users: BTreeSet<UserId>,
}

/// What is seen at one time.
pub(super) struct Observation {
    /// Each slot on record of which something is at hand.
    pub(super) slots: BTreeMap<SlotId, Seen>,
    /// What the driver says is free, device by device.
    pub(super) devices: Vec<DeviceSeen>,
}

impl Observer {
    pub(super) fn start(settings: &AgentSettings, users: BTreeSet<UserId>) -> Result<Self, AgentError> {
        let eyes = Eyes::open(settings.inventory.clone()).map_err(|error| AgentError::Io("no thread", error))?;
        let (runner, deadline) = (settings.id.clone(), settings.inventory.deadline);
        Ok(Self { eyes, deadline, findings: Findings::default(), runner, users })
    }

    /// Returns what was last seen of the machine.
    pub(super) fn inventory(&self) -> Look {
        self.eyes.inventory()
    }

    /// Returns the way to tell simulated GPUs which process uses them.
    pub(super) fn occupancy(&self) -> Occupancy {
        self.eyes.occupancy()
    }

    /// Asks for a look at the driver, and does not wait for it.
    pub(super) fn look_soon(&mut self) {
        self.eyes.nudge();
    }

    /// Looks at the driver and waits for the answer. Returns false if the driver takes too long.
    pub(super) async fn look_now(&mut self) -> bool {
        self.eyes.look_now(self.deadline).await
    }

    /// Looks at the processes and devices of every slot on record.
    pub(super) fn observe(
        &mut self,
        slots: &mut Slots,
        table: &ProcessTable,
        inventory: Option<&Inventory>,
        now: Timestamp,
    ) -> Observation {
        if let Some(inventory) = inventory {
            self.findings.tell(inventory);
        }
        let mut seen = BTreeMap::new();
        for (id, kept) in slots.record.kept() {
            let Some(live) = slots.live.get_mut(id) else { continue };
            let unknown = live.unknown.clone();
            seen.insert(*id, look(kept, live, table, inventory, now));
            slots.has_news |= live.unknown != unknown;
        }
        Observation { slots: seen, devices: devices(inventory) }
    }
}

/// Returns what the driver says is free, device by device.
fn devices(inventory: Option<&Inventory>) -> Vec<DeviceSeen> {
    let gpus = inventory.map(|inventory| inventory.gpus.as_slice()).unwrap_or_default();
    let seen = |gpu: &GpuSeen| {
        let memory = gpu.memory;
        let free = memory.total.saturating_sub(memory.reserved).saturating_sub(memory.used);
        DeviceSeen { uuid: gpu.uuid.clone(), free: (gpu.health == GpuHealth::Ok).then_some(free) }
    };
    gpus.iter().map(seen).collect()
}

fn look(kept: &Kept, live: &mut Live, table: &ProcessTable, inventory: Option<&Inventory>, now: Timestamp) -> Seen {
    if live.ended.is_none()
        && let Some(exit) = live.process.as_deref().and_then(Process::poll_exit)
    {
        drop(live.log.pump());
        let was_asked = !matches!(kept.life, Life::Planned | Life::Started { .. });
        let end = live.note_end(exit, was_asked);
        // How a process ends that was asked to end says nothing of the slot: a signal is then no crash.
        match was_asked {
            true => tracing::info!(slot = %kept.id, ?exit, "its process has ended, as it was asked to"),
            false => tracing::info!(slot = %kept.id, ?exit, ?end, "its process has ended by itself"),
        }
    }
    let tree = match find(kept, live, table) {
        Ok(members) => {
            remember_pids(live, &members, inventory, now);
            live.unknown = None;
            seen_of(&members)
        }
        // A look that fails says nothing, and is no proof of anything.
        Err(error) => {
            if live.unknown.is_none() {
                tracing::warn!(slot = %kept.id, %error, "its processes cannot be told: it stays as it is");
            }
            live.unknown = Some(error.to_string());
            TreeSeen::Unknown
        }
    };
    note_memory(kept, live, table, inventory);
    Seen {
        driver: on_driver(kept, live, inventory),
        // Only now: while somebody lives, it may not have made its exit file yet.
        ended: live.ended.or_else(|| planned_end(kept, live, &tree)),
        tree,
        health: live.health,
        grace: live.grace,
        loading_grace: live.loading_grace,
    }
}

/// How a job ended whose agent died before it could note that it had started it. Nothing if it was not started.
fn planned_end(kept: &Kept, live: &Live, tree: &TreeSeen) -> Option<SlotEnd> {
    let is_over = kept.life == Life::Planned && *tree == TreeSeen::Empty && live.kind == WorkloadKind::Job;
    if is_over { noted_end(live) } else { None }
}

/// How a job ended by its exit file. Nothing if there is none: then it was not started.
pub(super) fn noted_end(live: &Live) -> Option<SlotEnd> {
    match ExitFile::at(live.log.exit_file()).read()? {
        ExitNote::Started => Some(end_of(live, Exit::Unknown)),
        ExitNote::Ended(exit) => Some(end_of(live, exit)),
    }
}

/// Who belongs to the slot. To say that nobody is left takes a thorough look; while all is well a quick one will do.
fn find(kept: &Kept, live: &mut Live, table: &ProcessTable) -> io::Result<Vec<ProcessId>> {
    let is_steady = matches!(kept.life, Life::Started { .. }) && live.ended.is_none();
    let mut members = if is_steady { live.tree.look(table, Depth::Quick)? } else { Vec::new() };
    if members.is_empty() {
        members = live.tree.look(table, Depth::Thorough)?;
    }
    Ok(members)
}

/// Pids of the living, and of those whom the driver may not have let go of yet.
fn remember_pids(live: &mut Live, members: &[ProcessId], inventory: Option<&Inventory>, now: Timestamp) {
    let Live { pids, last_alive, .. } = live;
    pids.extend(members.iter().map(|process| process.pid));
    last_alive.extend(members.iter().map(|process| (process.pid, now)));
    // A pid that came with the record may have been alive until now.
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

fn seen_of(members: &[ProcessId]) -> TreeSeen {
    let oldest = members.iter().min_by_key(|process| (process.start_ticks, process.pid));
    oldest.cloned().map_or(TreeSeen::Empty, TreeSeen::Alive)
}

/// How a slot's first process came to its end, and what that means.
pub(super) fn end_of(live: &Live, exit: Exit) -> SlotEnd {
    match exit {
        Exit::Code(code) if live.kind == WorkloadKind::Job => SlotEnd::Exited(code),
        exit => {
            let oom_kills = live.tree.cgroup().map_or(0, crate::process::Cgroup::oom_kills);
            let last_words = live.log.tail(LAST_WORDS).unwrap_or_default();
            SlotEnd::Failed(classify(&Death { exit, log: &last_words, oom_kills }))
        }
    }
}

/// Devices on which the driver lists one of a slot's pids; and those of its own of which the driver will not say.
fn on_driver(kept: &Kept, live: &Live, inventory: Option<&Inventory>) -> DriverSeen {
    let own: BTreeSet<&DeviceUuid> = kept.gpus.iter().map(|gpu| &gpu.uuid).collect();
    let Some(inventory) = inventory else { return DriverSeen::Unknown };
    let is_clear = |gpu: &GpuSeen| match gpu.health {
        GpuHealth::Ok => gpu.processes.is_clear_of(&live.pids),
        // A device that is lost holds nothing that anybody could get.
        GpuHealth::Lost => true,
        GpuHealth::Stale | GpuHealth::Failed => false,
    };
    let lists_it = |gpu: &GpuSeen| matches!(&gpu.processes, ProcessesSeen::Listed(_)) && !is_clear(gpu);
    let seen = inventory.gpus.iter().filter(|gpu| if own.contains(&gpu.uuid) { !is_clear(gpu) } else { lists_it(gpu) });
    // One that the driver does not have holds nothing; if nobody can ask the driver, it may.
    let is_driver_sure = !matches!(inventory.driver, inventory::DriverSeen::Absent(_)) && inventory.notes.is_empty();
    let is_seen = |uuid: &DeviceUuid| inventory.gpus.iter().any(|gpu| gpu.uuid == *uuid);
    let unseen = own.iter().copied().filter(|uuid| !is_driver_sure && !is_seen(uuid));
    let busy: Vec<DeviceUuid> = seen.map(|gpu| gpu.uuid.clone()).chain(unseen.cloned()).collect();
    if busy.is_empty() { DriverSeen::Clear } else { DriverSeen::Busy(busy) }
}

/// Notes what the driver sees a slot use: of its own devices, and of any other on which it is found.
fn note_memory(kept: &Kept, live: &mut Live, table: &ProcessTable, inventory: Option<&Inventory>) {
    let gpus = inventory.map(|inventory| inventory.gpus.as_slice()).unwrap_or_default();
    for gpu in gpus.iter().filter(|gpu| gpu.health == GpuHealth::Ok) {
        let is_own = kept.gpus.iter().any(|own| own.uuid == gpu.uuid);
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
