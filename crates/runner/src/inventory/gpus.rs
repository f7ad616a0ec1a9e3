//! Where GPUs come from.

use berth_domain::Timestamp;

use super::Detail;
use super::nvml::NvmlGpus;
use super::seen::{DriverSeen, GpuLink, GpuSeen};
use super::settings::InventorySettings;
use super::simulated::SimulatedGpus;

/// What was seen of the GPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpusSeen {
    /// GPUs and MIG instances.
    pub gpus: Vec<GpuSeen>,
    /// What joins them.
    pub links: Vec<GpuLink>,
    /// The driver.
    pub driver: DriverSeen,
    /// What no GPU can carry, in words.
    pub notes: Vec<String>,
}

/// The two sources of GPUs.
#[derive(Debug)]
pub enum Gpus {
    /// The driver's.
    Nvml(Box<NvmlGpus>),
    /// Those that the configuration describes.
    Simulated(SimulatedGpus),
}

impl Gpus {
    /// The source that the settings name.
    #[must_use]
    pub fn new(settings: InventorySettings) -> Self {
        if settings.simulated.is_empty() {
            Self::Nvml(Box::new(NvmlGpus::new(settings)))
        } else {
            Self::Simulated(SimulatedGpus::new(settings.simulated))
        }
    }

    /// Looks at them, for no longer than the deadline.
    pub fn look(&mut self, now: Timestamp, detail: Detail) -> GpusSeen {
        match self {
            Self::Nvml(gpus) => gpus.look(now, detail),
            Self::Simulated(gpus) => gpus.look(now),
        }
    }
}
