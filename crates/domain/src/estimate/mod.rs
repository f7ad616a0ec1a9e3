//! An estimate of a model's memory as data: what it was made for, what it is made of, and what it comes to.
//!
//! Making one needs the model's files; that is the business of another crate. Keeping one, and charging it, is not.

mod options;
mod question;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::{Bytes, FilePath, GpuCount, Memory, RankMemory, RunnerId};

pub use options::{CacheType, Inputs, Options, Profile, UnknownName};
pub use question::{Answer, Asked, Launch, Question, Refusal};

/// An estimate as a catalogue keeps it: the file, what was asked, and what came of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FileEstimate {
    /// The file that was read.
    pub file: FilePath,
    /// The runner on whose disk the file is; absent if it is on the server's disk.
    #[serde(default)]
    pub runner: Option<RunnerId>,
    /// The projector's file.
    pub projector: Option<FilePath>,
    /// The options that the operator stated. Options that were left open follow from the model and from the arguments
    /// of its runtime.
    pub options: Options,
    /// The estimate.
    pub made: Estimate,
}

/// How much memory a model needs, for each GPU count, with what it was made of.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Estimate {
    /// What was read of the model.
    pub model: ModelSummary,
    /// The inputs that the estimate was made for.
    pub inputs: Inputs,
    /// For each GPU count, what each GPU must give, in rank order.
    pub counts: BTreeMap<GpuCount, Vec<DeviceEstimate>>,
    /// The memory of the machine that the model needs: the token embedding, and results before they are sent.
    pub host: Bytes,
    /// Notes for readers who rely on the numbers.
    pub notes: Vec<Note>,
}

/// What was read of a model, for people and for checks.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ModelSummary {
    /// The architecture of the model.
    pub architecture: String,
    /// The name of the model in its files.
    pub name: Option<String>,
    /// The number of layers.
    pub layers: usize,
    /// The context that the model was trained for.
    pub trained_context: u64,
    /// All its weights, each once.
    pub weights: Bytes,
    /// The number of files of the weights.
    pub files: u64,
}

/// What one GPU must give.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DeviceEstimate {
    /// The layers on this GPU.
    pub layers: LayerSpan,
    /// The memory by purpose.
    pub parts: Parts,
}

/// Memory on one GPU by what it is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Parts {
    /// Tensors of the model.
    pub weights: Bytes,
    /// Keys, values and states of sequences.
    pub kv: Bytes,
    /// What computing one batch needs.
    pub compute: Bytes,
    /// Results that wait to be fetched.
    pub output: Bytes,
    /// What a process takes before it does anything.
    pub overhead: Bytes,
    /// Tensors and buffers of the projector.
    pub projector: Bytes,
}

impl Parts {
    /// Returns each part with its name, in the order in which they are shown.
    #[must_use]
    pub const fn named(&self) -> [(&'static str, Bytes); 6] {
        [
            ("weights", self.weights),
            ("kv cache", self.kv),
            ("compute", self.compute),
            ("output", self.output),
            ("projector", self.projector),
            ("overhead", self.overhead),
        ]
    }

    /// Returns the sum of all parts. A sum that overflows is the largest amount, which no GPU has.
    #[must_use]
    pub fn total(&self) -> Bytes {
        self.named().into_iter().fold(Bytes::ZERO, |sum, (_, bytes)| sum.saturating_add(bytes))
    }
}

/// A note for readers who rely on the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Note {
    /// The model's cache is of a kind that is not modelled.
    UnmodelledCache,
    /// Some files with weights are missing; the numbers come from the index.
    WeightsFromIndex,
    /// The context is longer than the one that the model was trained for.
    BeyondTrainedContext,
}

impl Note {
    /// Returns the stable code.
    #[must_use]
    pub fn code(self) -> &'static str {
        self.into()
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UnmodelledCache => "its cache is of a kind that is not modelled, and was counted as plain attention",
            Self::WeightsFromIndex => "weights were taken from the index, since their files are not all here",
            Self::BeyondTrainedContext => "the context is longer than the model was trained for",
        })
    }
}

impl Estimate {
    /// Returns the numbers that a ledger charges: for each GPU count, one for all GPUs or, where they differ, one for
    /// each.
    #[must_use]
    pub fn memory(&self) -> Memory {
        let ranks = |devices: &Vec<DeviceEstimate>| {
            let totals: Vec<Bytes> = devices.iter().map(|device| device.parts.total()).collect();
            match totals.first() {
                Some(first) if totals.iter().all(|total| total == first) => RankMemory::Even(*first),
                _ => RankMemory::Ranks(totals),
            }
        };
        Memory::PerGpu(self.counts.iter().map(|(count, devices)| (*count, ranks(devices))).collect())
    }

    /// Returns what all GPUs of a count must give together.
    #[must_use]
    pub fn total(&self, count: GpuCount) -> Option<Bytes> {
        let devices = self.counts.get(&count)?;
        Some(devices.iter().fold(Bytes::ZERO, |sum, device| sum.saturating_add(device.parts.total())))
    }
}

/// The layers of one GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LayerSpan {
    /// The first layer.
    pub first: usize,
    /// The number of layers.
    pub count: usize,
    /// Whether the output after the last layer is on this GPU too.
    pub output: bool,
}

impl LayerSpan {
    /// Returns the layers as a range.
    #[must_use]
    pub const fn range(self) -> Range<usize> {
        self.first..self.first + self.count
    }
}
