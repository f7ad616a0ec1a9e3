//! The words of Berth as types.
//!
//! Everything that crosses a boundary between crates is built from what is here: checked amounts ([`Bytes`],
//! [`Millicores`], [`Fraction`]), validated names, ids and counters that cannot be confused with each other, the
//! catalogue entry ([`ModelSpec`]), what an agent reports ([`RunnerReport`]) and what it is asked to run
//! ([`DesiredSlot`]).
//!
//! A value of one of these types is well formed: parsing is where bad input ends. The crate does no I/O, reads no
//! clock, and draws no random numbers.

mod amount;
mod bytes;
mod desired;
pub mod estimate;
mod exit;
mod history;
mod ids;
mod inline_secret;
mod log_tail;
mod model;
mod names;
mod report;
mod route;
mod slot;
mod time;
mod utilization;
mod workload;

pub use amount::{Fraction, Millicores, ParseFractionError};
pub use bytes::{Bytes, ParseBytesError};
pub use desired::{DesiredAction, DesiredGpu, DesiredSlot, RunSpec};
pub use exit::ExitStatus;
pub use history::{EpochTag, HistoryPoint, ObeyedAnswer};
pub use ids::{
    Attempt, ClusterId, DecisionId, Epoch, Generation, GpuCount, Incarnation, ModelRevision, Priority, Revision,
    Sequence, SlotId, WorkloadId,
};
pub use inline_secret::{InlineSecret, REDACTED};
pub use log_tail::LogTail;
pub use model::{
    Constraints, GpuMemory, Memory, MemorySource, ModelSpec, ModelSpecError, Placement, RankMemory, Replicas,
};
pub use names::{
    Arg, BootId, DeviceUuid, Endpoint, FilePath, GpuName, IdempotencyKey, LabelKey, LabelValue, MachineId, ModelName,
    NameError, Owner, PoolName, ReasonText, RunnerId, RuntimeName, TenantName, is_misleading,
};
pub use report::{
    EngineReport, Evidence, FailureReason, GpuHealth, GpuReport, HostReport, ReportedClaim, ReportedMemory,
    ReportedState, RunnerReport, RuntimeKind, SlotEnd, SlotReport,
};
pub use route::EngineRoute;
pub use slot::SlotState;
pub use time::{ParseSpanError, Span, Timestamp};
pub use utilization::{Utilization, UtilizationError};
pub use workload::{JobSpec, OwnerLimits, Submission, WorkloadEnd, WorkloadKind, WorkloadState};
