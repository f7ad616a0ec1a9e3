//! What happened. The journal is a list of these, and the state is their fold.
//!
//! An event names things by their outside ids and carries every number that was decided, so that applying it needs
//! no settings, no clock and no second thought.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use berth_domain::{
    Arg, BootId, Bytes, ClusterId, DeviceUuid, Endpoint, EngineReport, Epoch, EpochTag, ExitStatus, FailureReason,
    Generation, GpuCount, GpuHealth, GpuName, HistoryPoint, HostReport, Incarnation, LabelKey, LabelValue, MachineId,
    Millicores, ModelName, ModelRevision, ModelSpec, PoolName, ReasonText, Revision, RunnerId, RuntimeKind,
    RuntimeName, Sequence, SlotId, Submission, Timestamp, WorkloadEnd, WorkloadId,
};
use serde::{Deserialize, Serialize};

use crate::memory::{CorrectionReason, MemoryVerdict};
use crate::reason::{Cause, Proof, StopReason, UnknownReason, WaitReason};

/// Bytes on one device that were decided to belong to a slot.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PlacedClaim {
    /// On which device.
    pub uuid: DeviceUuid,
    /// How much.
    pub bytes: Bytes,
    /// Whether it shuts everybody else out.
    pub exclusive: bool,
}

/// What a runner is like, apart from its devices.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RunnerTraits {
    /// Its pool.
    pub pool: PoolName,
    /// Its labels.
    pub labels: BTreeMap<LabelKey, LabelValue>,
    /// What it can start, and what each of them is for.
    pub runtimes: BTreeMap<RuntimeName, RuntimeKind>,
    /// Arguments that its configuration allows, by runtime.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub allowed: BTreeMap<RuntimeName, BTreeSet<Arg>>,
    /// What its agent found out about the engines behind its runtimes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub engines: BTreeMap<RuntimeName, EngineReport>,
    /// The agent's version.
    pub version: ReasonText,
    /// Where its slots answer.
    pub address: ReasonText,
    /// CPU and RAM it may use.
    pub host: HostReport,
}

/// One device as one runner sees it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Attachment {
    /// Its index there.
    pub index: u16,
    /// What is usable of it there, after the operator's reserve.
    pub capacity: Bytes,
    /// How often it is advertised there.
    pub replicas: u16,
    /// Whether entries for it disagree about its size.
    pub sizes_differ: bool,
}

/// Whom a reservation is for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReservedFor {
    /// A workload that waits.
    Workload(WorkloadId),
    /// A slot that a model must have and nobody asked for.
    Replica(ModelName),
}

/// A place that is kept free for work that has waited too long. It is not a claim.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ReservedPlace {
    /// For whom.
    pub owner: ReservedFor,
    /// On which runner.
    pub runner: RunnerId,
    /// Its devices in rank order.
    pub devices: Vec<DeviceUuid>,
    /// CPU of the runner's machine.
    pub cpu: Millicores,
    /// RAM of the runner's machine.
    pub ram: Bytes,
    /// CPU or RAM is short: slots on the whole machine are in the way, not only those on the devices.
    pub drains_host: bool,
    /// Jobs are in the way, and nobody knows when they end.
    pub waits_for_unknown_jobs: bool,
    /// It will be long before the room is free: others that can leave in time may use it meanwhile.
    pub backfill: bool,
    /// When everything in the way will have ended, if that is known.
    pub free_at: Option<Timestamp>,
}

/// A slot as it was placed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PlacedSlot {
    /// Its id.
    pub slot: SlotId,
    /// What it serves.
    pub model: ModelName,
    /// Which version of it.
    pub revision: ModelRevision,
    /// Where.
    pub runner: RunnerId,
    /// Its devices in rank order.
    pub claims: Vec<PlacedClaim>,
    /// Its CPU.
    pub cpu: Millicores,
    /// Its RAM.
    pub ram: Bytes,
    /// It waits for memory that is being released.
    pub promised: bool,
    /// It may start at once: nothing else is starting on its devices.
    pub granted: bool,
    /// The job that owns it.
    pub job: Option<WorkloadId>,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the fields of an event are named by what they are; the variants say what happened")]
pub enum Event {
    /// The server started on its data directory: timers start anew, and every runner must report first.
    Started { cluster: ClusterId, epoch: Epoch, tag: EpochTag },
    /// The state was read from a backup: what happened after the backup was made is not known here.
    HistoryRestored,
    /// A runner obeyed an answer of this cluster's server that this server never gave: what happened since the copy was
    /// made that this server goes on from is not known here.
    HistoryWentBack { runner: RunnerId, shown: HistoryPoint },
    /// The server goes on in this epoch and above this revision, which no agent has obeyed yet.
    HistoryContinued { epoch: Epoch, revision: Revision, reason: Option<ReasonText> },
    /// A runner reported for the first time since the history went back: the server knows all slots that it has.
    RunnerCaughtUp { runner: RunnerId },
    /// A runner says that it obeyed an answer whose code is wrong.
    ObeyedCodeRefused { runner: RunnerId },
    /// A runner no longer says so.
    ObeyedCodeAccepted { runner: RunnerId },
    /// The server was paused: timers start anew.
    TimersRestarted,

