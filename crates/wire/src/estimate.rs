//! Estimates of a model's memory: requests and results.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use berth_domain::estimate::{self as made, CacheType, Options, Profile, UnknownName};
use berth_domain::{Arg, Bytes, FilePath, GpuCount, RunnerId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Reason, schema};

/// How a cache stores keys and values: `"q8_0"` for both, `"q8_0/f16"` where they differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct KvType {
    /// The type of the keys.
    pub keys: CacheType,
    /// The type of the values.
    pub values: CacheType,
}

impl FromStr for KvType {
    type Err = UnknownName;

    fn from_str(text: &str) -> Result<Self, UnknownName> {
        let (keys, values) = text.split_once('/').unwrap_or((text, text));
        Ok(Self { keys: keys.parse()?, values: values.parse()? })
    }
}

impl fmt::Display for KvType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.keys == self.values {
            true => write!(f, "{}", self.keys),
            false => write!(f, "{}/{}", self.keys, self.values),
        }
    }
}

impl TryFrom<String> for KvType {
    type Error = UnknownName;

    fn try_from(text: String) -> Result<Self, UnknownName> {
        text.parse()
    }
}

impl From<KvType> for String {
    fn from(kind: KvType) -> Self {
        kind.to_string()
    }
}

/// A request for an estimate: a file, and how the program will be started. For a field that is left out, the program's
/// own default counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EstimateRequest {
    /// A GGUF file (any of its parts), or a folder with `config.json` and safetensors, below a directory that its
    /// reader may read: the server (`estimate.model_dirs`), or the agent of `runner` (`agent.model_dirs`).
    #[schema(value_type = schema::FilePath)]
    pub file: FilePath,
    /// The runner on whose disk the file is. Default: the server's own disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::RunnerId>)]
    pub runner: Option<RunnerId>,
    /// A GGUF file with the projector, which turns images or sound into tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::FilePath>)]
    pub projector: Option<FilePath>,
    /// The program whose memory is estimated. Default: `llama.cpp` for GGUF files and `vllm` for folders.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Profile>)]
    pub profile: Option<Profile>,
    /// Tokens of one sequence. Default: the context that the model was trained for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub context: Option<u64>,
    /// Sequences at once. Default: 1 (for a model of the catalogue: its concurrency).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 65536)]
    pub parallel: Option<u64>,
    /// How keys and values are stored. Default: f16, or the type that the model computes in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::KvType>)]
    pub kv_type: Option<KvType>,
    /// Whether flash attention is used, which does not write all scores to memory. Default: yes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flash_attention: Option<bool>,
    /// Tokens computed at once. Default: 512 for GGUF files, 2048 for vLLM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1048576)]
    pub batch: Option<u64>,
    /// Whether all sequences share one cache. Default: no.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unified_cache: Option<bool>,
    /// What a process takes on each GPU before it does anything. Default: the profile's number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Size>)]
    pub overhead: Option<Bytes>,
    /// GPU counts. Default: those that the model can be split over.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    #[schema(value_type = Vec<schema::GpuCount>, max_items = 64)]
    pub gpu_counts: BTreeSet<GpuCount>,
}

impl EstimateRequest {
    /// Makes a request for a file, with the program's own defaults.
    #[must_use]
    pub fn new(file: FilePath) -> Self {
        Self {
            file,
            runner: None,
            projector: None,
            profile: None,
            context: None,
            parallel: None,
            kv_type: None,
            flash_attention: None,
            batch: None,
            unified_cache: None,
            overhead: None,
            gpu_counts: BTreeSet::new(),
        }
    }

    /// Returns the options of the request, apart from the file.
    #[must_use]
    pub fn options(&self) -> Options {
        Options {
            profile: self.profile,
            context: self.context,
            parallel: self.parallel,
            cache_type_k: self.kv_type.map(|kind| kind.keys),
            cache_type_v: self.kv_type.map(|kind| kind.values),
            flash_attention: self.flash_attention,
            batch: self.batch,
            unified_cache: self.unified_cache,
            gpu_counts: Some(self.gpu_counts.clone()).filter(|counts| !counts.is_empty()),
            overhead: self.overhead,
        }
    }

    /// Returns the request that leads to this estimate of the catalogue. The GPU counts are the model's own.
    #[must_use]
    pub fn of(kept: &made::FileEstimate) -> Self {
        let options = &kept.options;
        let both = options.cache_type_k.zip(options.cache_type_v);
        Self {
            file: kept.file.clone(),
            runner: kept.runner.clone(),
            projector: kept.projector.clone(),
            profile: options.profile,
            context: options.context,
            parallel: options.parallel,
            kv_type: both.map(|(keys, values)| KvType { keys, values }),
            flash_attention: options.flash_attention,
            batch: options.batch,
            unified_cache: options.unified_cache,
            overhead: options.overhead,
            gpu_counts: BTreeSet::new(),
        }
    }
}

