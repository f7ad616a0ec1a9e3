//! Slots are placed, run, and are proven gone.

use std::sync::Arc;

use berth_domain::{
    Bytes, DeviceUuid, Endpoint, FailureReason, Generation, Millicores, ModelRevision, RunnerId, SlotId, SlotState,
    Timestamp,
};
use smallvec::SmallVec;

use crate::event::{PlacedClaim, PlacedSlot};
use crate::ledger::{Ask, Claim, Ledger, Phase, Quantity};
use crate::reason::{Proof, StopReason, UnknownReason};
use crate::state::{Slot, SlotGpu, State, Timer};
use crate::table::{DeviceKey, ModelKey, RunnerKey, SlotKey};

impl State {
    pub(super) fn on_placed(&mut self, placed: &Arc<PlacedSlot>, at: Timestamp) {
        let (Some(runner), Some(model)) = (self.runners.key(&placed.runner), self.models.key(&placed.model)) else {
            return;
        };
        let Some(spec) = self.models.get(model).map(|row| row.spec.clone()) else { return };
        self.counters.slots += 1;
        let state = match (placed.promised, placed.granted) {
            (true, _) => SlotState::Promised,
            (false, true) => SlotState::Starting,
            (false, false) => SlotState::Pending,
        };
        let slot = Slot {
            gpus: self.gpus_of(&placed.claims),
            cpu: placed.cpu,
            ram: placed.ram,
            model: Some(model),
            revision: placed.revision,
            spec: Some(spec),
            is_job: placed.job.is_some(),
            job: placed.job.and_then(|job| self.workloads.key(&job)),
            ..blank_slot(placed.slot, self.counters.slots, runner, state, at)
        };
        self.counters.slot_ids = placed.slot.number();
        let key = self.slots.insert(slot);
        let phase = if placed.promised { Phase::Promised } else { Phase::Held };
        // A slot has whole devices or shares of them, never both.
        let exclusive = placed.claims.iter().any(|claim| claim.exclusive);
        self.take_claims(key, exclusive, phase);
        self.take_host(key, phase);
        if let Some(row) = self.models.get_mut(model) {
            row.slots.insert(key);
        }
        if let Some(row) = self.runners.get_mut(runner) {
            row.slots.push(key);
        }
        self.note_use_before(key);
        self.note_desired(key);
        self.link_slot(key);
    }

    /// A slot that may start now finds this much in use on its devices: what is added is its own.
    fn note_use_before(&mut self, key: SlotKey) {
        let Some(slot) = self.slots.get_mut(key).filter(|row| row.state == SlotState::Starting) else { return };
        for gpu in &mut slot.gpus {
            gpu.used_before = self.devices.get(gpu.device).and_then(|device| device.last_used);
        }
    }

    fn gpus_of(&self, claims: &[PlacedClaim]) -> SmallVec<[SlotGpu; 1]> {
        let gpu = |claim: &PlacedClaim| {
            let device = self.devices.key(&claim.uuid)?;
            Some(SlotGpu { device, bytes: claim.bytes, observed: None, used_before: None, peak: Bytes::ZERO })
        };
        claims.iter().filter_map(gpu).collect()
    }

    fn take_claims(&mut self, slot: SlotKey, exclusive: bool, phase: Phase) {
        let gpus = self.slots.get(slot).map(|row| row.gpus.clone()).unwrap_or_default();
        for gpu in gpus {
            let Some(row) = self.devices.get_mut(gpu.device) else { continue };
            let ask = if exclusive {
                Ask::Whole { tolerance: Bytes::MAX, least: Bytes::ZERO }
            } else {
                Ask::Amount(gpu.bytes)
            };
            let claim = Claim { slot, phase, amount: gpu.bytes, exclusive, stuck: false };
            take_or_charge(&mut row.ledger, ask, claim, &mut self.counters.faults);
            self.index.touch_device(gpu.device);
        }
    }

