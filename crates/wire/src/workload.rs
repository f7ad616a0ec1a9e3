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
    /// The kind of the workload. Default: `lease`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::WorkloadKind>)]
    pub kind: Option<WorkloadKind>,
    /// The priority. Work of a higher priority goes first. Default: 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Priority>)]
    pub priority: Option<Priority>,
    /// The tenant that the workload belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::TenantName>)]
    pub tenant: Option<TenantName>,
    /// How long a running lease lives without a heartbeat; above zero.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<TimeSpan>,
    /// How long the workload waits at most.
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
    /// Whether the job is started again when it did not come to its own end. If its runner is lost, that happens at
    /// once, though the lost copy may still run; otherwise once the old copy is proven gone.
    pub restart_on_lost: bool,
    /// The job is ended after it has run for this long. A job with a known end may use memory that is reserved for
    /// other work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_run: Option<TimeSpan>,
}

impl SubmitRequest {
    const MOST_ARGS: usize = 1024;

    /// Makes a lease on `model`, with the defaults of everything else.
    #[must_use]
    pub fn lease(model: ModelName) -> Self {
        Self { model, kind: None, priority: None, tenant: None, ttl: None, queue_timeout: None, job: None }
    }

    /// Returns the submission as the core takes it.
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

/// The state of a workload. The last four are ends, and an end does not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum WorkloadState {
    /// The workload waits.
    Queued,
    /// The workload has a slot that is not ready yet.
    Assigned,
    /// The workload's slot serves it.
    Running,
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
    /// Returns the name that the API, the logs and the command line use.
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

    /// Returns whether the workload has ended.
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

/// A workload and its state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Workload {
    /// The id of the workload.
    #[schema(value_type = schema::WorkloadId)]
    pub id: WorkloadId,
    /// Its kind.
    #[schema(value_type = schema::WorkloadKind)]
    pub kind: WorkloadKind,
    /// Its model.
    #[schema(value_type = schema::ModelName)]
    pub model: ModelName,
    /// The state of the workload.
    pub state: WorkloadState,
    /// The number of the present attempt. Heartbeats and completions name it.
    #[schema(value_type = schema::Attempt)]
    pub attempt: Attempt,
    /// The priority. Work of a higher priority goes first.
    #[schema(value_type = schema::Priority)]
    pub priority: Priority,
    /// The tenant that the workload belongs to.
    #[serde(default)]
    #[schema(value_type = Option<schema::TenantName>)]
    pub tenant: Option<TenantName>,
    /// The owner: `token:` and the id of the token that submitted the workload, or `tenant:` and the tenant of that
    /// token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The position in the queue, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub position: Option<u64>,
    /// The slot of the workload, once it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<WorkloadSlot>,
    /// Why the workload waits or ended. For a workload that has a slot, why its attempt before ended; `reason.attempt`
    /// is the number of that attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// When the workload was submitted.
    pub created: Time,
    /// The revision of the last change of the workload. The next wait passes it as `after`.
    #[schema(value_type = schema::Revision)]
    pub revision: Revision,
    /// The devices that are reserved for the workload.
    #[serde(default)]
    #[schema(value_type = Vec<schema::DeviceUuid>)]
    pub reserved_gpus: Vec<DeviceUuid>,
    /// Whether the runner was lost and the job was started again: both copies may have run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub may_run_twice: bool,
    /// The last attempts that are over, oldest first: where each was, how its program ended and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<PastAttempt>,
}

/// The slot of a workload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WorkloadSlot {
    /// The id of the slot.
    #[schema(value_type = schema::SlotId)]
    pub id: SlotId,
    /// The runner that has the slot.
    #[schema(value_type = schema::RunnerId)]
    pub runner_id: RunnerId,
    /// The address at which the slot answers; present once the workload runs.
    #[serde(default)]
    #[schema(value_type = Option<schema::Endpoint>)]
    pub endpoint: Option<Endpoint>,
    /// The slot's devices in rank order.
    #[serde(default)]
    #[schema(value_type = Vec<schema::DeviceUuid>)]
    pub gpus: Vec<DeviceUuid>,
}

/// The request that renews a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HeartbeatRequest {
    /// The number of the attempt.
    #[schema(value_type = schema::Attempt)]
    pub attempt: Attempt,
}

/// The request that completes a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CompleteRequest {
    /// The number of the attempt.
    #[schema(value_type = schema::Attempt)]
    pub attempt: Attempt,
    /// Whether the work succeeded.
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
    /// The largest number of workloads. Default: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(value_type = Option<u32>, minimum = 1, maximum = 4294967295_u32)]
    pub limit: Option<NonZeroU32>,
    /// Only those after this one, as the `Link` header says.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(value_type = Option<schema::WorkloadId>, inline)]
    pub after: Option<WorkloadId>,
}

/// The parameters of a wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct WaitQuery {
    /// The longest wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(inline, example = "30s")]
    pub wait: Option<TimeSpan>,
    /// The revision that the client has. The server answers as soon as the workload has changed since.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(value_type = Option<schema::Revision>, inline)]
    pub after: Option<Revision>,
}
