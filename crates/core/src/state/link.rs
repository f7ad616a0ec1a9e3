//! What follows from a row: sets it stands in, timers it needs, notes it leaves.
//!
//! Applying an event changes a row's own fields and then links the row again. Linking compares what should follow
//! with what does, so it can be called at any time and changes nothing the second time.

use berth_domain::{SlotState, Timestamp, WorkloadKind, WorkloadState};

use crate::state::{Liveness, OpenSlot, OwnerPhase, Runner, Slot, State, Timer};
use crate::table::{DeviceKey, ModelKey, RunnerKey, SlotKey, WorkloadKey};

impl State {
    /// Brings everything that follows from a slot up to date.
    pub(crate) fn link_slot(&mut self, key: SlotKey) {
        self.link_liveness(key);
        self.link_open(key);
        self.link_evictable(key);
        self.link_slot_timers(key);
        self.link_promise(key);
        self.link_crowded_out(key);
        let Some(slot) = self.slots.get(key) else { return };
        if slot.evictable && !self.queue.reservations.is_empty() && self.reservations_on(slot).next().is_some() {
            self.dirty.slots.insert(key);
        }
        let old = !slot.is_stray() && !self.is_current(slot) && !slot.runs_a_job();
        if old || slot.returned || (slot.is_job && slot.job.is_none()) {
            self.dirty.slots.insert(key);
        }
        if matches!(slot.state, SlotState::Pending | SlotState::Draining | SlotState::Promised | SlotState::Failed) {
            self.dirty.slots.insert(key);
        }
    }

    /// The same for all slots of a runner.
    pub(crate) fn link_runner_slots(&mut self, runner: RunnerKey) {
        let slots = self.runners.get(runner).map(|row| row.slots.clone()).unwrap_or_default();
        slots.into_iter().for_each(|slot| self.link_slot(slot));
    }

    /// The same for all slots with a claim on a device.
    pub(crate) fn link_device_slots(&mut self, device: DeviceKey) {
        let slots: Vec<SlotKey> = self
            .devices
            .get(device)
            .map(|row| row.ledger.claims().iter().map(|claim| claim.slot).collect())
            .unwrap_or_default();
        slots.into_iter().for_each(|slot| self.link_slot(slot));
    }

    /// The same for all slots of a model.
    pub(crate) fn link_model_slots(&mut self, model: ModelKey) {
        let slots: Vec<SlotKey> =
            self.models.get(model).map(|row| row.slots.iter().copied().collect()).unwrap_or_default();
        slots.into_iter().for_each(|slot| self.link_slot(slot));
    }

    fn link_promise(&mut self, key: SlotKey) {
        let Some(slot) = self.slots.get(key) else { return };
        let Some(model) = slot.model else { return };
        if slot.state == SlotState::Promised {
            self.promised.entry(model).or_default().insert((slot.number, key));
        } else if let Some(promised) = self.promised.get_mut(&model) {
            promised.remove(&(slot.number, key));
            if promised.is_empty() {
                self.promised.remove(&model);
            }
        }
    }

    fn link_crowded_out(&mut self, key: SlotKey) {
        let Some(slot) = self.slots.get(key) else { return };
        let overcommitted = |device| self.devices.get(device).is_some_and(|row| row.ledger.is_overcommitted());
        let pending = slot.state == SlotState::Pending && !slot.is_stray();
        if pending && slot.gpus.iter().any(|gpu| overcommitted(gpu.device)) {
            self.crowded_out.insert(key);
        } else if !self.crowded_out.is_empty() {
            self.crowded_out.remove(&key);
        }
    }

    fn is_current(&self, slot: &Slot) -> bool {
        let model = slot.model.and_then(|key| self.models.get(key));
        model.is_some_and(|model| model.revision == slot.revision && !model.deleted)
    }

