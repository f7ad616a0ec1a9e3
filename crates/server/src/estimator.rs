//! Estimates from the headers of model files, for those who may not read the disk themselves.
//!
//! The server reads only below directories that its configuration lists, a few files at a time, away from the threads
//! that answer requests and from the one that decides. Files on a runner's disk are read by its agent, which has a list
//! of its own.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use berth_domain::estimate::{Answer, Asked, Estimate, FileEstimate, Found, Launch, Options, Question, Refusal};
use berth_domain::{GpuCount, ModelSpec};
use berth_estimate::Reader;
use berth_wire::{EstimateRequest, Invalid, RequestKind};
use tokio::sync::Semaphore;

use crate::requests::{AskError, Requests};

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
    /// The runner with the files does not answer.
    #[error(transparent)]
    Ask(#[from] AskError),
}

/// Who makes estimates.
#[derive(Clone, Debug)]
pub struct Estimator {
    reader: Arc<Reader>,
    turns: Arc<Semaphore>,
    requests: Arc<Requests>,
}

impl Estimator {
    /// One that reads below these directories and nowhere else, and asks agents for what is on their disks.
    #[must_use]
    pub fn new(directories: &[PathBuf], requests: Arc<Requests>) -> Self {
        let reader =
            Reader { who: "the server".into(), setting: "estimate.model_dirs", directories: directories.to_vec() };
        Self { reader: Arc::new(reader), turns: Arc::new(Semaphore::new(AT_ONCE)), requests }
    }

    /// How much memory a file's model needs.
    pub async fn estimate(&self, request: &EstimateRequest) -> Result<Estimate, EstimatorError> {
        let found = self.ask(request, question(request, request.options(), None), "").await?;
        Ok(found.estimate)
    }

    /// Estimates the memory of a model that is to be put into the catalogue, for its GPU counts and its arguments; what
    /// these leave out is added to them.
    pub async fn complete(&self, request: &EstimateRequest, spec: ModelSpec) -> Result<ModelSpec, EstimatorError> {
        if spec.is_cpu_only() {
            let why = "a model without GPUs (gpu_counts [0]) needs none of their memory";
            return Err(Invalid::new("memory.file", why).into());
        }
        let launch = Launch {
            runtime: spec.constraints.runtime.clone(),
            args: spec.args.clone(),
            concurrency: spec.concurrency,
        };
        let counts = Some(spec.gpu_counts.clone()).filter(|counts| !counts.is_empty());
        let options = Options { gpu_counts: counts, ..request.options() };
        let found = self.ask(request, question(request, options, Some(launch)), "memory.").await?;
        Ok(completed(spec, request, found)?)
    }

    async fn ask(&self, request: &EstimateRequest, question: Question, prefix: &str) -> Result<Found, EstimatorError> {
        let Some(runner) = &request.runner else {
            return Ok(self.read(question).await?.map_err(|refusal| invalid(&refusal, prefix))?);
        };
        let kind = RequestKind::Estimate { question: Box::new(question) };
        match self.requests.ask_for_json(runner, kind).await? {
            Answer::Found(found) => Ok(*found),
            Answer::Refused(refusal) => Err(invalid(&refusal, prefix).into()),
        }
    }

    /// Reads files, in turn.
    async fn read(&self, question: Question) -> Result<Result<Found, Refusal>, EstimatorError> {
        let (turns, reader) = (self.turns.clone(), self.reader.clone());
        let worked = async {
            let turn = turns.acquire_owned().await.map_err(|_| EstimatorError::Slow)?;
            let read = tokio::task::spawn_blocking(move || {
                // Whoever gave up waiting has not given back the disk: the turn ends with the work.
                let _turn = turn;
                reader.answer(&question)
            });
            read.await.map_err(|_| EstimatorError::Slow)
        };
        tokio::time::timeout(PATIENCE, worked).await.map_err(|_| EstimatorError::Slow)?
    }
}

fn question(request: &EstimateRequest, options: Options, launch: Option<Launch>) -> Question {
    Question { file: request.file.clone(), projector: request.projector.clone(), options, launch }
}

/// The field that a refusal is about; `prefix` is where the question stood in a body.
fn invalid(refusal: &Refusal, prefix: &str) -> Invalid {
    let field = match refusal.of {
        Asked::File => format!("{prefix}file"),
        Asked::Projector => format!("{prefix}projector"),
        Asked::Options => prefix.trim_end_matches('.').to_owned(),
        Asked::Args => "args".to_owned(),
    };
    Invalid::new(field, refusal.why.clone())
}

fn completed(mut spec: ModelSpec, request: &EstimateRequest, found: Found) -> Result<ModelSpec, Invalid> {
    let left_out = |count: &&GpuCount| !found.estimate.counts.contains_key(count);
    if let Some(count) = spec.gpu_counts.iter().find(left_out) {
        return Err(Invalid::new("gpu_counts", format!("the model cannot be split over {count} GPUs")));
    }
    spec.args.extend(found.missing);
    spec.memory.estimated = Some(found.estimate.memory());
    spec.memory.estimate = Some(Arc::new(FileEstimate {
        file: request.file.clone(),
        runner: request.runner.clone(),
        projector: request.projector.clone(),
        options: request.options(),
        made: found.estimate,
    }));
    Ok(spec)
}
