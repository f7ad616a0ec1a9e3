//! The ledgers of all devices and machines.

use berth_domain::{Bytes, DeviceUuid, GpuName, MachineId, Revision, RunnerId, SlotId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{CpuBalance, MemoryBalance, schema};

/// The ledgers of all devices and machines at one revision.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Ledger {
    /// The revision that the numbers belong to.
    #[schema(value_type = schema::Revision)]
    pub revision: Revision,
    /// Every physical device.
    pub devices: Vec<DeviceLedger>,
    /// Every machine.
    pub hosts: Vec<HostLedger>,
}

/// The account of one physical device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeviceLedger {
    /// The runners that have the device.
    #[schema(value_type = Vec<schema::RunnerId>)]
    pub runner_ids: Vec<RunnerId>,
    /// The UUID of the device.
    #[schema(value_type = schema::DeviceUuid)]
    pub uuid: DeviceUuid,
    /// The index of the device on the first of these runners.
    #[serde(default)]
    pub index: Option<u16>,
    /// The driver's name for the device.
    #[schema(value_type = schema::GpuName)]
    pub name: GpuName,
    /// The GPU that it is a MIG instance of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::DeviceUuid>)]
    pub parent_uuid: Option<DeviceUuid>,
    /// How often the device is advertised. A replica is a name, not memory.
    pub replicas: u16,
    /// The numbers of the ledger.
    #[serde(flatten)]
    pub balance: MemoryBalance,
    /// Whether it takes anything new, and if not, why.
    pub state: DeviceState,
    /// Whether the sums of the ledger exceed the capacity, because the capacity shrank or foreign use grew.
    #[serde(default)]
    pub overcommitted: bool,
    /// Whether reports disagree about the size of the device. The smallest size counts.
    #[serde(default)]
    pub sizes_differ: bool,
    /// Whether the driver tells foreign use from the use of the server's slots.
    #[serde(default)]
    pub attributed: bool,
    /// The claims on the device.
    pub claims: Vec<DeviceClaim>,
}

/// One claim on a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeviceClaim {
    /// The slot that has the claim.
    #[schema(value_type = schema::SlotId)]
    pub slot_id: SlotId,
    /// The phase of the claim.
    pub phase: ClaimPhase,
    /// The amount of the claim.
    #[schema(value_type = schema::Bytes)]
    pub bytes: Bytes,
}

/// The phase of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ClaimPhase {
    /// The claim of a slot that runs or may run.
    Held,
    /// The claim of a slot that is being stopped. It is not free until proof.
    Releasing,
    /// The claim of a slot that waits until releasing memory is proven free.
    Promised,
}

impl ClaimPhase {
    /// Returns the name that the API, the logs and the command line use.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Releasing => "releasing",
            Self::Promised => "promised",
        }
    }
}

/// Whether a device takes anything new, and if not, why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DeviceState {
    /// The device takes new slots.
    Open,
    /// The machine no longer lists the device, which still has claims.
    Missing,
    /// The device fell off the bus.
    Lost,
    /// The memory of the device could not be won back.
    Quarantined,
    /// The driver did not answer in time.
    Stale,
    /// The MIG instances of the device are devices of their own.
    MigParent,
    /// An operator cordoned the device.
    Cordoned,
    /// An agent refused a start on the device a moment ago.
    BackingOff,
    /// The sums of the ledger exceed the capacity.
    Overcommitted,
    /// The device is reserved for work that has waited too long.
    Reserved,
    /// The device belongs to another machine.
    Disputed,
    /// Every runner that has it is cordoned, draining, silent or lost.
    RunnerClosed,
}

impl DeviceState {
    const ALL: [Self; 12] = [
        Self::Open,
        Self::Missing,
        Self::Lost,
        Self::Quarantined,
        Self::Stale,
        Self::MigParent,
        Self::Cordoned,
        Self::BackingOff,
        Self::Overcommitted,
        Self::Reserved,
        Self::Disputed,
        Self::RunnerClosed,
    ];

    /// Returns the name that the API, the logs and the command line use.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Missing => "missing",
            Self::Lost => "lost",
            Self::Quarantined => "quarantined",
            Self::Stale => "stale",
            Self::MigParent => "mig_parent",
            Self::Cordoned => "cordoned",
            Self::BackingOff => "backing_off",
            Self::Overcommitted => "overcommitted",
            Self::Reserved => "reserved",
            Self::Disputed => "disputed",
            Self::RunnerClosed => "runner_closed",
        }
    }

    /// Finds the state that a word names.
    #[must_use]
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }
}

/// The accounts of one machine's CPU and RAM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HostLedger {
    /// The id of the machine.
    #[schema(value_type = schema::MachineId)]
    pub machine_id: MachineId,
    /// The runners on the machine.
    #[schema(value_type = Vec<schema::RunnerId>)]
    pub runner_ids: Vec<RunnerId>,
    /// The CPU of the machine.
    pub cpu: CpuBalance,
    /// The RAM of the machine.
    pub ram: MemoryBalance,
}
