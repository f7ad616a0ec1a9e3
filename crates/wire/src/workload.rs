//! Workloads: what gateways submit and follow.

use std::num::NonZeroU32;

use berth_domain::{
    Arg, Attempt, DeviceUuid, Endpoint, IdempotencyKey, InlineSecret, JobSpec, ModelName, Priority, Revision, RunnerId,
    SlotId, Submission, TenantName, WorkloadEnd, WorkloadId, WorkloadKind,
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::{Invalid, PastAttempt, Reason, Time, TimeSpan, schema};

/// A workload to be run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SubmitRequest {
    /// The model that it needs.
    #[schema(value_type = schema::ModelName)]
    pub model: ModelName,
    /// A `lease` unless said otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::WorkloadKind>)]
    pub kind: Option<WorkloadKind>,
    /// Higher goes first; 0 unless said otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Priority>)]
    pub priority: Option<Priority>,
    /// Who it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::TenantName>)]
    pub tenant: Option<TenantName>,
    /// How long a running lease lives without a heartbeat; more than nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<TimeSpan>,
    /// How long it waits at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_timeout: Option<TimeSpan>,
    /// What a job adds to its model; only with `kind: "job"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobRequest>,
}

/// What a job adds to its model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct JobRequest {
    /// Arguments after those of the model.
    #[schema(value_type = Vec<schema::Arg>, max_items = 1024)]
    pub args: Vec<Arg>,
    /// Start it again when it did not come to its own end. Where its runner is lost that is done at once, though the
    /// lost one may still run; everywhere else once the old one is proven gone.
    pub restart_on_lost: bool,
    /// It is ended after running for so long. A job with a known end may use memory that is kept for others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_run: Option<TimeSpan>,
}

impl SubmitRequest {
    const MOST_ARGS: usize = 1024;

    /// A lease on `model`, with the defaults of everything else.
    #[must_use]
    pub fn lease(model: ModelName) -> Self {
        Self { model, kind: None, priority: None, tenant: None, ttl: None, queue_timeout: None, job: None }
    }

    /// The submission as the core takes it.
    pub fn into_submission(self, idempotency_key: Option<IdempotencyKey>) -> Result<Submission, Invalid> {
        let kind = self.kind.unwrap_or_default();
        if kind == WorkloadKind::Lease && self.job.is_some() {
            return Err(Invalid::new("job", "a lease has no job block: say kind \"job\", or leave it out"));
        }
        if self.ttl.is_some_and(|ttl| ttl.0.millis() == 0) {
            return Err(Invalid::new("ttl", "a lease must live for more than 0 ms"));
        }
        let job = self.job.unwrap_or_default();
        if job.args.len() > Self::MOST_ARGS {
            return Err(Invalid::new("job.args", format!("at most {} arguments", Self::MOST_ARGS)));
        }
        if let Some(secret) = InlineSecret::find(&job.args) {
            return Err(Invalid::new("job.args", secret.to_string()));
        }
        if job.max_run.is_some_and(|span| span.0.millis() == 0) {
            return Err(Invalid::new("job.max_run", "a job must run for more than 0 ms"));
        }
        Ok(Submission {
            model: self.model,
            kind,
            priority: self.priority.unwrap_or_default(),
            tenant: self.tenant,
            // The server knows who asks; a request does not say it.
            owner: None,
            ttl: self.ttl.map(|ttl| ttl.0),
            queue_timeout: self.queue_timeout.map(|timeout| timeout.0),
            job: JobSpec {
                args: job.args,
                restart_on_lost: job.restart_on_lost,
                max_run: job.max_run.map(|span| span.0),
            },
            idempotency_key,
        })
    }
}

/// Where a workload is in its life. The last four are ends, and an end never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum WorkloadState {
    /// Waits.
    Queued,
    /// Has a slot that is not ready yet.
    Assigned,
    /// Its slot serves it.
    Running,
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
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Expired => "expired",
        }
    }

    /// Whether it is over.
    #[must_use]
    pub const fn is_ended(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Cancelled | Self::Expired)
    }
}

