//! Simulated GPUs, for machines without any.

use std::collections::BTreeMap;

use berth_domain::{Bytes, DeviceUuid, GpuHealth, Timestamp};

use super::gpus::GpusSeen;
use super::seen::{DriverStatus, GpuSeen, MemorySeen, ProcessSeen, ProcessesSeen, Telemetry};
use super::settings::SimulatedGpu;
use crate::process::Row;

/// Simulated GPUs. No driver sees which processes use them, so the agent states it: a process occupies what its slot
/// was given for as long as it lives.
#[derive(Debug)]
pub struct SimulatedGpus {
    gpus: Vec<SimulatedGpu>,
    occupied: BTreeMap<(DeviceUuid, u32), Bytes>,
}

impl SimulatedGpus {
    /// Returns these GPUs, unused.
    #[must_use]
    pub fn new(gpus: Vec<SimulatedGpu>) -> Self {
        Self { gpus, occupied: BTreeMap::new() }
    }

    /// Notes that a process uses this much of a GPU.
    pub fn occupy(&mut self, pid: u32, uuid: &DeviceUuid, bytes: Bytes) {
        self.occupied.insert((uuid.clone(), pid), bytes);
    }

    /// Returns the GPUs as they are now.
    pub fn look(&mut self, now: Timestamp) -> GpusSeen {
        self.occupied.retain(|(_, pid), _| is_alive(*pid));
        let gpus = self.gpus.iter().enumerate().map(|(index, gpu)| self.see(index, gpu, now)).collect();
        GpusSeen { gpus, links: Vec::new(), driver: DriverStatus::Simulated, notes: Vec::new() }
    }

    fn see(&self, index: usize, gpu: &SimulatedGpu, now: Timestamp) -> GpuSeen {
        let here = self.occupied.iter().filter(|((uuid, _), _)| *uuid == gpu.uuid);
        let processes: Vec<ProcessSeen> =
            here.map(|((_, pid), bytes)| ProcessSeen { pid: *pid, used: Some(*bytes) }).collect();
        let used = processes.iter().filter_map(|process| process.used).fold(gpu.used, Bytes::saturating_add);
        GpuSeen {
            uuid: gpu.uuid.clone(),
            index: u16::try_from(index).unwrap_or(u16::MAX),
            name: gpu.name.clone(),
            parent: None,
            health: GpuHealth::Ok,
            trouble: None,
            memory: MemorySeen { total: gpu.memory, reserved: gpu.reserved, used },
            processes: ProcessesSeen::Listed(processes),
            telemetry: Telemetry::default(),
            taken: now,
        }
    }
}

/// Returns whether a process runs. A zombie does not, and holds no memory.
fn is_alive(pid: u32) -> bool {
    matches!(Row::read(pid), Ok(Some(row)) if !row.is_dead())
}
