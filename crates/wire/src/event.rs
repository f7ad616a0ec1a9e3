//! What happened, as a stream.

use berth_domain::{DeviceUuid, MachineId, ModelName, Revision, RunnerId, SlotId, WorkloadId};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::{Time, schema};

/// One thing that happened. Its revision is its id in the stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StreamEvent {
    /// Its number in the journal.
    #[schema(value_type = schema::Revision)]
    pub revision: Revision,
    /// When.
    pub time: Time,
    /// What kind of thing.
    #[serde(rename = "type")]
    #[schema(example = "slot_placed")]
    pub kind: String,
    /// The workload that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::WorkloadId>)]
    pub workload_id: Option<WorkloadId>,
    /// The slot that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::SlotId>)]
    pub slot_id: Option<SlotId>,
    /// The runner that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::RunnerId>)]
    pub runner_id: Option<RunnerId>,
    /// The device that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::DeviceUuid>)]
    pub device_uuid: Option<DeviceUuid>,
    /// The model that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::ModelName>)]
    pub model: Option<ModelName>,
    /// The machine that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::MachineId>)]
    pub machine_id: Option<MachineId>,
    /// The same for people; it names whom it is about.
    #[serde(default)]
    #[schema(example = "slot 018f3b1c-7c2e-7d41-0000-000000000007 of qwen3:8b on runner gpu-box-1 was placed")]
    pub text: String,
}

/// From where to read the stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct EventQuery {
    /// Only what happened after this revision. A `Last-Event-ID` header says the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(value_type = Option<schema::Revision>, inline)]
    pub after: Option<Revision>,
}
