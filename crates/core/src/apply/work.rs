//! Workloads are submitted, wait, run and end.

use std::sync::Arc;

use berth_domain::{
    Attempt, DeviceUuid, RunnerId, SlotId, SlotState, Submission, Timestamp, WorkloadEnd, WorkloadId, WorkloadKind,
    WorkloadState,
};

use crate::reason::Cause;
use crate::state::{Reservation, State, Timer, Workload};
use crate::table::{SlotKey, WorkloadKey};

impl State {
    pub(super) fn on_submitted(&mut self, id: WorkloadId, submission: &Arc<Submission>, waits: bool, at: Timestamp) {
        let Some(model) = self.models.key(&submission.model) else { return };
        self.counters.workloads += 1;
        let workload = Workload {
            id,
            number: self.counters.workloads,
            submission: submission.clone(),
            model,
            state: WorkloadState::Queued,
            attempt: Attempt::new(1),
            failures: 0,
            slot: None,
            waits: None,
            cause: None,
            created: at,
            backing_off: false,
            not_before: None,
            avoid: None,
            since: at,
            queued: None,
            armed: 0,
            eligible: false,
        };
        let key = self.workloads.insert(workload);
        if let Some(idempotency_key) = &submission.idempotency_key {
            self.keys.insert(idempotency_key.clone(), id);
        }
        if waits {
            self.link_workload(key);
        }
    }

    /// Changes a workload and everything that follows.
    pub(super) fn on_workload(&mut self, id: WorkloadId, change: impl FnOnce(&mut Workload)) {
        let Some(key) = self.workloads.key(&id) else { return };
        if let Some(row) = self.workloads.get_mut(key) {
            change(row);
        }
        self.link_workload(key);
    }

    pub(super) fn on_assigned(&mut self, id: WorkloadId, slot: SlotId, at: Timestamp) {
        let (Some(key), Some((slot_key, row))) = (self.workloads.key(&id), self.slot(slot)) else { return };
        let running = matches!(row.state, SlotState::Ready | SlotState::Draining);
        let promised = row.state == SlotState::Promised;
        let Some(workload) = self.workloads.get_mut(key) else { return };
        workload.slot = Some(slot_key);
        workload.waits = promised.then_some(crate::reason::WaitReason::Releasing);
        workload.state = if running { WorkloadState::Running } else { WorkloadState::Assigned };
        workload.since = at;
        if workload.submission.kind == WorkloadKind::Lease
            && let Some(row) = self.slots.get_mut(slot_key)
        {
            row.leases.push(key);
            row.idle_since = None;
        }
        self.on_reservation_ended(id);
        self.link_workload(key);
        self.link_slot(slot_key);
    }

    /// A slot became ready: what was assigned to it runs.
    pub(super) fn run_assigned(&mut self, slot: SlotKey, at: Timestamp) {
        let Some(row) = self.slots.get(slot) else { return };
        let waiting: Vec<WorkloadKey> = row.leases.iter().copied().chain(row.job).collect();
        for key in waiting {
            if let Some(row) = self.workloads.get_mut(key).filter(|row| row.state == WorkloadState::Assigned) {
                (row.state, row.since, row.waits) = (WorkloadState::Running, at, None);
            }
            self.link_workload(key);
        }
    }

    /// Takes a workload off its slot.
    fn leave_slot(&mut self, key: WorkloadKey, at: Timestamp) {
        let Some(slot_key) = self.workloads.get_mut(key).and_then(|row| row.slot.take()) else { return };
        let Some(slot) = self.slots.get_mut(slot_key) else { return };
        let was_idle = slot.is_idle();
        slot.leases.retain(|other| *other != key);
        slot.job = slot.job.filter(|job| *job != key);
        if slot.state == SlotState::Ready && slot.is_idle() && !was_idle {
            slot.idle_since = Some(at);
            // Long leases outlive `min_run`: then it is ripe as it becomes idle, and no timer is needed.
            let min_run = slot.min_run(self.settings.min_run);
            slot.ripe |= slot.ready_since.is_some_and(|since| since.after(min_run) <= at);
        }
        self.link_slot(slot_key);
    }

