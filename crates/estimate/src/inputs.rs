//! What an estimate is made for.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use berth_domain::{Bytes, GpuCount};
use serde::{Deserialize, Serialize};

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
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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

/// What a program does where nobody said otherwise.
pub(crate) struct Defaults {
    pub(crate) profile: Profile,
    pub(crate) trained_context: u64,
    pub(crate) cache_type: CacheType,
    pub(crate) projector: bool,
}

/// Why an estimate cannot be made for what was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InputError {
    /// A number that cannot be meant.
    #[error("{what} is between 1 and {limit}, not {value}")]
    OutOfRange {
        /// Which one.
        what: &'static str,
        /// The most it may be.
        limit: u64,
        /// What it was.
        value: u64,
    },
    /// Something that llama.cpp refuses to start with.
    #[error("values stored as {0} need flash attention")]
    QuantizedValues(CacheType),
    /// A type that this program does not have.
    #[error("{profile} has no cache of type {kind}")]
    CacheType {
        /// Which program.
        profile: Profile,
        /// Which type.
        kind: CacheType,
    },
    /// A profile for the other kind of file.
    #[error("the profile {profile} is not for {files}")]
    Profile {
        /// Which profile.
        profile: Profile,
        /// What was to be estimated.
        files: &'static str,
    },
}

impl Options {
    /// The most sequences at once, and the most GPUs of one slot.
    const MOST_SEQUENCES: u64 = 65_536;
    const MOST_GPUS: u64 = 64;

    /// Fills in what was not said and refuses what cannot be.
    pub(crate) fn resolve(&self, defaults: &Defaults) -> Result<Inputs, InputError> {
        let profile = self.profile.unwrap_or(defaults.profile);
        let usual_batch = if profile == Profile::Vllm { 2_048 } else { 512 };
        let counts = || [1, 2, 4, 8].map(GpuCount::new).into_iter().collect();
        let inputs = Inputs {
            profile,
            context: self.context.unwrap_or(defaults.trained_context),
            parallel: self.parallel.unwrap_or(1),
            cache_type_k: self.cache_type_k.unwrap_or(defaults.cache_type),
            cache_type_v: self.cache_type_v.unwrap_or(defaults.cache_type),
            flash_attention: self.flash_attention.unwrap_or(true),
            batch: self.batch.unwrap_or(usual_batch),
            unified_cache: self.unified_cache.unwrap_or(false),
            gpu_counts: self.gpu_counts.clone().unwrap_or_else(counts),
            overhead: self.overhead.unwrap_or(profile.overhead()),
            projector: defaults.projector,
        };
        inputs.check()?;
        Ok(inputs)
    }
}

impl Inputs {
    fn check(&self) -> Result<(), InputError> {
        let within = |what, value: u64, limit: u64| match value {
            0 => Err(InputError::OutOfRange { what, limit, value }),
            value if value > limit => Err(InputError::OutOfRange { what, limit, value }),
            _ => Ok(()),
        };
        within("the context", self.context, crate::shape::LONGEST)?;
        within("the number of sequences", self.parallel, Options::MOST_SEQUENCES)?;
        within("the batch", self.batch, 1 << 20)?;
        let (first, last) = (self.gpu_counts.first(), self.gpu_counts.last());
        for count in [first, last] {
            within("a GPU count", count.map_or(0, |count| u64::from(count.get())), Options::MOST_GPUS)?;
        }
        for kind in [self.cache_type_k, self.cache_type_v] {
            let foreign = if self.profile == Profile::Vllm { kind.is_quantized() } else { kind == CacheType::Fp8 };
            if foreign {
                return Err(InputError::CacheType { profile: self.profile, kind });
            }
        }
        match self.cache_type_v.is_quantized() && !self.flash_attention {
            true => Err(InputError::QuantizedValues(self.cache_type_v)),
            false => Ok(()),
        }
    }
}
