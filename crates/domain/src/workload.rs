//! What gateways submit.

use serde::{Deserialize, Serialize};

use crate::{Arg, IdempotencyKey, ModelName, Owner, Priority, Span, TenantName};

/// The kind of a workload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkloadKind {
    /// A lease takes one unit of the concurrency of a model's slot.
    #[default]
    Lease,
    /// A job has a slot of its own and runs to its end.
    Job,
}

/// What a job adds to its model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct JobSpec {
    /// Arguments after those of the model.
    pub args: Vec<Arg>,
    /// Whether the job is started again when it did not come to its own end. If its runner is lost, that happens at
    /// once, though the lost copy may still run; otherwise once the old copy is proven gone.
    pub restart_on_lost: bool,
    /// The job is ended after it has run for this long. A job with a known end may use memory that is reserved for
    /// other work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_run: Option<Span>,
}

/// A workload as it is submitted.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Submission {
    /// The model it needs.
    pub model: ModelName,
    /// Its kind.
    pub kind: WorkloadKind,
    /// The priority. Work of a higher priority goes first.
    pub priority: Priority,
    /// The tenant that the submitter names.
    pub tenant: Option<TenantName>,
    /// The owner, who may see and end the workload. A server without tokens records no owner.
    #[serde(default)]
    pub owner: Option<Owner>,
    /// How long a running lease lives without a heartbeat; the default where absent.
    pub ttl: Option<Span>,
    /// How long the workload waits at most.
    pub queue_timeout: Option<Span>,
    /// What a job adds.
    pub job: JobSpec,
    /// The submitter's key. The same key is the same workload.
    pub idempotency_key: Option<IdempotencyKey>,
}

/// How much one owner may have at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnerLimits {
    /// Workloads that wait.
    pub queued: u32,
    /// Workloads that have a slot.
    pub running: u32,
}

impl Submission {
    /// Makes a lease on `model`, with the defaults of everything else.
    #[must_use]
    pub fn lease(model: ModelName) -> Self {
        Self {
            model,
            kind: WorkloadKind::Lease,
            priority: Priority::default(),
            tenant: None,
            owner: None,
            ttl: None,
            queue_timeout: None,
            job: JobSpec::default(),
            idempotency_key: None,
        }
    }

    /// Makes a job on `model`, with the defaults of everything else.
    #[must_use]
    pub fn job(model: ModelName) -> Self {
        Self { kind: WorkloadKind::Job, ..Self::lease(model) }
    }
}

/// The state of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkloadState {
    /// The workload waits.
    Queued,
    /// The workload has a slot that is not ready yet.
    Assigned,
    /// The workload's slot serves it.
    Running,
    /// The workload has ended. An end does not change.
    Ended(WorkloadEnd),
}

/// How a workload ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkloadEnd {
    /// The workload was completed.
    Succeeded,
    /// The workload failed.
    Failed,
    /// The submitter or an operator cancelled the workload.
    Cancelled,
    /// The workload expired: no heartbeat came in time, or it waited for too long.
    Expired,
}

impl WorkloadState {
    /// Returns the name of the state, as the API, the logs and the command line write it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Assigned => "assigned",
            Self::Running => "running",
            Self::Ended(WorkloadEnd::Succeeded) => "succeeded",
            Self::Ended(WorkloadEnd::Failed) => "failed",
            Self::Ended(WorkloadEnd::Cancelled) => "cancelled",
            Self::Ended(WorkloadEnd::Expired) => "expired",
        }
    }
}

impl std::fmt::Display for WorkloadState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}