    fn link_liveness(&mut self, key: SlotKey) {
        let Some(slot) = self.slots.get(key) else { return };
        let live = !slot.is_job && slot.state.is_live() && self.is_current(slot);
        if live == slot.live {
            return;
        }
        let Some(model_key) = slot.model else { return };
        if let Some(slot) = self.slots.get_mut(key) {
            slot.live = live;
        }
        let Some(model) = self.models.get_mut(model_key) else { return };
        let spare_before = model.spare_replicas() > 0;
        model.live = if live { model.live + 1 } else { model.live.saturating_sub(1) };
        let spare_changed = spare_before != (model.spare_replicas() > 0);
        self.link_missing_replicas(model_key);
        if !live {
            self.dirty.models.insert(model_key);
            self.dirty.replicas.insert(model_key);
        }
        if spare_changed {
            self.link_model_slots(model_key);
        }
    }

    /// Whether a model has fewer slots than it must have, and since when.
    pub(crate) fn link_missing_replicas(&mut self, model: ModelKey) {
        let now = self.now;
        let Some(row) = self.models.get(model) else { return };
        let is_short = !row.deleted && row.live < row.spec.replicas.min;
        let since = if is_short { row.short_since.or(Some(now)) } else { None };
        if since != row.short_since
            && let Some(row) = self.models.get_mut(model)
        {
            row.short_since = since;
        }
        if is_short {
            self.understaffed.insert(model);
            self.arm_reservations();
        } else if self.understaffed.remove(&model) {
            self.dirty.review_reservations();
        }
    }

    /// Whether new leases may go to a slot: its runner is heard of.
    fn takes_leases(&self, slot: &Slot) -> bool {
        let heard = self.runners.get(slot.runner).is_some_and(Runner::is_heard);
        slot.live && slot.spare() > 0 && heard
    }

    /// A slot with room for leases stands in one of two sets of its model: open to all, or kept back by a reservation
    /// and open to higher priorities only.
    fn link_open(&mut self, key: SlotKey) {
        let Some(slot) = self.slots.get(key) else { return };
        let Some(model) = slot.model else { return };
        let entry = self.takes_leases(slot).then(|| OpenSlot {
            not_ready: slot.state != SlotState::Ready,
            active: slot.active(),
            number: slot.number,
            slot: key,
        });
        let is_kept_back = !self.queue.reservations.is_empty() && self.reservations_on(slot).next().is_some();
        let (open, kept_back) = if is_kept_back { (None, entry) } else { (entry, None) };
        if (open, kept_back) == (slot.open, slot.kept_back) {
            return;
        }
        let (was_open, was_kept_back) = (slot.open, slot.kept_back);
        if let Some(slot) = self.slots.get_mut(key) {
            (slot.open, slot.kept_back) = (open, kept_back);
        }
        let Some(row) = self.models.get_mut(model) else { return };
        was_open.map(|entry| row.open.remove(&entry));
        was_kept_back.map(|entry| row.kept_back.remove(&entry));
        open.map(|entry| row.open.insert(entry));
        kept_back.map(|entry| row.kept_back.insert(entry));
        let gained = |now: Option<OpenSlot>, before: Option<OpenSlot>| {
            now.is_some_and(|now| before.is_none_or(|before| before.active > now.active))
        };
        if gained(open, was_open) || gained(kept_back, was_kept_back) {
            self.dirty.models.insert(model);
        }
    }

