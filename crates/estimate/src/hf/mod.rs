//! Hugging Face folders: `config.json`, and weights in safetensors files.
//!
//! As with GGUF, only headers are read, and a folder is untrusted input: an index may name files of its own folder
//! only, and everything that is read has a limit.

mod config;
mod tensors;

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use berth_domain::GpuCount;

use crate::inputs::CacheType;
use crate::reach::Reach;
use crate::shape::Shape;

pub(crate) use config::Config;
pub use tensors::FolderWeights;

/// Why a folder is refused.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// A file cannot be read.
    #[error("{} cannot be read: {problem}", path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// Why not.
        #[source]
        problem: io::Error,
    },
    /// A file is not what it should be.
    #[error("{} is not as expected: {problem}", path.display())]
    Json {
        /// Which file.
        path: PathBuf,
        /// Where it is wrong.
        #[source]
        problem: serde_json::Error,
    },
    /// A file is larger than any of its kind.
    #[error("{} is larger than {limit} bytes where it must be read whole", path.display())]
    TooLong {
        /// Which file.
        path: PathBuf,
        /// The most that is read.
        limit: u64,
    },
    /// A file is shorter than its header says.
    #[error("{} has {length} bytes, but its header speaks of {wanted}", path.display())]
    BeyondFile {
        /// Which file.
        path: PathBuf,
        /// How long it is.
        length: u64,
        /// How long it would have to be.
        wanted: u64,
    },
    /// An index that points elsewhere.
    #[error("the index names {0:?}, which is not a file of its folder")]
    Outside(String),
    /// More files than a model has.
    #[error("the index names more than {0} files")]
    TooManyFiles(usize),
    /// No weights.
    #[error("{} has neither model.safetensors nor an index of parts", path.display())]
    NoWeights {
        /// Which folder.
        path: PathBuf,
    },
    /// Something that the configuration must say.
    #[error("config.json does not say {0}")]
    Missing(&'static str),
    /// Something that no model has.
    #[error("config.json says {key} is {value}; at most {limit} is read")]
    TooLarge {
        /// Which one.
        key: &'static str,
        /// What it says.
        value: u64,
        /// The most it may be.
        limit: u64,
    },
}

/// A model in a folder.
#[derive(Clone, Debug)]
pub struct FolderModel {
    pub(crate) config: Config,
    pub(crate) weights: FolderWeights,
    name: Option<String>,
}

impl FolderModel {
    /// The longest `config.json` that is read.
    const CONFIG_LIMIT: u64 = 4 << 20;

    /// Reads `config.json` and the headers of the weights.
    pub fn open(folder: &Path) -> Result<Self, FolderError> {
        Self::open_within(&Reach::everything(), folder)
    }

    /// The same, of files within reach.
    pub fn open_within(reach: &Reach, folder: &Path) -> Result<Self, FolderError> {
        let path = folder.join("config.json");
        let text = read_limited(reach, &path, Self::CONFIG_LIMIT)?;
        let raw = serde_json::from_slice(&text).map_err(|problem| FolderError::Json { path, problem })?;
        let config = Config::new(raw)?;
        let weights = FolderWeights::read(reach, folder)?;
        let name = folder.file_name().map(|name| name.to_string_lossy().into_owned());
        Ok(Self { config, weights, name })
    }

    /// The name of its folder.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// What of the model decides about its memory.
    #[must_use]
    pub const fn shape(&self) -> &Shape {
        &self.config.shape
    }

    /// Its weights.
    #[must_use]
    pub const fn weights(&self) -> &FolderWeights {
        &self.weights
    }

    /// How its weights were made smaller, if they were.
    #[must_use]
    pub fn quantization(&self) -> Option<&str> {
        self.config.quantization.as_deref()
    }

    /// How a cache stores keys and values unless somebody says otherwise: as the model computes.
    #[must_use]
    pub const fn cache_type(&self) -> CacheType {
        self.config.dtype
    }

    /// Whether the model can be split over so many GPUs: each must get whole heads and whole columns.
    #[must_use]
    pub fn allows(&self, count: GpuCount) -> bool {
        let parts = u64::from(count.get());
        let divides = |whole: u64| parts > 0 && whole.is_multiple_of(parts);
        let shape = self.shape();
        parts > 0
            && shape.layers.iter().all(|layer| {
                let keys = shape.latent || divides(layer.kv_heads) || parts.is_multiple_of(layer.kv_heads.max(1));
                let experts = layer.experts.is_none_or(|experts| divides(experts.feed_forward));
                divides(layer.heads) && keys && divides(layer.feed_forward) && experts
            })
    }

    /// Every GPU count up to `most` that the model can be split over.
    #[must_use]
    pub fn gpu_counts(&self, most: GpuCount) -> Vec<GpuCount> {
        (1..=most.get()).map(GpuCount::new).filter(|count| self.allows(*count)).collect()
    }
}

/// The whole of a small file.
fn read_limited(reach: &Reach, path: &Path, limit: u64) -> Result<Vec<u8>, FolderError> {
    let failed = |problem| FolderError::Io { path: path.to_owned(), problem };
    let mut text = Vec::new();
    let file = reach.open(path).map_err(failed)?;
    file.take(limit + 1).read_to_end(&mut text).map_err(failed)?;
    match text.len() as u64 > limit {
        true => Err(FolderError::TooLong { path: path.to_owned(), limit }),
        false => Ok(text),
    }
}
