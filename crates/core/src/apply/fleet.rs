//! Machines, runners and devices come, change and go.

use std::sync::Arc;

use berth_domain::{
    Bytes, ClusterId, DeviceUuid, Epoch, EpochTag, GpuHealth, GpuName, Incarnation, MachineId, Millicores, RunnerId,
    Sequence, Timestamp,
};
use smallvec::SmallVec;

use crate::event::{Attachment, RunnerTraits};
use crate::ledger::Ledger;
use crate::reason::WaitReason;
use crate::state::{Admission, AttachmentRow, Device, Liveness, MissingGpu, Runner, State, Timer};
use crate::table::{DeviceKey, MachineKey, RunnerKey, SlotKey};

/// GPUs of a runner that are remembered though it no longer lists them.
const MOST_MISSING: usize = 64;

impl State {
    pub(super) fn on_started(&mut self, cluster: ClusterId, epoch: Epoch, tag: EpochTag, at: Timestamp) {
        self.cluster = Some(cluster);
        self.epoch = epoch;
        self.begin_epoch(tag, at);
        // What only telemetry knew is heard anew.
        for slot in self.slots.keys() {
            for gpu in self.slots.get_mut(slot).map(|row| &mut row.gpus).into_iter().flatten() {
                (gpu.observed, gpu.used_before, gpu.peak) = (None, None, Bytes::ZERO);
            }
        }
        for device in self.devices.keys() {
            if let Some(row) = self.devices.get_mut(device) {
                (row.last_used, row.left_since) = (None, Bytes::ZERO);
            }
        }
        self.on_timers_restarted(at);
        self.note_everything();
    }

    /// Time that passed unseen counts for nobody, and what was known before it is old: every runner must report.
    pub(super) fn on_timers_restarted(&mut self, at: Timestamp) {
        self.timers_from = at;
        for runner in self.runners.keys() {
            if let Some(row) = self.runners.get_mut(runner) {
                row.reported = false;
                row.last_seen = at;
            }
            self.index.touch_runner(runner);
        }
        for device in self.devices.keys() {
            if let Some(row) = self.devices.get_mut(device) {
                row.lower_sample = None;
            }
        }
        for workload in self.workloads.keys() {
            if let Some(row) = self.workloads.get_mut(workload).filter(|row| !row.is_ended()) {
                row.since = row.since.max(at);
            }
            self.link_workload(workload);
        }
        for slot in self.slots.keys() {
            self.link_slot(slot);
        }
        for runner in self.runners.keys() {
            self.link_silence(runner);
        }
        self.timers.disarm(Timer::Reservations);
        self.arm_reservations();
    }

    pub(super) fn on_host_sized(&mut self, id: &MachineId, cpu: Millicores, ram: Bytes) {
        let Some(key) = self.machines.key(id) else { return };
        let Some(row) = self.machines.get_mut(key) else { return };
        row.cpu.set_capacity(cpu);
        row.ram.set_capacity(ram);
        let runners = row.runners.clone();
        runners.iter().for_each(|runner| self.index.touch_runner(*runner));
        self.dirty.hosts.extend(runners);
        self.index.touch_host(key);
    }

    pub(super) fn on_registered(
        &mut self,
        id: &RunnerId,
        machine: &MachineId,
        incarnation: Incarnation,
        at: Timestamp,
    ) {
        let machine = self.machine_or_new(machine);
        let key = match self.runners.key(id) {
            Some(key) => key,
            None => self.add_runner(id, machine, at),
        };
        let Some(row) = self.runners.get_mut(key) else { return };
        row.incarnation = incarnation;
        row.sequence = Sequence::default();
        if row.admission == Admission::Forgotten {
            row.admission = Admission::Open;
        }
        self.call(id);
        self.move_runner(key, machine);
        self.link_bars(machine);
        self.index.touch_runner(key);
    }

