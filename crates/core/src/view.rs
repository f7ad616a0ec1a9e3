//! What others may read: plain data made from the state, in a fixed order.

use std::sync::Arc;

use berth_domain::{
    Attempt, Bytes, ClusterId, DesiredAction, DesiredGpu, DesiredSlot, DeviceUuid, Endpoint, FailureReason, Generation,
    GpuCount, GpuMemory, GpuName, HistoryPoint, Incarnation, MachineId, Millicores, ModelName, ModelRevision,
    ModelSpec, Owner, Priority, Revision, RunSpec, RunnerId, SlotId, SlotState, TenantName, Timestamp, WorkloadId,
    WorkloadKind, WorkloadState,
};

use crate::event::{ReservedFor, RunnerTraits};
use crate::explain::{self, Report};
use crate::ledger::{Balance, Phase};
use crate::memory::{self, CorrectionReason, MemoryVerdict, Watched};
use crate::plan::{self, Demand};
use crate::reason::{Cause, Closed, Exclusion, StopReason, UnknownReason, WaitReason};
use crate::state::{
    Admission, Claimant, Device, Liveness, PastAttempt, Runner, SeatRow, Slot, State, Workload, offered,
};
use crate::table::{RunnerKey, WorkloadKey};

/// One claim of a device's ledger.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClaimView {
    /// Whose.
    pub slot: SlotId,
    /// What it is.
    pub phase: Phase,
    /// How much.
    pub bytes: Bytes,
}

/// One device and its ledger.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DeviceView {
    /// Which.
    pub uuid: DeviceUuid,
    /// What the driver calls it.
    pub name: GpuName,
    /// The GPU it is a MIG instance of.
    pub parent: Option<DeviceUuid>,
    /// Runners that have it, with its index there.
    pub runners: Vec<(RunnerId, u16)>,
    /// How often it is advertised.
    pub replicas: u16,
    /// Entries for it disagree about its size.
    pub sizes_differ: bool,
    /// Its numbers.
    pub balance: Balance<Bytes>,
    /// Why it takes nothing new.
    pub closed: Option<Closed>,
    /// It is kept free for work of this priority.
    pub reserved_for: Option<Priority>,
    /// It is kept free, but work that can leave in time may use it meanwhile.
    pub backfill: bool,
    /// Whether a line is false.
    pub overcommitted: bool,
    /// Whether the driver tells foreign use from our own.
    pub attributed: bool,
    /// Its claims.
    pub claims: Vec<ClaimView>,
}

/// One machine's host and its ledgers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostView {
    /// Which.
    pub machine: MachineId,
    /// Its runners.
    pub runners: Vec<RunnerId>,
    /// Its CPU.
    pub cpu: Balance<Millicores>,
    /// Its RAM.
    pub ram: Balance<Bytes>,
}

/// One slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotView {
    /// Which.
    pub id: SlotId,
    /// Which start of it.
    pub generation: Generation,
    /// What it serves; nothing for a slot that the server did not make.
    pub model: Option<ModelName>,
    /// Which version of it.
    pub revision: ModelRevision,
    /// Where.
    pub runner: RunnerId,
    /// In which state.
    pub state: SlotState,
    /// Since when.
    pub since: Timestamp,
    /// Its devices in rank order: which, how much, what was seen.
    pub gpus: Vec<(DeviceUuid, Bytes, Option<Bytes>)>,
    /// Where it answers.
    pub endpoint: Option<Endpoint>,
    /// How many use it.
    pub active: u32,
    /// How many may.
    pub concurrency: u32,
    /// When it was placed.
    pub created: Timestamp,
    /// Since when nobody uses it.
    pub idle_since: Option<Timestamp>,
    /// It has run long enough to be evicted.
    pub past_min_run: bool,
    /// Why it is being stopped.
    pub stop_reason: Option<StopReason>,
    /// How it came to a bad end.
    pub failure: Option<FailureReason>,
    /// Its stop takes too long.
    pub stalled: bool,
    /// Why nobody can say whether it exists.
    pub unknown: Option<UnknownReason>,
}

