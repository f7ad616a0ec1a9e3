//! What became of a workload's attempts, and where it is now.

use berth_domain::{Attempt, Generation, RunnerId, SlotId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Reason, Time, schema};

/// How a program ended by itself: with an exit code, or by a signal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct ExitStatus {
    /// The exit code.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = 1)]
    pub code: Option<i32>,
    /// The number of the signal that killed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = 9)]
    pub signal: Option<i32>,
}

impl From<berth_domain::ExitStatus> for ExitStatus {
    fn from(exit: berth_domain::ExitStatus) -> Self {
        match exit {
            berth_domain::ExitStatus::Code(code) => Self { code: Some(code), signal: None },
            berth_domain::ExitStatus::Signal(signal) => Self { code: None, signal: Some(signal) },
        }
    }
}

impl ExitStatus {
    /// Returns the status as the core takes it, or `None` if there is neither a code nor a signal.
    #[must_use]
    pub fn into_domain(self) -> Option<berth_domain::ExitStatus> {
        let signal = self.signal.map(berth_domain::ExitStatus::Signal);
        signal.or(self.code.map(berth_domain::ExitStatus::Code))
    }
}

/// An attempt at a workload that is over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PastAttempt {
    /// The number of the attempt.
    #[schema(value_type = schema::Attempt)]
    pub attempt: Attempt,
    /// The slot of the attempt.
    #[schema(value_type = schema::SlotId)]
    pub slot_id: SlotId,
    /// The last start of that slot.
    #[serde(default)]
    #[schema(value_type = schema::Generation)]
    pub generation: Generation,
    /// The runner that had the slot.
    #[schema(value_type = schema::RunnerId)]
    pub runner_id: RunnerId,
    /// When the attempt got its slot.
    pub began: Time,
    /// When the attempt began to run, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ran: Option<Time>,
    /// When the attempt ended.
    pub ended: Time,
    /// Why the attempt ended.
    pub reason: Reason,
    /// How the slot's program ended, if it ended by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<ExitStatus>,
    /// The last lines that its slot wrote, oldest first: at most 20 lines and 4 KiB, control characters spelt out. The
    /// server keeps those of the last slots that ended, in memory; `GET /workloads/{id}/logs` has them from the agent.
    /// A listing leaves them out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub last_lines: Vec<String>,
    /// What may help, if the attempt failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "look at the last lines, then at `args` of model qwen3:8b")]
    pub hint: Option<String>,
}

/// The situation of a workload at this instant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Now {
    /// The code of why the workload waits or ended, or `starting` or `running`.
    #[schema(example = "backing_off")]
    pub code: String,
    /// The same in one sentence for people.
    pub text: String,
    /// When this situation began.
    pub since: Time,
    /// The end of a pause after a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Time>,
    /// The number of the present attempt.
    #[schema(value_type = schema::Attempt)]
    pub attempt: Attempt,
    /// The slot of the workload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::SlotId>)]
    pub slot_id: Option<SlotId>,
    /// The runner that has the slot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::RunnerId>)]
    pub runner_id: Option<RunnerId>,
    /// How long this attempt waits, or waited until it got a slot.
    #[serde(default)]
    pub waited_ms: u64,
    /// How many attempts have failed, those of long ago not counted.
    #[serde(default)]
    pub failures: u32,
    /// The workload fails for good when so many attempts have failed.
    #[serde(default)]
    pub most_failures: u32,
}
