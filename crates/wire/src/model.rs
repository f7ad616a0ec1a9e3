//! Models of the catalogue.

use std::collections::{BTreeMap, BTreeSet};

use berth_domain::{
    Arg, Bytes, DeviceUuid, EngineRoute, GpuCount, GpuName, InlineSecret, LabelKey, LabelValue, MemorySource,
    Millicores, ModelName, ModelRevision, ModelSpec, ModelSpecError, Placement, PoolName, RuntimeName,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{ChargedMemory, Estimate, EstimateRequest, Invalid, ModelMemory, TimeSpan, schema};

/// A model as an operator describes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ModelRequest {
    /// Its name, which the path says already; if it is here too, they must agree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::ModelName>)]
    pub name: Option<ModelName>,
    /// The runtime that starts the model. Agents know runtimes by name and start only those of their own configuration.
    #[schema(value_type = schema::RuntimeName)]
    pub runtime: RuntimeName,
    /// How much GPU memory it needs. Without it the model is known, but refused when it is scheduled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<ModelMemory>,
    /// GPU counts that the model can run on; `[0]` for a model without GPUs. Default: those with a memory number, else
    /// powers of two.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    #[schema(value_type = Vec<schema::GpuCount>)]
    pub gpu_counts: BTreeSet<GpuCount>,
    /// Whole GPUs, whatever its memory.
    #[serde(default)]
    pub exclusive: bool,
    /// How many leases one slot serves at once. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 65536)]
    pub concurrency: Option<u32>,
    /// How long an idle slot stays. Default: the server's setting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_alive: Option<TimeSpan>,
    /// How long a slot is safe from eviction after it became ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_run: Option<TimeSpan>,
    /// The number of slots that are kept running without demand.
    #[serde(default)]
    #[schema(maximum = 65536)]
    pub min_replicas: u32,
    /// The largest number of slots.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub max_replicas: Option<u32>,
    /// Whether slots are neither evicted nor stopped for being idle.
    #[serde(default)]
    pub pinned: bool,
    /// How candidates are ranked. Default: `spread`.
    #[serde(default)]
    #[schema(value_type = schema::Placement)]
    pub placement: Placement,
    /// The one pool that the model runs in. Default: the pool `default`, not all pools.
    #[serde(default = "PoolName::default_pool")]
    #[schema(value_type = schema::PoolName)]
    pub pool: PoolName,
    /// Labels that a runner must have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = BTreeMap<String, schema::LabelValue>)]
    pub labels: BTreeMap<LabelKey, LabelValue>,
    /// GPU names, any of which will do; any at all when empty.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    #[schema(value_type = Vec<schema::GpuName>)]
    pub gpu_names: BTreeSet<GpuName>,
    /// Devices, any of which will do; any at all when empty.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    #[schema(value_type = Vec<schema::DeviceUuid>, max_items = 64)]
    pub gpu_uuids: BTreeSet<DeviceUuid>,
    /// CPU of one slot.
    #[serde(default)]
    #[schema(value_type = schema::Millicores)]
    pub cpu_millicores: Millicores,
    /// RAM of one slot.
    #[serde(default)]
    #[schema(value_type = schema::Size)]
    pub ram: Bytes,
    /// Arguments of its runtime.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<schema::Arg>, max_items = 1024)]
    pub args: Vec<Arg>,
    /// Other names that callers of the gateway may use for it. No two models share a name.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    #[schema(value_type = Vec<schema::ModelName>, max_items = 64)]
    pub aliases: BTreeSet<ModelName>,
    /// Routes of the gateway that its engine answers; those that its runtime is known for unless said otherwise.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    #[schema(value_type = Vec<schema::EngineRoute>)]
    pub routes: BTreeSet<EngineRoute>,
}

impl ModelRequest {
    /// Makes a model on `runtime`, with the defaults of everything else.
    #[must_use]
    pub fn new(runtime: RuntimeName) -> Self {
        Self {
            name: None,
            runtime,
            memory: None,
            gpu_counts: BTreeSet::new(),
            exclusive: false,
            concurrency: None,
            keep_alive: None,
            min_run: None,
            min_replicas: 0,
            max_replicas: None,
            pinned: false,
            placement: Placement::default(),
            pool: PoolName::default_pool(),
            labels: BTreeMap::new(),
            gpu_names: BTreeSet::new(),
            gpu_uuids: BTreeSet::new(),
            cpu_millicores: Millicores::ZERO,
            ram: Bytes::ZERO,
            args: Vec::new(),
            aliases: BTreeSet::new(),
            routes: BTreeSet::new(),
        }
    }

