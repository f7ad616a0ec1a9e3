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
    /// The id of the runner.
    #[schema(value_type = schema::RunnerId)]
    pub id: RunnerId,
    /// Its machine.
    #[schema(value_type = schema::MachineId)]
    pub machine_id: MachineId,
    /// The present start of its agent.
    #[schema(value_type = schema::Incarnation)]
    pub incarnation: Incarnation,
    /// Whether the runner reports.
    pub state: RunnerState,
    /// What operators decided about the runner.
    pub admission: RunnerAdmission,
    /// Its pool.
    #[serde(default = "PoolName::default_pool")]
    #[schema(value_type = schema::PoolName)]
    pub pool: PoolName,
    /// Its labels.
    #[serde(default)]
    #[schema(value_type = BTreeMap<String, schema::LabelValue>)]
    pub labels: BTreeMap<LabelKey, LabelValue>,
    /// The runtimes that the runner can start.
    #[serde(default)]
    #[schema(value_type = Vec<schema::RuntimeName>)]
    pub runtimes: BTreeSet<RuntimeName>,
    /// The agent's version.
    #[serde(default)]
    pub version: String,
    /// The address at which its slots answer.
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
    /// What its agent learned about the engines behind its runtimes, also about those that it does not offer.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = BTreeMap<String, EngineReport>)]
    pub engines: BTreeMap<RuntimeName, EngineReport>,
    /// CPU and RAM that it may use.
    #[serde(default)]
    pub host: Host,
    /// Whether the runner has reported since the server started. Before that it takes nothing new.
    #[serde(default)]
    pub reported: bool,
    /// Why the runner takes nothing new, whatever operators decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub barred: Option<Reason>,
    /// When the runner last reported or polled.
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
    /// The deadline of a drain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Time>,
    /// The last revision at which what it should run changed.
    #[serde(default)]
    #[schema(value_type = schema::Revision)]
    pub desired_revision: Revision,
}

/// Whether a runner reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunnerState {
    /// The runner has reported or polled lately.
    Ready,
    /// The runner has been silent for a while and takes nothing new.
    Suspect,
    /// The runner has been silent for long: its leases moved on, its memory stays charged.
    Lost,
}

impl RunnerState {
    /// Returns the name that the API, the logs and the command line use.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Suspect => "suspect",
            Self::Lost => "lost",
        }
    }
}

/// What operators decided about a runner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunnerAdmission {
    /// The runner takes work.
    Open,
    /// The runner takes nothing new.
    Cordoned,
    /// The runner finishes the work that it has.
    Draining,
    /// The runner was drained: no slot is left.
    Drained,
    /// The runner was forgotten; the server remembers its unproven slots.
    Forgotten,
}

impl RunnerAdmission {
    /// Returns the name that the API, the logs and the command line use.
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

/// The parameters of a drain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct DrainQuery {
    /// How long pins and leases still protect slots. Default: without end.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(inline, example = "10m")]
    pub deadline: Option<TimeSpan>,
}

/// An operator's decision on which machine runners are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MachineJudgement {
    /// The runners that the decision is about.
    #[serde(default)]
    #[schema(value_type = Vec<schema::RunnerId>)]
    pub runners: Vec<RunnerId>,
    /// Whether the decision is about every runner whose machine is in dispute, instead of `runners`.
    #[serde(default)]
    pub all_disputed: bool,
    /// Whether the runners are on the machine that they name, or on others that have the same id.
    pub same: bool,
    /// The reason, which goes on record.
    #[schema(value_type = schema::ReasonText)]
    pub reason: ReasonText,
}

/// The request to forget a runner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ForgetRequest {
    /// The reason, which goes on record.
    #[schema(value_type = schema::ReasonText)]
    pub reason: ReasonText,
}
