//! What is: processes, health and the driver's view, slot by slot.

use std::collections::BTreeMap;
use std::time::Duration;

use berth_domain::{Bytes, FailureReason, GpuHealth, SlotId, Timestamp};

use super::live::Live;
use super::{Agent, now};
use crate::inventory::{Inventory, ProcessesSeen};
use crate::process::{Death, Depth, Exit, HealthChange, ProcessTable, classify, probe};
use crate::reconcile::{DeviceSeen, End, Health, Kept, Life, Seen};
use crate::runtime::RuntimeKind;

/// How long one question for health may take.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);
/// How much of a slot's log is looked at for the reason of its end.
const LAST_WORDS: usize = 16 * 1024;

/// What the driver says is free, device by device.
pub(super) fn devices(inventory: Option<&Inventory>) -> Vec<DeviceSeen> {
    let gpus = inventory.map(|inventory| inventory.gpus.as_slice()).unwrap_or_default();
    let seen = |gpu: &crate::inventory::GpuSeen| {
        let memory = gpu.memory;
        let free = memory.total.saturating_sub(memory.reserved).saturating_sub(memory.used);
        DeviceSeen { uuid: gpu.uuid.clone(), free: (gpu.health == GpuHealth::Ok).then_some(free) }
    };
    gpus.iter().map(seen).collect()
}

impl Agent {
    /// Looks at every slot on record.
    pub(super) async fn observe(
        &mut self,
        table: &ProcessTable,
        inventory: Option<&Inventory>,
        now: Timestamp,
    ) -> BTreeMap<SlotId, Seen> {
        self.ask_for_health(now).await;
        let mut all = BTreeMap::new();
        for (id, kept) in self.record.kept() {
            let Some(live) = self.live.get_mut(id) else { continue };
            // A log that cannot be read is a log that is not shown.
            drop(live.log.pump());
            all.insert(*id, look(kept, live, table, inventory));
        }
        all
    }

    /// Asks those whose turn it is whether they answer, all at once.
    async fn ask_for_health(&mut self, at: Timestamp) {
        let mut asking = Vec::new();
        for (id, live) in &mut self.live {
            let (Some(checks), Some(launch)) = (&mut live.checks, &live.launch) else { continue };
            if let Some(change) = checks.tick(at) {
                live.health = health_of(change);
            }
            if let Some(path) = checks.due(at) {
                let address = launch.probe;
                asking.push((*id, tokio::spawn(async move { probe(address, &path, PROBE_TIMEOUT).await })));
            }
        }
        for (id, asked) in asking {
            let Ok(probed) = asked.await else { continue };
            let Some(live) = self.live.get_mut(&id) else { continue };
            if let Some(change) = live.checks.as_mut().and_then(|checks| checks.observe(now(), probed)) {
                live.health = health_of(change);
            }
        }
    }
}

fn health_of(change: HealthChange) -> Health {
    match change {
        HealthChange::Ready => Health::Ready,
        HealthChange::NeverReady => Health::Failed(FailureReason::NeverReady),
        HealthChange::Dead => Health::Failed(FailureReason::Crashed),
    }
}

fn look(kept: &Kept, live: &mut Live, table: &ProcessTable, inventory: Option<&Inventory>) -> Seen {
    if live.ended.is_none()
        && let Some(exit) = live.process.as_ref().and_then(crate::process::Process::poll_exit)
    {
        drop(live.log.pump());
        live.ended = Some(end_of(live, exit));
    }
    // To say that nobody is left takes a thorough look; while all is well a quick one will do.
    let steady = matches!(kept.life, Life::Started { .. }) && live.ended.is_none();
    let depth = if steady { Depth::Quick } else { Depth::Thorough };
    // A look that fails says nothing: the tree counts as it was.
    let tree = match live.tree.look(table, depth) {
        Ok(tree) => tree,
        Err(error) => {
            tracing::warn!(slot = %kept.slot.id, %error, "its processes cannot be told");
            return Seen { tree: unknown(kept), health: live.health, ended: live.ended, on_driver: Vec::new() };
        }
    };
    for process in &tree {
        if !live.pids.contains(&process.pid) {
            live.pids.push(process.pid);
        }
    }
    note_memory(kept, live, inventory);
    Seen { on_driver: still_on_driver(kept, live, inventory), tree, ended: live.ended, health: live.health }
}

/// Where nobody can tell, the first process stands for the tree: it is not gone.
fn unknown(kept: &Kept) -> Vec<crate::process::ProcessId> {
    match &kept.life {
        Life::Started { process, .. } => vec![process.clone()],
        _ => Vec::new(),
    }
}

fn end_of(live: &Live, exit: Exit) -> End {
    let is_job = live.launch.as_ref().is_some_and(|launch| launch.kind == RuntimeKind::Job);
    match exit {
        Exit::Code(code) if is_job => End::Exited(code),
        exit => {
            let oom_kills = live.tree.cgroup().map_or(0, crate::process::Cgroup::oom_kills);
            let last_words = live.log.tail(LAST_WORDS).unwrap_or_default();
            End::Failed(classify(&Death { exit, log: &last_words, oom_kills }))
        }
    }
}

/// Devices of a slot on which the driver lists one of its pids, or will not say.
fn still_on_driver(kept: &Kept, live: &Live, inventory: Option<&Inventory>) -> Vec<berth_domain::DeviceUuid> {
    let is_clear = |uuid: &berth_domain::DeviceUuid| {
        let gpu = inventory.and_then(|inventory| inventory.gpus.iter().find(|gpu| gpu.uuid == *uuid));
        match gpu {
            Some(gpu) if gpu.health == GpuHealth::Ok => gpu.processes.is_clear_of(&live.pids),
            // A device that is lost holds nothing that anybody could get.
            Some(gpu) => gpu.health == GpuHealth::Lost,
            None => inventory.is_some(),
        }
    };
    kept.slot.gpus.iter().map(|gpu| gpu.uuid.clone()).filter(|uuid| !is_clear(uuid)).collect()
}

/// Notes what the driver sees a slot use.
fn note_memory(kept: &Kept, live: &mut Live, inventory: Option<&Inventory>) {
    for claim in &kept.slot.gpus {
        let gpu = inventory.and_then(|inventory| inventory.gpus.iter().find(|gpu| gpu.uuid == claim.uuid));
        let Some(ProcessesSeen::Listed(listed)) = gpu.map(|gpu| &gpu.processes) else { continue };
        let ours = listed.iter().filter(|process| live.pids.contains(&process.pid));
        let used: Option<Bytes> =
            ours.map(|process| process.used).try_fold(Bytes::ZERO, |sum, used| Some(sum.saturating_add(used?)));
        let Some(used) = used else { continue };
        let peak = live.peak.entry(claim.uuid.clone()).or_default();
        *peak = (*peak).max(used);
        live.used.insert(claim.uuid.clone(), used);
    }
}
