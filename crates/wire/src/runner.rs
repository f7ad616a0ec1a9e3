//! Runners as the server holds them.

use std::collections::{BTreeMap, BTreeSet};

use berth_domain::{
    Arg, DeviceUuid, Incarnation, LabelKey, LabelValue, MachineId, PoolName, ReasonText, Revision, RunnerId,
    RuntimeName, SlotId,
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::report::{EngineReport, Host, RuntimeKind};
use crate::{Reason, Time, TimeSpan, schema};

/// A runner, as the server holds it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Runner {
    /// Which.
    #[schema(value_type = schema::RunnerId)]
    pub id: RunnerId,
    /// Its machine.
    #[schema(value_type = schema::MachineId)]
    pub machine_id: MachineId,
    /// Which start of its agent.
    #[schema(value_type = schema::Incarnation)]
    pub incarnation: Incarnation,
    /// Whether it is heard of.
    pub state: RunnerState,
    /// What operators want of it.
    pub admission: RunnerAdmission,
    /// Its pool.
    #[serde(default = "PoolName::default_pool")]
    #[schema(value_type = schema::PoolName)]
    pub pool: PoolName,
    /// Its labels.
    #[serde(default)]
    #[schema(value_type = BTreeMap<String, schema::LabelValue>)]
    pub labels: BTreeMap<LabelKey, LabelValue>,
    /// What it can start.
    #[serde(default)]
    #[schema(value_type = Vec<schema::RuntimeName>)]
    pub runtimes: BTreeSet<RuntimeName>,
    /// The agent's version.
    #[serde(default)]
    pub version: String,
    /// Where its slots answer.
    #[serde(default)]
    pub address: String,
    /// What each runtime is for.
    #[serde(default)]
    #[schema(value_type = BTreeMap<String, RuntimeKind>)]
    pub runtime_kinds: BTreeMap<RuntimeName, RuntimeKind>,
    /// Arguments that the agent's configuration allows, by runtime.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = BTreeMap<String, Vec<schema::Arg>>)]
    pub allowed_args: BTreeMap<RuntimeName, BTreeSet<Arg>>,
    /// What its agent found out about the engines behind its runtimes, also of those that it does not offer.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = BTreeMap<String, EngineReport>)]
    pub engines: BTreeMap<RuntimeName, EngineReport>,
    /// CPU and RAM that it may use.
    #[serde(default)]
    pub host: Host,
    /// Whether it reported since the server started. Before that it takes nothing new.
    #[serde(default)]
    pub reported: bool,
    /// Why it takes nothing new, whatever operators want of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub barred: Option<Reason>,
    /// When it was last heard of.
    #[serde(default)]
    pub last_seen: Option<Time>,
    /// Its devices, by index.
    #[serde(default)]
    #[schema(value_type = Vec<schema::DeviceUuid>)]
    pub gpus: Vec<DeviceUuid>,
    /// Devices that it reports but that belong to another machine.
    #[serde(default)]
    #[schema(value_type = Vec<schema::DeviceUuid>)]
    pub disputed: Vec<DeviceUuid>,
    /// Its slots.
    #[serde(default)]
    #[schema(value_type = Vec<schema::SlotId>)]
    pub slots: Vec<SlotId>,
    /// When the patience of a drain ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Time>,
    /// The last revision at which what it should run changed.
    #[serde(default)]
    #[schema(value_type = schema::Revision)]
    pub desired_revision: Revision,
}

/// Whether a runner is heard of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunnerState {
    /// Heard of lately.
    Ready,
    /// Silent for a while: nothing new.
    Suspect,
    /// Silent for long: its leases moved on, its memory stays charged.
    Lost,
}

impl RunnerState {
    /// The word used everywhere.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Suspect => "suspect",
            Self::Lost => "lost",
        }
    }
}

/// What operators want of a runner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunnerAdmission {
    /// Takes work.
    Open,
    /// Takes nothing new.
    Cordoned,
    /// Finishes what it has.
    Draining,
    /// Nothing is left.
    Drained,
    /// It is no more; only its unproven slots are remembered.
    Forgotten,
}

impl RunnerAdmission {
    /// The word used everywhere.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Cordoned => "cordoned",
            Self::Draining => "draining",
            Self::Drained => "drained",
            Self::Forgotten => "forgotten",
        }
    }
}

/// How long a drain is patient.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct DrainQuery {
    /// After this long, pins and leases protect nothing any more. For ever unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(inline, example = "10m")]
    pub deadline: Option<TimeSpan>,
}

/// An operator's word on which machine runners are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MachineJudgement {
    /// The runners that it is about.
    #[serde(default)]
    #[schema(value_type = Vec<schema::RunnerId>)]
    pub runners: Vec<RunnerId>,
    /// It is about every runner whose machine is in dispute, instead.
    #[serde(default)]
    pub all_disputed: bool,
    /// They are on the machine that they name; else on others that have the same id.
    pub same: bool,
    /// Goes on record.
    #[schema(value_type = schema::ReasonText)]
    pub reason: ReasonText,
}

/// Why a runner is no more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ForgetRequest {
    /// Goes on record.
    #[schema(value_type = schema::ReasonText)]
    pub reason: ReasonText,
}