/// How much memory a model needs, for each GPU count, with what it is made of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Estimate {
    /// The file that was read.
    #[schema(value_type = schema::FilePath)]
    pub file: FilePath,
    /// What was read of the model.
    pub model: EstimatedModel,
    /// The inputs that the estimate was made for, with every default filled in.
    pub inputs: EstimateInputs,
    /// What each GPU must give, for each GPU count.
    pub counts: Vec<EstimatedCount>,
    /// The memory of the machine that the model needs.
    #[schema(value_type = schema::Bytes)]
    pub host_bytes: Bytes,
    /// Notes for readers who rely on the numbers.
    pub notes: Vec<Reason>,
    /// The arguments with which a program does what was estimated.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<schema::Arg>)]
    pub args: Vec<Arg>,
}

/// What was read of a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EstimatedModel {
    /// The architecture of the model.
    #[schema(example = "llama")]
    pub architecture: String,
    /// The name of the model in its files.
    #[serde(default)]
    pub name: Option<String>,
    /// The number of layers.
    pub layers: usize,
    /// The context that the model was trained for.
    pub trained_context: u64,
    /// All its weights, each once.
    #[schema(value_type = schema::Bytes)]
    pub weights_bytes: Bytes,
    /// The number of files of the weights.
    pub files: u64,
}

/// The inputs that an estimate was made for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EstimateInputs {
    /// The program whose memory is estimated.
    #[schema(value_type = schema::Profile)]
    pub profile: Profile,
    /// Tokens of one sequence.
    pub context: u64,
    /// Sequences at once.
    pub parallel: u64,
    /// How keys and values are stored.
    #[schema(value_type = schema::KvType)]
    pub kv_type: KvType,
    /// Whether flash attention is used.
    pub flash_attention: bool,
    /// Tokens computed at once.
    pub batch: u64,
    /// Whether all sequences share one cache.
    pub unified_cache: bool,
    /// What a process takes on each GPU before it does anything.
    #[schema(value_type = schema::Bytes)]
    pub overhead_bytes: Bytes,
    /// Whether a projector is part of the estimate.
    pub projector: bool,
}

/// The memory of a slot with this number of GPUs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EstimatedCount {
    /// The number of GPUs.
    #[schema(value_type = schema::GpuCount)]
    pub gpu_count: GpuCount,
    /// The memory of all GPUs together.
    #[schema(value_type = schema::Bytes)]
    pub total_bytes: Bytes,
    /// The memory of each GPU, in rank order.
    pub gpus: Vec<EstimatedGpu>,
}

/// What one GPU must give, by what it is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EstimatedGpu {
    /// The first layer on this GPU.
    pub first_layer: usize,
    /// The number of layers.
    pub layers: usize,
    /// Whether the output after the last layer is on this GPU too.
    pub has_output: bool,
    /// Tensors of the model.
    #[schema(value_type = schema::Bytes)]
    pub weights_bytes: Bytes,
    /// Keys, values and states of sequences.
    #[schema(value_type = schema::Bytes)]
    pub kv_bytes: Bytes,
    /// The buffers for computing one batch.
    #[schema(value_type = schema::Bytes)]
    pub compute_bytes: Bytes,
    /// Results that wait to be fetched.
    #[schema(value_type = schema::Bytes)]
    pub output_bytes: Bytes,
    /// Tensors and buffers of the projector.
    #[schema(value_type = schema::Bytes)]
    pub projector_bytes: Bytes,
    /// What a process takes before it does anything.
    #[schema(value_type = schema::Bytes)]
    pub overhead_bytes: Bytes,
    /// The sum, which a ledger charges.
    #[schema(value_type = schema::Bytes)]
    pub total_bytes: Bytes,
}

impl Estimate {
    /// Makes the API's form of an estimate of a file.
    #[must_use]
    pub fn of(file: FilePath, estimate: &made::Estimate) -> Self {
        let count = |(count, devices): (&GpuCount, &Vec<made::DeviceEstimate>)| EstimatedCount {
            gpu_count: *count,
            total_bytes: estimate.total(*count).unwrap_or_default(),
            gpus: devices.iter().map(EstimatedGpu::of).collect(),
        };
        let (model, inputs) = (&estimate.model, &estimate.inputs);
        Self {
            file,
            model: EstimatedModel {
                architecture: model.architecture.clone(),
                name: model.name.clone(),
                layers: model.layers,
                trained_context: model.trained_context,
                weights_bytes: model.weights,
                files: model.files,
            },
            inputs: EstimateInputs {
                profile: inputs.profile,
                context: inputs.context,
                parallel: inputs.parallel,
                kv_type: KvType { keys: inputs.cache_type_k, values: inputs.cache_type_v },
                flash_attention: inputs.flash_attention,
                batch: inputs.batch,
                unified_cache: inputs.unified_cache,
                overhead_bytes: inputs.overhead,
                projector: inputs.projector,
            },
            counts: estimate.counts.iter().map(count).collect(),
            host_bytes: estimate.host,
            notes: estimate.notes.iter().map(|note| Reason::new(note.code(), note.to_string())).collect(),
            args: Vec::new(),
        }
    }
}

impl EstimatedGpu {
    fn of(device: &made::DeviceEstimate) -> Self {
        let made::DeviceEstimate { layers, parts } = device;
        Self {
            first_layer: layers.first,
            layers: layers.count,
            has_output: layers.output,
            weights_bytes: parts.weights,
            kv_bytes: parts.kv,
            compute_bytes: parts.compute,
            output_bytes: parts.output,
            projector_bytes: parts.projector,
            overhead_bytes: parts.overhead,
            total_bytes: parts.total(),
        }
    }
}
