//! Workloads: submit, follow, complete, take back, explain.

use std::num::NonZeroU32;

use berth_client::{Answer, routes};
use berth_domain::{Arg, Attempt, ModelName, Priority, Span, TenantName, Timestamp, WorkloadId, WorkloadKind};
use berth_wire::{
    CompleteRequest, JobRequest, SubmitRequest, TimeSpan, WaitQuery, Workload, WorkloadFilter, WorkloadState,
};
use clap::Args;

use super::super::failure::{Ended, Failure};
use super::super::render;
use super::super::session::{Session, now};
use super::{unsettled, workload_id};

/// Submit a workload
///
/// A lease takes one unit of a slot's concurrency and is over when `berth complete` says so; a job has a slot of its own
/// and runs to its end. With --wait the command returns once the workload runs or has ended.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit status: 6 if it does not run yet when --wait is over; it is not taken back.\n\nExamples:\n  \
    berth submit qwen3:8b --wait 30s\n  \
    berth submit trainer --kind job --priority 5 --key nightly-2026-01-31 -- --epochs 3"
)]
pub(crate) struct Submit {
    /// The model it needs
    model: ModelName,
    /// What it is
    #[arg(long, value_name = "KIND", value_parser = kind)]
    kind: Option<WorkloadKind>,
    /// Higher goes first
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    priority: Option<i32>,
    /// Who it belongs to
    #[arg(long)]
    tenant: Option<TenantName>,
    /// How long a running lease lives without a heartbeat
    #[arg(long, value_name = "TIME")]
    ttl: Option<TimeSpan>,
    /// How long it waits in the queue at most
    #[arg(long, value_name = "TIME")]
    queue_timeout: Option<TimeSpan>,
    /// How long to wait until it runs
    #[arg(long, value_name = "TIME")]
    wait: Option<TimeSpan>,
    /// The same key and the same workload is submitted once, however often it is sent
    #[arg(long)]
    key: Option<String>,
    /// Start a job elsewhere when its runner is lost, though the lost one may still run
    #[arg(long)]
    restart_on_lost: bool,
    /// End a job after it has run for so long; a job with a known end may use memory that is kept for others
    #[arg(long)]
    max_run: Option<TimeSpan>,
    /// Arguments of a job, after those of its model
    #[arg(last = true)]
    args: Vec<Arg>,
}

fn kind(word: &str) -> Result<WorkloadKind, String> {
    match word {
        "lease" => Ok(WorkloadKind::Lease),
        "job" => Ok(WorkloadKind::Job),
        _ => Err("lease or job".to_owned()),
    }
}

/// The longest that one request waits; longer waits are several.
const LONGEST_POLL: Span = Span::from_secs(30);

impl Submit {
    fn request(&self) -> Result<SubmitRequest, Failure> {
        let has_job = !self.args.is_empty() || self.restart_on_lost || self.max_run.is_some();
        if has_job && self.kind != Some(WorkloadKind::Job) {
            let text = "arguments, --restart-on-lost and --max-run are for jobs: add --kind job";
            return Err(Failure::Usage(text.to_owned()));
        }
        let job = has_job.then(|| JobRequest {
            args: self.args.clone(),
            restart_on_lost: self.restart_on_lost,
            max_run: self.max_run,
        });
        Ok(SubmitRequest {
            model: self.model.clone(),
            kind: self.kind,
            priority: self.priority.map(Priority::new),
            tenant: self.tenant.clone(),
            ttl: self.ttl,
            queue_timeout: self.queue_timeout,
            job,
        })
    }

    pub(crate) async fn run(self, session: &Session) -> Result<Ended, Failure> {
        let request = self.request()?;
        let deadline = self.wait.map(|wait| now().after(wait.0));
        let first = deadline.map(left);
        let answer = session.client.ask(&routes::submit(&request, self.key.as_deref(), first)).await?;
        until_settled(session, answer, deadline).await
    }
}

/// Waits until a workload runs or has ended, if that is wanted, and prints it.
async fn until_settled(
    session: &Session,
    mut answer: Answer<Workload>,
    deadline: Option<Timestamp>,
) -> Result<Ended, Failure> {
    while let Some(deadline) = deadline.filter(|deadline| now() < *deadline && !is_settled(&answer.body)) {
        let wait = WaitQuery { wait: Some(left(deadline)), after: Some(answer.body.revision) };
        answer = session.client.ask(&routes::workload(answer.body.id, wait)).await?;
    }
    session.print_answer(&answer, render::work::workload)?;
    Ok(match answer.body.state {
        WorkloadState::Failed | WorkloadState::Cancelled | WorkloadState::Expired => Ended::Badly,
        WorkloadState::Queued | WorkloadState::Assigned if deadline.is_some() => {
            unsettled::note(session, &answer.body).await;
            Ended::InVain
        }
        _ => Ended::Well,
    })
}

