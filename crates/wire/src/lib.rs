//! The JSON bodies of the HTTP API, with their OpenAPI descriptions.
//!
//! Server and client share these types, so a field has one name and one meaning. The crate promises:
//!
//! - **Bad input ends here.** Fields are types of `berth-domain` wherever there is one; what was read is well formed.
//!   What only makes sense as a whole is checked by `into_…` functions, which name the field that is wrong
//!   ([`Invalid`]). [`body::read`] does the same for JSON text.
//! - **People and gateways are read strictly, agents leniently.** A misspelt field in a request is an error. A report
//!   of an agent may say more than we know, and may leave out what has a safe default, so that versions can differ.
//! - **Sizes go out as whole bytes**, in fields that end in `_bytes`; they come in as such or as `"74.49GiB"`. Times go
//!   out as RFC 3339 text in UTC with milliseconds ([`Time`]), lengths of time as `"10m"` ([`TimeSpan`]).
//!
//! How data passes through: JSON ⇄ a type of this crate → (`into_…`) a type of `berth-domain`, which is what the core
//! takes. On the way out the server builds these types from what the core shows. The crate knows nothing of the core,
//! does no I/O and reads no clock.

pub mod body;

/// The protocol that servers and agents of this version speak: reports and what is desired.
///
/// It changes when one side could misunderstand the other. A server and an agent that speak different ones say so and
/// do nothing to each other; nothing that runs is stopped for it. 1 had no number; 2 asks agents to account for slots.
pub const PROTOCOL: u32 = 2;

/// Returns the protocol of an agent or server that names none.
pub(crate) const fn oldest_protocol() -> u32 {
    1
}

/// Returns whether a field can be left out of the JSON, because its absence means the same.
const fn is_false(value: &bool) -> bool {
    !*value
}

mod attempt;
mod audit;
mod balance;
mod charged;
mod decision;
mod desired;
mod estimate;
mod event;
mod grant;
mod health;
mod history;
mod joining;
mod lack;
mod ledger;
mod log;
mod memory;
mod model;
mod model_file;
mod page;
mod problem;
mod problem_code;
mod queue;
mod reason;
mod report;
mod request;
mod runner;
pub mod schema;
mod slot;
mod status;
mod time;
mod token;
mod workload;

pub use attempt::{ExitStatus, Now, PastAttempt};
pub use audit::AuditEntry;
pub use balance::{CpuBalance, MemoryBalance};
pub use body::{BodyError, Invalid};
pub use charged::{ChargedMemory, ObservedMemory};
pub use decision::{
    CountTried, Decision, DecisionQuery, DeviceRow, Eviction, Explanation, Fit, FitQuery, Judgement, Outcome, RowClaim,
};
pub use desired::{Desired, DesiredAction, DesiredGpu, DesiredQuery, DesiredSlot, RunSpec};
pub use estimate::{Estimate, EstimateInputs, EstimateRequest, EstimatedCount, EstimatedGpu, EstimatedModel, KvType};
pub use event::{EventQuery, StreamEvent};
pub use grant::{AddressGrant, RunnerGrant};
pub use health::{Health, Ready, Version};
pub use history::{ContinueHistory, History, HistoryPoint};
pub use joining::{JoinKey, JoinRequest};
pub use lack::Lack;
pub use ledger::{ClaimPhase, DeviceClaim, DeviceLedger, DeviceState, HostLedger, Ledger};
pub use log::{LogLevel, LogQuery, WorkloadLogQuery};
pub use memory::ModelMemory;
pub use model::{Model, ModelRequest};
pub use model_file::ModelFile;
pub use page::{HISTORY_HEADER, PageQuery, REVISION_HEADER};
pub use problem::{PROBLEM_MEDIA_TYPE, Problem};
pub use problem_code::ProblemCode;
pub use queue::{Demand, DemandNeed, QueueEntry};
pub use reason::Reason;
pub use report::{
    Closeness, ComputeMode, EngineReport, GpuHealth, GpuLink, GpuTelemetry, Host, ReportAnswer, ReportRequest,
    ReportedClaim, ReportedEvidence, ReportedGpu, ReportedMemory, ReportedSlot, ReportedSlotState, RuntimeKind,
};
pub use request::{AgentRequest, RequestId, RequestKind};
pub use runner::{DrainQuery, ForgetRequest, MachineJudgement, Runner, RunnerAdmission, RunnerState};
pub use slot::{ForceReleaseRequest, GpuAllocation, Slot, SlotGpu, SlotQuery};
pub use status::{RunnerStatus, StatusGpu};
pub use time::{Time, TimeSpan};
pub use token::{NewToken, Role, SubmitterLimits, Token, TokenId, TokenName, TokenRequest};
pub use workload::{
    CompleteRequest, HeartbeatRequest, JobRequest, SubmitRequest, WaitQuery, Workload, WorkloadFilter, WorkloadSlot,
    WorkloadState,
};
