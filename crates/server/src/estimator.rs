//! Estimates from the headers of model files, for those who may not read the disk themselves.
//!
//! The server reads only below directories that its configuration lists, a few files at a time, away from the threads
//! that answer requests and from the one that decides. A path elsewhere is refused before the disk is asked, so that
//! nobody learns what is there.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use berth_domain::estimate::{Estimate, FileEstimate, Options};
use berth_domain::{Arg, FilePath, GpuCount, ModelSpec};
use berth_estimate::launch::{self, NotAgreed, Program};
use berth_estimate::{Model, Reach};
use berth_wire::{EstimateRequest, Invalid};
use tokio::sync::Semaphore;

/// How many estimates are made at once.
const AT_ONCE: usize = 2;
/// How long one may take: the disk may be somebody else's.
const PATIENCE: Duration = Duration::from_secs(30);

/// Why there is no estimate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EstimatorError {
    /// What was asked cannot be meant, or not be read.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// The disk does not answer.
    #[error("the files were not read within {} s: is their disk there?", PATIENCE.as_secs())]
    Slow,
}

/// Who makes estimates.
#[derive(Clone, Debug)]
pub struct Estimator {
    directories: Arc<[PathBuf]>,
    turns: Arc<Semaphore>,
}

impl Estimator {
    /// One that reads below these directories and nowhere else.
    #[must_use]
    pub fn new(directories: &[PathBuf]) -> Self {
        Self { directories: directories.into(), turns: Arc::new(Semaphore::new(AT_ONCE)) }
    }

    /// How much memory a file's model needs.
    pub async fn estimate(&self, request: EstimateRequest) -> Result<Estimate, EstimatorError> {
        self.check(&request, "")?;
        self.read(move |reach| {
            let model = open(&reach, &request, "")?;
            model.estimate(&request.options()).map_err(|error| Invalid::new("file", error.to_string()))
        })
        .await
    }

    /// Estimates the memory of a model that is to be put into the catalogue, for its GPU counts and its arguments; what
    /// these leave out is added to them.
    pub async fn complete(&self, request: EstimateRequest, spec: ModelSpec) -> Result<ModelSpec, EstimatorError> {
        self.check(&request, "memory.")?;
        if spec.is_cpu_only() {
            return Err(Invalid::new(
                "memory.file",
                "a model without GPUs (gpu_counts [0]) needs none of their memory",
            )
            .into());
        }
        self.read(move |reach| {
            let model = open(&reach, &request, "memory.")?;
            complete(&model, &request, spec)
        })
        .await
    }

    /// Refuses what is not even looked for.
    fn check(&self, request: &EstimateRequest, prefix: &str) -> Result<(), Invalid> {
        if request.runner.is_some() {
            let why =
                "files on a runner's disk are not read yet: name a file that the server can read, or state the memory";
            return Err(Invalid::new(format!("{prefix}runner"), why));
        }
        let paths = [("file", Some(&request.file)), ("projector", request.projector.as_ref())];
        for (field, path) in paths.into_iter().filter_map(|(field, path)| Some((field, path?))) {
            let below = |directory: &PathBuf| Path::new(path.as_str()).starts_with(directory);
            if !self.directories.iter().any(below) {
                return Err(Invalid::new(format!("{prefix}{field}"), self.outside(path)));
            }
        }
        Ok(())
    }

    fn outside(&self, path: &FilePath) -> String {
        if self.directories.is_empty() {
            return format!(
                "the server reads no model files: list the directory of {path} in estimate.model_dirs of its \
                 configuration, or state the memory"
            );
        }
        let list: Vec<String> = self.directories.iter().map(|directory| directory.display().to_string()).collect();
        format!(
            "the server reads model files below {} only: put {path} there, or add its directory to \
             estimate.model_dirs of its configuration",
            list.join(", ")
        )
    }

    /// Does something slow, in turn.
    async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(Reach) -> Result<T, Invalid> + Send + 'static,
    ) -> Result<T, EstimatorError> {
        let (turns, directories) = (self.turns.clone(), self.directories.clone());
        let worked = async {
            let turn = turns.acquire_owned().await.map_err(|_| EstimatorError::Slow)?;
            let read = tokio::task::spawn_blocking(move || {
                // Whoever gave up waiting has not given back the disk: the turn ends with the work.
                let _turn = turn;
                work(Reach::below(&directories))
            });
            read.await.map_err(|_| EstimatorError::Slow)?.map_err(EstimatorError::from)
        };
        tokio::time::timeout(PATIENCE, worked).await.map_err(|_| EstimatorError::Slow)?
    }
}

fn open(reach: &Reach, request: &EstimateRequest, prefix: &str) -> Result<Model, Invalid> {
    let refuse =
        |field: &str, error: berth_estimate::OpenError| Invalid::new(format!("{prefix}{field}"), error.to_string());
    let model = Model::open_within(reach, Path::new(request.file.as_str())).map_err(|error| refuse("file", error))?;
    match &request.projector {
        None => Ok(model),
        Some(path) => {
            model.with_projector_within(reach, Path::new(path.as_str())).map_err(|error| refuse("projector", error))
        }
    }
}

fn complete(model: &Model, request: &EstimateRequest, mut spec: ModelSpec) -> Result<ModelSpec, Invalid> {
    let options = request.options();
    let asked = Options { gpu_counts: Some(spec.gpu_counts.clone()).filter(|counts| !counts.is_empty()), ..options };
    let args: Vec<&str> = spec.args.iter().map(Arg::as_str).collect();
    let program = Program::of(&spec.constraints.runtime);
    let agreed = launch::agree(model, program, &asked, &args, u64::from(spec.concurrency))
        .map_err(|why| refused(&spec, &why))?;
    let left_out = |count: &&GpuCount| !agreed.estimate.counts.contains_key(count);
    if let Some(count) = spec.gpu_counts.iter().find(left_out) {
        return Err(Invalid::new("gpu_counts", format!("the model cannot be split over {count} GPUs")));
    }
    let missing = agreed.missing.into_iter().map(Arg::new).collect::<Result<Vec<_>, _>>();
    spec.args.extend(missing.map_err(|error| Invalid::new("args", error.to_string()))?);
    spec.memory.estimated = Some(agreed.estimate.memory());
    spec.memory.estimate = Some(Arc::new(FileEstimate {
        file: request.file.clone(),
        projector: request.projector.clone(),
        options,
        made: agreed.estimate,
    }));
    Ok(spec)
}

fn refused(spec: &ModelSpec, why: &NotAgreed) -> Invalid {
    match why {
        NotAgreed::Estimate(error) => Invalid::new("memory", error.to_string()),
        NotAgreed::OtherProgram(_) => Invalid::new(
            "memory.file",
            format!("{why} ({}): name other files, or state the memory", spec.constraints.runtime),
        ),
        NotAgreed::Args(_) | NotAgreed::Differ(_) => {
            Invalid::new("args", format!("{why}: say the same in args and in memory, or leave it out of one of them"))
        }
    }
}
