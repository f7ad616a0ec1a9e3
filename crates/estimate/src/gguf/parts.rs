//! A model in one GGUF file or in several.

use std::path::{Path, PathBuf};

use super::error::GgufError;
use super::header::{Header, TENSOR_LIMIT};
use super::tensor::Tensor;
use super::value::Metadata;
use crate::read_scope::ReadScope;

/// The most files of one model.
const PART_LIMIT: u64 = 4_096;

/// A model: the metadata of its first file and the tensors of all.
#[derive(Clone, Debug)]
pub struct GgufModel {
    metadata: Metadata,
    tensors: Vec<Tensor>,
    files: u64,
}

impl GgufModel {
    /// Reads the headers of a model. Any of its parts may be named; the others are found beside it.
    pub fn open(path: &Path) -> Result<Self, GgufError> {
        Self::open_within(&ReadScope::everything(), path)
    }

    /// Reads the headers of a model whose files may be read by `scope`.
    pub(crate) fn open_within(scope: &ReadScope, path: &Path) -> Result<Self, GgufError> {
        let named = read(scope, path)?;
        let count = named.metadata.count("split.count").unwrap_or(1);
        if count <= 1 {
            return Ok(Self { metadata: named.metadata, tensors: named.tensors, files: 1 });
        }
        if count > PART_LIMIT {
            return Err(GgufError::TooManyParts { path: path.to_owned(), count, limit: PART_LIMIT });
        }
        let parts = PartNames::of(path, count)?;
        let first = if parts.path(1) == path { parts.check(path, 1, named)? } else { parts.read(scope, 1)? };
        let (metadata, mut tensors) = (first.metadata, first.tensors);
        for number in 2..=count {
            tensors.append(&mut parts.read(scope, number)?.tensors);
            if tensors.len() as u64 > TENSOR_LIMIT {
                return Err(GgufError::TooManyTensors { limit: TENSOR_LIMIT });
            }
        }
        tensors.sort_unstable_by(|a, b| a.name().cmp(b.name()));
        if let Some(pair) = tensors.windows(2).find(|pair| pair[0].name() == pair[1].name()) {
            return Err(GgufError::DuplicateTensor(pair[0].name().to_owned()));
        }
        let (found, expected) = (tensors.len() as u64, metadata.count("split.tensors.count"));
        match expected.filter(|expected| *expected != found) {
            Some(expected) => Err(GgufError::TensorCount { found, expected }),
            None => Ok(Self { metadata, tensors, files: count }),
        }
    }

    /// Makes a model of one header that was read already.
    #[must_use]
    pub fn from_header(header: Header) -> Self {
        Self { metadata: header.metadata, tensors: header.tensors, files: 1 }
    }

    /// Returns the metadata of the first file.
    #[must_use]
    pub const fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Returns the tensors, in the order of their names.
    #[must_use]
    pub fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    /// Returns the tensor with this name.
    #[must_use]
    pub fn tensor(&self, name: &str) -> Option<&Tensor> {
        self.tensors.binary_search_by(|tensor| tensor.name().cmp(name)).ok().and_then(|at| self.tensors.get(at))
    }

    /// Returns the number of files.
    #[must_use]
    pub const fn files(&self) -> u64 {
        self.files
    }
}

fn read(scope: &ReadScope, path: &Path) -> Result<Header, GgufError> {
    let refuse = |problem| GgufError::File { path: path.to_owned(), problem };
    let file = scope.open(path).map_err(|error| refuse(error.into()))?;
    let length = file.metadata().map_err(|error| refuse(error.into()))?.len();
    Header::read(file, length).map_err(refuse)
}

/// The names of the files of one model: `prefix-00001-of-00003.gguf`.
struct PartNames {
    folder: PathBuf,
    prefix: String,
    count: u64,
}

impl PartNames {
    fn of(path: &Path, count: u64) -> Result<Self, GgufError> {
        let ending = format!("-of-{count:05}.gguf");
        let name = path.file_name().and_then(|name| name.to_str());
        let numbered = name.and_then(|name| name.strip_suffix(ending.as_str()));
        let prefix = numbered.and_then(|numbered| {
            let (prefix, number) = numbered.rsplit_once('-')?;
            (number.len() == 5 && number.bytes().all(|byte| byte.is_ascii_digit())).then_some(prefix)
        });
        let Some(prefix) = prefix else {
            return Err(GgufError::PartName { path: path.to_owned(), count });
        };
        let folder = path.parent().map(Path::to_owned).unwrap_or_default();
        Ok(Self { folder, prefix: prefix.to_owned(), count })
    }

    fn path(&self, number: u64) -> PathBuf {
        self.folder.join(format!("{}-{number:05}-of-{:05}.gguf", self.prefix, self.count))
    }

    fn read(&self, scope: &ReadScope, number: u64) -> Result<Header, GgufError> {
        let path = self.path(number);
        let header = read(scope, &path)?;
        self.check(&path, number, header)
    }

    /// Refuses a part that belongs to another model.
    fn check(&self, path: &Path, number: u64, header: Header) -> Result<Header, GgufError> {
        let no = header.metadata.count("split.no").unwrap_or(0).saturating_add(1);
        let count = header.metadata.count("split.count").unwrap_or(1);
        match (no, count) == (number, self.count) {
            true => Ok(header),
            false => Err(GgufError::PartMismatch {
                path: path.to_owned(),
                no,
                count,
                expected: number,
                expected_count: self.count,
            }),
        }
    }
}