    /// Returns the file to estimate from, if the request names one.
    #[must_use]
    pub fn file(&self) -> Option<&EstimateRequest> {
        self.memory.as_ref()?.file.as_ref()
    }

    /// Returns the catalogue entry of the request, before anything is estimated.
    pub fn into_spec(self, name: ModelName) -> Result<ModelSpec, Invalid> {
        if let Some(other) = self.name.filter(|other| *other != name) {
            return Err(Invalid::new("name", format!("the path names {name}, the body {other}")));
        }
        if let Some(secret) = InlineSecret::find(&self.args) {
            return Err(Invalid::new("args", secret.to_string()));
        }
        let memory = self.memory.map(|memory| MemorySource {
            stated: memory.stated,
            prefer_estimate: memory.prefer_estimate,
            learn: memory.learn,
            ..MemorySource::default()
        });
        let memory = memory.unwrap_or_default();
        let mut spec = ModelSpec::new(name, self.runtime, memory);
        spec.gpu_counts = self.gpu_counts;
        spec.exclusive = self.exclusive;
        spec.concurrency = self.concurrency.unwrap_or(spec.concurrency);
        spec.keep_alive = self.keep_alive.map(|span| span.0);
        spec.min_run = self.min_run.map(|span| span.0);
        spec.replicas.min = self.min_replicas;
        spec.replicas.max = self.max_replicas;
        spec.replicas.pinned = self.pinned;
        spec.placement = self.placement;
        spec.constraints.pool = self.pool;
        spec.constraints.labels = self.labels;
        spec.constraints.gpu_names = self.gpu_names;
        spec.constraints.gpu_uuids = self.gpu_uuids;
        spec.cpu = self.cpu_millicores;
        spec.ram = self.ram;
        spec.args = self.args;
        spec.aliases = self.aliases;
        spec.routes = self.routes;
        spec.validate().map_err(|error| Invalid::new(field_of(&error), error.to_string()))?;
        Ok(spec)
    }
}

fn field_of(error: &ModelSpecError) -> &'static str {
    match error {
        ModelSpecError::NameTaken { .. } => "aliases",
        ModelSpecError::NoConcurrency => "concurrency",
        ModelSpecError::ReplicasCrossed { .. } => "max_replicas",
        ModelSpecError::TooLarge { field, .. } => field,
        ModelSpecError::MixedCounts | ModelSpecError::CountWithoutMemory(_) => "gpu_counts",
        ModelSpecError::RankCount { .. } => "memory.per_gpu",
        ModelSpecError::ZeroMemory => "memory",
    }
}