/// One workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkloadView {
    /// Which.
    pub id: WorkloadId,
    /// Its model.
    pub model: ModelName,
    /// Its kind.
    pub kind: WorkloadKind,
    /// In which state.
    pub state: WorkloadState,
    /// Which try this is.
    pub attempt: Attempt,
    /// Where it stands in the queue, from 1.
    pub position: Option<usize>,
    /// Its slot.
    pub slot: Option<SlotId>,
    /// Why it waits.
    pub waits: Option<WaitReason>,
    /// Why it ended, or came back to the queue.
    pub cause: Option<Cause>,
    /// What goes first.
    pub priority: Priority,
    /// On whose account it is, as its submitter said.
    pub tenant: Option<TenantName>,
    /// Whose work it is.
    pub owner: Option<Owner>,
    /// When it was submitted.
    pub created: Timestamp,
    /// When its state changed last, or its lease was renewed.
    pub since: Timestamp,
    /// Since when the present attempt waits, or how long it waited for its slot: from here to `assigned`.
    pub queued: Timestamp,
    /// When the present attempt got its slot.
    pub assigned: Option<Timestamp>,
    /// When the present attempt began to run.
    pub ran: Option<Timestamp>,
    /// It pauses after a failure until then.
    pub not_before: Option<Timestamp>,
    /// How many of its attempts failed, those of long ago not counted.
    pub failures: u32,
    /// The last attempts that are over, oldest first.
    pub attempts: Vec<PastAttempt>,
    /// The order of submission.
    pub number: u64,
    /// The revision of its last change: the same after a restart.
    pub revision: Revision,
    /// Devices that are kept for it.
    pub reserved: Vec<DeviceUuid>,
    /// Its runner was lost and it was started again: both copies may have run.
    pub may_run_twice: bool,
    /// Its model wants GPUs to itself.
    pub wants_whole_gpus: bool,
}

/// A place that is kept free.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReservationView {
    /// For whom.
    pub owner: ReservedFor,
    /// Of which priority.
    pub priority: Priority,
    /// On which runner.
    pub runner: RunnerId,
    /// Its devices in rank order.
    pub devices: Vec<DeviceUuid>,
    /// CPU of the runner's machine.
    pub cpu: Millicores,
    /// RAM of the runner's machine.
    pub ram: Bytes,
    /// CPU or RAM is short: slots on the whole machine are in the way.
    pub drains_host: bool,
    /// Work that can leave in time may use it meanwhile.
    pub backfill: bool,
    /// When everything in the way will have ended, if that is known.
    pub free_at: Option<Timestamp>,
    /// Since when.
    pub since: Timestamp,
}

/// One runner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunnerView {
    /// Which.
    pub id: RunnerId,
    /// Its machine.
    pub machine: MachineId,
    /// Which start of its agent.
    pub incarnation: Incarnation,
    /// Whether it is heard of.
    pub liveness: Liveness,
    /// What operators want of it.
    pub admission: Admission,
    /// Whether it reported since the server started.
    pub reported: bool,
    /// Why it takes nothing new, whatever operators want of it: the history went back, or it sent a wrong code.
    pub barred: Option<Exclusion>,
    /// The machine that it names, while that belongs to another runner, and who that is.
    pub disputes: Option<(MachineId, RunnerId)>,
    /// When it was last heard of.
    pub last_seen: Timestamp,
    /// What it is like, once it said so.
    pub traits: Option<Arc<RunnerTraits>>,
    /// Its devices, by index.
    pub devices: Vec<DeviceUuid>,
    /// Devices that it reports but that belong to another machine.
    pub disputed: Vec<DeviceUuid>,
    /// GPUs that it had since its machine was booted and no longer lists, with their names.
    pub missing: Vec<(DeviceUuid, GpuName)>,
    /// The last revision at which what it should run changed.
    pub desired: Revision,
}

impl RunnerView {
    /// Whether it takes new work, or will as soon as it has reported to a server that was just started.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.liveness == Liveness::Ready && self.barred.is_none() && self.admission == Admission::Open
    }
}

/// The starts of the server that its state knows of, and whether anything is missing from them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryView {
    /// The point that the server has reached.
    pub now: HistoryPoint,
    /// The starts of its epochs, oldest first; very old ones are dropped.
    pub epochs: Vec<HistoryPoint>,
    /// The newest answer that a runner obeyed and this server did not give, while no operator has continued.
    pub went_back: Option<HistoryPoint>,
    /// Runners that have not reported since the history went back.
    pub waits_for: Vec<RunnerId>,
}

