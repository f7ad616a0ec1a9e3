//! The sources of GPUs: the driver, or the configuration.

use berth_domain::Timestamp;

use super::Detail;
use super::nvml::NvmlGpus;
use super::seen::{DriverStatus, GpuLink, GpuSeen};
use super::settings::InventorySettings;
use super::simulated::SimulatedGpus;

/// What one look found of the GPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpusSeen {
    /// All GPUs and MIG instances.
    pub gpus: Vec<GpuSeen>,
    /// The connections between them.
    pub links: Vec<GpuLink>,
    /// The state of the driver.
    pub driver: DriverStatus,
    /// Problems that belong to no GPU, as text for an operator.
    pub notes: Vec<String>,
}

/// The two sources of GPUs.
#[derive(Debug)]
pub enum Gpus {
    /// The GPUs of the NVIDIA driver.
    Nvml(Box<NvmlGpus>),
    /// The GPUs that the configuration describes.
    Simulated(SimulatedGpus),
}

impl Gpus {
    /// Returns the source that the settings name.
    #[must_use]
    pub fn new(settings: InventorySettings) -> Self {
        if settings.simulated.is_empty() {
            Self::Nvml(Box::new(NvmlGpus::new(settings)))
        } else {
            Self::Simulated(SimulatedGpus::new(settings.simulated))
        }
    }

    /// Reads the GPUs, and takes no longer than the deadline.
    pub fn look(&mut self, now: Timestamp, detail: Detail) -> GpusSeen {
        match self {
            Self::Nvml(gpus) => gpus.look(now, detail),
            Self::Simulated(gpus) => gpus.look(now),
        }
    }
}