    pub(crate) fn link_evictable(&mut self, key: SlotKey) {
        let Some(slot) = self.slots.get(key) else { return };
        let evictable = self.is_evictable(slot);
        if evictable == slot.evictable {
            return;
        }
        let (gpus, cpu, ram, runner) = (slot.gpus.clone(), slot.cpu, slot.ram, slot.runner);
        if let Some(slot) = self.slots.get_mut(key) {
            slot.evictable = evictable;
        }
        for gpu in gpus {
            let Some(device) = self.devices.get_mut(gpu.device) else { continue };
            if evictable {
                device.evictable = device.evictable.saturating_add(gpu.bytes);
                device.evictable_slots += 1;
                self.dirty.devices.insert(gpu.device);
            } else {
                device.evictable = device.evictable.saturating_sub(gpu.bytes);
                device.evictable_slots = device.evictable_slots.saturating_sub(1);
            }
            self.index.touch_device(gpu.device);
        }
        let Some(machine_key) = self.runners.get(runner).map(|row| row.machine) else { return };
        let Some(machine) = self.machines.get_mut(machine_key) else { return };
        if cpu.get() == 0 && ram.is_zero() {
            return;
        }
        let change =
            |before: u64, by: u64| if evictable { before.saturating_add(by) } else { before.saturating_sub(by) };
        machine.evictable_cpu = berth_domain::Millicores::new(change(machine.evictable_cpu.get(), cpu.get()));
        machine.evictable_ram = berth_domain::Bytes::new(change(machine.evictable_ram.get(), ram.get()));
        self.index.touch_host(machine_key);
        if evictable {
            self.dirty.hosts.insert(runner);
        }
    }

    fn link_slot_timers(&mut self, key: SlotKey) {
        let Some(slot) = self.slots.get(key) else { return };
        let settings = &self.settings;
        let from = |at: Timestamp| at.max(self.timers_from);
        let starting = slot.state == SlotState::Starting;
        let stopping = slot.state == SlotState::Stopping && !slot.stalled && !slot.is_stray();
        let idle = slot.state == SlotState::Ready && slot.is_idle();
        let model = slot.model.and_then(|model| self.models.get(model));
        let spare = !slot.is_pinned() && model.is_some_and(|model| model.spare_replicas() > 0);
        let keep_alive = slot.spec.as_ref().and_then(|spec| spec.keep_alive).unwrap_or(settings.keep_alive);
        let ready_since = slot.ready_since.unwrap_or(slot.since);
        let max_run = slot.job.and_then(|job| self.workloads.get(job)?.submission.job.max_run);
        let runs = matches!(slot.state, SlotState::Ready | SlotState::Draining);
        let due = [
            (Timer::MaxRun(key), max_run.filter(|_| runs).and_then(|span| Some(slot.ready_since?.after(span)))),
            (Timer::StartDeadline(key), starting.then(|| from(slot.since).after(settings.start_deadline))),
            (Timer::StopStall(key), stopping.then(|| from(slot.since).after(settings.stall_after))),
            (
                Timer::Ripe(key),
                (idle && !slot.is_past_min_run).then(|| ready_since.after(slot.min_run(settings.min_run))),
            ),
            (
                Timer::KeepAlive(key),
                slot.idle_since.filter(|_| idle && spare).map(|since| from(since).after(keep_alive)),
            ),
        ];
        let armed = self.timers.set(slot.armed, due);
        if let Some(slot) = self.slots.get_mut(key) {
            slot.armed = armed;
        }
    }

    /// Takes a slot out of everything that follows from it, before it is removed.
    pub(crate) fn unlink_slot(&mut self, key: SlotKey) {
        let Some(slot) = self.slots.get_mut(key) else { return };
        // A released slot is nothing that its links could follow from.
        slot.state = SlotState::Stopping;
        slot.stalled = true;
        slot.leases.clear();
        slot.job = None;
        self.link_slot(key);
        self.dirty.slots.remove(&key);
    }

    /// Brings everything that follows from a workload up to date.
    pub(crate) fn link_workload(&mut self, key: WorkloadKey) {
        let Some(row) = self.workloads.get(key) else { return };
        let queued = (row.state == WorkloadState::Queued).then(|| row.queue_key(key));
        let eligible = queued.is_some() && !row.backing_off && row.blocked_by.is_none();
        let paused = queued.filter(|_| !eligible);
        let (was_queued, was_eligible, model, kind) = (row.queued, row.eligible, row.model, row.submission.kind);
        let phase = OwnerPhase::of(row.state);
        if let Some(owner) = &row.submission.owner {
            self.owners.move_one(owner, row.counted, phase);
        }
        if let Some(row) = self.workloads.get_mut(key) {
            (row.queued, row.eligible, row.counted) = (queued, eligible, phase);
        }
        if queued != was_queued {
            was_queued.map(|entry| self.queue.order.remove(&entry));
            queued.map(|entry| self.queue.order.insert(entry, crate::index::Count));
        }
        was_queued.map(|entry| self.queue.paused.remove(&entry));
        paused.map(|entry| self.queue.paused.insert(entry));
        if eligible != was_eligible
            && let Some(entry) = queued.or(was_queued)
        {
            self.put_waiting(model, kind, entry, eligible);
        }
        self.link_workload_timers(key);
    }