/// One model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelView {
    /// Which.
    pub name: ModelName,
    /// Which version.
    pub revision: ModelRevision,
    /// Whether it was removed.
    pub deleted: bool,
    /// How many of its slots serve or will serve.
    pub live: u32,
    /// How many workloads wait for it.
    pub waiting: usize,
    /// How often one of its slots was evicted.
    pub evictions: u64,
    /// Slots that nobody asked for wait until then, because one failed.
    pub retry_at: Option<Timestamp>,
    /// Its catalogue entry.
    pub spec: Arc<ModelSpec>,
    /// What its slots were seen to use, and what is charged instead of what its entry says, by GPU count.
    pub memory: Vec<MemoryView>,
}

/// What is known of one GPU count of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryView {
    /// How many GPUs.
    pub count: GpuCount,
    /// What the next slot is charged on each of them.
    pub charged: Vec<Bytes>,
    /// Why that is not what its entry says, if it is not.
    pub corrected: Option<CorrectionReason>,
    /// The most that its slots were seen to use on each of them; empty before anything was seen.
    pub peaks: Vec<Bytes>,
    /// How the two compare.
    pub verdict: MemoryVerdict,
    /// What would be charged by what was seen, where that is another number.
    pub offered: Option<Vec<Bytes>>,
}

/// Work of one model that waits for one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DemandView {
    /// The model.
    pub model: ModelName,
    /// The kind of work.
    pub kind: WorkloadKind,
    /// Why it waits.
    pub waits: Option<WaitReason>,
    /// How many.
    pub waiting: usize,
    /// The oldest of them was submitted then.
    pub oldest: Timestamp,
    /// For each GPU count that would do, what each GPU must give.
    pub counts: Vec<(GpuCount, Vec<GpuMemory>)>,
    /// CPU of one slot.
    pub cpu: Millicores,
    /// RAM of one slot.
    pub ram: Bytes,
}

impl State {
    /// The cluster, once started.
    #[must_use]
    pub fn cluster(&self) -> Option<ClusterId> {
        self.cluster
    }

    /// All devices by UUID.
    #[must_use]
    pub fn devices(&self) -> Vec<DeviceView> {
        sorted(self.devices.iter().map(|(_, row)| self.device_view(row)).collect(), |view| view.uuid.clone())
    }

    /// One device.
    #[must_use]
    pub fn device(&self, uuid: &DeviceUuid) -> Option<DeviceView> {
        self.devices.find(uuid).map(|(_, row)| self.device_view(row))
    }

    /// The first runner that has a device.
    #[must_use]
    pub fn runner_of_device(&self, uuid: &DeviceUuid) -> Option<RunnerId> {
        let (_, device) = self.devices.find(uuid)?;
        device.seats.first().and_then(|row| self.runners.get(row.runner)).map(|runner| runner.id.clone())
    }

    /// The numbers of a device, if it is overcommitted.
    #[must_use]
    pub fn overcommitted(&self, uuid: &DeviceUuid) -> Option<Balance<Bytes>> {
        let (_, device) = self.devices.find(uuid)?;
        device.ledger.is_overcommitted().then(|| device.balance())
    }

    /// All hosts by machine.
    #[must_use]
    pub fn hosts(&self) -> Vec<HostView> {
        sorted(self.machines.iter().map(|(_, row)| self.host_view(row)).collect(), |view| view.machine.clone())
    }

    /// All slots in the order of their creation.
    #[must_use]
    pub fn slots(&self) -> Vec<SlotView> {
        let mut rows: Vec<&Slot> = self.slots.iter().map(|(_, row)| row).collect();
        rows.sort_by_key(|row| row.number);
        rows.into_iter().filter_map(|row| self.slot_view(row)).collect()
    }

    /// One slot that the server made.
    #[must_use]
    pub fn slot_by_id(&self, id: SlotId) -> Option<SlotView> {
        self.slot(id).and_then(|(_, row)| self.slot_view(row))
    }

