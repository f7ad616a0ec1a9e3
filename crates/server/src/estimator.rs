//! Estimates from the headers of model files, for those who may not read the disk themselves.
//!
//! The server reads only below directories that its configuration lists, a few files at a time, away from the threads
//! that answer requests and from the one that decides. Files on a runner's disk are read by its agent, which has a list
//! of its own.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use berth_domain::estimate::{Answer, Asked, Estimate, FileEstimate, Launch, Options, Question, Refusal};
use berth_domain::{Arg, GpuCount, ModelSpec, RunnerId};
use berth_engines::Engine;
use berth_estimate::{Reader, complete_arguments};
use berth_wire::{EstimateRequest, Invalid, RequestKind};
use tokio::sync::Semaphore;

use crate::requests::{AskError, Requests};

/// How many estimates are made at once.
const AT_ONCE: usize = 2;
/// How long one may take: the disk may be somebody else's.
const PATIENCE: Duration = Duration::from_secs(30);
/// The longest name of a model or an architecture that an agent may send.
const LONGEST_NAME: usize = 1024;

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
        self.ask(request, question(request, request.options(), None), "").await
    }

    /// Estimates the memory of a model that is to be put into the catalogue, for its GPU counts and its arguments; what
    /// these leave out is added to them. The added arguments are computed here from the numbers of the estimate, also
    /// where an agent made it.
    pub async fn complete(&self, request: &EstimateRequest, mut spec: ModelSpec) -> Result<ModelSpec, EstimatorError> {
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
        let estimate = self.ask(request, question(request, options, Some(launch.clone())), "memory.").await?;
        let missing = complete_arguments(&launch, &estimate).map_err(|refusal| invalid(&refusal, "memory."))?;
        spec.args.extend(missing);
        add_model_file(&mut spec, request)?;
        Ok(completed(spec, request, estimate)?)
    }

    async fn ask(
        &self,
        request: &EstimateRequest,
        question: Question,
        prefix: &str,
    ) -> Result<Estimate, EstimatorError> {
        let Some(runner) = &request.runner else {
            return Ok(self.read(question).await?.map_err(|refusal| invalid(&refusal, prefix))?);
        };
        let kind = RequestKind::Estimate { question: Box::new(question.clone()) };
        match self.requests.ask_for_json(runner, kind).await? {
            Answer::Found(estimate) => {
                check_answer(runner, &question.options, &estimate)?;
                Ok(*estimate)
            }
            Answer::Refused(refusal) => Err(invalid(&refusal, prefix).into()),
        }
    }

    /// Reads files, in turn.
    async fn read(&self, question: Question) -> Result<Result<Estimate, Refusal>, EstimatorError> {
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

/// Names the file that was estimated as the model to load, where the engine must be told and nobody says.
fn add_model_file(spec: &mut ModelSpec, request: &EstimateRequest) -> Result<(), Invalid> {
    let words: Vec<&str> = spec.args.iter().map(Arg::as_str).collect();
    let Some(engine) = Engine::of(spec.constraints.runtime.as_str()) else { return Ok(()) };
    if !berth_engines::has_model(engine, &words) {
        let wrong = |error: berth_domain::NameError| Invalid::new("memory.file", error.to_string());
        let file = Arg::new(request.file.as_str()).map_err(wrong)?;
        let option = Arg::new("--model").map_err(wrong)?;
        spec.args.extend([option, file]);
    }
    Ok(())
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

/// Refuses an estimate of an agent that is not an answer to what was asked.
fn check_answer(runner: &RunnerId, asked: &Options, estimate: &Estimate) -> Result<(), AskError> {
    let unreadable = |why: String| Err(AskError::Unreadable { runner: runner.clone(), why });
    if let Some(field) = asked.differs_from(&estimate.inputs) {
        return unreadable(format!("its estimate was made for another {field}"));
    }
    let is_uneven = |(count, devices): &(&GpuCount, &Vec<_>)| devices.len() != usize::from(count.get());
    if let Some((count, devices)) = estimate.counts.iter().find(is_uneven) {
        return unreadable(format!("its estimate for {count} GPUs has numbers for {}", devices.len()));
    }
    let texts = [Some(&estimate.model.architecture), estimate.model.name.as_ref()];
    if texts.into_iter().flatten().any(|text| text.len() > LONGEST_NAME || text.chars().any(char::is_control)) {
        return unreadable(format!("a name with control characters or of more than {LONGEST_NAME} bytes"));
    }
    Ok(())
}

fn completed(mut spec: ModelSpec, request: &EstimateRequest, estimate: Estimate) -> Result<ModelSpec, Invalid> {
    let left_out = |count: &&GpuCount| !estimate.counts.contains_key(count);
    if let Some(count) = spec.gpu_counts.iter().find(left_out) {
        return Err(Invalid::new("gpu_counts", format!("the model cannot be split over {count} GPUs")));
    }
    spec.memory.estimated = Some(estimate.memory());
    spec.memory.estimate = Some(Arc::new(FileEstimate {
        file: request.file.clone(),
        runner: request.runner.clone(),
        projector: request.projector.clone(),
        options: request.options(),
        made: estimate,
    }));
    Ok(spec)
}