    fn take_host(&mut self, slot: SlotKey, phase: Phase) {
        let Some(row) = self.slots.get(slot) else { return };
        let (cpu, ram) = (row.cpu, row.ram);
        let Some(machine_key) = self.runners.get(row.runner).map(|row| row.machine) else { return };
        let Some(machine) = self.machines.get_mut(machine_key) else { return };
        let faults = &mut self.counters.faults;
        if cpu > Millicores::ZERO {
            let claim = Claim { slot, phase, amount: cpu, exclusive: false, stuck: false };
            take_or_charge(&mut machine.cpu, Ask::Amount(cpu), claim, faults);
            self.index.touch_host(machine_key);
        }
        if !ram.is_zero() {
            let claim = Claim { slot, phase, amount: ram, exclusive: false, stuck: false };
            take_or_charge(&mut machine.ram, Ask::Amount(ram), claim, faults);
            self.index.touch_host(machine_key);
        }
    }

    /// Does the same to a slot's claim in each of its ledgers.
    fn each_claim(
        &mut self,
        slot: SlotKey,
        on_device: fn(&mut Ledger<Bytes>, SlotKey),
        on_cpu: fn(&mut Ledger<Millicores>, SlotKey),
    ) {
        let Some(row) = self.slots.get(slot) else { return };
        let (gpus, runner) = (row.gpus.clone(), row.runner);
        let uses_host = row.cpu > Millicores::ZERO || !row.ram.is_zero();
        for gpu in gpus {
            let Some(device) = self.devices.get_mut(gpu.device) else { continue };
            on_device(&mut device.ledger, slot);
            self.dirty.devices.insert(gpu.device);
            self.index.touch_device(gpu.device);
        }
        // Slots that waited on an overcommitted device may be allowed to start now.
        for key in self.crowded_out.iter().copied().collect::<Vec<SlotKey>>() {
            self.link_slot(key);
        }
        let Some(machine_key) = self.runners.get(runner).map(|row| row.machine).filter(|_| uses_host) else { return };
        let Some(machine) = self.machines.get_mut(machine_key) else { return };
        on_cpu(&mut machine.cpu, slot);
        on_device(&mut machine.ram, slot);
        self.dirty.hosts.extend(machine.runners.iter().copied());
        self.index.touch_host(machine_key);
    }

    /// The runner is to account for slots whose fate nobody knows.
    pub(super) fn note_unknown_slots(&mut self, runner: RunnerKey) {
        let slots = self.runners.get(runner).map(|row| row.slots.clone()).unwrap_or_default();
        let is_unknown = |key: &SlotKey| self.slots.get(*key).is_some_and(|slot| slot.state == SlotState::Unknown);
        if let Some(key) = slots.into_iter().find(is_unknown) {
            self.note_desired(key);
        }
    }

    /// The runner must hear of a change to this slot.
    fn note_desired(&mut self, slot: SlotKey) {
        let Some(runner) = self.slots.get(slot).map(|row| row.runner) else { return };
        let revision = self.revision;
        if let Some(row) = self.runners.get_mut(runner) {
            row.desired = revision;
            let id = row.id.clone();
            if row.admission != crate::state::Admission::Open {
                self.dirty.runners.insert(runner);
            }
            self.call(&id);
        }
    }

    /// Changes a slot and everything that follows.
    pub(super) fn on_slot(&mut self, id: SlotId, change: impl FnOnce(&mut Slot)) {
        let Some((key, _)) = self.slot(id) else { return };
        if let Some(row) = self.slots.get_mut(key) {
            change(row);
        }
        self.link_slot(key);
    }

    pub(super) fn on_slot_state(&mut self, id: SlotId, state: SlotState, at: Timestamp) {
        let Some((key, _)) = self.slot(id) else { return };
        self.enter(key, state, at);
    }

    fn enter(&mut self, key: SlotKey, state: SlotState, at: Timestamp) {
        let was_starting = self.slots.get(key).is_some_and(|row| row.state == SlotState::Starting);
        if let Some(row) = self.slots.get_mut(key) {
            (row.state, row.since) = (state, at);
            if state != SlotState::Unknown {
                row.unknown = None;
            }
            row.idle_since = (state == SlotState::Ready && row.is_idle()).then_some(row.idle_since.unwrap_or(at));
        }
        if !was_starting {
            self.note_use_before(key);
        }
        self.note_desired(key);
        self.note_start_over(key);
        self.link_slot(key);
    }

    pub(super) fn on_unknown(&mut self, id: SlotId, why: &UnknownReason, at: Timestamp) {
        let Some((key, row)) = self.slot(id) else { return };
        let since = if row.state == SlotState::Unknown { row.since } else { at };
        self.enter(key, SlotState::Unknown, since);
        if let Some(row) = self.slots.get_mut(key) {
            row.unknown = Some(why.clone());
        }
    }