    /// All workloads in the order of their submission.
    #[must_use]
    pub fn workloads(&self) -> Vec<WorkloadView> {
        let mut rows: Vec<(WorkloadKey, &Workload)> = self.workloads.iter().collect();
        rows.sort_by_key(|(_, row)| row.number);
        rows.into_iter().map(|(key, row)| self.workload_view(key, row)).collect()
    }

    /// One workload.
    #[must_use]
    pub fn workload(&self, id: WorkloadId) -> Option<WorkloadView> {
        self.workloads.find(&id).map(|(key, row)| self.workload_view(key, row))
    }

    /// Everything that waits, first in order first.
    #[must_use]
    pub fn queue(&self) -> Vec<WorkloadId> {
        self.queue.order.iter().filter_map(|(entry, _)| self.workloads.get(entry.workload)).map(|row| row.id).collect()
    }

    /// All places that are kept free.
    #[must_use]
    pub fn reservations(&self) -> Vec<ReservationView> {
        let view = |row: &crate::state::Reservation| {
            let devices = row.devices.iter().filter_map(|key| self.devices.get(*key)).map(|device| device.uuid.clone());
            Some(ReservationView {
                owner: self.name_of(row.owner)?,
                priority: row.priority,
                runner: self.runners.get(row.runner)?.id.clone(),
                devices: devices.collect(),
                cpu: row.cpu,
                ram: row.ram,
                drains_host: row.drains_host,
                backfill: row.backfill,
                free_at: row.free_at,
                since: row.since,
            })
        };
        self.queue.reservations.iter().filter_map(view).collect()
    }

    /// All runners by id.
    #[must_use]
    pub fn runners(&self) -> Vec<RunnerView> {
        sorted(self.runners.iter().filter_map(|(key, _)| self.runner_view(key)).collect(), |view| view.id.clone())
    }

    /// One runner.
    #[must_use]
    pub fn runner(&self, id: &RunnerId) -> Option<RunnerView> {
        self.runners.key(id).and_then(|key| self.runner_view(key))
    }

    /// All models by name.
    #[must_use]
    pub fn models(&self) -> Vec<ModelView> {
        sorted(self.models.iter().map(|(_, row)| self.model_view(row)).collect(), |view| view.name.clone())
    }

    /// What waits, by model, kind and reason, in the order of the oldest.
    #[must_use]
    pub fn demand(&self) -> Vec<DemandView> {
        let mut rows: Vec<DemandView> = Vec::new();
        let mut places: crate::table::Lookup<_, usize> = crate::table::Lookup::default();
        for (entry, _) in self.queue.order.iter() {
            let Some(row) = self.workloads.get(entry.workload) else { continue };
            let place = *places.entry((row.model, row.submission.kind, row.waits)).or_insert(rows.len());
            if let Some(known) = rows.get_mut(place) {
                known.waiting += 1;
                known.oldest = known.oldest.min(row.created);
                continue;
            }
            let model = self.models.get(row.model);
            rows.push(DemandView {
                model: row.submission.model.clone(),
                kind: row.submission.kind,
                waits: row.waits,
                waiting: 1,
                oldest: row.created,
                counts: model
                    .and_then(|model| self.shapes.get(model.shape))
                    .map(|row| row.shape.counts.clone())
                    .unwrap_or_default(),
                cpu: model.map(|model| model.spec.cpu).unwrap_or_default(),
                ram: model.map(|model| model.spec.ram).unwrap_or_default(),
            });
        }
        rows.sort_by_key(|row| row.oldest);
        rows
    }

    /// How many slots were evicted so far.
    #[must_use]
    pub fn evictions(&self) -> u64 {
        self.counters.evictions
    }

    /// The slots of a runner.
    #[must_use]
    pub fn slots_of(&self, runner: &RunnerId) -> Vec<SlotId> {
        let slots = self.runners.find(runner).map(|(_, row)| row.slots.as_slice()).unwrap_or_default();
        slots.iter().filter_map(|key| self.slots.get(*key)).map(|slot| slot.id).collect()
    }