    pub(super) fn on_requeued(&mut self, id: WorkloadId, cause: Cause, not_before: Option<Timestamp>, at: Timestamp) {
        let Some(key) = self.workloads.key(&id) else { return };
        let runner = self.workloads.get(key).and_then(|row| self.slots.get(row.slot?)).map(|slot| slot.runner);
        self.leave_slot(key, at);
        let Some(row) = self.workloads.get_mut(key) else { return };
        row.state = WorkloadState::Queued;
        row.attempt = row.attempt.next();
        row.failures += u32::from(cause.is_failure());
        row.avoid = runner.filter(|_| cause.is_failure());
        row.cause = Some(cause);
        row.not_before = not_before;
        row.backing_off = not_before.is_some();
        row.waits = not_before.map(|_| crate::reason::WaitReason::BackingOff);
        row.since = at;
        let model = row.model;
        self.link_workload(key);
        self.agenda.models.insert(model);
    }

    pub(super) fn on_eligible(&mut self, id: WorkloadId) {
        self.on_workload(id, |row| (row.backing_off, row.not_before) = (false, None));
        if let Some(row) = self.workloads.key(&id).and_then(|key| self.workloads.get(key)) {
            self.agenda.models.insert(row.model);
        }
    }

    pub(super) fn on_ended(&mut self, id: WorkloadId, end: WorkloadEnd, cause: Cause, at: Timestamp) {
        let Some(key) = self.workloads.key(&id) else { return };
        self.leave_slot(key, at);
        if let Some(row) = self.workloads.get_mut(key) {
            (row.state, row.cause, row.waits) = (WorkloadState::Ended(end), Some(cause), None);
            (row.since, row.backing_off, row.not_before) = (at, false, None);
        }
        self.on_reservation_ended(id);
        self.ended.push_back(key);
        self.link_workload(key);
    }

    pub(super) fn on_workload_forgotten(&mut self, id: WorkloadId) {
        let Some(key) = self.workloads.key(&id) else { return };
        let Some(row) = self.workloads.remove(key) else { return };
        if let Some(idempotency_key) = &row.submission.idempotency_key {
            self.keys.remove(idempotency_key);
        }
        if self.ended.front() == Some(&key) {
            self.ended.pop_front();
        } else {
            self.ended.retain(|other| *other != key);
        }
        self.timers.disarm(Timer::Forget(key));
    }

    pub(super) fn on_reserved(&mut self, id: WorkloadId, runner: &RunnerId, devices: &[DeviceUuid]) {
        let (Some(key), Some(runner)) = (self.workloads.key(&id), self.runners.key(runner)) else { return };
        let Some(pool) = self
            .workloads
            .get(key)
            .and_then(|row| self.models.get(row.model))
            .map(|row| row.spec.constraints.pool.clone())
        else {
            return;
        };
        let devices: Vec<_> = devices.iter().filter_map(|uuid| self.devices.key(uuid)).collect();
        for device in &devices {
            if let Some(row) = self.devices.get_mut(*device) {
                row.reserved_for = Some(key);
            }
            self.index.touch_device(*device);
            self.agenda.devices.insert(*device);
            self.link_device_slots(*device);
        }
        self.queue.reservations.insert(pool, Reservation { workload: key, runner, devices });
        self.workloads.note(key);
    }

    /// Ends the reservation of a workload, if it has one.
    pub(super) fn on_reservation_ended(&mut self, id: WorkloadId) {
        if self.queue.reservations.is_empty() {
            return;
        }
        let Some(key) = self.workloads.key(&id) else { return };
        let pool = self.queue.reservations.iter().find(|(_, row)| row.workload == key).map(|(pool, _)| pool.clone());
        let Some(row) = pool.and_then(|pool| self.queue.reservations.remove(&pool)) else { return };
        self.workloads.note(key);
        for device in row.devices {
            if let Some(row) = self.devices.get_mut(device).filter(|row| row.reserved_for == Some(key)) {
                row.reserved_for = None;
            }
            self.index.touch_device(device);
            self.agenda.devices.insert(device);
            self.link_device_slots(device);
        }
    }
}