    /// A slot that no longer starts lets the next one on its devices start.
    fn note_start_over(&mut self, key: SlotKey) {
        let Some(row) = self.slots.get(key).filter(|row| row.state != SlotState::Starting) else { return };
        for gpu in row.gpus.clone() {
            let waiting =
                |claim: &Claim<Bytes>| self.slots.get(claim.slot).is_some_and(|slot| slot.state == SlotState::Pending);
            let Some(device) = self.devices.get(gpu.device) else { continue };
            let pending: SmallVec<[SlotKey; 2]> =
                device.ledger.claims().iter().filter(|claim| waiting(claim)).map(|claim| claim.slot).collect();
            self.dirty.slots.extend(pending);
        }
    }

    pub(super) fn on_granted(&mut self, id: SlotId, at: Timestamp) {
        self.on_slot_state(id, SlotState::Starting, at);
    }

    pub(super) fn on_ready(&mut self, id: SlotId, endpoint: Option<&Endpoint>, at: Timestamp) {
        let Some((key, _)) = self.slot(id) else { return };
        let Some(row) = self.slots.get_mut(key) else { return };
        row.endpoint = endpoint.cloned();
        row.seen = true;
        row.ready_since = Some(at);
        row.is_past_min_run = false;
        let model = row.model;
        self.enter(key, SlotState::Ready, at);
        if let Some(row) = model.and_then(|model| self.models.get_mut(model)) {
            row.failures = 0;
        }
        self.run_assigned(key, at);
    }

    pub(super) fn on_stopping(&mut self, id: SlotId, why: StopReason, at: Timestamp) {
        let Some((key, row)) = self.slot(id) else { return };
        let model = row.model;
        if let Some(row) = self.slots.get_mut(key) {
            row.stop_reason = Some(why);
            row.stalled = false;
        }
        if matches!(why, StopReason::Evicted | StopReason::Reserved) {
            self.counters.evictions += 1;
            if let Some(row) = model.and_then(|model| self.models.get_mut(model)) {
                row.evictions += 1;
            }
        }
        // Before its claims move: what is evictable is counted by claims that are held.
        self.enter(key, SlotState::Stopping, at);
        self.each_claim(key, Ledger::begin_release, Ledger::begin_release);
    }

    pub(super) fn on_stalled(&mut self, id: SlotId) {
        self.on_slot(id, |row| row.stalled = true);
        let Some((key, _)) = self.slot(id) else { return };
        self.each_claim(key, Ledger::get_stuck, Ledger::get_stuck);
    }

    pub(super) fn on_failed(&mut self, id: SlotId, why: FailureReason, retry_at: Timestamp, at: Timestamp) {
        let Some((key, row)) = self.slot(id) else { return };
        let (model, was_stopping) = (row.model, row.state == SlotState::Stopping);
        if let Some(row) = self.slots.get_mut(key) {
            row.failure = Some(why);
            row.seen = true;
        }
        self.enter(key, SlotState::Failed, at);
        if was_stopping {
            self.each_claim(key, Ledger::resume, Ledger::resume);
        }
        self.note_model_failure(model, retry_at);
    }

    /// A slot of this model came to nothing: those that nobody asked for wait a while.
    fn note_model_failure(&mut self, model: Option<ModelKey>, retry_at: Timestamp) {
        let Some((model, row)) = model.and_then(|model| Some((model, self.models.get_mut(model)?))) else { return };
        row.failures = row.failures.saturating_add(1);
        row.retry_at = Some(retry_at);
        self.timers.arm(Timer::Replicas(model), retry_at);
    }

    pub(super) fn on_returned(&mut self, id: SlotId, ready: bool, at: Timestamp) {
        let state = if ready { SlotState::Ready } else { SlotState::Starting };
        if let Some(row) = self.slot(id).map(|(key, _)| key).and_then(|key| self.slots.get_mut(key)) {
            row.returned = true;
        }
        self.on_slot_state(id, state, at);
        if let Some((key, _)) = self.slot(id).filter(|_| ready) {
            self.run_assigned(key, at);
        }
    }