    fn add_runner(&mut self, id: &RunnerId, machine: MachineKey, at: Timestamp) -> RunnerKey {
        self.counters.runners += 1;
        let runner = Runner {
            id: id.clone(),
            ordinal: self.counters.runners,
            machine,
            boot: None,
            past_boots: Vec::new(),
            disputes: None,
            incarnation: Incarnation::default(),
            sequence: Sequence::default(),
            traits: None,
            liveness: Liveness::Ready,
            admission: Admission::Open,
            reported: false,
            caught_up: !self.history.has_gone_back() && !self.may_continue_above(at),
            sent_invalid_code: false,
            barred: None,
            last_seen: at,
            deferred: at,
            devices: SmallVec::new(),
            slots: Vec::new(),
            disputed: Vec::new(),
            missing: Vec::new(),
            desired: self.revision,
            standing: None,
            spots: SmallVec::new(),
        };
        let key = self.runners.insert(runner);
        self.join_machine(key, machine);
        key
    }

    pub(super) fn join_machine(&mut self, runner: RunnerKey, machine: MachineKey) {
        if let Some(row) = self.machines.get_mut(machine) {
            row.runners.push(runner);
        }
    }

    pub(super) fn leave_machine(&mut self, runner: RunnerKey, machine: MachineKey) {
        let Some(row) = self.machines.get_mut(machine) else { return };
        row.runners.retain(|other| *other != runner);
    }

    pub(super) fn on_described(&mut self, id: &RunnerId, traits: &Arc<RunnerTraits>) {
        let Some(key) = self.runners.key(id) else { return };
        let Some(row) = self.runners.get_mut(key) else { return };
        row.traits = Some(traits.clone());
        self.note_room_on(key);
        self.index.touch_runner(key);
    }

    pub(super) fn on_seen(&mut self, id: &RunnerId, sequence: Option<Sequence>, at: Timestamp) {
        let Some(key) = self.runners.key(id) else { return };
        let Some(row) = self.runners.get_mut(key) else { return };
        row.last_seen = at;
        if let Some(sequence) = sequence {
            row.sequence = sequence;
            if !row.reported {
                row.reported = true;
                self.on_runner_changed(key);
            }
        }
        self.link_silence(key);
    }

    pub(super) fn on_liveness(&mut self, id: &RunnerId, liveness: Liveness) {
        let Some(key) = self.runners.key(id) else { return };
        let Some(row) = self.runners.get_mut(key) else { return };
        row.liveness = liveness;
        // The word of a lost runner about a GPU that it shares counts no more.
        for device in row.devices.clone() {
            let attachments = self.devices.get_mut(device).map(|row| &mut row.attachments);
            let attachment = attachments.into_iter().flatten().find(|attachment| attachment.runner == key);
            attachment.into_iter().for_each(|attachment| attachment.is_heard = liveness != Liveness::Lost);
            self.index.touch_device(device);
        }
        self.on_runner_changed(key);
        self.link_silence(key);
        // A runner that is back is asked about the slots that nobody knows of.
        self.note_unknown_slots(key);
    }

    pub(super) fn on_loss_deferred(&mut self, id: &RunnerId, at: Timestamp) {
        let Some(key) = self.runners.key(id) else { return };
        if let Some(row) = self.runners.get_mut(key) {
            row.deferred = at;
        }
        self.link_silence(key);
    }

    pub(super) fn on_admission(&mut self, id: &RunnerId, admission: Admission) {
        let Some(key) = self.runners.key(id) else { return };
        let Some(row) = self.runners.get_mut(key) else { return };
        row.admission = admission;
        match admission {
            Admission::Draining { deadline: Some(deadline), .. } => {
                self.timers.arm(Timer::DrainDeadline(key), deadline);
            }
            _ => self.timers.disarm(Timer::DrainDeadline(key)),
        }
        self.on_runner_changed(key);
    }

    pub(crate) fn on_runner_changed(&mut self, key: RunnerKey) {
        if self.runners.get(key).is_some_and(Runner::is_open) {
            self.note_hopeless();
        }
        self.index.touch_runner(key);
        self.link_runner_slots(key);
        self.dirty.runners.insert(key);
        self.note_room_on(key);
    }

