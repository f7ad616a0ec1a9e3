//! The connections between the GPUs of the script.

use nvml_wrapper_sys::bindings as nvml;
use serde::Deserialize;

/// The connection between two GPUs.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Link {
    pub(crate) between: [String; 2],
    #[serde(default)]
    pub(crate) level: Level,
    #[serde(default)]
    pub(crate) nvlinks: u32,
    #[serde(default = "yes")]
    pub(crate) p2p: bool,
}

/// The level of the nearest common ancestor of two GPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Level {
    Internal,
    Single,
    Multiple,
    HostBridge,
    Node,
    #[default]
    System,
}

const fn yes() -> bool {
    true
}

impl Link {
    /// Returns whether the link connects these two, in either order.
    pub(crate) fn joins(&self, one: &str, other: &str) -> bool {
        let [a, b] = &self.between;
        (a == one && b == other) || (a == other && b == one)
    }

    /// Returns the other end of the link, seen from `one`.
    pub(crate) fn peer_of(&self, one: &str) -> Option<&str> {
        let [a, b] = &self.between;
        if a == one {
            Some(b)
        } else if b == one {
            Some(a)
        } else {
            None
        }
    }
}

impl Level {
    /// Returns the code of the C interface.
    pub(crate) const fn code(self) -> nvml::nvmlGpuTopologyLevel_t {
        match self {
            Self::Internal => nvml::nvmlGpuLevel_enum_NVML_TOPOLOGY_INTERNAL,
            Self::Single => nvml::nvmlGpuLevel_enum_NVML_TOPOLOGY_SINGLE,
            Self::Multiple => nvml::nvmlGpuLevel_enum_NVML_TOPOLOGY_MULTIPLE,
            Self::HostBridge => nvml::nvmlGpuLevel_enum_NVML_TOPOLOGY_HOSTBRIDGE,
            Self::Node => nvml::nvmlGpuLevel_enum_NVML_TOPOLOGY_NODE,
            Self::System => nvml::nvmlGpuLevel_enum_NVML_TOPOLOGY_SYSTEM,
        }
    }
}
