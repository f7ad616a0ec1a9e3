//! What an agent tells of its machine in its log: at its start, and when it changes.
//!
//! An operator who wonders why a runner offers nothing reads it here first: which driver answers and which does not,
//! which GPUs there are and in which health, and which runtimes have their program.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::time::{Duration, Instant};

use berth_domain::{DeviceUuid, GpuHealth, RuntimeKind};

use crate::inventory::{DriverSeen, GpuSeen, Inventory};
use crate::runtime::Runtimes;

/// Notes of the inventory are told again after this, if they changed.
const NOTES_AGAIN: Duration = Duration::from_secs(60);

/// What was told of the machine last.
#[derive(Debug, Default)]
pub(super) struct Findings {
    driver: Option<DriverSeen>,
    gpus: BTreeMap<DeviceUuid, GpuHealth>,
    notes: Vec<String>,
    notes_told: Option<Instant>,
    /// It was said that there is no GPU.
    said_none: bool,
}

impl Findings {
    /// Tells what is new of the driver and the GPUs. Health that changed is told again; use of memory is not.
    pub(super) fn tell(&mut self, inventory: &Inventory) {
        self.tell_driver(&inventory.driver);
        for gpu in &inventory.gpus {
            self.tell_gpu(gpu);
        }
        self.tell_notes(&inventory.notes);
        self.tell_if_none(inventory);
    }

    /// Notes may say for how long something has lasted, so that they differ at each look: they are told now and then.
    fn tell_notes(&mut self, notes: &[String]) {
        if self.notes == notes || self.notes_told.is_some_and(|told| told.elapsed() < NOTES_AGAIN) {
            return;
        }
        for note in notes.iter().filter(|note| !self.notes.contains(note)) {
            tracing::warn!("{note}");
        }
        self.notes = notes.to_vec();
        self.notes_told = Some(Instant::now());
    }

    fn tell_driver(&mut self, driver: &DriverSeen) {
        let is_unlisted = matches!(driver, DriverSeen::Present { version } if version.is_empty());
        // Why it does not answer may say for how long already, and is told once.
        let is_same = |told: &DriverSeen| {
            told == driver || matches!((told, driver), (DriverSeen::Absent(_), DriverSeen::Absent(_)))
        };
        if is_unlisted || self.driver.as_ref().is_some_and(is_same) {
            return;
        }
        match driver {
            DriverSeen::Simulated => tracing::info!("the GPUs are simulated: no driver is asked"),
            DriverSeen::Present { version } => tracing::info!(version, "the NVIDIA driver answers, version {version}"),
            // Without a GPU the line about that says it.
            DriverSeen::Absent(why) if !self.gpus.is_empty() => {
                tracing::warn!(why, "the NVIDIA driver does not answer: {why}");
            }
            DriverSeen::Absent(_) => {}
        }
        self.driver = Some(driver.clone());
    }

    fn tell_gpu(&mut self, gpu: &GpuSeen) {
        let GpuSeen { uuid, index, name, health, trouble, .. } = gpu;
        if self.gpus.insert(uuid.clone(), *health) == Some(*health) {
            return;
        }
        let (total, reserved) = (gpu.memory.total, gpu.memory.reserved);
        let part = gpu.parent.as_ref().map(|parent| format!(", a MIG instance of {parent}")).unwrap_or_default();
        let kept = if reserved.is_zero() { String::new() } else { format!(" ({reserved} kept by the driver)") };
        let what = format!("GPU {index}: {name}, {total}{kept}, {uuid}{part}");
        let why = trouble.as_deref().unwrap_or("the driver does not say why");
        match health {
            GpuHealth::Ok => tracing::info!(%uuid, "{what}"),
            GpuHealth::Stale => tracing::warn!(%uuid, "{what}: stale, its numbers cannot be had: {why}"),
            GpuHealth::Lost => tracing::warn!(%uuid, "{what}: lost: {why}"),
            GpuHealth::Failed => tracing::warn!(%uuid, "{what}: failed: {why}"),
        }
    }

    fn tell_if_none(&mut self, inventory: &Inventory) {
        let is_none = inventory.gpus.is_empty();
        if is_none && !self.said_none {
            match &inventory.driver {
                DriverSeen::Absent(why) => {
                    tracing::warn!("no GPU was found, only work without GPUs can run here: no driver: {why}");
                }
                DriverSeen::Present { .. } => {
                    tracing::warn!("no GPU was found, only work without GPUs can run here: the driver lists none");
                }
                DriverSeen::Simulated => tracing::warn!("no GPU is simulated, only work without GPUs can run here"),
            }
        }
        self.said_none = is_none;
    }
}

fn kind_word(kind: RuntimeKind) -> &'static str {
    match kind {
        RuntimeKind::Both => "servers and jobs",
        RuntimeKind::Server => "servers",
        RuntimeKind::Job => "jobs",
    }
}

/// Tells which runtimes there are, and whether the program of each is on the machine.
pub(super) fn tell_runtimes(runtimes: &Runtimes, path: &OsStr) {
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