    /// Work that waits because no runner could take it is told anew why it waits.
    fn note_hopeless(&mut self) {
        let hopeless = |why| {
            matches!(
                why,
                WaitReason::RunnersNotReady
                    | WaitReason::HistoryWentBack
                    | WaitReason::NoRunners
                    | WaitReason::NoGpus
                    | WaitReason::NoLongerFits
            )
        };
        let heads = self.queue.shapes.values().filter_map(|shape| self.shapes.get(*shape)).flat_map(|row| &row.heads);
        let waits = |workload| self.workloads.get(workload).and_then(|row| row.waits);
        let models =
            heads.filter(|(entry, ..)| waits(entry.workload).is_some_and(hopeless)).map(|(_, model, _)| *model);
        self.dirty.models.extend(models);
    }

    /// Notes that a runner may have more to give than before.
    fn note_room_on(&mut self, key: RunnerKey) {
        let Some(row) = self.runners.get(key) else { return };
        self.dirty.devices.extend(row.devices.iter().copied());
        self.dirty.hosts.insert(key);
    }

    pub(super) fn on_forgotten(&mut self, id: &RunnerId) {
        let Some(key) = self.runners.key(id) else { return };
        self.leave_index(key);
        let Some(row) = self.runners.get_mut(key) else { return };
        row.admission = Admission::Forgotten;
        row.reported = false;
        row.disputed.clear();
        row.missing.clear();
        let machine = row.machine;
        let devices = std::mem::take(&mut row.devices);
        self.link_bars(machine);
        self.timers.disarm(Timer::DrainDeadline(key));
        self.link_silence(key);
        for device in devices {
            self.leave_device(key, device);
        }
        self.link_runner_slots(key);
        self.remove_runner(key);
    }

    /// Removes a forgotten runner once nothing that it ran is unproven.
    pub(super) fn remove_runner(&mut self, key: RunnerKey) {
        let Some(row) = self.runners.get(key).filter(|row| row.is_forgotten() && row.slots.is_empty()) else { return };
        let (id, machine) = (row.id.clone(), row.machine);
        self.runners.remove(key);
        self.call(&id);
        self.leave_machine(key, machine);
        self.remove_machine(machine);
        self.machine_words.remove(&id);
    }

    pub(super) fn on_disputed(&mut self, id: &RunnerId, uuid: &DeviceUuid, disputed: bool) {
        let Some(row) = self.runners.key(id).and_then(|key| self.runners.get_mut(key)) else { return };
        row.disputed.retain(|other| other != uuid);
        if disputed {
            row.disputed.push(uuid.clone());
        }
    }

    pub(super) fn on_attached(
        &mut self,
        runner: &RunnerId,
        uuid: &DeviceUuid,
        name: &GpuName,
        parent: Option<&DeviceUuid>,
        attachment: &Attachment,
    ) {
        let Some(runner) = self.runners.key(runner) else { return };
        let Some(machine) = self.runners.get(runner).map(|row| row.machine) else { return };
        let name = &self.intern(name);
        let device = match self.devices.key(uuid) {
            Some(device) => device,
            None => self.add_device(uuid, name, parent, machine, attachment.capacity),
        };
        let Some(row) = self.devices.get_mut(device) else { return };
        row.name = name.clone();
        match row.attachments.iter_mut().find(|known| known.runner == runner) {
            Some(known) => known.attachment = attachment.clone(),
            None => {
                row.attachments.push(AttachmentRow {
                    runner,
                    attachment: attachment.clone(),
                    health: GpuHealth::Ok,
                    is_heard: true,
                    spots: Vec::new(),
                    victims: Vec::new(),
                });
            }
        }
        row.ledger.set_capacity(row.smallest_capacity());
        self.dirty.devices.insert(device);
        self.touch_attachments(device);
        self.link_device_slots(device);
        let Some(row) = self.runners.get_mut(runner) else { return };
        row.missing.retain(|missing| missing.uuid != *uuid);
        row.devices.retain(|other| *other != device);
        row.devices.push(device);
        let devices = &self.devices;
        let index_of = |key: &DeviceKey| {
            devices.get(*key).and_then(|gpu| gpu.attachment_on(runner)).map_or(u16::MAX, |row| row.attachment.index)
        };
        row.devices.sort_by_key(index_of);
        self.index.touch_runner(runner);
    }

