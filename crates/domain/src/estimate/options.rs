//! The options of an estimate, and the inputs that it was made for.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{Bytes, GpuCount};

/// The program whose memory is estimated: programs need different amounts for the same model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Profile {
    /// The server of llama.cpp, as its source computes its buffers.
    #[serde(rename = "llama.cpp")]
    LlamaCpp,
    /// A program that saves nothing: every buffer at its largest, no windows, no latent rows.
    #[serde(rename = "conservative")]
    Conservative,
    /// vLLM, which is given a share of a GPU and fills it.
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

/// The error for a name that is not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} is not a known {what}")]
pub struct UnknownName {
    /// The kind of name that was expected.
    pub what: &'static str,
    /// The name that was given.
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
    /// All types.
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

    /// Returns the name that programs give to the type.
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

    /// Returns the number of values in one block, and the bytes of the block.
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

    /// Returns the bytes of a row with this number of values. A partly filled block counts whole.
    #[must_use]
    pub const fn row(self, values: u64) -> u64 {
        let (block, bytes) = self.block();
        values.div_ceil(block) * bytes
    }

    /// Returns how many values share a block.
    #[must_use]
    pub const fn values_in_block(self) -> u64 {
        self.block().0
    }

    /// Returns whether several values share a block.
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

    /// Parses a program's name for the type, in upper or lower case. The variants of fp8 take the same space.
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

/// The options of an estimate. For an option that is absent, the program's own default counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// The program whose memory is estimated. Default: llama.cpp for GGUF files, vLLM for folders.
    pub profile: Option<Profile>,
    /// Tokens of one sequence. Default: the context that the model was trained for.
    pub context: Option<u64>,
    /// Sequences at once. Default: 1.
    pub parallel: Option<u64>,
    /// How keys are stored.
    pub cache_type_k: Option<CacheType>,
    /// How values are stored.
    pub cache_type_v: Option<CacheType>,
    /// Whether flash attention is used, which does not write all scores to memory. Default: yes.
    pub flash_attention: Option<bool>,
    /// Tokens computed at once. Default: 512 for GGUF files, 2048 for vLLM.
    pub batch: Option<u64>,
    /// Whether all sequences share one cache. Default: no.
    pub unified_cache: Option<bool>,
    /// GPU counts. Default: 1, 2, 4 and 8.
    pub gpu_counts: Option<BTreeSet<GpuCount>>,
    /// What a process takes on each GPU before it does anything. Default: the profile's number.
    pub overhead: Option<Bytes>,
}

impl Options {
    /// Returns the name of the first option that differs from what the estimate was made for.
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

/// The inputs that an estimate was made for, with every default filled in.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Inputs {
    /// The program whose memory is estimated.
    pub profile: Profile,
    /// Tokens of one sequence.
    pub context: u64,
    /// Sequences at once.
    pub parallel: u64,
    /// How keys are stored.
    pub cache_type_k: CacheType,
    /// How values are stored.
    pub cache_type_v: CacheType,
    /// Whether flash attention is used.
    pub flash_attention: bool,
    /// Tokens computed at once.
    pub batch: u64,
    /// Whether all sequences share one cache.
    pub unified_cache: bool,
    /// GPU counts.
    pub gpu_counts: BTreeSet<GpuCount>,
    /// What a process takes on each GPU before it does anything.
    pub overhead: Bytes,
    /// Whether a projector is part of the estimate.
    pub projector: bool,
}

impl Inputs {
    /// Returns the tokens of all sequences together, which llama.cpp calls the context size.
    #[must_use]
    pub const fn tokens(&self) -> u64 {
        self.context.saturating_mul(self.parallel)
    }
}