    /// A model was added or changed.
    ModelPut { spec: Arc<ModelSpec>, revision: ModelRevision },
    /// A model whose slots failed may have slots again that nobody asked for.
    ModelRetried { model: ModelName },
    /// A model was removed.
    ModelDeleted { model: ModelName },
    /// The most that its slots were seen to use, in rank order; `settled` once one of them served for a while.
    MemoryObserved { model: ModelName, count: GpuCount, peaks: Vec<Bytes>, settled: bool },
    /// What its slots use is held against what it is charged.
    MemoryJudged { model: ModelName, count: GpuCount, verdict: MemoryVerdict, claim: Vec<Bytes>, peaks: Vec<Bytes> },
    /// Something else is charged than the catalogue says. Claims that exist stay as they are.
    MemoryCorrected { model: ModelName, count: GpuCount, bytes: Vec<Bytes>, why: CorrectionReason },

    /// A runner is on this boot of its machine: everything that it ran before is gone. Other runners of the machine
    /// speak for themselves.
    RunnerBooted { runner: RunnerId, boot: BootId },
    /// A runner that registers names a machine that belongs to another runner, and nothing says that the two share it.
    MachineDisputed { runner: RunnerId, machine: MachineId },
    /// An operator says whether a runner is on the machine that it names, or on another one of the same id.
    MachineJudged { runner: RunnerId, machine: MachineId, is_same: bool, reason: ReasonText },
    /// A runner belongs to this machine now, with the devices that only it has.
    RunnerMoved { runner: RunnerId, machine: MachineId },
    /// CPU and RAM of a machine.
    HostSized { machine: MachineId, cpu: Millicores, ram: Bytes },
    /// An agent registered.
    RunnerRegistered { runner: RunnerId, machine: MachineId, incarnation: Incarnation },
    /// A runner is like this.
    RunnerDescribed { runner: RunnerId, traits: Arc<RunnerTraits> },
    /// A runner was heard of; with a sequence, its report was taken in whole.
    RunnerSeen { runner: RunnerId, sequence: Option<Sequence> },
    /// Silent for a while: nothing new.
    RunnerSuspected { runner: RunnerId },
    /// Silent for long: its slots are unknown, their memory stays charged.
    RunnerLost { runner: RunnerId },
    /// Most of the fleet is silent at once: nobody is lost for it.
    LossDeferred { runner: RunnerId },
    /// Heard of again.
    RunnerReturned { runner: RunnerId },
    /// Takes nothing new.
    RunnerCordoned { runner: RunnerId },
    /// Takes work again.
    RunnerUncordoned { runner: RunnerId },
    /// Finishes what it has, at most until the deadline.
    RunnerDraining { runner: RunnerId, deadline: Option<Timestamp> },
    /// The deadline passed: pins and leases protect nothing any more.
    DrainDeadlinePassed { runner: RunnerId },
    /// Nothing is left on it.
    RunnerDrained { runner: RunnerId },
    /// An operator said that it is no more.
    RunnerForgotten { runner: RunnerId, reason: ReasonText },

    /// A runner reports a device that belongs to another machine.
    DeviceDisputed { runner: RunnerId, uuid: DeviceUuid },
    /// That is over.
    DisputeEnded { runner: RunnerId, uuid: DeviceUuid },
    /// A runner has this device.
    DeviceAttached {
        runner: RunnerId,
        uuid: DeviceUuid,
        name: GpuName,
        parent: Option<DeviceUuid>,
        attachment: Attachment,
    },
    /// A runner no longer lists this device.
    DeviceDetached { runner: RunnerId, uuid: DeviceUuid },
    /// What the driver of one of its runners says of it.
    DeviceHealthChanged { runner: RunnerId, uuid: DeviceUuid, health: GpuHealth },
    /// The memory that is in use on it, by whomever.
    DeviceSampled { uuid: DeviceUuid, used: Bytes },
    /// Takes nothing new.
    DeviceCordoned { uuid: DeviceUuid },
    /// Takes work again.
    DeviceUncordoned { uuid: DeviceUuid },
    /// A start was refused there; not again before this.
    DeviceBackedOff { uuid: DeviceUuid, until: Timestamp },
    /// The pause is over.
    DeviceReopened { uuid: DeviceUuid },
    /// Memory in use on it that is not ours. With `left_behind` a slot left some of it: where the driver attributes
    /// nothing, it is never less from now on, until none of our slots is there.
    ForeignChanged { uuid: DeviceUuid, bytes: Bytes, attributed: bool, left_behind: bool },
    /// A sample that would lower it; the next one decides.
    ForeignSampled { uuid: DeviceUuid, bytes: Bytes },

