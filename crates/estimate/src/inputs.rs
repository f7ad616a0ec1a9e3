//! The inputs of an estimate: what the caller asked for, completed with the program's defaults.

use berth_domain::GpuCount;
pub use berth_domain::estimate::{CacheType, Inputs, Options, Profile, UnknownName};

use crate::shape::ModelShape;

/// The defaults of a program.
pub(crate) struct Defaults {
    pub(crate) profile: Profile,
    pub(crate) trained_context: u64,
    pub(crate) cache_type: CacheType,
    pub(crate) projector: bool,
}

/// Why an estimate cannot be made for what was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InputError {
    /// A number is out of range.
    #[error("{what} is between 1 and {limit}, not {value}")]
    OutOfRange {
        /// The name of the input.
        what: &'static str,
        /// The limit.
        limit: u64,
        /// The value that was asked for.
        value: u64,
    },
    /// Quantized values without flash attention, with which llama.cpp refuses to start.
    #[error("values stored as {0} need flash attention")]
    QuantizedValues(CacheType),
    /// The program does not have this cache type.
    #[error("{profile} has no cache of type {kind}")]
    CacheType {
        /// The program's profile.
        profile: Profile,
        /// The cache type.
        kind: CacheType,
    },
    /// A cache type whose blocks do not end where a head ends, with which llama.cpp refuses to start.
    #[error(
        "{what} stored as {kind} come in blocks of {block}, which do not divide the head size of this model ({length}): \
         llama.cpp refuses to start so; choose f16, bf16 or f32 for them"
    )]
    CacheBlocks {
        /// Keys or values.
        what: &'static str,
        /// The cache type.
        kind: CacheType,
        /// The number of values in one block.
        block: u64,
        /// The number of values of one head.
        length: u64,
    },
    /// Two cache types for keys and values that are stored as one row.
    #[error(
        "this model keeps keys and values in one latent row, so llama.cpp refuses to store keys as {keys} and values as \
         {values}: choose the same type for both"
    )]
    LatentTypes {
        /// The cache type of keys.
        keys: CacheType,
        /// The cache type of values.
        values: CacheType,
    },
    /// The profile is for the other kind of file.
    #[error("the profile {profile} is not for {files}")]
    Profile {
        /// The profile that was asked for.
        profile: Profile,
        /// The kind of file.
        files: &'static str,
    },
}

/// The most sequences at once.
const MOST_SEQUENCES: u64 = 65_536;
/// The most GPUs of one slot.
const MOST_GPUS: u64 = 64;

impl Defaults {
    /// Fills in defaults and refuses what is not possible.
    pub(crate) fn resolve(&self, said: &Options) -> Result<Inputs, InputError> {
        let profile = said.profile.unwrap_or(self.profile);
        let usual_batch = if profile == Profile::Vllm { 2_048 } else { 512 };
        let counts = || [1, 2, 4, 8].map(GpuCount::new).into_iter().collect();
        let inputs = Inputs {
            profile,
            context: said.context.unwrap_or(self.trained_context),
            parallel: said.parallel.unwrap_or(1),
            cache_type_k: said.cache_type_k.unwrap_or(self.cache_type),
            cache_type_v: said.cache_type_v.unwrap_or(self.cache_type),
            flash_attention: said.flash_attention.unwrap_or(true),
            batch: said.batch.unwrap_or(usual_batch),
            unified_cache: said.unified_cache.unwrap_or(false),
            gpu_counts: said.gpu_counts.clone().unwrap_or_else(counts),
            overhead: said.overhead.unwrap_or(crate::profile::overhead(profile)),
            projector: self.projector,
        };
        check(&inputs)?;
        Ok(inputs)
    }
}

/// Refuses cache types that llama.cpp refuses for a model of this shape.
pub(crate) fn check_cache_types(shape: &ModelShape, inputs: &Inputs) -> Result<(), InputError> {
    let (keys, values) = (inputs.cache_type_k, inputs.cache_type_v);
    if shape.latent && keys != values {
        return Err(InputError::LatentTypes { keys, values });
    }
    for layer in shape.layers.iter().filter(|layer| layer.caches && layer.kv_heads > 0) {
        for (what, kind, length) in [("keys", keys, layer.key_length), ("values", values, layer.value_length)] {
            let block = kind.values_in_block();
            if !length.is_multiple_of(block) {
                return Err(InputError::CacheBlocks { what, kind, block, length });
            }
        }
    }
    Ok(())
}

/// Refuses inputs that are not possible.
fn check(inputs: &Inputs) -> Result<(), InputError> {
    let within = |what, value: u64, limit: u64| match value {
        0 => Err(InputError::OutOfRange { what, limit, value }),
        value if value > limit => Err(InputError::OutOfRange { what, limit, value }),
        _ => Ok(()),
    };
    within("the context", inputs.context, crate::shape::LONGEST)?;
    within("the number of sequences", inputs.parallel, MOST_SEQUENCES)?;
    within("the batch", inputs.batch, 1 << 20)?;
    let (first, last) = (inputs.gpu_counts.first(), inputs.gpu_counts.last());
    for count in [first, last] {
        within("a GPU count", count.map_or(0, |count| u64::from(count.get())), MOST_GPUS)?;
    }
    for kind in [inputs.cache_type_k, inputs.cache_type_v] {
        let foreign = if inputs.profile == Profile::Vllm { kind.is_quantized() } else { kind == CacheType::Fp8 };
        if foreign {
            return Err(InputError::CacheType { profile: inputs.profile, kind });
        }
    }
    match inputs.cache_type_v.is_quantized() && !inputs.flash_attention {
        true => Err(InputError::QuantizedValues(inputs.cache_type_v)),
        false => Ok(()),
    }
}
