//! Hugging Face folders: `config.json`, and weights in safetensors files.
//!
//! As with GGUF, headers are read and data is not, and a folder is untrusted input: an index may name files of its own
//! folder only, and all that is read has a limit.

mod config;
mod tensors;

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use berth_domain::GpuCount;

use crate::inputs::CacheType;
use crate::read_scope::ReadScope;
use crate::shape::ModelShape;

pub(crate) use config::Config;
pub use tensors::FolderWeights;

/// Why a folder is refused.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// A file cannot be read.
    #[error("{} cannot be read: {problem}", path.display())]
    Io {
        /// The path of the file.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        problem: io::Error,
    },
    /// A file has invalid content.
    #[error("{} is not as expected: {problem}", path.display())]
    Json {
        /// The path of the file.
        path: PathBuf,
        /// The parse error.
        #[source]
        problem: serde_json::Error,
    },
    /// A file is larger than any of its kind.
    #[error("{} is larger than {limit} bytes where it must be read whole", path.display())]
    TooLong {
        /// The path of the file.
        path: PathBuf,
        /// The limit in bytes.
        limit: u64,
    },
    /// A file is shorter than its header states.
    #[error("{} has {length} bytes, but its header speaks of {wanted}", path.display())]
    BeyondFile {
        /// The path of the file.
        path: PathBuf,
        /// The length of the file.
        length: u64,
        /// The length that its header implies.
        wanted: u64,
    },
    /// An index names a file outside its folder.
    #[error("the index names {0:?}, which is not a file of its folder")]
    Outside(String),
    /// The model has more files than any other.
    #[error("the index names more than {0} files")]
    TooManyFiles(usize),
    /// The folder has no weights.
    #[error("{} has neither model.safetensors nor an index of parts", path.display())]
    NoWeights {
        /// The path of the folder.
        path: PathBuf,
    },
    /// A required key of the configuration is missing.
    #[error("config.json does not say {0}")]
    Missing(&'static str),
    /// A value is larger than that of any model.
    #[error("config.json says {key} is {value}; at most {limit} is read")]
    TooLarge {
        /// The name of the key.
        key: &'static str,
        /// The stated value.
        value: u64,
        /// The limit.
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
        Self::open_within(&ReadScope::everything(), folder)
    }

    /// Reads a folder whose files may be read by `scope`.
    pub(crate) fn open_within(scope: &ReadScope, folder: &Path) -> Result<Self, FolderError> {
        let path = folder.join("config.json");
        let text = read_limited(scope, &path, Self::CONFIG_LIMIT)?;
        let raw = serde_json::from_slice(&text).map_err(|problem| FolderError::Json { path, problem })?;
        let config = Config::new(raw)?;
        let weights = FolderWeights::read(scope, folder)?;
        let name = folder.file_name().map(|name| name.to_string_lossy().into_owned());
        Ok(Self { config, weights, name })
    }

    /// Returns the name of the folder.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Returns what decides about the model's memory.
    #[must_use]
    pub const fn shape(&self) -> &ModelShape {
        &self.config.shape
    }

    /// Returns the sizes of the weights.
    #[must_use]
    pub const fn weights(&self) -> &FolderWeights {
        &self.weights
    }

    /// Returns how the weights were quantized, if they were.
    #[must_use]
    pub fn quantization(&self) -> Option<&str> {
        self.config.quantization.as_deref()
    }

    /// Returns the default cache type: the type that the model computes in.
    #[must_use]
    pub const fn cache_type(&self) -> CacheType {
        self.config.dtype
    }

    /// Returns whether the model can be split over this many GPUs: each must get whole heads and whole columns.
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

    /// Returns all GPU counts up to `most` that the model can be split over.
    #[must_use]
    pub fn gpu_counts(&self, most: GpuCount) -> Vec<GpuCount> {
        (1..=most.get()).map(GpuCount::new).filter(|count| self.allows(*count)).collect()
    }
}

/// Reads the whole of a small file.
fn read_limited(scope: &ReadScope, path: &Path, limit: u64) -> Result<Vec<u8>, FolderError> {
    let failed = |problem| FolderError::Io { path: path.to_owned(), problem };
    let mut text = Vec::new();
    let file = scope.open(path).map_err(failed)?;
    file.take(limit + 1).read_to_end(&mut text).map_err(failed)?;
    match text.len() as u64 > limit {
        true => Err(FolderError::TooLong { path: path.to_owned(), limit }),
        false => Ok(text),
    }
}
