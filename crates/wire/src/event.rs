//! Events of the server's stream.

use berth_domain::{DeviceUuid, MachineId, ModelName, Revision, RunnerId, SlotId, WorkloadId};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::{Time, schema};

/// One event. Its revision is its id in the stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StreamEvent {
    /// The number of the event in the journal.
    #[schema(value_type = schema::Revision)]
    pub revision: Revision,
    /// When the event happened.
    pub time: Time,
    /// The kind of event.
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
    /// The text for people, with the names of everything that the event is about.
    #[serde(default)]
    #[schema(example = "slot 018f3b1c-7c2e-7d41-0000-000000000007 of qwen3:8b on runner gpu-box-1 was placed")]
    pub text: String,
}

/// The parameters of the stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct EventQuery {
    /// Only events after this revision. A `Last-Event-ID` header means the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(value_type = Option<schema::Revision>, inline)]
    pub after: Option<Revision>,
}
