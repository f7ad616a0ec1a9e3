//! The weights of a folder, from the headers of its safetensors files.

use std::collections::BTreeSet;
use std::fmt;
use std::io::{self, Read};
use std::path::Path;

use safetensors::tensor::{Dtype, Metadata, TensorInfo};
use serde::Deserialize;
use serde::de::{IgnoredAny, MapAccess, Visitor};

use super::{FolderError, read_limited};
use crate::read_scope::ReadScope;

/// The longest header of one file that is read.
const HEADER_LIMIT: u64 = 8 << 20;
/// The longest index that is read.
const INDEX_LIMIT: u64 = 64 << 20;
/// The most files of one model.
const FILE_LIMIT: usize = 4_096;

/// The bytes of a model's weights, by how several GPUs share them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FolderWeights {
    /// Weights that are divided: each GPU has its share.
    pub split: u64,
    /// Weights that are divided, with a share of at least one key head.
    pub keys_and_values: u64,
    /// Weights that each GPU has in full.
    pub replicated: u64,
    /// The part of all weights that is stored in single precision.
    pub single_precision: u64,
    /// The number of files.
    pub files: u64,
    /// Whether files were missing and the sizes come from the index.
    pub from_index: bool,
}

impl FolderWeights {
    /// Reads the headers of all files, or the index where files are missing.
    pub(crate) fn read(scope: &ReadScope, folder: &Path) -> Result<Self, FolderError> {
        let index = folder.join("model.safetensors.index.json");
        let single = folder.join("model.safetensors");
        if !index.is_file() {
            if !single.is_file() {
                return Err(FolderError::NoWeights { path: folder.to_owned() });
            }
            let mut weights = Self { files: 1, ..Self::default() };
            weights.add_file(scope, &single)?;
            return Ok(weights);
        }
        let text = read_limited(scope, &index, INDEX_LIMIT)?;
        let parsed = serde_json::from_slice(&text);
        let Index { metadata, weight_map } =
            parsed.map_err(|problem| FolderError::Json { path: index.clone(), problem })?;
        drop(text);
        let files = weight_map.0;
        if let Some(outside) = files.iter().find(|file| !is_plain(file)) {
            return Err(FolderError::Outside(outside.clone()));
        }
        if files.len() > FILE_LIMIT {
            return Err(FolderError::TooManyFiles(FILE_LIMIT));
        }
        let mut weights = Self { files: files.len() as u64, ..Self::default() };
        for file in &files {
            match weights.add_file(scope, &folder.join(file)) {
                Ok(()) => {}
                Err(FolderError::Io { problem, .. })
                    if problem.kind() == io::ErrorKind::NotFound && metadata.total_size > 0 =>
                {
                    return Ok(Self { split: metadata.total_size, from_index: true, ..Self::of(files.len()) });
                }
                Err(other) => return Err(other),
            }
        }
        Ok(weights)
    }

    fn of(files: usize) -> Self {
        Self { files: files as u64, ..Self::default() }
    }

    /// Returns the bytes of all weights, as one GPU stores them.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.split.saturating_add(self.keys_and_values).saturating_add(self.replicated)
    }

    fn add_file(&mut self, scope: &ReadScope, path: &Path) -> Result<(), FolderError> {
        for (name, tensor) in read_header(scope, path)?.tensors() {
            let bytes = (tensor.data_offsets.1 - tensor.data_offsets.0) as u64;
            let place = match sharing_of(&name, tensor) {
                Sharing::Split => &mut self.split,
                Sharing::KeysAndValues => &mut self.keys_and_values,
                Sharing::Replicated => &mut self.replicated,
            };
            *place = place.saturating_add(bytes);
            if tensor.dtype == Dtype::F32 {
                self.single_precision = self.single_precision.saturating_add(bytes);
            }
        }
        Ok(())
    }
}

/// How several GPUs share a tensor.
enum Sharing {
    Split,
    KeysAndValues,
    Replicated,
}

fn sharing_of(name: &str, tensor: &TensorInfo) -> Sharing {
    let has = |part: &str| name.contains(part);
    let sees = has("visual.") || has("vision") || has("audio") || has("multi_modal_projector");
    let whole = has("kv_a_proj") || has("q_a_proj") || has("mlp.gate.") || has("norm") || sees;
    match tensor.shape.len() < 2 || whole {
        true => Sharing::Replicated,
        false if has(".k_proj.") || has(".v_proj.") => Sharing::KeysAndValues,
        false => Sharing::Split,
    }
}

/// Reads the header of one file and checks it against the file's length.
fn read_header(scope: &ReadScope, path: &Path) -> Result<Metadata, FolderError> {
    let failed = |problem| FolderError::Io { path: path.to_owned(), problem };
    let mut file = scope.open(path).map_err(failed)?;
    let length = file.metadata().map_err(failed)?.len();
    let mut size = [0; 8];
    file.read_exact(&mut size).map_err(failed)?;
    let size = u64::from_le_bytes(size);
    if size > HEADER_LIMIT {
        return Err(FolderError::TooLong { path: path.to_owned(), limit: HEADER_LIMIT });
    }
    let wanted = size + 8;
    if wanted > length {
        return Err(FolderError::BeyondFile { path: path.to_owned(), length, wanted });
    }
    let mut text = Vec::new();
    file.take(size).read_to_end(&mut text).map_err(failed)?;
    let parsed = serde_json::from_slice::<Metadata>(&text);
    let header = parsed.map_err(|problem| FolderError::Json { path: path.to_owned(), problem })?;
    let wanted = wanted.saturating_add(header.data_len() as u64);
    match wanted > length {
        true => Err(FolderError::BeyondFile { path: path.to_owned(), length, wanted }),
        false => Ok(header),
    }
}

/// Returns whether a name has no path in it.
fn is_plain(name: &str) -> bool {
    Path::new(name).file_name().is_some_and(|file| file == name) && !name.contains(['/', '\\', '\0'])
}

#[derive(Deserialize)]
struct Index {
    #[serde(default)]
    metadata: IndexMetadata,
    weight_map: FileNames,
}

#[derive(Default, Deserialize)]
struct IndexMetadata {
    #[serde(default)]
    total_size: u64,
}

/// The files that an index names. It may name a hundred thousand tensors; only the files are kept.
struct FileNames(BTreeSet<String>);

impl<'de> Deserialize<'de> for FileNames {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Files;
        impl<'de> Visitor<'de> for Files {
            type Value = FileNames;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map from tensors to files")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<FileNames, A::Error> {
                let mut files = BTreeSet::new();
                while let Some((_, file)) = map.next_entry::<IgnoredAny, std::borrow::Cow<'de, str>>()? {
                    if !files.contains(file.as_ref()) {
                        files.insert(file.into_owned());
                    }
                }
                Ok(FileNames(files))
            }
        }
        deserializer.deserialize_map(Files)
    }
}
