//! What an estimate is asked for and what it was made for.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{Bytes, GpuCount};

/// Whose memory is estimated: programs need different amounts for the same model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Profile {
    /// The server of llama.cpp, as its source computes its buffers.
    #[serde(rename = "llama.cpp")]
    LlamaCpp,
    /// A program that saves nothing: every buffer at its largest, no windows, no latent rows.
    #[serde(rename = "conservative")]
    Conservative,
    /// vLLM, which is told its share of a GPU and fills it.
    #[serde(rename = "vllm")]
    Vllm,
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LlamaCpp => "llama.cpp",
            Self::Conservative => "conservative",
            Self::Vllm => "vllm",
        })
    }
}

impl FromStr for Profile {
    type Err = UnknownName;

    fn from_str(text: &str) -> Result<Self, UnknownName> {
        [Self::LlamaCpp, Self::Conservative, Self::Vllm]
            .into_iter()
            .find(|profile| profile.to_string() == text)
            .ok_or_else(|| UnknownName { what: "profile", name: text.to_owned() })
    }
}

/// A name that stands for nothing here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} is not a known {what}")]
pub struct UnknownName {
    /// What it should have been.
    pub what: &'static str,
    /// What it was.
    pub name: String,
}

/// How a cache stores keys or values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names are the programs' own")]
pub enum CacheType {
    F32,
    F16,
    Bf16,
    #[serde(rename = "q8_0")]
    Q8_0,
    #[serde(rename = "q5_1")]
    Q5_1,
    #[serde(rename = "q5_0")]
    Q5_0,
    #[serde(rename = "q4_1")]
    Q4_1,
    #[serde(rename = "q4_0")]
    Q4_0,
    Iq4Nl,
    Fp8,
}

impl CacheType {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::F32,
        Self::F16,
        Self::Bf16,
        Self::Q8_0,
        Self::Q5_1,
        Self::Q5_0,
        Self::Q4_1,
        Self::Q4_0,
        Self::Iq4Nl,
        Self::Fp8,
    ];

    /// The name that programs give it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::Q8_0 => "q8_0",
            Self::Q5_1 => "q5_1",
            Self::Q5_0 => "q5_0",
            Self::Q4_1 => "q4_1",
            Self::Q4_0 => "q4_0",
            Self::Iq4Nl => "iq4_nl",
            Self::Fp8 => "fp8",
        }
    }

    /// Values in one block, and its bytes.
    const fn block(self) -> (u64, u64) {
        match self {
            Self::F32 => (1, 4),
            Self::F16 | Self::Bf16 => (1, 2),
            Self::Fp8 => (1, 1),
            Self::Q8_0 => (32, 34),
            Self::Q5_1 => (32, 24),
            Self::Q5_0 => (32, 22),
            Self::Q4_1 => (32, 20),
            Self::Q4_0 | Self::Iq4Nl => (32, 18),
        }
    }

    /// The bytes of a row of so many values. A block that is begun counts whole.
    #[must_use]
    pub const fn row(self, values: u64) -> u64 {
        let (block, bytes) = self.block();
        values.div_ceil(block) * bytes
    }

    /// How many values share a block.
    #[must_use]
    pub const fn values_in_block(self) -> u64 {
        self.block().0
    }

    /// Whether several values share a block.
    #[must_use]
    pub const fn is_quantized(self) -> bool {
        self.block().0 > 1
    }
}

impl fmt::Display for CacheType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for CacheType {
    type Err = UnknownName;

    /// A program's name for it, in any case. The variants of fp8 take the same room.
    fn from_str(text: &str) -> Result<Self, UnknownName> {
        let lower = text.to_ascii_lowercase();
        match lower.as_str() {
            "fp8_e4m3" | "fp8_e5m2" | "fp8_inc" => return Ok(Self::Fp8),
            "bfloat16" => return Ok(Self::Bf16),
            "float16" | "half" => return Ok(Self::F16),
            "float32" | "float" => return Ok(Self::F32),
            _ => {}
        }
        let known = Self::ALL.into_iter().find(|kind| kind.name() == lower);
        known.ok_or_else(|| UnknownName { what: "type for a cache", name: text.to_owned() })
    }
}

/// What is asked of an estimate. What is not said is what the program does by itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// Whose memory: llama.cpp's for GGUF files and vLLM's for folders, unless said.
    pub profile: Option<Profile>,
    /// Tokens of one sequence: what the model was trained for, unless said.
    pub context: Option<u64>,
    /// Sequences at once: 1, unless said.
    pub parallel: Option<u64>,
    /// How keys are stored.
    pub cache_type_k: Option<CacheType>,
    /// How values are stored.
    pub cache_type_v: Option<CacheType>,
    /// Attention that does not write all scores down: yes, unless said.
    pub flash_attention: Option<bool>,
    /// Tokens computed at once: 512 for GGUF files, 2048 for vLLM, unless said.
    pub batch: Option<u64>,
    /// One cache for all sequences instead of one for each: no, unless said.
    pub unified_cache: Option<bool>,
    /// GPU counts: 1, 2, 4 and 8, unless said.
    pub gpu_counts: Option<BTreeSet<GpuCount>>,
    /// What a process takes on each GPU before it does anything: the profile's number, unless said.
    pub overhead: Option<Bytes>,
}

impl Options {
    /// Finds the first thing that was asked for and that the estimate was not made for.
    #[must_use]
    pub fn differs_from(&self, made_for: &Inputs) -> Option<&'static str> {
        fn differs<T: PartialEq>(asked: Option<&T>, made_for: &T) -> bool {
            asked.is_some_and(|asked| asked != made_for)
        }
        let fields = [
            ("profile", differs(self.profile.as_ref(), &made_for.profile)),
            ("context", differs(self.context.as_ref(), &made_for.context)),
            ("parallel", differs(self.parallel.as_ref(), &made_for.parallel)),
            ("cache_type_k", differs(self.cache_type_k.as_ref(), &made_for.cache_type_k)),
            ("cache_type_v", differs(self.cache_type_v.as_ref(), &made_for.cache_type_v)),
            ("flash_attention", differs(self.flash_attention.as_ref(), &made_for.flash_attention)),
            ("batch", differs(self.batch.as_ref(), &made_for.batch)),
            ("unified_cache", differs(self.unified_cache.as_ref(), &made_for.unified_cache)),
            ("gpu_counts", differs(self.gpu_counts.as_ref(), &made_for.gpu_counts)),
            ("overhead", differs(self.overhead.as_ref(), &made_for.overhead)),
        ];
        fields.into_iter().find(|(_, differs)| *differs).map(|(name, _)| name)
    }
}

/// What an estimate was made for, with nothing left open.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Inputs {
    /// Whose memory.
    pub profile: Profile,
    /// Tokens of one sequence.
    pub context: u64,
    /// Sequences at once.
    pub parallel: u64,
    /// How keys are stored.
    pub cache_type_k: CacheType,
    /// How values are stored.
    pub cache_type_v: CacheType,
    /// Attention that does not write all scores down.
    pub flash_attention: bool,
    /// Tokens computed at once.
    pub batch: u64,
    /// One cache for all sequences.
    pub unified_cache: bool,
    /// GPU counts.
    pub gpu_counts: BTreeSet<GpuCount>,
    /// What a process takes on each GPU before it does anything.
    pub overhead: Bytes,
    /// Whether a projector is part of it.
    pub projector: bool,
}

impl Inputs {
    /// Tokens of all sequences together: what llama.cpp calls the context size.
    #[must_use]
    pub const fn tokens(&self) -> u64 {
        self.context.saturating_mul(self.parallel)
    }
}