    pub(super) fn on_restarted(&mut self, id: SlotId, generation: Generation, at: Timestamp) {
        let Some((key, row)) = self.slot(id) else { return };
        let releasing = row.state == SlotState::Stopping;
        if let Some(row) = self.slots.get_mut(key) {
            row.generation = generation;
            row.restarts += 1;
            row.seen = false;
            row.endpoint = None;
            row.failure = None;
            row.exit = None;
            row.gpus.iter_mut().for_each(|gpu| gpu.observed = None);
        }
        if releasing {
            self.each_claim(key, Ledger::resume, Ledger::resume);
        }
        self.enter(key, SlotState::Pending, at);
    }

    /// Nobody knows yet what became of the later start: its runner says so in the same report.
    pub(super) fn on_overtaken(&mut self, id: SlotId, generation: Generation, at: Timestamp) {
        let Some((key, row)) = self.slot(id) else { return };
        let is_stopping = row.state == SlotState::Stopping;
        if let Some(row) = self.slots.get_mut(key) {
            row.generation = generation;
            row.endpoint = None;
            row.failure = None;
        }
        match is_stopping {
            true => self.note_desired(key),
            false => self.on_unknown(id, &UnknownReason::NotMentioned, at),
        }
    }

    pub(super) fn on_refused(&mut self, id: SlotId, retry_at: Timestamp) {
        if let Some(model) = self.slot(id).map(|(_, row)| row.model) {
            self.note_model_failure(model, retry_at);
        }
    }

    pub(super) fn on_released(&mut self, id: SlotId, proof: Option<Proof>) {
        if let Some((key, _)) = self.slot(id) {
            self.note_leaving(key, proof);
            self.remove_slot(key);
        }
    }

    /// What its process did not give back will be seen in the next sample.
    fn note_leaving(&mut self, key: SlotKey, proof: Option<Proof>) {
        if proof != Some(Proof::Gone) {
            return;
        }
        for gpu in self.slots.get(key).map(|row| row.gpus.clone()).unwrap_or_default() {
            let Some(device) = self.devices.get_mut(gpu.device) else { continue };
            device.left_since = device.left_since.saturating_add(gpu.bytes);
        }
    }

    fn remove_slot(&mut self, key: SlotKey) {
        self.unlink_slot(key);
        self.note_desired(key);
        self.note_start_over(key);
        self.each_claim(key, drop_claim, drop_claim);
        let Some(row) = self.slots.remove(key) else { return };
        if let Some(model) = row.model.and_then(|model| self.models.get_mut(model)) {
            model.slots.remove(&key);
        }
        if let Some(runner) = self.runners.get_mut(row.runner) {
            runner.slots.retain(|other| *other != key);
        }
        row.blocks.into_iter().for_each(|workload| self.unblock(workload));
        self.dirty.runners.insert(row.runner);
        row.gpus.iter().for_each(|gpu| self.remove_device(gpu.device));
        self.remove_runner(row.runner);
    }

    pub(super) fn on_charged(&mut self, id: SlotId, uuid: &DeviceUuid, bytes: Bytes) {
        let (Some((key, row)), Some(device)) = (self.slot(id), self.devices.key(uuid)) else { return };
        let (evictable, had) = (row.evictable, row.on(device).map_or(Bytes::ZERO, |gpu| gpu.bytes));
        let Some(gpu) = self.devices.get_mut(device) else { return };
        let Some(claim) = gpu.ledger.claim_of(key).copied() else { return };
        gpu.ledger.charge(Claim { amount: bytes, ..claim });
        if evictable {
            gpu.evictable = gpu.evictable.saturating_sub(had).saturating_add(bytes);
        }
        let gpus = self.slots.get_mut(key).map(|row| &mut row.gpus);
        if let Some(gpu) = gpus.into_iter().flatten().find(|gpu| gpu.device == device) {
            gpu.bytes = bytes;
        }
        // What it would give back in all changes with it, on every device it has.
        for gpu in self.slots.get(key).map(|row| row.gpus.clone()).unwrap_or_default() {
            self.index.touch_device(gpu.device);
            self.dirty.devices.insert(gpu.device);
        }
        self.link_device_slots(device);
    }

    pub(super) fn on_observed(&mut self, id: SlotId, uuid: &DeviceUuid, used: Option<Bytes>, peak: Bytes) {
        let (Some((key, _)), Some(device)) = (self.slot(id), self.devices.key(uuid)) else { return };
        let gpus = self.slots.get_mut(key).map(|row| &mut row.gpus);
        if let Some(gpu) = gpus.into_iter().flatten().find(|gpu| gpu.device == device) {
            gpu.observed = used;
            gpu.peak = gpu.peak.max(peak).max(used.unwrap_or_default());
        }
    }