/// A model of the catalogue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Model {
    /// Its name.
    #[schema(value_type = schema::ModelName)]
    pub name: ModelName,
    /// The runtime that starts the model.
    #[schema(value_type = schema::RuntimeName)]
    pub runtime: RuntimeName,
    /// The GPU memory that the model needs, as its operator stated it; absent where that is not known.
    #[serde(default)]
    pub memory: Option<ModelMemory>,
    /// The estimate that was made from the model's file, with its parts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimate: Option<Estimate>,
    /// GPU counts that were stated; empty where none was.
    #[schema(value_type = Vec<schema::GpuCount>)]
    pub gpu_counts: BTreeSet<GpuCount>,
    /// Whole GPUs, whatever its memory.
    pub exclusive: bool,
    /// How many leases one slot serves at once.
    pub concurrency: u32,
    /// How long an idle slot stays, where the model says so.
    #[serde(default)]
    pub keep_alive: Option<TimeSpan>,
    /// How long a slot is safe from eviction, where the model says so.
    #[serde(default)]
    pub min_run: Option<TimeSpan>,
    /// The number of slots that are kept running without demand.
    pub min_replicas: u32,
    /// The largest number of slots.
    #[serde(default)]
    pub max_replicas: Option<u32>,
    /// Whether slots are neither evicted nor stopped for being idle.
    pub pinned: bool,
    /// How candidates are ranked.
    #[schema(value_type = schema::Placement)]
    pub placement: Placement,
    /// The pool it runs in.
    #[schema(value_type = schema::PoolName)]
    pub pool: PoolName,
    /// Labels that a runner must have.
    #[schema(value_type = BTreeMap<String, schema::LabelValue>)]
    pub labels: BTreeMap<LabelKey, LabelValue>,
    /// GPU names, any of which will do.
    #[schema(value_type = Vec<schema::GpuName>)]
    pub gpu_names: BTreeSet<GpuName>,
    /// Devices, any of which will do.
    #[schema(value_type = Vec<schema::DeviceUuid>)]
    pub gpu_uuids: BTreeSet<DeviceUuid>,
    /// CPU of one slot.
    #[schema(value_type = schema::Millicores)]
    pub cpu_millicores: Millicores,
    /// RAM of one slot, in bytes.
    #[schema(value_type = schema::Bytes)]
    pub ram: Bytes,
    /// Arguments of its runtime.
    #[schema(value_type = Vec<schema::Arg>)]
    pub args: Vec<Arg>,
    /// Other names of it.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    #[schema(value_type = Vec<schema::ModelName>)]
    pub aliases: BTreeSet<ModelName>,
    /// Routes that its engine answers, where the model says so.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    #[schema(value_type = Vec<schema::EngineRoute>)]
    pub routes: BTreeSet<EngineRoute>,
    /// The revision of the entry.
    #[schema(value_type = schema::ModelRevision)]
    pub revision: ModelRevision,
    /// Whether the model was removed and its last slots finish.
    #[serde(default)]
    pub deleted: bool,
    /// Slots that serve or will serve.
    #[serde(default)]
    pub live_slots: u32,
    /// Workloads that wait for it.
    #[serde(default)]
    pub waiting: u64,
    /// How often one of its slots was evicted.
    #[serde(default)]
    pub evictions: u64,
    /// How long its last starts took, from the order to start until the slot was ready: their median. Nothing before
    /// the server has seen one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_median_ms: Option<u64>,
    /// What is charged on each GPU, for each GPU count that it may run on.
    #[serde(default)]
    pub charged: Vec<ChargedMemory>,
}

impl Model {
    /// Makes the API's form of a catalogue entry, before its slots and its queue are known.
    #[must_use]
    pub fn of(spec: &ModelSpec, revision: ModelRevision) -> Self {
        Self {
            name: spec.name.clone(),
            runtime: spec.constraints.runtime.clone(),
            memory: ModelMemory::of(&spec.memory),
            estimate: spec.memory.estimate.as_deref().map(|kept| Estimate::of(kept.file.clone(), &kept.made)),
            gpu_counts: spec.gpu_counts.clone(),
            exclusive: spec.exclusive,
            concurrency: spec.concurrency,
            keep_alive: spec.keep_alive.map(TimeSpan),
            min_run: spec.min_run.map(TimeSpan),
            min_replicas: spec.replicas.min,
            max_replicas: spec.replicas.max,
            pinned: spec.replicas.pinned,
            placement: spec.placement,
            pool: spec.constraints.pool.clone(),
            labels: spec.constraints.labels.clone(),
            gpu_names: spec.constraints.gpu_names.clone(),
            gpu_uuids: spec.constraints.gpu_uuids.clone(),
            cpu_millicores: spec.cpu,
            ram: spec.ram,
            // A catalogue of an older version may hold secrets.
            args: InlineSecret::redact(&spec.args),
            aliases: spec.aliases.clone(),
            routes: spec.routes.clone(),
            revision,
            deleted: false,
            live_slots: 0,
            waiting: 0,
            evictions: 0,
            load_median_ms: None,
            charged: ChargedMemory::of(spec),
        }
    }

    /// Returns the request that would put this model.
    #[must_use]
    pub fn request(&self) -> ModelRequest {
        ModelRequest {
            name: Some(self.name.clone()),
            runtime: self.runtime.clone(),
            memory: self.memory.clone(),
            gpu_counts: self.gpu_counts.clone(),
            exclusive: self.exclusive,
            concurrency: Some(self.concurrency),
            keep_alive: self.keep_alive,
            min_run: self.min_run,
            min_replicas: self.min_replicas,
            max_replicas: self.max_replicas,
            pinned: self.pinned,
            placement: self.placement,
            pool: self.pool.clone(),
            labels: self.labels.clone(),
            gpu_names: self.gpu_names.clone(),
            gpu_uuids: self.gpu_uuids.clone(),
            cpu_millicores: self.cpu_millicores,
            ram: self.ram,
            args: self.args.clone(),
            aliases: self.aliases.clone(),
            routes: self.routes.clone(),
        }
    }
}
