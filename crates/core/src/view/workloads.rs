//! Workloads, the queue, and places that are kept free.

use berth_domain::{
    Attempt, Bytes, DeviceUuid, GpuCount, GpuMemory, Millicores, ModelName, Owner, Priority, Revision, RunnerId,
    SlotId, TenantName, Timestamp, WorkloadId, WorkloadKind, WorkloadState,
};

use crate::event::ReservedFor;
use crate::reason::{Cause, WaitReason};
use crate::state::{Claimant, PastAttempt, State, Workload};
use crate::table::WorkloadKey;

/// A workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkloadView {
    /// The id that its submitter was given.
    pub id: WorkloadId,
    /// The model that it asks for.
    pub model: ModelName,
    /// Whether it is a lease or a job.
    pub kind: WorkloadKind,
    /// The state that it is in.
    pub state: WorkloadState,
    /// The number of the present attempt.
    pub attempt: Attempt,
    /// Its position in the queue, from 1.
    pub position: Option<usize>,
    /// The slot that it was given.
    pub slot: Option<SlotId>,
    /// Why it waits.
    pub waits: Option<WaitReason>,
    /// Why it ended, or came back to the queue.
    pub cause: Option<Cause>,
    /// Its priority: higher ones are placed first.
    pub priority: Priority,
    /// The tenant that its submitter named.
    pub tenant: Option<TenantName>,
    /// The token or tenant that it belongs to.
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
    /// The work that the place is kept for.
    pub owner: ReservedFor,
    /// The priority of that work: a higher one is not held back.
    pub priority: Priority,
    /// The runner that the place is on.
    pub runner: RunnerId,
    /// Its devices in rank order.
    pub devices: Vec<DeviceUuid>,
    /// The CPU that is kept of the runner's machine.
    pub cpu: Millicores,
    /// The RAM that is kept of the runner's machine.
    pub ram: Bytes,
    /// CPU or RAM is short: slots on the whole machine are in the way.
    pub drains_host: bool,
    /// Work that can leave in time may use it meanwhile.
    pub backfill: bool,
    /// When everything in the way will have ended, if that is known.
    pub free_at: Option<Timestamp>,
    /// When the reservation was made.
    pub since: Timestamp,
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
    /// How many workloads wait.
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
    /// Lists all workloads in the order of their submission.
    #[must_use]
    pub fn workloads(&self) -> Vec<WorkloadView> {
        let mut rows: Vec<(WorkloadKey, &Workload)> = self.workloads.iter().collect();
        rows.sort_by_key(|(_, row)| row.number);
        rows.into_iter().map(|(key, row)| self.workload_view(key, row)).collect()
    }

    /// Finds a workload by its id.
    #[must_use]
    pub fn workload(&self, id: WorkloadId) -> Option<WorkloadView> {
        self.workloads.find(&id).map(|(key, row)| self.workload_view(key, row))
    }

    /// Lists the workloads that wait, in queue order.
    #[must_use]
    pub fn queue(&self) -> Vec<WorkloadId> {
        self.queue.order.iter().filter_map(|(entry, _)| self.workloads.get(entry.workload)).map(|row| row.id).collect()
    }

    /// Lists the places that are kept free.
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

    /// Sums up what waits, by model, kind and reason; the entry with the oldest workload comes first.
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
}
