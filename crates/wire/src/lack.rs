//! What the fleet lacks for work that it can never run.

use std::collections::BTreeMap;

use berth_domain::{Bytes, GpuCount};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::schema;

/// One requirement of a model that no runner meets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Lack {
    /// The requirement: `pool`, `label`, `runtime`, `runtime_kind`, `gpu_name`, `gpu_uuid`, `known_memory`,
    /// `gpu_count`, `gpu_memory`, `cpu`, `ram`, or `one_runner` where no runner meets all of them together.
    #[schema(example = "runtime")]
    pub what: String,
    /// The text for people, with what the fleet has instead.
    #[schema(example = "no runner has runtime vllm; runners have: llama-server (2)")]
    pub text: String,
    /// The names that were asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub wanted: Vec<String>,
    /// The names that the fleet has instead, with the number of runners for each.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub there: BTreeMap<String, u32>,
    /// The GPU count that comes nearest to fitting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::GpuCount>)]
    pub gpu_count: Option<GpuCount>,
    /// The amount that one GPU, or one machine, would have to give.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Bytes>)]
    pub needed_bytes: Option<Bytes>,
    /// The largest amount that one GPU or machine has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Bytes>)]
    pub largest_bytes: Option<Bytes>,
}
