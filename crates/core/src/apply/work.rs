//! Workloads are submitted, wait, run and end.

use std::sync::Arc;

use berth_domain::{
    Attempt, SlotId, SlotState, Submission, Timestamp, WorkloadEnd, WorkloadId, WorkloadKind, WorkloadState,
};

use crate::reason::{Cause, WaitReason};
use crate::state::{Claimant, PastAttempts, State, Timer, Workload};
use crate::table::{SlotKey, WorkloadKey};

/// How a workload goes back to the queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Requeued {
    pub(super) cause: Cause,
    pub(super) not_before: Option<Timestamp>,
    pub(super) failures: u32,
    pub(super) after: Option<SlotId>,
    pub(super) may_run_twice: bool,
}

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
            requeued: None,
            assigned: None,
            ran: None,
            attempts: PastAttempts::default(),
            last_failure: None,
            may_run_twice: false,
            blocked_by: None,
            backing_off: false,
            not_before: None,
            avoid: None,
            since: at,
            changed: self.revision,
            queued: None,
            counted: None,
            armed: 0,
            eligible: false,
        };
        let key = self.workloads.insert(workload);
        if let Some(idempotency_key) = &submission.idempotency_key {
            self.keys.insert(idempotency_key.clone(), id);
        }
        if waits {
            self.link_workload(key);
            self.arm_reservations();
        }
    }

    /// Changes a workload and everything that follows.
    pub(super) fn on_workload(&mut self, id: WorkloadId, change: impl FnOnce(&mut Workload)) {
        let Some(key) = self.workloads.key(&id) else { return };
        let revision = self.revision;
        if let Some(row) = self.workloads.get_mut(key) {
            change(row);
            row.changed = revision;
        }
        self.link_workload(key);
    }

    /// A gateway renewed its lease. Nobody else sees that.
    pub(super) fn on_renewed(&mut self, id: WorkloadId, at: Timestamp) {
        let Some(key) = self.workloads.key(&id) else { return };
        if let Some(row) = self.workloads.get_mut(key) {
            row.since = at;
        }
        self.link_workload(key);
    }

    /// Notes that others see a workload otherwise from now on.
    pub(super) fn note_workload(&mut self, key: WorkloadKey) {
        let revision = self.revision;
        if let Some(row) = self.workloads.get_mut(key) {
            row.changed = revision;
        }
    }

    pub(super) fn on_assigned(&mut self, id: WorkloadId, slot: SlotId, at: Timestamp) {
        let (Some(key), Some((slot_key, row))) = (self.workloads.key(&id), self.slot(slot)) else { return };
        let running = matches!(row.state, SlotState::Ready | SlotState::Draining);
        let promised = row.state == SlotState::Promised;
        let Some(workload) = self.workloads.get_mut(key) else { return };
        workload.slot = Some(slot_key);
        workload.waits = promised.then_some(WaitReason::Releasing);
        workload.state = if running { WorkloadState::Running } else { WorkloadState::Assigned };
        workload.since = at;
        (workload.assigned, workload.ran) = (Some(at), running.then_some(at));
        if workload.submission.kind == WorkloadKind::Lease
            && let Some(row) = self.slots.get_mut(slot_key)
        {
            row.leases.push(key);
            row.idle_since = None;
        }
        self.end_reservation(Claimant::Workload(key));
        self.note_workload(key);
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
                row.ran = Some(at);
                self.note_workload(key);
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
        }
        self.link_slot(slot_key);
    }

    pub(super) fn on_requeued(&mut self, id: WorkloadId, requeued: Requeued, at: Timestamp) {
        let Some(key) = self.workloads.key(&id) else { return };
        let Requeued { cause, not_before, failures, after, may_run_twice } = requeued;
        let runner = self.workloads.get(key).and_then(|row| self.slots.get(row.slot?)).map(|slot| slot.runner);
        self.note_attempt(key, cause, at);
        self.leave_slot(key, at);
        let blocked_by = after.and_then(|slot| self.slot(slot)).map(|(slot, _)| slot);
        if let Some(slot) = blocked_by.and_then(|slot| self.slots.get_mut(slot)) {
            slot.blocks = Some(key);
        }
        let Some(row) = self.workloads.get_mut(key) else { return };
        row.state = WorkloadState::Queued;
        row.attempt = row.attempt.next();
        row.failures = failures;
        if cause.is_failure() {
            row.last_failure = Some(at);
        }
        row.may_run_twice |= may_run_twice;
        row.blocked_by = blocked_by;
        row.avoid = runner.filter(|_| cause.is_failure());
        row.cause = Some(cause);
        row.not_before = not_before;
        row.backing_off = not_before.is_some();
        row.waits = not_before.map(|_| WaitReason::BackingOff).or(blocked_by.map(|_| WaitReason::OldCopy));
        row.since = at;
        row.requeued = Some(at);
        let model = row.model;
        self.note_workload(key);
        self.link_workload(key);
        self.dirty.models.insert(model);
        // It keeps its place: whoever has waited too long gets room kept free before others take it.
        self.dirty.review_reservations();
        self.arm_reservations();
    }

    /// The runner of its last start is lost, and it asked to be started again: both may run.
    pub(super) fn on_unblocked(&mut self, id: WorkloadId) {
        let Some(key) = self.workloads.key(&id) else { return };
        let Some(row) = self.workloads.get_mut(key) else { return };
        row.may_run_twice = true;
        if let Some(slot) = row.blocked_by.and_then(|slot| self.slots.get_mut(slot)) {
            slot.blocks = None;
        }
        self.unblock(key);
    }

    /// The last start of a job is proven gone: it may be started again.
    pub(super) fn unblock(&mut self, workload: WorkloadKey) {
        let Some(row) = self.workloads.get_mut(workload) else { return };
        row.blocked_by = None;
        if row.waits == Some(WaitReason::OldCopy) {
            row.waits = None;
        }
        let model = row.model;
        self.note_workload(workload);
        self.link_workload(workload);
        self.dirty.models.insert(model);
    }

    pub(super) fn on_eligible(&mut self, id: WorkloadId) {
        self.on_workload(id, |row| {
            (row.backing_off, row.not_before) = (false, None);
            row.waits = row.blocked_by.map(|_| WaitReason::OldCopy).or(row.waits);
        });
        if let Some(row) = self.workloads.key(&id).and_then(|key| self.workloads.get(key)) {
            self.dirty.models.insert(row.model);
        }
    }

    pub(super) fn on_ended(&mut self, id: WorkloadId, end: WorkloadEnd, cause: Cause, at: Timestamp) {
        let Some(key) = self.workloads.key(&id) else { return };
        self.note_attempt(key, cause, at);
        self.leave_slot(key, at);
        if let Some(row) = self.workloads.get_mut(key) {
            (row.state, row.cause, row.waits) = (WorkloadState::Ended(end), Some(cause), None);
            (row.since, row.backing_off, row.not_before) = (at, false, None);
            row.failures = row.failures.saturating_add(u32::from(cause.is_failure()));
        }
        let blocked_by = self.workloads.get_mut(key).and_then(|row| row.blocked_by.take());
        if let Some(slot) = blocked_by.and_then(|slot| self.slots.get_mut(slot)) {
            slot.blocks = None;
        }
        self.end_reservation(Claimant::Workload(key));
        self.ended.push_back(key);
        self.note_workload(key);
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
}
