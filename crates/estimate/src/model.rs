//! A model on disk, of either kind, and its estimate.

use std::path::Path;

use berth_domain::Bytes;

use crate::arch;
use crate::estimate::{Estimate, EstimateError, ModelSummary, Note, bytes};
use crate::gguf::{GgufError, GgufModel};
use crate::hf::{FolderError, FolderModel};
use crate::inputs::{CacheType, Defaults, InputError, Inputs, Options, Profile, check_cache_types};
use crate::profile::{GgufFacts, conservative, llama_cpp, vllm};
use crate::projector::{NotAProjector, Projector};
use crate::read_scope::ReadScope;

/// A model whose headers were read.
#[derive(Clone, Debug)]
pub enum Model {
    /// A model in GGUF files, with an optional projector.
    Gguf {
        /// The headers of the model.
        model: Box<GgufModel>,
        /// The part that turns images or sound into tokens.
        projector: Option<Projector>,
    },
    /// A folder with a `config.json` and safetensors files.
    Folder(Box<FolderModel>),
}

/// Why a model cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A GGUF file is refused.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// A folder is refused.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The projector's file is not a projector.
    #[error(transparent)]
    Projector(#[from] NotAProjector),
    /// A projector was named beside a folder, which has its own.
    #[error("a folder has its projector inside; none can be named beside it")]
    ProjectorOfFolder,
}

impl Model {
    /// Reads the headers of a GGUF file (and of its other parts), or of a folder.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        Self::open_within(&ReadScope::everything(), path)
    }

    /// Reads the headers of a model whose files may be read by `scope`.
    pub(crate) fn open_within(scope: &ReadScope, path: &Path) -> Result<Self, OpenError> {
        let unreadable = |problem: std::io::Error| GgufError::File { path: path.to_owned(), problem: problem.into() };
        match scope.is_folder(path).map_err(unreadable)? {
            true => Ok(Self::Folder(Box::new(FolderModel::open_within(scope, path)?))),
            false => Ok(Self::Gguf { model: Box::new(GgufModel::open_within(scope, path)?), projector: None }),
        }
    }

    /// Adds a projector to the model.
    pub fn with_projector(self, path: &Path) -> Result<Self, OpenError> {
        self.with_projector_within(&ReadScope::everything(), path)
    }

    /// Adds a projector whose file may be read by `scope`.
    pub(crate) fn with_projector_within(self, scope: &ReadScope, path: &Path) -> Result<Self, OpenError> {
        match self {
            Self::Gguf { model, .. } => {
                let projector = Projector::of(&GgufModel::open_within(scope, path)?)?;
                Ok(Self::Gguf { model, projector: Some(projector) })
            }
            Self::Folder(_) => Err(OpenError::ProjectorOfFolder),
        }
    }

    /// Returns the profile that is used unless the caller names one.
    #[must_use]
    pub const fn usual_profile(&self) -> Profile {
        match self {
            Self::Gguf { .. } => Profile::LlamaCpp,
            Self::Folder(_) => Profile::Vllm,
        }
    }

    /// Estimates how much memory the model needs.
    pub fn estimate(&self, options: &Options) -> Result<Estimate, EstimateError> {
        match self {
            Self::Gguf { model, projector } => estimate_gguf(model, *projector, options),
            Self::Folder(folder) => vllm::estimate(folder, options),
        }
    }
}

fn estimate_gguf(
    model: &GgufModel,
    projector: Option<Projector>,
    options: &Options,
) -> Result<Estimate, EstimateError> {
    let shape = model.shape()?;
    let inputs = Defaults {
        profile: Profile::LlamaCpp,
        trained_context: shape.trained_context,
        cache_type: CacheType::F16,
        projector: projector.is_some(),
    }
    .resolve(options)?;
    check_cache_types(&shape, &inputs)?;
    let facts = GgufFacts::new(model, shape, projector);
    let devices = |gpus: u16| match inputs.profile {
        Profile::LlamaCpp => llama_cpp::devices(&facts, &inputs, gpus),
        Profile::Conservative => conservative::devices(&facts, &inputs, gpus),
        Profile::Vllm => Err(InputError::Profile { profile: inputs.profile, files: "GGUF files" }.into()),
    };
    let counts = inputs.gpu_counts.iter().map(|count| Ok((*count, devices(count.get())?)));
    let counts = counts.collect::<Result<_, EstimateError>>()?;
    let host = match inputs.profile {
        Profile::LlamaCpp => llama_cpp::host(&facts, &inputs),
        _ => conservative::host(&facts),
    };
    Ok(Estimate {
        model: summary(model, &facts),
        counts,
        host: bytes(host)?,
        notes: notes(&facts.shape.architecture, facts.shape.trained_context, &inputs),
        inputs,
    })
}

fn summary(model: &GgufModel, facts: &GgufFacts) -> ModelSummary {
    ModelSummary {
        architecture: facts.shape.architecture.to_string(),
        name: model.metadata().text("general.name").map(ToOwned::to_owned),
        layers: facts.shape.layers.len(),
        trained_context: facts.shape.trained_context,
        weights: Bytes::new(facts.weights.total()),
        files: model.files(),
    }
}

/// Returns the notes that follow from the architecture and the inputs.
pub(crate) fn notes(architecture: &str, trained_context: u64, inputs: &Inputs) -> Vec<Note> {
    let unmodelled = arch::is_unmodelled(architecture).then_some(Note::UnmodelledCache);
    let beyond = (inputs.context > trained_context && trained_context > 0).then_some(Note::BeyondTrainedContext);
    unmodelled.into_iter().chain(beyond).collect()
}