    pub(super) fn on_promise_kept(&mut self, id: SlotId, granted: bool, at: Timestamp) {
        let Some((key, _)) = self.slot(id) else { return };
        self.each_claim(key, Ledger::keep, Ledger::keep);
        self.enter(key, if granted { SlotState::Starting } else { SlotState::Pending }, at);
    }

    pub(super) fn on_stray_found(
        &mut self,
        runner: &RunnerId,
        id: SlotId,
        generation: Generation,
        claims: &[PlacedClaim],
        stop: bool,
        at: Timestamp,
    ) {
        let Some(runner) = self.runners.key(runner) else { return };
        let state = if stop { SlotState::Stopping } else { SlotState::Unknown };
        self.counters.slots += 1;
        let slot = Slot {
            gpus: self.gpus_of(claims),
            generation,
            seen: true,
            stop_reason: stop.then_some(StopReason::Abandoned),
            unknown: (!stop).then_some(UnknownReason::OtherCluster),
            ..blank_slot(id, self.counters.slots, runner, state, at)
        };
        let gpus = slot.gpus.clone();
        *self.stray_ids.entry(id).or_default() += 1;
        let key = self.slots.insert(slot);
        for gpu in gpus {
            self.charge_stray(key, gpu.device, gpu.bytes);
        }
        if let Some(row) = self.runners.get_mut(runner) {
            row.slots.push(key);
        }
        self.note_desired(key);
        self.link_slot(key);
    }

    // A stray is charged as held even while it is stopped: nobody may build on memory that nobody decided about.
    fn charge_stray(&mut self, slot: SlotKey, device: DeviceKey, amount: Bytes) {
        let Some(row) = self.devices.get_mut(device) else { return };
        row.ledger.charge(Claim { slot, phase: Phase::Held, amount, exclusive: false, stuck: false });
        self.dirty.devices.insert(device);
        self.index.touch_device(device);
        self.link_device_slots(device);
    }

    pub(super) fn on_stray_condemned(&mut self, runner: &RunnerId, id: SlotId, at: Timestamp) {
        let Some((key, _)) = self.runners.key(runner).and_then(|runner| self.stray(runner, id)) else { return };
        if let Some(row) = self.slots.get_mut(key) {
            row.stop_reason = Some(StopReason::Operator);
        }
        self.enter(key, SlotState::Stopping, at);
    }

    pub(super) fn on_stray_released(&mut self, runner: &RunnerId, id: SlotId, proof: Proof) {
        let Some(runner) = self.runners.key(runner) else { return };
        let Some((key, _)) = self.stray(runner, id) else { return };
        self.note_leaving(key, Some(proof));
        self.remove_slot(key);
        if let Some(count) = self.stray_ids.get_mut(&id) {
            *count -= 1;
            if *count == 0 {
                self.stray_ids.remove(&id);
            }
        }
    }
}

fn drop_claim<Q: Quantity>(ledger: &mut Ledger<Q>, slot: SlotKey) {
    ledger.free(slot);
}

fn take_or_charge<Q: Quantity>(ledger: &mut Ledger<Q>, ask: Ask<Q>, claim: Claim<Q>, faults: &mut u64) {
    let taken = ledger.claim(claim.slot, ask, claim.phase);
    if taken != Ok(claim.amount) {
        *faults += 1;
        ledger.charge(claim);
    }
}

fn blank_slot(id: SlotId, number: u64, runner: RunnerKey, state: SlotState, at: Timestamp) -> Slot {
    Slot {
        id,
        number,
        generation: Generation::new(1),
        model: None,
        revision: ModelRevision::default(),
        spec: None,
        runner,
        state,
        gpus: SmallVec::new(),
        cpu: Millicores::ZERO,
        ram: Bytes::ZERO,
        is_job: false,
        job: None,
        leases: Vec::new(),
        endpoint: None,
        created: at,
        ready_since: None,
        idle_since: None,
        seen: false,
        is_past_min_run: false,
        evictable: false,
        live: false,
        open: None,
        stop_reason: None,
        stalled: false,
        since: at,
        restarts: 0,
        returned: false,
        armed: 0,
        failure: None,
        exit: None,
        unknown: None,
        blocks: None,
        kept_back: None,
    }
}
