//! The shape of a model in a GGUF file.

use crate::arch::{self, Recurrence, Windows};
use crate::shape::{Experts, LONGEST, Layer, MOST_HEADS, MOST_LAYERS, MOST_TOKENS, ModelShape, State, WIDEST};

use super::parts::GgufModel;
use super::value::{Metadata, Value};

/// Why a file does not state the shape of its model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// A key is missing.
    #[error("the file does not say {0:?}")]
    Missing(String),
    /// A value is larger than that of any model.
    #[error("the file says {key:?} is {value}; at most {limit} is read")]
    TooLarge {
        /// The name of the key.
        key: String,
        /// The stated value.
        value: u64,
        /// The limit.
        limit: u64,
    },
    /// A list by layer has another length than the model has layers.
    #[error("the file lists {length} values for {key:?}, but has {layers} layers")]
    ListLength {
        /// The name of the key.
        key: String,
        /// The length of the list.
        length: u64,
        /// The number of layers.
        layers: u64,
    },
    /// The file is a projector, which is not a model by itself.
    #[error("the file is a projector: name it beside the model that it belongs to")]
    Projector,
}

impl GgufModel {
    /// Returns what decides about the model's memory.
    pub fn shape(&self) -> Result<ModelShape, ShapeError> {
        let architecture = self.metadata().text("general.architecture");
        let architecture = architecture.ok_or_else(|| ShapeError::Missing("general.architecture".to_owned()))?;
        if architecture == "clip" {
            return Err(ShapeError::Projector);
        }
        let keys = Keys { metadata: self.metadata(), architecture };
        let layer_count = keys.required("block_count", MOST_LAYERS)?;
        let embedding = keys.required("embedding_length", WIDEST)?;
        let mut layers = keys.attention(layer_count, embedding)?;
        keys.feed_forward(&mut layers)?;
        keys.windows(&mut layers)?;
        keys.recurrence(&mut layers, embedding)?;
        keys.caches(&mut layers)?;
        self.builds(&mut layers);
        let latent = keys.optional("attention.key_length_mla", MOST_HEADS)?.is_some_and(|length| length > 0)
            && keys.optional("attention.value_length_mla", MOST_HEADS)?.is_some_and(|length| length > 0);
        Ok(ModelShape {
            architecture: architecture.into(),
            embedding,
            vocabulary: self.vocabulary(&keys)?,
            trained_context: keys.required("context_length", LONGEST)?,
            layers,
            latent,
            encoder: arch::is_encoder(architecture),
            weighs_first: arch::weighs_first(architecture),
        })
    }

    /// Returns the rows of the token embedding, which is what is computed with; else what the file states.
    fn vocabulary(&self, keys: &Keys<'_>) -> Result<u64, ShapeError> {
        let embedded = self.tensor("token_embd.weight").map(|tensor| tensor.dimensions()[1]);
        let said = || keys.metadata.count(&keys.name("vocab_size"));
        let listed = || keys.metadata.length("tokenizer.ggml.tokens");
        let count = embedded.or_else(said).or_else(listed).unwrap_or(0);
        bounded("tokens", count, MOST_TOKENS)
    }
}

fn bounded(key: &str, value: u64, limit: u64) -> Result<u64, ShapeError> {
    match value > limit {
        true => Err(ShapeError::TooLarge { key: key.to_owned(), value, limit }),
        false => Ok(value),
    }
}

/// The keys of one architecture.
struct Keys<'a> {
    metadata: &'a Metadata,
    architecture: &'a str,
}

