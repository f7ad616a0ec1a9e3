//! What of a model decides about its memory, whatever file it came from.

use serde::{Deserialize, Serialize};

/// The most layers of a model.
pub(crate) const MOST_LAYERS: u64 = 1_024;
/// The widest embedding, feed-forward or state.
pub(crate) const WIDEST: u64 = 1 << 26;
/// The most heads of a layer, and the longest key or value of one head.
pub(crate) const MOST_HEADS: u64 = 1 << 16;
/// The most tokens of a vocabulary.
pub(crate) const MOST_TOKENS: u64 = 1 << 26;
/// The longest context.
pub(crate) const LONGEST: u64 = 1 << 32;

/// The shape of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// What kind of model it is, as its file says.
    pub architecture: Box<str>,
    /// Width of what passes from layer to layer.
    pub embedding: u64,
    /// How many tokens it knows.
    pub vocabulary: u64,
    /// The context it was trained for.
    pub trained_context: u64,
    /// Its layers, first to last.
    pub layers: Vec<Layer>,
    /// Keys and values are one latent row (MLA): there is no cache of values.
    pub latent: bool,
    /// It looks at all its input at once and caches nothing.
    pub encoder: bool,
    /// Its router weighs a token before the experts see it, so that each has a copy of the token.
    pub weighs_first: bool,
}

/// One layer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layer {
    /// Heads that ask.
    pub heads: u64,
    /// Heads that answer. Fewer than `heads` where they are grouped.
    pub kv_heads: u64,
    /// Values in one head's key.
    pub key_length: u64,
    /// Values in one head's value.
    pub value_length: u64,
    /// Width of its feed-forward part, where it has one for every token.
    pub feed_forward: u64,
    /// Its experts.
    pub experts: Option<Experts>,
    /// Which of the ways to build a layer it takes, as far as they differ in memory.
    pub build: Build,
    /// Whether it has keys and values of its own to keep.
    pub caches: bool,
    /// How far back it looks, if not to the beginning.
    pub window: Option<u64>,
    /// Values that an indexer keeps for each token.
    pub indexer_length: u64,
    /// What it keeps for each sequence instead of tokens.
    pub state: Option<State>,
}

/// How a layer is built, where layers of the same sizes need different buffers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Build {
    /// Its feed-forward part has no gate, so one wide row of a token is in use instead of three.
    pub ungated: bool,
    /// Queries, keys and values come out of one tensor, which stays in use until all three are read.
    pub fused_queries: bool,
    /// Its feed-forward part takes what its attention takes, and both results are added at the end.
    pub parallel: bool,
    /// Its experts add a bias to what they compute.
    pub biased_experts: bool,
}

/// Feed-forward parts of which each token uses a few.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Experts {
    /// How many a token uses.
    pub used: u64,
    /// The width of one.
    pub feed_forward: u64,
    /// The width of the one that every token uses beside them.
    pub shared: u64,
}

/// What a recurrent layer keeps for each sequence, in values of 4 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// Of its convolution.
    pub convolution: u64,
    /// Of its recurrence.
    pub recurrence: u64,
    /// Width of what passes through it.
    pub width: u64,
}

impl Shape {
    /// The widest row of values that any layer caches for a token.
    #[must_use]
    pub fn widest_value_row(&self) -> u64 {
        self.layers.iter().map(Layer::value_row).max().unwrap_or(0)
    }
}

impl Layer {
    /// Values of all keys of one token.
    #[must_use]
    pub const fn key_row(&self) -> u64 {
        self.kv_heads * self.key_length
    }

    /// Values of all values of one token.
    #[must_use]
    pub const fn value_row(&self) -> u64 {
        self.kv_heads * self.value_length
    }

    /// Values of all that asks for one token.
    #[must_use]
    pub const fn query_row(&self) -> u64 {
        self.heads * self.key_length
    }
}