    /// One text for all GPUs of a name, however many reports spell it out.
    fn intern(&mut self, name: &GpuName) -> GpuName {
        if let Some(known) = self.gpu_names.get(name) {
            return known.clone();
        }
        self.gpu_names.insert(name.clone());
        name.clone()
    }

    fn add_device(
        &mut self,
        uuid: &DeviceUuid,
        name: &GpuName,
        parent: Option<&DeviceUuid>,
        machine: MachineKey,
        capacity: Bytes,
    ) -> DeviceKey {
        let device = Device {
            uuid: uuid.clone(),
            name: name.clone(),
            machine,
            parent: parent.cloned(),
            ledger: Ledger::new(capacity),
            attachments: SmallVec::new(),
            cordoned: self.cordons.contains(uuid),
            backing_off: false,
            instances: self.instances.get(uuid).copied().unwrap_or(0),
            reserved_for: None,
            backfill: false,
            attributed: true,
            baseline: Bytes::ZERO,
            lower_sample: None,
            last_used: None,
            left_since: Bytes::ZERO,
            evictable: Bytes::ZERO,
            evictable_slots: 0,
            depth: crate::index::Depth::default(),
        };
        let key = self.devices.insert(device);
        self.count_instance(parent, 1);
        key
    }

    fn count_instance(&mut self, parent: Option<&DeviceUuid>, by: i16) {
        let Some(parent) = parent else { return };
        let count = self.instances.get(parent).copied().unwrap_or(0).saturating_add_signed(by);
        match count {
            0 => self.instances.remove(parent),
            count => self.instances.insert(parent.clone(), count),
        };
        let Some(key) = self.devices.key(parent) else { return };
        if let Some(row) = self.devices.get_mut(key) {
            row.instances = count;
        }
        self.dirty.devices.insert(key);
        self.touch_attachments(key);
    }

    /// A device's size or nature changed: it is part of what its runners are.
    fn touch_attachments(&mut self, device: DeviceKey) {
        self.index.touch_device(device);
        let attachments = self.devices.get(device).map(|row| row.attachments.as_slice()).unwrap_or_default();
        attachments.iter().for_each(|row| self.index.touch_runner(row.runner));
    }

    pub(super) fn on_detached(&mut self, runner: &RunnerId, uuid: &DeviceUuid) {
        let (Some(runner), Some(device)) = (self.runners.key(runner), self.devices.key(uuid)) else { return };
        self.leave_attachment(runner, device);
        let missing = self.devices.get(device).filter(|row| !row.is_mig()).and_then(|row| {
            let capacity = row.attachment_on(runner)?.attachment.capacity;
            Some(MissingGpu { uuid: row.uuid.clone(), name: row.name.clone(), capacity })
        });
        if let Some(row) = self.runners.get_mut(runner) {
            row.devices.retain(|other| *other != device);
            row.missing.extend(missing);
            if row.missing.len() > MOST_MISSING {
                row.missing.remove(0);
            }
        }
        self.leave_device(runner, device);
        self.link_device_slots(device);
        self.index.touch_runner(runner);
    }

    /// A device without an attachment and without claims is no more; one with claims stays, shut, until they are proven gone.
    pub(super) fn leave_device(&mut self, runner: RunnerKey, device: DeviceKey) {
        let Some(row) = self.devices.get_mut(device) else { return };
        row.attachments.retain(|attachment| attachment.runner != runner);
        if !row.attachments.is_empty() {
            row.ledger.set_capacity(row.smallest_capacity());
            self.touch_attachments(device);
        }
        self.dirty.devices.insert(device);
        self.remove_device(device);
    }

