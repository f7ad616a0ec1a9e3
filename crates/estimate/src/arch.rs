//! What programs know of an architecture and files do not say.
//!
//! These are facts of llama.cpp, taken from how it reads each architecture: which layers look back only so far, which
//! keep a state instead of tokens, which share the cache of another. An architecture that is not here is taken as
//! plain attention over the whole context, which is never too little.

/// Where layers with a window are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Windows {
    /// Nowhere, whatever the file says.
    Never,
    /// The file lists them, or else each layer but every `period`-th has one.
    Pattern {
        /// One layer of so many looks at everything.
        period: u64,
        /// That layer is the first of them, not the last.
        dense_first: bool,
        /// The window where the file does not say.
        default: Option<u64>,
        /// The window whatever the file says, unless it says 0.
        fixed: Option<u64>,
    },
    /// The file lists them; without a list there are none.
    Listed,
    /// Every layer that is not recurrent, if the file names a window.
    Attention,
}

/// Where layers are that keep a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recurrence {
    /// Nowhere.
    None,
    /// Every layer, and no layer caches tokens.
    All,
    /// Layers without heads for keys.
    WithoutKeys,
    /// Layers without heads for keys and without a feed-forward part.
    WithoutKeysAndFeedForward,
    /// The file lists them, or else each layer but every `interval`-th.
    Interval(u64),
    /// Every layer, beside its attention.
    Beside,
}

const fn pattern(period: u64) -> Windows {
    Windows::Pattern { period, dense_first: false, default: None, fixed: None }
}

const fn dense_first(period: u64, fixed: Option<u64>) -> Windows {
    Windows::Pattern { period, dense_first: true, default: None, fixed }
}

/// Where this architecture has windows. The number of layers matters for one of them.
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

/// Where this architecture keeps states.
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

/// Whether it sees all its input at once and keeps no cache.
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

/// Whether its cache is of a kind that is not modelled. It is counted as plain attention, and the estimate says so.
pub(crate) fn is_unmodelled(architecture: &str) -> bool {
    matches!(architecture, "deepseek4" | "minimax-m3" | "dflash" | "eagle3" | "gemma4-assistant")
}

/// Whether its router weighs a token before the experts see it.
pub(crate) fn weighs_first(architecture: &str) -> bool {
    architecture == "llama4"
}

/// How many layers from the first have a cache of their own where the architecture fixes it.
pub(crate) fn own_cache_layers(architecture: &str) -> Option<u64> {
    (architecture == "gemma3n").then_some(20)
}