impl std::fmt::Display for WorkloadState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl From<berth_domain::WorkloadState> for WorkloadState {
    fn from(state: berth_domain::WorkloadState) -> Self {
        match state {
            berth_domain::WorkloadState::Queued => Self::Queued,
            berth_domain::WorkloadState::Assigned => Self::Assigned,
            berth_domain::WorkloadState::Running => Self::Running,
            berth_domain::WorkloadState::Ended(WorkloadEnd::Succeeded) => Self::Succeeded,
            berth_domain::WorkloadState::Ended(WorkloadEnd::Failed) => Self::Failed,
            berth_domain::WorkloadState::Ended(WorkloadEnd::Cancelled) => Self::Cancelled,
            berth_domain::WorkloadState::Ended(WorkloadEnd::Expired) => Self::Expired,
        }
    }
}

/// A workload and how it fares.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Workload {
    /// Which.
    #[schema(value_type = schema::WorkloadId)]
    pub id: WorkloadId,
    /// Its kind.
    #[schema(value_type = schema::WorkloadKind)]
    pub kind: WorkloadKind,
    /// Its model.
    #[schema(value_type = schema::ModelName)]
    pub model: ModelName,
    /// Where it is in its life.
    pub state: WorkloadState,
    /// Which try this is; heartbeats and completions name it.
    #[schema(value_type = schema::Attempt)]
    pub attempt: Attempt,
    /// Higher goes first.
    #[schema(value_type = schema::Priority)]
    pub priority: Priority,
    /// Who it belongs to.
    #[serde(default)]
    #[schema(value_type = Option<schema::TenantName>)]
    pub tenant: Option<TenantName>,
    /// Whose work it is: `token:` and the id of the token that submitted it, or `tenant:` and the tenant of that token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Where it stands in the queue, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub position: Option<u64>,
    /// Its slot, once it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<WorkloadSlot>,
    /// Why it waits or ended. For one that has a slot, why its attempt before ended: `reason.attempt` says which.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// When it was submitted.
    pub created: Time,
    /// The revision of its last change: `after` for the next wait.
    #[schema(value_type = schema::Revision)]
    pub revision: Revision,
    /// Devices that are kept free for it.
    #[serde(default)]
    #[schema(value_type = Vec<schema::DeviceUuid>)]
    pub reserved_gpus: Vec<DeviceUuid>,
    /// Its runner was lost and it was started again: both copies may have run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub may_run_twice: bool,
    /// The last attempts that are over, oldest first: where each was, how its program ended and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<PastAttempt>,
}

/// The slot of a workload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WorkloadSlot {
    /// Which.
    #[schema(value_type = schema::SlotId)]
    pub id: SlotId,
    /// Where it runs.
    #[schema(value_type = schema::RunnerId)]
    pub runner_id: RunnerId,
    /// Where it answers; there once the workload runs.
    #[serde(default)]
    #[schema(value_type = Option<schema::Endpoint>)]
    pub endpoint: Option<Endpoint>,
    /// Its devices in rank order.
    #[serde(default)]
    #[schema(value_type = Vec<schema::DeviceUuid>)]
    pub gpus: Vec<DeviceUuid>,
}

/// A lease is still needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HeartbeatRequest {
    /// The attempt that is meant.
    #[schema(value_type = schema::Attempt)]
    pub attempt: Attempt,
}

/// A workload is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CompleteRequest {
    /// The attempt that is meant.
    #[schema(value_type = schema::Attempt)]
    pub attempt: Attempt,
    /// Whether it went well.
    #[serde(default = "yes")]
    #[schema(default = true)]
    pub succeeded: bool,
}

const fn yes() -> bool {
    true
}

/// Which workloads to list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct WorkloadFilter {
    /// Only those in this state.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(inline)]
    pub state: Option<WorkloadState>,
    /// Only those of this model.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(value_type = Option<schema::ModelName>, inline)]
    pub model: Option<ModelName>,
    /// Only those of this tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(value_type = Option<schema::TenantName>, inline)]
    pub tenant: Option<TenantName>,
    /// Only those of this kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(value_type = Option<schema::WorkloadKind>, inline)]
    pub kind: Option<WorkloadKind>,
    /// At most so many; all unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(value_type = Option<u32>, minimum = 1, maximum = 4294967295_u32)]
    pub limit: Option<NonZeroU32>,
    /// Only those after this one, as the `Link` header says.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(value_type = Option<schema::WorkloadId>, inline)]
    pub after: Option<WorkloadId>,
}

/// How long to wait for a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct WaitQuery {
    /// How long to wait at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(inline, example = "30s")]
    pub wait: Option<TimeSpan>,
    /// Answer as soon as there is something newer than this.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(value_type = Option<schema::Revision>, inline)]
    pub after: Option<Revision>,
}
