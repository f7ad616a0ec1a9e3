//! Log lines about the machine: at the agent's start, and when something changes.
//!
//! They tell an operator why a runner offers nothing: whether the driver answers, which GPUs there are and in which
//! health, and which runtimes have their program.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::time::{Duration, Instant};

use berth_domain::{DeviceUuid, GpuHealth, RuntimeKind};

use crate::inventory::{DriverStatus, GpuSeen, Inventory};
use crate::runtime::Runtimes;

/// How often notes of the inventory are logged again, if they changed.
const NOTES_EVERY: Duration = Duration::from_secs(60);

/// What was last logged of the machine.
#[derive(Debug, Default)]
pub(super) struct InventoryLog {
    driver: Option<DriverStatus>,
    gpus: BTreeMap<DeviceUuid, GpuHealth>,
    notes: Vec<String>,
    notes_logged: Option<Instant>,
    /// Whether the log says that there is no GPU.
    has_warned_of_no_gpu: bool,
}

impl InventoryLog {
    /// Logs what is new of the driver and the GPUs. A change of health is logged; memory use is not.
    pub(super) fn log_changes(&mut self, inventory: &Inventory) {
        self.log_driver(&inventory.driver);
        for gpu in &inventory.gpus {
            self.log_gpu(gpu);
        }
        self.log_notes(&inventory.notes);
        self.warn_if_no_gpu(inventory);
    }

    /// Logs notes. They may contain durations and so differ at each look: they are logged again after a while.
    fn log_notes(&mut self, notes: &[String]) {
        if self.notes == notes || self.notes_logged.is_some_and(|told| told.elapsed() < NOTES_EVERY) {
            return;
        }
        for note in notes.iter().filter(|note| !self.notes.contains(note)) {
            tracing::warn!("{note}");
        }
        self.notes = notes.to_vec();
        self.notes_logged = Some(Instant::now());
    }

    fn log_driver(&mut self, driver: &DriverStatus) {
        let is_unlisted = matches!(driver, DriverStatus::Present { version } if version.is_empty());
        // The reason of a driver that does not answer may contain a duration, and is logged once.
        let is_same = |told: &DriverStatus| {
            told == driver || matches!((told, driver), (DriverStatus::Absent(_), DriverStatus::Absent(_)))
        };
        if is_unlisted || self.driver.as_ref().is_some_and(is_same) {
            return;
        }
        match driver {
            DriverStatus::Simulated => tracing::info!("the GPUs are simulated: no driver is asked"),
            DriverStatus::Present { version } => {
                tracing::info!(version, "the NVIDIA driver answers, version {version}");
            }
            // Without a GPU, the message about that contains the reason.
            DriverStatus::Absent(why) if !self.gpus.is_empty() => {
                tracing::warn!(why, "the NVIDIA driver does not answer: {why}");
            }
            DriverStatus::Absent(_) => {}
        }
        self.driver = Some(driver.clone());
    }

    fn log_gpu(&mut self, gpu: &GpuSeen) {
        let GpuSeen { uuid, index, name, health, trouble, .. } = gpu;
        if self.gpus.insert(uuid.clone(), *health) == Some(*health) {
            return;
        }
        let (total, reserved) = (gpu.memory.total, gpu.memory.reserved);
        let part = gpu.parent.as_ref().map(|parent| format!(", a MIG instance of {parent}")).unwrap_or_default();
        let reserve = if reserved.is_zero() { String::new() } else { format!(" ({reserved} kept by the driver)") };
        let what = format!("GPU {index}: {name}, {total}{reserve}, {uuid}{part}");
        let why = trouble.as_deref().unwrap_or("the driver does not say why");
        match health {
            GpuHealth::Ok => tracing::info!(%uuid, "{what}"),
            GpuHealth::Stale => tracing::warn!(%uuid, "{what}: stale, its numbers cannot be had: {why}"),
            GpuHealth::Lost => tracing::warn!(%uuid, "{what}: lost: {why}"),
            GpuHealth::Failed => tracing::warn!(%uuid, "{what}: failed: {why}"),
        }
    }

    fn warn_if_no_gpu(&mut self, inventory: &Inventory) {
        let is_none = inventory.gpus.is_empty();
        if is_none && !self.has_warned_of_no_gpu {
            match &inventory.driver {
                DriverStatus::Absent(why) => {
                    tracing::warn!("no GPU was found, only work without GPUs can run here: no driver: {why}");
                }
                DriverStatus::Present { .. } => {
                    tracing::warn!("no GPU was found, only work without GPUs can run here: the driver lists none");
                }
                DriverStatus::Simulated => tracing::warn!("no GPU is simulated, only work without GPUs can run here"),
            }
        }
        self.has_warned_of_no_gpu = is_none;
    }
}

fn kind_word(kind: RuntimeKind) -> &'static str {
    match kind {
        RuntimeKind::Both => "servers and jobs",
        RuntimeKind::Server => "servers",
        RuntimeKind::Job => "jobs",
    }
}

/// Logs which runtimes there are, and whether the program of each is on the machine.
pub(super) fn log_runtimes(runtimes: &Runtimes, path: &OsStr) {
    let mut found = 0;
    for runtime in runtimes.iter() {
        let (name, kind) = (runtime.name(), kind_word(runtime.kind()));
        match runtime.find_program(path) {
            Some(program) => {
                found += 1;
                tracing::info!(runtime = %name, "runtime {name} ({kind}): {}", program.display());
            }
            None => {
                tracing::info!(
                    runtime = %name,
                    "runtime {name} ({kind}): its program {} was not found, so it is not offered",
                    runtime.program()
                );
            }
        }
    }
    if found == 0 {
        tracing::warn!(
            "no runtime was found: nothing can be started here before one of them is installed or configured"
        );
    }
}
