//! Readings of GPUs and their connections. They are shown to people and decide nothing.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::schema;

/// Readings of a GPU. A reading that the driver does not have is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct GpuTelemetry {
    /// The temperature.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature_celsius: Option<u32>,
    /// The power draw.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_milliwatts: Option<u32>,
    /// How many processes may use the GPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compute_mode: Option<ComputeMode>,
    /// Memory errors that were corrected since the driver was loaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ecc_corrected: Option<u64>,
    /// Memory errors that were not corrected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ecc_uncorrected: Option<u64>,
    /// The last error (Xid) that the driver raised.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_xid: Option<u64>,
    /// The address of the GPU on the bus.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pci_bus_id: Option<String>,
    /// The nearest NUMA node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub numa_node: Option<u32>,
    /// Why the readings are not reliable, as a text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

/// How many processes may use a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ComputeMode {
    /// Any number of processes.
    Shared,
    /// One process at a time.
    Exclusive,
    /// No process.
    Prohibited,
    /// A value that this version does not know.
    #[serde(other)]
    Unknown,
}

/// The connection between two GPUs of a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GpuLink {
    /// The UUIDs of the two GPUs.
    #[schema(value_type = [schema::AdvertisedUuid; 2])]
    pub between: [String; 2],
    /// How far up the bus the two meet.
    pub closeness: Closeness,
    /// How many NVLinks lead straight from one to the other.
    #[serde(default)]
    pub nvlinks: u16,
    /// Whether they reach each other over NVLink at all, straight or through a switch.
    #[serde(default)]
    pub nvlink: bool,
}

/// How far up the bus two GPUs meet; nearer comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Closeness {
    /// The two are on one board.
    Board,
    /// The two meet in one switch.
    Switch,
    /// Several switches are between the two.
    Switches,
    /// The two meet in one host bridge.
    HostBridge,
    /// The two meet in one NUMA node.
    Node,
    /// The connection crosses NUMA nodes.
    System,
    /// A value that this version does not know.
    #[serde(other)]
    Unknown,
}