impl Keys<'_> {
    fn name(&self, key: &str) -> String {
        format!("{}.{key}", self.architecture)
    }

    fn optional(&self, key: &str, limit: u64) -> Result<Option<u64>, ShapeError> {
        let name = self.name(key);
        self.metadata.count(&name).map(|value| bounded(&name, value, limit)).transpose()
    }

    fn required(&self, key: &str, limit: u64) -> Result<u64, ShapeError> {
        self.optional(key, limit)?.ok_or_else(|| ShapeError::Missing(self.name(key)))
    }

    /// Returns a value for each layer: one for all, or a list.
    fn by_layer(&self, key: &str, layers: u64, limit: u64) -> Result<Option<Vec<u64>>, ShapeError> {
        let name = self.name(key);
        let list = match self.metadata.get(&name) {
            None => return Ok(None),
            Some(Value::List(list)) => list,
            Some(value) => {
                let count = value.count().ok_or_else(|| ShapeError::Missing(name.clone()))?;
                let count = bounded(&name, count, limit)?;
                return Ok(Some((0..layers).map(|_| count).collect()));
            }
        };
        if list.len() as u64 != layers {
            return Err(ShapeError::ListLength { key: name, length: list.len() as u64, layers });
        }
        let count = |value: &Value| {
            let count = value.count().ok_or_else(|| ShapeError::Missing(name.clone()))?;
            bounded(&name, count, limit)
        };
        list.iter().map(count).collect::<Result<Vec<_>, _>>().map(Some)
    }

    /// Returns heads and their lengths. Where lengths are missing, the embedding is divided among the heads.
    fn attention(&self, count: u64, embedding: u64) -> Result<Vec<Layer>, ShapeError> {
        let none = || (0..count).map(|_| 0).collect();
        let heads = self.by_layer("attention.head_count", count, MOST_HEADS)?.unwrap_or_else(none);
        let kv_heads = self.by_layer("attention.head_count_kv", count, MOST_HEADS)?.unwrap_or_else(|| heads.clone());
        let most_heads = heads.iter().copied().find(|heads| *heads > 0);
        let divided = most_heads.and_then(|heads| embedding.checked_div(heads)).unwrap_or(0);
        let length = |key: &str| Ok(self.optional(key, MOST_HEADS)?.unwrap_or(divided));
        let (key_length, value_length) = (length("attention.key_length")?, length("attention.value_length")?);
        let lists = heads.into_iter().zip(kv_heads);
        Ok(lists
            .map(|(heads, kv_heads)| Layer {
                heads,
                kv_heads,
                key_length,
                value_length,
                caches: true,
                ..Layer::default()
            })
            .collect())
    }

    fn feed_forward(&self, layers: &mut [Layer]) -> Result<(), ShapeError> {
        let count = layers.len() as u64;
        let none = || (0..count).map(|_| 0).collect::<Vec<_>>();
        let dense = self.by_layer("feed_forward_length", count, WIDEST)?.unwrap_or_else(none);
        let expert = self.by_layer("expert_feed_forward_length", count, WIDEST)?.unwrap_or_else(|| dense.clone());
        let used = self.by_layer("expert_used_count", count, MOST_HEADS)?.unwrap_or_else(none);
        for (index, layer) in layers.iter_mut().enumerate() {
            layer.feed_forward = dense[index];
            layer.experts =
                (used[index] > 0).then_some(Experts { used: used[index], feed_forward: expert[index], shared: 0 });
        }
        Ok(())
    }

    fn windows(&self, layers: &mut [Layer]) -> Result<(), ShapeError> {
        let kind = arch::windows(self.architecture, layers.len());
        let said = self.optional("attention.sliding_window", LONGEST)?;
        let window = match kind {
            Windows::Never => return Ok(()),
            Windows::Pattern { default, fixed, .. } => match said {
                Some(0) => None,
                Some(said) => Some(fixed.unwrap_or(said)),
                None => default,
            },
            Windows::Listed | Windows::Attention => said.filter(|window| *window > 0),
        };
        let Some(window) = window else { return Ok(()) };
        let windowed = self.windowed(kind, layers)?;
        let key_length = self.optional("attention.key_length_swa", MOST_HEADS)?;
        let value_length = self.optional("attention.value_length_swa", MOST_HEADS)?;
        for (layer, _) in layers.iter_mut().zip(windowed).filter(|(_, windowed)| *windowed) {
            layer.window = Some(window);
            layer.key_length = key_length.unwrap_or(layer.key_length);
            layer.value_length = value_length.unwrap_or(layer.value_length);
        }
        Ok(())
    }

    /// Returns which layers have a window.
    fn windowed(&self, kind: Windows, layers: &[Layer]) -> Result<Vec<bool>, ShapeError> {
        const KEY: &str = "attention.sliding_window_pattern";
        let listed = matches!(self.metadata.get(&self.name(KEY)), Some(Value::List(_)));
        if listed && kind != Windows::Attention {
            let list = self.by_layer(KEY, layers.len() as u64, LONGEST)?.unwrap_or_default();
            return Ok(list.into_iter().map(|windowed| windowed > 0).collect());
        }
        let said = self.optional(KEY, LONGEST)?;
        Ok(match kind {
            Windows::Pattern { period, dense_first, .. } => {
                let period = said.unwrap_or(period);
                (0..layers.len() as u64).map(|layer| has_window(layer, period, dense_first)).collect()
            }
            Windows::Attention => layers.iter().map(|layer| layer.kv_heads > 0).collect(),
            Windows::Listed | Windows::Never => vec![false; layers.len()],
        })
    }

    fn recurrence(&self, layers: &mut [Layer], embedding: u64) -> Result<(), ShapeError> {
        let kind = arch::recurrence(self.architecture);
        if kind == Recurrence::None {
            return Ok(());
        }
        let recurrent = self.recurrent(kind, layers)?;
        if kind == Recurrence::WithoutKeysAndFeedForward {
            for layer in layers.iter_mut().filter(|layer| layer.feed_forward > 0) {
                layer.caches = false;
            }
        }
        let most_heads = layers.iter().map(|layer| layer.heads).max().unwrap_or(0);
        let state = self.state(embedding, most_heads)?;
        for (layer, _) in layers.iter_mut().zip(recurrent).filter(|(_, recurrent)| *recurrent) {
            layer.state = Some(state);
            layer.caches = kind == Recurrence::Beside;
        }
        Ok(())
    }

    /// Returns which layers keep a state.
    fn recurrent(&self, kind: Recurrence, layers: &[Layer]) -> Result<Vec<bool>, ShapeError> {
        let count = layers.len() as u64;
        Ok(match kind {
            Recurrence::None => vec![false; layers.len()],
            Recurrence::All | Recurrence::Beside => vec![true; layers.len()],
            Recurrence::WithoutKeys => layers.iter().map(|layer| layer.kv_heads == 0).collect(),
            Recurrence::WithoutKeysAndFeedForward => {
                layers.iter().map(|layer| layer.kv_heads == 0 && layer.feed_forward == 0).collect()
            }
            Recurrence::Interval(interval) => match self.by_layer("attention.recurrent_layers", count, LONGEST)? {
                Some(list) => list.into_iter().map(|recurrent| recurrent > 0).collect(),
                None => {
                    let interval = self.optional("full_attention_interval", LONGEST)?.unwrap_or(interval).max(1);
                    (1..=count).map(|layer| !layer.is_multiple_of(interval)).collect()
                }
            },
        })
    }

    /// Returns the state that one recurrent layer keeps for a sequence.
    fn state(&self, embedding: u64, heads: u64) -> Result<State, ShapeError> {
        let get = |key: &str, limit| Ok::<_, ShapeError>(self.optional(key, limit)?.unwrap_or(0));
        let kernel = get("ssm.conv_kernel", MOST_HEADS)?;
        if let Some(head) = self.optional("wkv.head_size", MOST_HEADS)?.filter(|head| *head > 0) {
            let shifts = self.optional("token_shift_count", MOST_HEADS)?.unwrap_or(2);
            return Ok(State { convolution: shifts * embedding, recurrence: embedding * head, width: embedding });
        }
        if let Some(cache) = self.optional("shortconv.l_cache", MOST_HEADS)?.filter(|cache| *cache > 0) {
            return Ok(State { convolution: embedding * (cache - 1), recurrence: 0, width: embedding });
        }
        if let Some(head) = self.optional("kda.head_dim", MOST_HEADS)?.filter(|head| *head > 0) {
            let inner = heads * head;
            let kept = if kernel > 0 { kernel - 1 } else { 3 };
            return Ok(State { convolution: 3 * kept * inner, recurrence: head * inner, width: inner });
        }
        let (inner, state) = (get("ssm.inner_size", WIDEST)?, get("ssm.state_size", WIDEST)?);
        let groups = get("ssm.group_count", MOST_HEADS)?;
        let convolved = inner + 2 * groups * state;
        Ok(State { convolution: kernel.saturating_sub(1) * convolved, recurrence: state * inner, width: convolved })
    }

    /// Marks layers that use the cache of another, layers that only a draft uses, and indexers.
    fn caches(&self, layers: &mut [Layer]) -> Result<(), ShapeError> {
        let count = layers.len() as u64;
        let shared = self.optional("attention.shared_kv_layers", MOST_LAYERS)?.unwrap_or(0);
        let own = arch::own_cache_layers(self.architecture).unwrap_or(count).min(count.saturating_sub(shared));
        let predicting = self.optional("nextn_predict_layers", MOST_LAYERS)?.unwrap_or(0);
        let own = own.min(if predicting < count { count - predicting } else { count });
        let indexer = self.optional("attention.indexer.key_length", MOST_HEADS)?.unwrap_or(0);
        let encoder = arch::is_encoder(self.architecture);
        for (index, layer) in (0..).zip(layers.iter_mut()) {
            layer.caches &= index < own && !encoder;
            layer.indexer_length = if layer.caches { indexer } else { 0 };
        }
        Ok(())
    }
}

/// Returns whether a layer has a window where one of `period` has none. With a period of 0, all layers have one.
const fn has_window(layer: u64, period: u64, dense_first: bool) -> bool {
    match (period, dense_first) {
        (0, _) => true,
        (_, true) => !layer.is_multiple_of(period),
        (_, false) => layer % period < period - 1,
    }
}