    fn put_waiting(&mut self, model: ModelKey, kind: WorkloadKind, entry: crate::state::QueueKey, waits: bool) {
        let Some(row) = self.models.get_mut(model) else { return };
        let pool = row.spec.constraints.pool.clone();
        if waits {
            row.waiting_mut(kind).insert(entry);
            self.queue.pools.entry(pool).or_default().insert(entry);
        } else {
            row.waiting_mut(kind).remove(&entry);
            if let Some(set) = self.queue.pools.get_mut(&pool) {
                set.remove(&entry);
                if set.is_empty() {
                    self.queue.pools.remove(&pool);
                }
            }
        }
        self.link_head(model, kind);
    }

    /// Tells the model's shape who its first in order is.
    pub(crate) fn link_head(&mut self, model: ModelKey, kind: WorkloadKind) {
        let Some(row) = self.models.get_mut(model) else { return };
        let head = row.waiting(kind).first().copied();
        let before = std::mem::replace(&mut row.heads[kind as usize], head);
        if head == before {
            return;
        }
        let shape_key = row.shape;
        let Some(shape) = self.shapes.get_mut(shape_key) else { return };
        let first_before = shape.heads.first().map(|(entry, ..)| *entry);
        before.map(|entry| shape.heads.remove(&(entry, model, kind)));
        head.map(|entry| shape.heads.insert((entry, model, kind)));
        let first = shape.heads.first().map(|(entry, ..)| *entry);
        if first != first_before {
            first_before.map(|entry| self.queue.shapes.remove(&entry));
            first.map(|entry| self.queue.shapes.insert(entry, shape_key));
        }
    }

    fn link_workload_timers(&mut self, key: WorkloadKey) {
        let Some(row) = self.workloads.get(key) else { return };
        let from = |at: Timestamp| at.max(self.timers_from);
        let running = row.state == WorkloadState::Running && row.submission.kind == WorkloadKind::Lease;
        let ttl = row.submission.ttl.unwrap_or(self.settings.lease_ttl);
        let lease = running.then(|| from(row.since).after(ttl));
        let queued = row.state == WorkloadState::Queued;
        let timeout = row.submission.queue_timeout.filter(|_| queued).map(|wait| from(row.created).after(wait));
        let forget = row.is_ended().then(|| row.since.after(self.settings.keep_ended_for));
        let backoff = row.not_before.filter(|_| queued && row.backing_off);
        let due = [
            (Timer::Lease(key), lease),
            (Timer::QueueTimeout(key), timeout),
            (Timer::Forget(key), forget),
            (Timer::Backoff(key), backoff),
        ];
        let armed = self.timers.set(row.armed, due);
        if let Some(row) = self.workloads.get_mut(key) {
            row.armed = armed;
        }
    }

    /// When a runner is next asked whether it is silent.
    pub(crate) fn link_silence(&mut self, runner: RunnerKey) {
        let Some(row) = self.runners.get(runner) else { return };
        let seen = row.last_seen.max(row.deferred).max(self.timers_from);
        let at = match row.liveness {
            _ if row.is_forgotten() => None,
            Liveness::Ready => Some(seen.after(self.settings.suspect_after)),
            Liveness::Suspect => Some(seen.after(self.settings.lost_after)),
            Liveness::Lost => None,
        };
        match at {
            Some(at) => self.timers.arm(Timer::Silence(runner), at),
            None => self.timers.disarm(Timer::Silence(runner)),
        }
    }
}