    pub(super) fn remove_device(&mut self, device: DeviceKey) {
        let gone = |row: &&Device| row.attachments.is_empty() && row.ledger.claims().is_empty();
        let Some(row) = self.devices.get(device).filter(gone) else { return };
        let (parent, reserved) = (row.parent.clone(), row.reserved_for);
        self.timers.disarm(Timer::DeviceBackoff(device));
        reserved.into_iter().for_each(|owner| self.end_reservation(owner));
        self.devices.remove(device);
        self.dirty.devices.remove(&device);
        self.count_instance(parent.as_ref(), -1);
    }

    /// Changes a device and everything that follows.
    pub(super) fn on_device(&mut self, uuid: &DeviceUuid, change: impl FnOnce(&mut Device)) {
        let Some(key) = self.devices.key(uuid) else { return };
        let Some(row) = self.devices.get_mut(key) else { return };
        change(row);
        self.dirty.devices.insert(key);
        self.index.touch_device(key);
        self.link_device_slots(key);
    }

    pub(super) fn on_device_cordoned(&mut self, uuid: &DeviceUuid, cordoned: bool) {
        match cordoned {
            true => self.cordons.insert(uuid.clone()),
            false => self.cordons.remove(uuid),
        };
        self.on_device(uuid, |device| device.cordoned = cordoned);
    }

    pub(super) fn on_health(&mut self, runner: &RunnerId, uuid: &DeviceUuid, health: GpuHealth) {
        let Some(runner) = self.runners.key(runner) else { return };
        self.on_device(uuid, |device| {
            let attachment = device.attachments.iter_mut().find(|row| row.runner == runner);
            attachment.into_iter().for_each(|row| row.health = health);
        });
    }

    pub(super) fn on_sampled(&mut self, uuid: &DeviceUuid, used: Bytes) {
        let Some(key) = self.devices.key(uuid) else { return };
        let Some(row) = self.devices.get_mut(key) else { return };
        let left = std::mem::take(&mut row.left_since);
        row.last_used = Some(used);
        if left.is_zero() {
            return;
        }
        // Slots that still load are measured from now on against a device that holds less.
        let slots: Vec<SlotKey> = row.ledger.claims().iter().map(|claim| claim.slot).collect();
        for slot in slots {
            let gpus = self.slots.get_mut(slot).map(|row| &mut row.gpus);
            for gpu in gpus.into_iter().flatten().filter(|gpu| gpu.device == key) {
                gpu.used_before = gpu.used_before.map(|before| before.saturating_sub(left));
            }
        }
    }

    pub(super) fn on_device_backoff(&mut self, uuid: &DeviceUuid, until: Option<Timestamp>) {
        let Some(key) = self.devices.key(uuid) else { return };
        match until {
            Some(until) => self.timers.arm(Timer::DeviceBackoff(key), until),
            None => self.timers.disarm(Timer::DeviceBackoff(key)),
        }
        self.on_device(uuid, |device| device.backing_off = until.is_some());
    }

    pub(super) fn on_foreign_sampled(&mut self, uuid: &DeviceUuid, bytes: Bytes) {
        let Some(key) = self.devices.key(uuid) else { return };
        if let Some(row) = self.devices.get_mut(key) {
            row.lower_sample = Some(bytes);
        }
    }

    pub(super) fn on_foreign(&mut self, uuid: &DeviceUuid, bytes: Bytes, attributed: bool, left_behind: bool) {
        self.on_device(uuid, |device| {
            if device.ledger.claims().is_empty() {
                device.baseline = bytes;
            } else if left_behind {
                device.baseline = device.baseline.max(bytes);
            }
            device.ledger.set_foreign(bytes);
            device.attributed = attributed;
            device.lower_sample = None;
        });
    }
}
