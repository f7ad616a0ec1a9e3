//! Every account there is.

use berth_domain::{Bytes, DeviceUuid, GpuName, MachineId, Revision, RunnerId, SlotId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{CpuBalance, MemoryBalance, schema};

/// The ledgers of all devices and machines at one revision.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Ledger {
    /// When, as a revision.
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
    /// Runners that have it.
    #[schema(value_type = Vec<schema::RunnerId>)]
    pub runner_ids: Vec<RunnerId>,
    /// Which.
    #[schema(value_type = schema::DeviceUuid)]
    pub uuid: DeviceUuid,
    /// Its index on the first of these runners.
    #[serde(default)]
    pub index: Option<u16>,
    /// What the driver calls it.
    #[schema(value_type = schema::GpuName)]
    pub name: GpuName,
    /// The GPU that it is a MIG instance of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::DeviceUuid>)]
    pub parent_uuid: Option<DeviceUuid>,
    /// How often it is advertised. A replica is a name, not memory.
    pub replicas: u16,
    /// Its numbers.
    #[serde(flatten)]
    pub balance: MemoryBalance,
    /// Whether it takes anything new, and if not, why.
    pub state: DeviceState,
    /// Whether a line of its ledger is false: its capacity shrank, or foreign use grew.
    #[serde(default)]
    pub overcommitted: bool,
    /// Whether those who report it disagree about its size; the smallest counts.
    #[serde(default)]
    pub sizes_differ: bool,
    /// Whether the driver tells foreign use from our own.
    #[serde(default)]
    pub attributed: bool,
    /// Its claims.
    pub claims: Vec<DeviceClaim>,
}

/// One claim on a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeviceClaim {
    /// Whose.
    #[schema(value_type = schema::SlotId)]
    pub slot_id: SlotId,
    /// What it is.
    pub phase: ClaimPhase,
    /// How much.
    #[schema(value_type = schema::Bytes)]
    pub bytes: Bytes,
}

/// What a claim is at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ClaimPhase {
    /// Belongs to a slot that runs or may run.
    Held,
    /// Belongs to a slot that is being stopped: not free until proof.
    Releasing,
    /// Will belong to a slot once what is releasing is proven free.
    Promised,
}

impl ClaimPhase {
    /// The word used everywhere.
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
    /// It does.
    Open,
    /// Its machine no longer lists it, yet it has claims.
    Missing,
    /// It fell off the bus.
    Lost,
    /// Its memory could not be won back.
    Quarantined,
    /// The driver did not answer in time.
    Stale,
    /// Its MIG instances are devices of their own.
    MigParent,
    /// An operator said so.
    Cordoned,
    /// A start on it was refused a moment ago.
    BackingOff,
    /// A line is false.
    Overcommitted,
    /// Kept for the oldest waiting work.
    Reserved,
    /// It belongs to another machine.
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

    /// The word used everywhere.
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

    /// The state that this word names.
    #[must_use]
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }
}

/// The accounts of one machine's CPU and RAM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HostLedger {
    /// Which machine.
    #[schema(value_type = schema::MachineId)]
    pub machine_id: MachineId,
    /// Its runners.
    #[schema(value_type = Vec<schema::RunnerId>)]
    pub runner_ids: Vec<RunnerId>,
    /// Its CPU.
    pub cpu: CpuBalance,
    /// Its RAM.
    pub ram: MemoryBalance,
}
