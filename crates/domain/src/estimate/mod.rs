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
    /// What was read.
    pub file: FilePath,
    /// The runner on whose disk it is; the server's own if there is none.
    #[serde(default)]
    pub runner: Option<RunnerId>,
    /// The projector beside it.
    pub projector: Option<FilePath>,
    /// What the operator said. What they left open follows from the model and from the arguments of its runtime.
    pub options: Options,
    /// What came of it.
    pub made: Estimate,
}

/// How much memory a model needs, for each GPU count, with what it was made of.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Estimate {
    /// What was read of the model.
    pub model: ModelSummary,
    /// What it was made for.
    pub inputs: Inputs,
    /// For each GPU count, what each GPU must give, in rank order.
    pub counts: BTreeMap<GpuCount, Vec<DeviceEstimate>>,
    /// What stays in the machine's memory by design: the token embedding, results on their way out.
    pub host: Bytes,
    /// What whoever relies on the numbers should know.
    pub notes: Vec<Note>,
}

/// What was read of a model, for people and for checks.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ModelSummary {
    /// What kind of model it is.
    pub architecture: String,
    /// What its files call it.
    pub name: Option<String>,
    /// How many layers it has.
    pub layers: usize,
    /// The context it was trained for.
    pub trained_context: u64,
    /// All its weights, each once.
    pub weights: Bytes,
    /// How many files they are in.
    pub files: u64,
}

/// What one GPU must give.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DeviceEstimate {
    /// The layers it has.
    pub layers: LayerSpan,
    /// What for.
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
    /// Each part with its name, in the order in which people read them.
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

    /// All of it. More than can be written down is the largest amount, which no GPU has.
    #[must_use]
    pub fn total(&self) -> Bytes {
        self.named().into_iter().fold(Bytes::ZERO, |sum, (_, bytes)| sum.saturating_add(bytes))
    }
}

/// Something that whoever relies on the numbers should know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Note {
    /// Its cache is of a kind that is not modelled.
    UnmodelledCache,
    /// The files with the weights are not all there: the index was believed.
    WeightsFromIndex,
    /// Asked for more context than it was trained for.
    BeyondTrainedContext,
}

impl Note {
    /// The stable code.
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
    /// The number that a ledger charges: for each GPU count, one for all GPUs or, where they differ, one for each.
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

    /// What all GPUs of a count must give together.
    #[must_use]
    pub fn total(&self, count: GpuCount) -> Option<Bytes> {
        let devices = self.counts.get(&count)?;
        Some(devices.iter().fold(Bytes::ZERO, |sum, device| sum.saturating_add(device.parts.total())))
    }
}

/// The layers of one GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LayerSpan {
    /// The first of them.
    pub first: usize,
    /// How many.
    pub count: usize,
    /// Whether what comes after the last layer is here too.
    pub output: bool,
}

impl LayerSpan {
    /// As a range of layers.
    #[must_use]
    pub const fn range(self) -> Range<usize> {
        self.first..self.first + self.count
    }
}
