//! How GPUs are doing and how they are joined: shown to people, and of no consequence for what is placed where.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::schema;

/// How a GPU is doing. What its driver does not say is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct GpuTelemetry {
    /// How hot it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature_celsius: Option<u32>,
    /// What it draws.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_milliwatts: Option<u32>,
    /// Who may use it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compute_mode: Option<ComputeMode>,
    /// Memory errors that were put right since the driver was loaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ecc_corrected: Option<u64>,
    /// Memory errors that were not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ecc_uncorrected: Option<u64>,
    /// The last error that the driver told by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_xid: Option<u64>,
    /// Its place on the bus.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pci_bus_id: Option<String>,
    /// The NUMA node that it is nearest to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub numa_node: Option<u32>,
    /// Why its numbers are not to be trusted, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

/// Who may use a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ComputeMode {
    /// Any number of processes.
    Shared,
    /// One process at a time.
    Exclusive,
    /// Nobody.
    Prohibited,
    /// A word that this version does not know.
    #[serde(other)]
    Unknown,
}

/// What joins two GPUs of a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GpuLink {
    /// Which two.
    #[schema(value_type = [schema::AdvertisedUuid; 2])]
    pub between: [String; 2],
    /// How far up the bus they meet.
    pub closeness: Closeness,
    /// How many NVLinks lead straight from one to the other.
    #[serde(default)]
    pub nvlinks: u16,
    /// Whether they reach each other over NVLink at all, straight or through a switch.
    #[serde(default)]
    pub nvlink: bool,
}

/// How far up from two GPUs one meets the other; nearer comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Closeness {
    /// On one board.
    Board,
    /// Under one switch.
    Switch,
    /// Under several switches.
    Switches,
    /// Under one host bridge.
    HostBridge,
    /// In one NUMA node.
    Node,
    /// Somewhere in the machine.
    System,
    /// A word that this version does not know.
    #[serde(other)]
    Unknown,
}
