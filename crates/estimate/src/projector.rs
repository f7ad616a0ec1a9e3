//! Projectors: the part of a model that turns images or sound into tokens. They are GGUF files of their own.

use crate::gguf::{GgufModel, Metadata};
use crate::inputs::Inputs;
use crate::shape::{LONGEST, MOST_HEADS, WIDEST};

/// The tokens of the largest image, where neither file nor architecture has a smaller limit.
const IMAGE_TOKENS: u64 = 4_096;

/// The sizes of a projector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Projector {
    weights: u64,
    /// Patches of the largest image, or frames of sound.
    positions: u64,
    embedding: u64,
    feed_forward: u64,
    heads: u64,
}

/// The file is not a projector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the file is no projector: its architecture is {architecture:?}")]
pub struct NotAProjector {
    /// The architecture that the file states.
    pub architecture: String,
}

impl Projector {
    /// Reads a projector from its headers.
    pub fn of(model: &GgufModel) -> Result<Self, NotAProjector> {
        let metadata = model.metadata();
        let architecture = metadata.text("general.architecture").unwrap_or_default();
        if architecture != "clip" {
            return Err(NotAProjector { architecture: architecture.to_owned() });
        }
        let modality = if metadata.count("clip.vision.embedding_length").is_some() { "vision" } else { "audio" };
        let get = |key: &str, limit| metadata.count(&format!("clip.{modality}.{key}")).unwrap_or(0).min(limit);
        Ok(Self {
            weights: model.tensors().iter().fold(0, |sum: u64, tensor| sum.saturating_add(tensor.bytes())),
            positions: positions(metadata, modality).min(LONGEST),
            embedding: get("embedding_length", WIDEST),
            feed_forward: get("feed_forward_length", WIDEST),
            heads: get("attention.head_count", MOST_HEADS),
        })
    }

    /// Returns the bytes of the tensors and of the buffer for one image.
    #[must_use]
    pub(crate) fn bytes(self, inputs: &Inputs) -> u128 {
        let positions = u128::from(self.positions);
        let width = 5 * u128::from(self.embedding) + 3 * u128::from(self.feed_forward);
        let scores = if inputs.flash_attention { 0 } else { u128::from(self.heads) * positions };
        u128::from(self.weights) + 4 * positions * (width + scores)
    }
}

/// Returns how many positions the largest input has.
fn positions(metadata: &Metadata, modality: &str) -> u64 {
    if modality == "audio" {
        return 1_500; // thirty seconds of sound
    }
    let get = |key: &str| metadata.count(&format!("clip.vision.{key}")).filter(|value| *value > 0);
    let patch = get("patch_size").unwrap_or(14).min(MOST_HEADS);
    let merge = get("spatial_merge_size").map(|merge| merge.min(64));
    let kind = metadata.text("clip.projector_type").or_else(|| metadata.text("clip.vision.projector_type"));
    if let Some(pixels) = get("image_max_pixels") {
        return pixels / (patch * patch);
    }
    // Projectors that merge patches take images of any size; the program limits the tokens.
    match merge.or(kind.filter(|kind| kind.starts_with("qwen")).map(|_| 2)) {
        Some(merge) => IMAGE_TOKENS * merge * merge,
        None => (get("image_size").unwrap_or(0).min(WIDEST) / patch).pow(2),
    }
}
