//! Facts about architectures that files do not state.
//!
//! These facts were taken from how llama.cpp reads each architecture: which layers look back only so far, which keep a
//! state instead of tokens, which share the cache of another. An architecture that is not listed counts as plain
//! attention over the whole context, which is never too little.

/// Which layers have an attention window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Windows {
    /// No layer, whatever the file says.
    Never,
    /// The layers that the file lists, or else each layer but every `period`-th.
    Pattern {
        /// One layer of this many attends to the whole context.
        period: u64,
        /// That layer is the first of its period, not the last.
        dense_first: bool,
        /// The window where the file does not say.
        default: Option<u64>,
        /// The window whatever the file says, unless it says 0.
        fixed: Option<u64>,
    },
    /// The layers that the file lists; none without a list.
    Listed,
    /// Each layer that is not recurrent, if the file names a window.
    Attention,
}

/// Which layers keep a recurrent state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recurrence {
    /// No layer.
    None,
    /// All layers, and no layer caches tokens.
    All,
    /// Layers without key heads.
    WithoutKeys,
    /// Layers without key heads and without a feed-forward part.
    WithoutKeysAndFeedForward,
    /// The layers that the file lists, or else each layer but every `interval`-th.
    Interval(u64),
    /// All layers, in addition to their attention.
    Beside,
}

const fn pattern(period: u64) -> Windows {
    Windows::Pattern { period, dense_first: false, default: None, fixed: None }
}

const fn dense_first(period: u64, fixed: Option<u64>) -> Windows {
    Windows::Pattern { period, dense_first: true, default: None, fixed }
}

/// Returns which layers of this architecture have windows. The number of layers matters for one of them.
pub(crate) fn windows(architecture: &str, layers: usize) -> Windows {
    match architecture {
        "gemma2" => Windows::Pattern { period: 2, dense_first: false, default: Some(4_096), fixed: None },
        "gemma3" | "gemma-embedding" => pattern(6),
        "gemma3n" => pattern(5),
        "cohere2" | "olmo2" | "afmoe" | "mellum" | "muse-glimmer" => pattern(4),
        "cohere2moe" | "laguna" => dense_first(4, None),
        "smallthinker" => dense_first(4, Some(4_096)),
        "exaone4" if layers == 64 => {
            Windows::Pattern { period: 4, dense_first: false, default: Some(4_096), fixed: None }
        }
        "exaone-moe" => Windows::Pattern { period: 4, dense_first: false, default: Some(128), fixed: None },
        "llama4" => Windows::Pattern { period: 4, dense_first: false, default: Some(8_192), fixed: Some(8_192) },
        "gpt-oss" => pattern(2),
        "plamo3" => pattern(8),
        "gemma4" | "step35" | "mimo2" | "maple" | "spark2_5" | "granite_swa" | "dots3note" => Windows::Listed,
        "lfm2" => Windows::Attention,
        _ => Windows::Never,
    }
}

/// Returns which layers of this architecture keep states.
pub(crate) fn recurrence(architecture: &str) -> Recurrence {
    match architecture {
        "mamba" | "mamba2" | "rwkv6" | "rwkv6qwen2" | "rwkv7" | "arwkv7" => Recurrence::All,
        "jamba" | "plamo2" | "granitehybrid" | "lfm2" | "lfm2moe" | "kimi-linear" | "kimi-k3" | "glm5-next"
        | "bailingmoe3" => Recurrence::WithoutKeys,
        "nemotron_h" | "nemotron_h_moe" => Recurrence::WithoutKeysAndFeedForward,
        "qwen3next" | "qwen35" | "qwen35moe" | "qwen4exp" => Recurrence::Interval(4),
        "minimax-01" => Recurrence::Interval(8),
        "falcon-h1" => Recurrence::Beside,
        _ => Recurrence::None,
    }
}

/// Returns whether the model sees all its input at once and keeps no cache.
pub(crate) fn is_encoder(architecture: &str) -> bool {
    matches!(
        architecture,
        "bert"
            | "jina-bert-v2"
            | "jina-bert-v3"
            | "nomic-bert"
            | "nomic-bert-moe"
            | "neo-bert"
            | "eurobert"
            | "modern-bert"
            | "gemma-embedding"
            | "wavtokenizer-dec"
            | "dream"
            | "llada"
            | "llada-moe"
            | "rnd1"
    )
}

/// Returns whether the architecture's cache is of a kind that is not modelled. It is counted as plain attention, and
/// the estimate says so.
pub(crate) fn is_unmodelled(architecture: &str) -> bool {
    matches!(architecture, "deepseek4" | "minimax-m3" | "dflash" | "eagle3" | "gemma4-assistant")
}

/// Returns whether the router weighs a token before the experts see it.
pub(crate) fn weighs_first(architecture: &str) -> bool {
    architecture == "llama4"
}

/// Returns how many layers from the first have a cache of their own, where the architecture fixes it.
pub(crate) fn own_cache_layers(architecture: &str) -> Option<u64> {
    (architecture == "gemma3n").then_some(20)
}