    /// What a runner should make true. Slots that wait for their turn are not mentioned: what is not mentioned is kept.
    /// One whose fate nobody knows is to be accounted for.
    #[must_use]
    pub fn desired(&self, runner: &RunnerId) -> Vec<DesiredSlot> {
        let Some((_, row)) = self.runners.find(runner) else { return Vec::new() };
        // A slot that is not mentioned is kept. Nothing is started or stopped on what is known from an older copy: slots
        // may have gone since, and the runner's first report says which.
        if self.history.has_gone_back() || !row.caught_up {
            return Vec::new();
        }
        row.slots.iter().filter_map(|key| self.slots.get(*key)).filter_map(|slot| self.desired_slot(slot)).collect()
    }

    fn desired_slot(&self, slot: &Slot) -> Option<DesiredSlot> {
        let action = match slot.state {
            SlotState::Starting | SlotState::Ready | SlotState::Draining => DesiredAction::Run(self.run_spec(slot)?),
            SlotState::Stopping | SlotState::Failed => DesiredAction::Stop,
            // A stray of another cluster is not ours to ask about.
            SlotState::Unknown if slot.is_stray() => return None,
            SlotState::Unknown => DesiredAction::Account,
            SlotState::Promised | SlotState::Pending => return None,
        };
        let gpu = |gpu: &crate::state::SlotGpu| {
            Some(DesiredGpu { uuid: self.devices.get(gpu.device)?.uuid.clone(), memory_bytes: gpu.bytes })
        };
        let gpus = slot.gpus.iter().filter_map(gpu).collect();
        Some(DesiredSlot { id: slot.id, generation: slot.generation, gpus, action })
    }

    fn run_spec(&self, slot: &Slot) -> Option<Box<RunSpec>> {
        let spec = slot.spec.as_deref()?;
        let job = slot.job.and_then(|key| self.workloads.get(key)).map(|row| row.submission.job.args.clone());
        Some(Box::new(RunSpec {
            model: spec.name.clone(),
            runtime: spec.constraints.runtime.clone(),
            kind: if slot.is_job { WorkloadKind::Job } else { WorkloadKind::Lease },
            model_args: spec.args.len(),
            args: spec.args.iter().cloned().chain(job.unwrap_or_default()).collect(),
            cpu_millicores: slot.cpu,
            ram_bytes: slot.ram,
            concurrency: spec.concurrency,
        }))
    }

    /// Why a workload is where it is: for one that waits, judged on the state of this instant.
    #[must_use]
    pub fn explain(&self, id: WorkloadId, now: Timestamp) -> Option<Report> {
        let (key, row) = self.workloads.find(&id)?;
        let demand = Demand::of_workload(self, key)?;
        if let Some(why) = row.waits.filter(|_| row.queued.is_some() && !row.eligible) {
            let plan = plan::Plan { choice: plan::Choice::Wait(why), examined: 0, spared_own: false };
            return Some(explain::report(self, &demand, &plan, Some(id), now));
        }
        if row.state == WorkloadState::Queued {
            let plan = plan::plan(self, demand).for_queued_work();
            return Some(explain::report(self, &demand, &plan, Some(id), now));
        }
        let choice = plan::Choice::Reuse(row.slot?);
        let plan = plan::Plan { choice, examined: 0, spared_own: false };
        Some(explain::report(self, &demand, &plan, Some(id), now))
    }

    /// A workload fails for good when so many of its attempts have failed.
    #[must_use]
    pub fn most_failures(&self) -> u32 {
        self.settings.attempts
    }

    /// Would a workload of this model fit, where, and who would be evicted? Nothing is done.
    #[must_use]
    pub fn fit(&self, model: &ModelName, kind: WorkloadKind, now: Timestamp) -> Option<Report> {
        let (key, _) = self.models.find(model).filter(|(_, row)| !row.deleted)?;
        let demand = Demand::of_model(self, key, kind)?;
        let plan = plan::plan(self, demand);
        Some(explain::report(self, &demand, &plan, None, now))
    }

    /// The point in its history that the server has reached.
    #[must_use]
    pub fn point(&self) -> HistoryPoint {
        HistoryPoint { epoch: self.epoch, tag: self.history.tag(), revision: self.revision }
    }

    /// The newest answer that a runner obeyed and this server did not give, while no operator has continued.
    #[must_use]
    pub fn went_back(&self) -> Option<HistoryPoint> {
        self.history.beyond()
    }

