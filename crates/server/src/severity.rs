//! How loud each event is in the log.
//!
//! | level | what |
//! | --- | --- |
//! | `ERROR` | an operator must act: a runner or a GPU is lost, two machines claim one GPU, a process cannot be ended |
//! | `WARN` | something went wrong, or may soon: crashes, strays, stale GPUs, overcommitted GPUs, refused starts |
//! | `INFO` | the ordinary turns in the life of runners, slots, models and jobs; one line for each lease, its decision |
//! | `DEBUG` | everything else |

use berth_core::{Cause, CorrectionReason, Event, Outcome, Proof, ReservedFor, WaitReason};
use berth_domain::{FailureReason, GpuHealth, WorkloadEnd, WorkloadKind};
use tracing::Level;

use crate::views::stream::PublishedEvent;
use crate::views::subject::Subject;

/// The level of the line about an event.
#[must_use]
pub(crate) fn of_event(happened: &PublishedEvent) -> Level {
    let PublishedEvent { event, subject, .. } = happened;
    match event {
        Event::ModelPut { .. } | Event::ModelDeleted { .. } | Event::Started { .. } => Level::INFO,
        // That the history went back is an ERROR of its own: it says what to do, once.
        Event::HistoryWentBack { .. }
        | Event::HistoryRestored
        | Event::HistoryContinued { .. }
        | Event::ObeyedCodeRefused { .. }
        | Event::SlotOvertaken { .. } => Level::WARN,
        Event::RunnerCaughtUp { .. } | Event::ObeyedCodeAccepted { .. } => Level::INFO,
        Event::ProcessEnded { .. } => Level::DEBUG,
        Event::MemoryJudged { verdict, .. } if verdict.is_drift() => Level::WARN,
        Event::MemoryJudged { .. } => Level::INFO,
        Event::MemoryCorrected { why: CorrectionReason::OutOfMemory, .. } => Level::WARN,
        Event::MemoryCorrected { .. } => Level::INFO,
        Event::ModelRetried { .. } | Event::MemoryObserved { .. } | Event::HostSized { .. } => Level::DEBUG,
        Event::RunnerBooted { .. }
        | Event::MachineJudged { .. }
        | Event::RunnerMoved { .. }
        | Event::RunnerRegistered { .. }
        | Event::RunnerReturned { .. }
        | Event::RunnerCordoned { .. }
        | Event::RunnerUncordoned { .. }
        | Event::RunnerDraining { .. }
        | Event::RunnerDrained { .. }
        | Event::RunnerForgotten { .. } => Level::INFO,
        Event::RunnerDescribed { .. } => Level::DEBUG,
        Event::RunnerSuspected { .. }
        | Event::DrainDeadlinePassed { .. }
        | Event::LossDeferred { .. }
        | Event::TimersRestarted => Level::WARN,
        Event::RunnerLost { .. } => Level::ERROR,
        Event::DeviceDisputed { .. } | Event::MachineDisputed { .. } => Level::ERROR,
        Event::DeviceDetached { .. } | Event::DeviceBackedOff { .. } => Level::WARN,
        Event::DeviceHealthChanged { health, .. } => of_health(*health),
        Event::DisputeEnded { .. } | Event::DeviceCordoned { .. } | Event::DeviceUncordoned { .. } => Level::INFO,
        Event::DeviceAttached { .. } | Event::ForeignChanged { .. } if subject.overcommitted.is_some() => Level::WARN,
        Event::DeviceAttached { .. } | Event::ForeignChanged { .. } | Event::DeviceReopened { .. } => Level::DEBUG,
        Event::SlotFailed { why: FailureReason::Unkillable, .. } => Level::ERROR,
        Event::SlotFailed { .. }
        | Event::SlotUnknown { .. }
        | Event::SlotRefused { .. }
        | Event::SlotCharged { .. }
        | Event::StopStalled { .. }
        | Event::StrayFound { .. }
        | Event::StrayCondemned { .. } => Level::WARN,
        Event::SlotReleased { proof: Proof::Forced, .. } | Event::StrayReleased { proof: Proof::Forced, .. } => {
            Level::WARN
        }
        Event::SlotReady { .. }
        | Event::SlotDrainBegun { .. }
        | Event::SlotDrainEnded { .. }
        | Event::SlotStopping { .. }
        | Event::SlotReturned { .. }
        | Event::SlotRestarted { .. }
        | Event::SlotReleased { .. }
        | Event::StrayReleased { .. }
        | Event::PromiseKept { .. }
        | Event::PromiseWithdrawn { .. } => Level::INFO,
        Event::SlotPlaced(_) | Event::SlotGranted { .. } | Event::SlotSeen { .. } | Event::SlotPassedMinRun { .. } => {
            Level::DEBUG
        }
        Event::WorkloadRequeued { cause, .. } if cause.is_failure() => Level::WARN,
        Event::WorkloadUnblocked { .. } => Level::WARN,
        Event::WorkloadEnded { end, cause, .. } => of_end(*end, *cause, subject),
        Event::Reserved(place) => of_owner(&place.owner, subject),
        Event::ReservationEnded { owner } => of_owner(owner, subject),
        Event::WorkloadRequeued { .. } => of_turn(subject),
        Event::WorkloadSubmitted { .. }
        | Event::WorkloadWaits { .. }
        | Event::WorkloadAssigned { .. }
        | Event::WorkloadEligible { .. }
        | Event::WorkloadForgotten { .. } => Level::DEBUG,
        Event::RunnerSeen { .. }
        | Event::DeviceSampled { .. }
        | Event::ForeignSampled { .. }
        | Event::SlotObserved { .. }
        | Event::LeaseRenewed { .. }
        | Event::ReservationsDue => Level::DEBUG,
    }
}

/// The level of the line about a decision. A lease that waits has its line when it is bound.
#[must_use]
pub(crate) fn of_decision(kind: WorkloadKind, for_workload: bool, outcome: Outcome) -> Level {
    match outcome {
        Outcome::Refused(_) => Level::WARN,
        Outcome::Waiting(why) if why != WaitReason::Releasing && for_workload && kind == WorkloadKind::Lease => {
            Level::DEBUG
        }
        Outcome::Waiting(_) | Outcome::Placed | Outcome::Reused => Level::INFO,
    }
}

/// A turn in the life of a workload. There are too many leases for a line each time.
fn of_turn(subject: &Subject) -> Level {
    if subject.kind == Some(WorkloadKind::Lease) { Level::DEBUG } else { Level::INFO }
}

fn of_owner(owner: &ReservedFor, subject: &Subject) -> Level {
    match owner {
        ReservedFor::Workload(_) => of_turn(subject),
        ReservedFor::Replica(_) => Level::INFO,
    }
}

fn of_end(end: WorkloadEnd, cause: Cause, subject: &Subject) -> Level {
    match (end, cause) {
        // Whoever had it says how it went: that is no fault of the fleet.
        (WorkloadEnd::Succeeded | WorkloadEnd::Cancelled, _) | (_, Cause::Completed) => of_turn(subject),
        (WorkloadEnd::Failed | WorkloadEnd::Expired, _) => Level::WARN,
    }
}

fn of_health(health: GpuHealth) -> Level {
    match health {
        GpuHealth::Ok => Level::INFO,
        GpuHealth::Stale => Level::WARN,
        GpuHealth::Lost | GpuHealth::Failed => Level::ERROR,
    }
}