    /// A slot was placed.
    SlotPlaced(Arc<PlacedSlot>),
    /// A slot may start.
    SlotGranted { slot: SlotId },
    /// Its agent has it on record.
    SlotSeen { slot: SlotId },
    /// It serves.
    SlotReady { slot: SlotId, endpoint: Option<Endpoint> },
    /// It takes nothing new.
    SlotDrainBegun { slot: SlotId },
    /// It takes leases again.
    SlotDrainEnded { slot: SlotId },
    /// It is being stopped.
    SlotStopping { slot: SlotId, why: StopReason },
    /// Its stop takes too long; nobody should count on it.
    StopStalled { slot: SlotId },
    /// Its first process ended by itself, like this. What follows from it are other events.
    ProcessEnded { slot: SlotId, exit: ExitStatus },
    /// It came to a bad end. Slots of its model that nobody asked for wait until then.
    SlotFailed { slot: SlotId, why: FailureReason, retry_at: Timestamp },
    /// It may or may not exist: its agent is asked to account for it.
    SlotUnknown { slot: SlotId, why: UnknownReason },
    /// It was never gone.
    SlotReturned { slot: SlotId, ready: bool },
    /// It is started again in its place, its memory kept.
    SlotRestarted { slot: SlotId, generation: Generation },
    /// Its runner has a later start of it than this server knows of: that one counts from now on.
    SlotOvertaken { slot: SlotId, generation: Generation },
    /// It is proven gone, and its claims with it.
    SlotReleased { slot: SlotId, proof: Proof, note: Option<ReasonText> },
    /// Its agent started nothing. Slots of its model that nobody asked for wait until then.
    SlotRefused { slot: SlotId, retry_at: Timestamp },
    /// It was seen above its claim, and is charged for what was seen.
    SlotCharged { slot: SlotId, uuid: DeviceUuid, bytes: Bytes },
    /// What it was seen to use, or that the driver cannot tell.
    SlotObserved { slot: SlotId, uuid: DeviceUuid, used: Option<Bytes>, peak: Bytes },
    /// It has run long enough to be evicted.
    SlotPassedMinRun { slot: SlotId },
    /// What it waited for is free, and is its own now.
    PromiseKept { slot: SlotId, granted: bool },
    /// The promise was taken back.
    PromiseWithdrawn { slot: SlotId },

    /// A runner has a slot that the server does not know.
    StrayFound { runner: RunnerId, slot: SlotId, generation: Generation, claims: Vec<PlacedClaim>, stop: bool },
    /// It should be stopped.
    StrayCondemned { runner: RunnerId, slot: SlotId },
    /// It is proven gone.
    StrayReleased { runner: RunnerId, slot: SlotId, proof: Proof, note: Option<ReasonText> },

    /// A workload was taken in; unless it waits, the next events of the same step give it a slot.
    WorkloadSubmitted { workload: WorkloadId, submission: Arc<Submission>, waits: bool },
    /// It waits, for this reason.
    WorkloadWaits { workload: WorkloadId, why: WaitReason },
    /// It has a slot.
    WorkloadAssigned { workload: WorkloadId, slot: SlotId },
    /// It goes back to the queue, with its age. `failures` of its attempts count; it waits until `after` is proven gone;
    /// `may_run_twice`: its old copy may still run.
    WorkloadRequeued {
        workload: WorkloadId,
        cause: Cause,
        not_before: Option<Timestamp>,
        failures: u32,
        after: Option<SlotId>,
        may_run_twice: bool,
    },
    /// Its pause is over.
    WorkloadEligible { workload: WorkloadId },
    /// It no longer waits for the end of its last start, which may still run.
    WorkloadUnblocked { workload: WorkloadId },
    /// Its lease lives on.
    LeaseRenewed { workload: WorkloadId },
    /// It is over.
    WorkloadEnded { workload: WorkloadId, end: WorkloadEnd, cause: Cause },
    /// It and its key are no longer remembered.
    WorkloadForgotten { workload: WorkloadId },
    /// A place is kept free for somebody, or what is known of it changed.
    Reserved(Box<ReservedPlace>),
    /// It is no longer.
    ReservationEnded { owner: ReservedFor },
    /// It is time to look at reservations again.
    ReservationsDue,
}

impl Event {
    /// Whether the journal keeps it. Heartbeats and telemetry are not kept: after a restart they are heard anew.
    #[must_use]
    pub const fn is_durable(&self) -> bool {
        !matches!(
            self,
            Self::RunnerSeen { .. }
                | Self::TimersRestarted
                | Self::LossDeferred { .. }
                | Self::ForeignSampled { .. }
                | Self::DeviceSampled { .. }
                | Self::ReservationsDue
                | Self::SlotObserved { .. }
                | Self::LeaseRenewed { .. }
        )
    }
}