    /// The starts of the server that are known here, and whether anything is missing from them.
    #[must_use]
    pub fn history(&self) -> HistoryView {
        let unheard = self.runners.iter().map(|(_, row)| row).filter(|row| !row.caught_up && !row.is_forgotten());
        let point = |start: &crate::state::EpochStart| HistoryPoint {
            epoch: start.epoch,
            tag: start.tag,
            revision: start.first,
        };
        HistoryView {
            now: self.point(),
            epochs: self.history.starts().iter().map(point).collect(),
            went_back: self.went_back(),
            waits_for: sorted(unheard.map(|row| row.id.clone()).collect(), RunnerId::clone),
        }
    }

    /// The same state has the same fingerprint, in every process.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        use std::hash::BuildHasher;
        let slots: Vec<_> = self.slots().into_iter().map(|slot| format!("{slot:?}")).collect();
        let parts = format!(
            "{:?}{:?}{:?}{slots:?}{:?}{:?}{:?}{:?}{:?}{:?}",
            self.cluster,
            self.history(),
            self.devices(),
            self.hosts(),
            self.workloads(),
            self.runners(),
            self.models(),
            self.queue(),
            self.reservations(),
        );
        foldhash::fast::FixedState::default().hash_one(parts)
    }

    pub(crate) fn host_view(&self, machine: &crate::state::Machine) -> HostView {
        let runners = machine.runners.iter().filter_map(|key| self.runners.get(*key));
        HostView {
            machine: machine.id.clone(),
            runners: runners.map(|row| row.id.clone()).collect(),
            cpu: machine.cpu.balance(),
            ram: machine.ram.balance(),
        }
    }

    pub(crate) fn model_view(&self, model: &crate::state::Model) -> ModelView {
        ModelView {
            name: model.name.clone(),
            revision: model.revision,
            deleted: model.deleted,
            live: model.live,
            waiting: model.waiting_leases.len() + model.waiting_jobs.len(),
            evictions: model.evictions,
            retry_at: model.retry_at,
            spec: model.spec.clone(),
            memory: model.memory.iter().filter_map(|(count, row)| self.memory_view(model, *count, row)).collect(),
        }
    }

    fn memory_view(&self, model: &crate::state::Model, count: GpuCount, row: &Watched) -> Option<MemoryView> {
        let (original, charged) = (model.stated_on(count)?, model.bytes_on(count)?);
        let offered = memory::corrected(&original, &row.peaks, u64::from(self.settings.oom_limit));
        Some(MemoryView {
            count,
            corrected: row.correction.as_ref().map(|correction| correction.why),
            peaks: row.peaks.clone(),
            verdict: row.verdict,
            offered: Some(offered).filter(|offered| row.verdict.is_drift() && *offered != charged),
            charged,
        })
    }

    /// Why a device takes nothing new, with what keeps its runners from it.
    pub(crate) fn why_closed(&self, device: &Device) -> Option<Closed> {
        let is_open = |row: &SeatRow| self.runners.get(row.runner).is_some_and(Runner::is_open);
        match device.closed() {
            Some(why) if !why.keeps_its_offer() => Some(why),
            _ if !device.seats.iter().any(is_open) => Some(Closed::RunnerClosed),
            closed => closed,
        }
    }

    /// The numbers of a device, with nothing free where it takes nothing new.
    pub(crate) fn balance_of(&self, device: &Device) -> Balance<Bytes> {
        offered(device.ledger.balance(), self.why_closed(device))
    }

    pub(crate) fn device_view(&self, device: &Device) -> DeviceView {
        let runner = |row: &SeatRow| Some((self.runners.get(row.runner)?.id.clone(), row.seat.index));
        let claim = |claim: &crate::ledger::Claim<Bytes>| {
            Some(ClaimView { slot: self.slots.get(claim.slot)?.id, phase: claim.phase, bytes: claim.amount })
        };
        DeviceView {
            uuid: device.uuid.clone(),
            name: device.name.clone(),
            parent: device.parent.clone(),
            runners: device.seats.iter().filter_map(runner).collect(),
            replicas: device.replicas(),
            sizes_differ: device
                .seats
                .iter()
                .any(|row| row.seat.sizes_differ || row.seat.capacity != device.ledger.capacity()),
            balance: device.balance(),
            closed: device.closed(),
            reserved_for: device.reserved_for.and_then(|owner| self.reservation_of(owner)).map(|row| row.priority),
            backfill: device.backfill,
            overcommitted: device.ledger.is_overcommitted(),
            attributed: device.attributed,
            claims: device.ledger.claims().iter().filter_map(claim).collect(),
        }
    }

    pub(crate) fn slot_view(&self, slot: &Slot) -> Option<SlotView> {
        let gpu =
            |gpu: &crate::state::SlotGpu| Some((self.devices.get(gpu.device)?.uuid.clone(), gpu.bytes, gpu.observed));
        Some(SlotView {
            id: slot.id,
            generation: slot.generation,
            model: slot.spec.as_ref().map(|spec| spec.name.clone()),
            revision: slot.revision,
            runner: self.runners.get(slot.runner)?.id.clone(),
            state: slot.state,
            since: slot.since,
            gpus: slot.gpus.iter().filter_map(gpu).collect(),
            endpoint: slot.endpoint.clone(),
            active: slot.active() + u32::from(slot.job.is_some()),
            concurrency: slot.spec.as_ref().map_or(0, |spec| spec.concurrency),
            created: slot.created,
            idle_since: slot.idle_since,
            past_min_run: slot.ripe,
            stop_reason: slot.stop_reason,
            failure: slot.failure,
            stalled: slot.stalled,
            unknown: slot.unknown.clone(),
        })
    }

    pub(crate) fn workload_view(&self, key: WorkloadKey, row: &Workload) -> WorkloadView {
        let reservation = self.reservation_of(Claimant::Workload(key));
        let devices =
            reservation.into_iter().flat_map(|row| row.devices.iter()).filter_map(|key| self.devices.get(*key));
        WorkloadView {
            id: row.id,
            model: row.submission.model.clone(),
            kind: row.submission.kind,
            state: row.state,
            attempt: row.attempt,
            position: row.queued.map(|entry| self.queue.order.rank(&entry) + 1),
            slot: row.slot.and_then(|key| self.slots.get(key)).map(|slot| slot.id),
            waits: row.waits,
            cause: row.cause,
            priority: row.submission.priority,
            tenant: row.submission.tenant.clone(),
            owner: row.submission.owner.clone(),
            created: row.created,
            since: row.since,
            queued: row.requeued.unwrap_or(row.created),
            assigned: row.assigned,
            ran: row.ran,
            not_before: row.not_before,
            failures: row.failures,
            attempts: row.attempts.list().to_vec(),
            number: row.number,
            revision: row.changed,
            reserved: devices.map(|device| device.uuid.clone()).collect(),
            may_run_twice: row.may_run_twice,
            wants_whole_gpus: row.eligible
                && row.waits == Some(WaitReason::FullNow)
                && self.models.get(row.model).is_some_and(|model| model.spec.exclusive),
        }
    }

    /// The runner that registered a machine first.
    fn owner_of(&self, machine: &MachineId) -> Option<RunnerId> {
        let (_, row) = self.machines.find(machine)?;
        row.runners.first().and_then(|key| self.runners.get(*key)).map(|row| row.id.clone())
    }

    pub(crate) fn runner_view(&self, key: RunnerKey) -> Option<RunnerView> {
        let row = self.runners.get(key)?;
        Some(RunnerView {
            id: row.id.clone(),
            machine: self.machines.get(row.machine)?.id.clone(),
            incarnation: row.incarnation,
            liveness: row.liveness,
            admission: row.admission,
            reported: row.reported,
            barred: row.barred,
            disputes: row.disputes.as_ref().and_then(|machine| Some((machine.clone(), self.owner_of(machine)?))),
            last_seen: row.last_seen,
            traits: row.traits.clone(),
            devices: row
                .devices
                .iter()
                .filter_map(|key| self.devices.get(*key))
                .map(|device| device.uuid.clone())
                .collect(),
            disputed: row.disputed.clone(),
            missing: row.missing.iter().map(|gpu| (gpu.uuid.clone(), gpu.name.clone())).collect(),
            desired: row.desired,
        })
    }
}

fn sorted<T, K: Ord>(mut rows: Vec<T>, key: impl Fn(&T) -> K) -> Vec<T> {
    rows.sort_by_key(key);
    rows
}