fn is_settled(workload: &Workload) -> bool {
    !matches!(workload.state, WorkloadState::Queued | WorkloadState::Assigned)
}

fn left(deadline: Timestamp) -> TimeSpan {
    TimeSpan(deadline.since(now()).min(LONGEST_POLL))
}

/// List workloads, or look at one
#[derive(Debug, Args)]
#[command(
    after_help = "Exit status: with --wait, 6 if it does not run yet then.\n\nExamples:\n  berth workloads --state queued\n  \
        berth workloads 01932c07-3a5b-7cc2-b7d1-58a1f7f4a921 --wait 30s"
)]
pub(crate) struct Workloads {
    /// Only this one, with everything about it
    #[arg(value_parser = workload_id)]
    id: Option<WorkloadId>,
    /// How long to wait until that one runs or has ended
    #[arg(long, value_name = "TIME", requires = "id")]
    wait: Option<TimeSpan>,
    /// Only those in this state
    #[arg(long, value_parser = state)]
    state: Option<WorkloadState>,
    /// Only those of this model
    #[arg(long)]
    model: Option<ModelName>,
    /// Only those of this tenant
    #[arg(long)]
    tenant: Option<TenantName>,
    /// At most so many
    #[arg(long, value_name = "NUMBER")]
    limit: Option<NonZeroU32>,
}

fn state(word: &str) -> Result<WorkloadState, String> {
    serde_json::from_value(serde_json::Value::String(word.to_owned()))
        .map_err(|_| "queued, assigned, running, succeeded, failed, cancelled or expired".to_owned())
}

impl Workloads {
    pub(crate) async fn run(self, session: &Session) -> Result<Ended, Failure> {
        if let Some(id) = self.id {
            let Some(wait) = self.wait else {
                session.show(&routes::workload(id, WaitQuery::default()), render::work::workload).await?;
                return Ok(Ended::Well);
            };
            let answer = session.client.ask(&routes::workload(id, WaitQuery::default())).await?;
            return until_settled(session, answer, Some(now().after(wait.0))).await;
        }
        let filter = WorkloadFilter {
            state: self.state,
            model: self.model,
            tenant: self.tenant,
            limit: self.limit,
            ..WorkloadFilter::default()
        };
        session.show(&routes::workloads(&filter), |rows, look| render::work::workloads(rows, look)).await?;
        Ok(Ended::Well)
    }
}

/// Take a workload back
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  berth cancel 01932c07-3a5b-7cc2-b7d1-58a1f7f4a921")]
pub(crate) struct Cancel {
    /// The workload
    #[arg(value_parser = workload_id)]
    id: WorkloadId,
}

impl Cancel {
    pub(crate) async fn run(self, session: &Session) -> Result<Ended, Failure> {
        session.show(&routes::cancel(self.id), render::work::workload).await?;
        Ok(Ended::Well)
    }
}

/// Say that a workload is done
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  berth complete 01932c07-3a5b-7cc2-b7d1-58a1f7f4a921")]
pub(crate) struct Complete {
    /// The workload
    #[arg(value_parser = workload_id)]
    id: WorkloadId,
    /// It came to a bad end
    #[arg(long)]
    failed: bool,
    /// The attempt that is meant; the current one unless given
    #[arg(long, value_name = "NUMBER")]
    attempt: Option<u32>,
}

impl Complete {
    pub(crate) async fn run(self, session: &Session) -> Result<Ended, Failure> {
        let attempt = match self.attempt {
            Some(attempt) => Attempt::new(attempt),
            None => session.client.workload(self.id, WaitQuery::default()).await?.attempt,
        };
        let request = CompleteRequest { attempt, succeeded: !self.failed };
        session.show(&routes::complete(self.id, &request), render::work::workload).await?;
        Ok(Ended::Well)
    }
}

/// Say why a workload is where it is
///
/// First where it is now. For one that waits that is judged on the state of this instant: the reason, then the nearest
/// GPUs with their numbers, then what would help. Then its history: every attempt that is over, with how its program
/// ended, its last lines and what may help, and what was decided before.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  berth explain 01932c07-3a5b-7cc2-b7d1-58a1f7f4a921")]
pub(crate) struct Explain {
    /// The workload
    #[arg(value_parser = workload_id)]
    workload: WorkloadId,
}

impl Explain {
    pub(crate) async fn run(self, session: &Session) -> Result<Ended, Failure> {
        session.show(&routes::explain(self.workload), render::work::explanation).await?;
        Ok(Ended::Well)
    }
}
