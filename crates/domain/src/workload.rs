//! What gateways submit.

use serde::{Deserialize, Serialize};

use crate::{Arg, IdempotencyKey, ModelName, Owner, Priority, Span, TenantName};

/// A lease takes one unit of a model slot's concurrency; a job owns its slot and runs to its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkloadKind {
    /// One unit of a model slot's concurrency.
    #[default]
    Lease,
    /// A slot of its own.
    Job,
}

/// What a job adds to its model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct JobSpec {
    /// Arguments after those of the model.
    pub args: Vec<Arg>,
    /// Start it again when it did not come to its own end. Where its runner is lost that is done at once, though the
    /// lost one may still run; everywhere else once the old one is proven gone.
    pub restart_on_lost: bool,
    /// It is ended after running for so long. A job with a known end may use memory that is kept for others.
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
    /// Higher goes first.
    pub priority: Priority,
    /// On whose account it is, as its submitter says.
    pub tenant: Option<TenantName>,
    /// Whose work it is: those who may see it and end it. Nobody's in particular on a server without tokens.
    #[serde(default)]
    pub owner: Option<Owner>,
    /// How long a running lease lives without a heartbeat; the default where absent.
    pub ttl: Option<Span>,
    /// How long it waits at most.
    pub queue_timeout: Option<Span>,
    /// What a job adds.
    pub job: JobSpec,
    /// The same key is the same workload.
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
    /// A lease on `model`, with the defaults of everything else.
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

    /// A job on `model`, with the defaults of everything else.
    #[must_use]
    pub fn job(model: ModelName) -> Self {
        Self { kind: WorkloadKind::Job, ..Self::lease(model) }
    }
}

/// Where a workload is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkloadState {
    /// Waits.
    Queued,
    /// Has a slot that is not ready yet.
    Assigned,
    /// Its slot serves it.
    Running,
    /// Over, for ever.
    Ended(WorkloadEnd),
}

/// The one end of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkloadEnd {
    /// Done.
    Succeeded,
    /// Came to a bad end.
    Failed,
    /// Somebody took it back.
    Cancelled,
    /// Nobody cared in time.
    Expired,
}

impl WorkloadState {
    /// The word used everywhere.
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
