//! The shape of a model: what decides about its memory, whatever file it came from.

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
pub struct ModelShape {
    /// The architecture, as the file states it.
    pub architecture: Box<str>,
    /// The width of the rows that pass from layer to layer.
    pub embedding: u64,
    /// The number of tokens in the vocabulary.
    pub vocabulary: u64,
    /// The context that the model was trained for.
    pub trained_context: u64,
    /// The layers, first to last.
    pub layers: Vec<Layer>,
    /// Whether keys and values are one latent row (MLA), so that there is no cache of values.
    pub latent: bool,
    /// Whether the model reads all its input at once and caches nothing.
    pub encoder: bool,
    /// Whether the router weighs a token before the experts see it, so that each expert has a copy of the token.
    pub weighs_first: bool,
}

/// One layer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layer {
    /// The number of query heads.
    pub heads: u64,
    /// The number of key and value heads: fewer than `heads` where they are grouped.
    pub kv_heads: u64,
    /// The number of values in one head's key.
    pub key_length: u64,
    /// The number of values in one head's value.
    pub value_length: u64,
    /// The width of the feed-forward part that all tokens use, if there is one.
    pub feed_forward: u64,
    /// The experts, if the layer has any.
    pub experts: Option<Experts>,
    /// How the layer is built, as far as it matters for memory.
    pub build: Build,
    /// Whether the layer keeps keys and values of its own.
    pub caches: bool,
    /// How many tokens back the layer looks, if not to the beginning.
    pub window: Option<u64>,
    /// The number of values that an indexer keeps for each token.
    pub indexer_length: u64,
    /// The state that a recurrent layer keeps for each sequence instead of tokens.
    pub state: Option<State>,
}

/// How a layer is built, where layers of the same sizes need different buffers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Build {
    /// The feed-forward part has no gate, so one wide row of a token is in use instead of three.
    pub ungated: bool,
    /// Queries, keys and values come from one tensor, which stays in use until all three are read.
    pub fused_queries: bool,
    /// The feed-forward part takes the input of the attention, and both results are added at the end.
    pub parallel: bool,
    /// The experts add a bias to their results.
    pub biased_experts: bool,
}

/// Feed-forward parts of which each token uses a few.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Experts {
    /// The number of experts that a token uses.
    pub used: u64,
    /// The width of one expert.
    pub feed_forward: u64,
    /// The width of the expert that all tokens use in addition.
    pub shared: u64,
}

/// The state of a recurrent layer for each sequence, in values of 4 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// The size of the convolution's state.
    pub convolution: u64,
    /// The size of the recurrence's state.
    pub recurrence: u64,
    /// The width of the rows that pass through the layer.
    pub width: u64,
}

impl ModelShape {
    /// Returns the widest row of values that any layer caches for a token.
    #[must_use]
    pub fn widest_value_row(&self) -> u64 {
        self.layers.iter().map(Layer::value_row).max().unwrap_or(0)
    }
}

impl Layer {
    /// Returns the number of values in all keys of one token.
    #[must_use]
    pub const fn key_row(&self) -> u64 {
        self.kv_heads * self.key_length
    }

    /// Returns the number of values in all values of one token.
    #[must_use]
    pub const fn value_row(&self) -> u64 {
        self.kv_heads * self.value_length
    }

    /// Returns the number of values in all queries of one token.
    #[must_use]
    pub const fn query_row(&self) -> u64 {
        self.heads * self.key_length
    }
}
