//! A slow, obvious model of slots, workloads and ledgers, written from the design alone: plain maps, folded over the
//! events, with every transition that is not in the lives of the design refused.

pub mod placement;
mod slots;
mod work;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use berth_core::{CorrectionReason, Event, Phase, PlacedSlot, RunnerTraits};
use berth_domain::{
    Bytes, DeviceUuid, Generation, GpuCount, GpuMemory, MachineId, Millicores, ModelName, ModelRevision, ModelSpec,
    RunnerId, SlotId, SlotState, Submission, Timestamp, WorkloadId, WorkloadState,
};

use crate::system_under_test::{AssertionResult, FailedAssertion};

/// A slot's name: its id, and its runner if the server never made it.
pub type Name = (SlotId, Option<RunnerId>);

/// One slot.
#[derive(Clone, Debug)]
pub struct Slot {
    /// What it serves; nothing for a stray.
    pub placed: Option<Arc<PlacedSlot>>,
    /// Its model as it was placed.
    pub spec: Option<Arc<ModelSpec>>,
    /// The runner that has it.
    pub runner: RunnerId,
    /// Where it is in its life.
    pub state: SlotState,
    /// The number of its last start.
    pub generation: Generation,
    /// Device, bytes, and whether the claim is exclusive.
    pub claims: Vec<(DeviceUuid, Bytes, bool)>,
    /// The phase of all its claims.
    pub phase: Phase,
    /// Its stop takes too long.
    pub stalled: bool,
    /// When it became ready.
    pub ready_since: Option<Timestamp>,
}

/// One workload.
#[derive(Clone, Debug)]
pub struct Workload {
    /// The order of submission.
    pub number: u64,
    /// As submitted.
    pub submission: Arc<Submission>,
    /// Where it is in its life.
    pub state: WorkloadState,
    /// The number of the present attempt.
    pub attempt: u32,
    /// Its slot.
    pub slot: Option<SlotId>,
    /// It pauses after a failure.
    pub pauses: bool,
    /// It waits until this slot, its last start, is gone.
    pub waits_for: Option<SlotId>,
    /// Where it failed last.
    pub avoid: Option<RunnerId>,
}

/// One device.
#[derive(Clone, Debug, Default)]
pub struct Device {
    /// The capacity that each runner sees.
    pub seats: BTreeMap<RunnerId, Bytes>,
    /// The last capacity that a runner reported.
    pub capacity: Bytes,
    /// Memory in use that is not ours.
    pub foreign: Bytes,
}

/// One model.
#[derive(Clone, Debug)]
pub struct Model {
    /// Its entry.
    pub spec: Arc<ModelSpec>,
    /// Its version.
    pub revision: ModelRevision,
    /// Whether it was removed.
    pub deleted: bool,
    /// What is charged instead of what its entry says.
    pub corrected: BTreeMap<GpuCount, Vec<Bytes>>,
}

/// The reference model.
#[derive(Clone, Debug, Default)]
pub struct Reference {
    /// Slots by name.
    pub slots: BTreeMap<Name, Slot>,
    /// Workloads by id.
    pub workloads: BTreeMap<WorkloadId, Workload>,
    /// Devices by UUID.
    pub devices: BTreeMap<DeviceUuid, Device>,
    /// The machine of each runner.
    pub machines: BTreeMap<RunnerId, MachineId>,
    /// CPU and RAM of each machine.
    pub hosts: BTreeMap<MachineId, (Millicores, Bytes)>,
    /// Pool, labels and runtimes of each runner.
    pub traits: BTreeMap<RunnerId, Arc<RunnerTraits>>,
    /// The catalogue.
    pub models: BTreeMap<ModelName, Model>,
    forgotten: BTreeSet<RunnerId>,
    booted: BTreeSet<RunnerId>,
    submitted: u64,
}

impl Reference {
    /// Applies an event, or fails if the lives of the design do not allow it.
    pub fn apply(&mut self, event: &Event, at: Timestamp) -> AssertionResult {
        match event {
            Event::ModelPut { spec, revision } => {
                // A new revision begins anew.
                let corrected = BTreeMap::new();
                let model = Model { spec: spec.clone(), revision: *revision, deleted: false, corrected };
                self.models.insert(spec.name.clone(), model);
            }
            Event::ModelDeleted { model } => self.models.get_mut(model).into_iter().for_each(|row| row.deleted = true),
            Event::MemoryCorrected { model, count, bytes, why } => self.correct(model, *count, bytes, *why)?,
            Event::RunnerRegistered { runner, machine, .. } => {
                self.machines.insert(runner.clone(), machine.clone());
                self.forgotten.remove(runner);
            }
            Event::RunnerBooted { runner, .. } => self.boot(runner),
            Event::RunnerMoved { runner, machine } => {
                self.machines.insert(runner.clone(), machine.clone());
            }
            Event::RunnerDescribed { runner, traits } => {
                self.traits.insert(runner.clone(), traits.clone());
            }
            Event::HostSized { machine, cpu, ram } => {
                self.hosts.insert(machine.clone(), (*cpu, *ram));
            }
            Event::DeviceAttached { runner, uuid, attachment, .. } => {
                self.devices.entry(uuid.clone()).or_default().seats.insert(runner.clone(), attachment.capacity);
            }
            Event::DeviceDetached { runner, uuid } => {
                if let Some(row) = self.devices.get_mut(uuid) {
                    row.seats.remove(runner);
                }
            }
            Event::RunnerForgotten { runner, .. } => {
                for row in self.devices.values_mut() {
                    row.seats.remove(runner);
                }
                self.forgotten.insert(runner.clone());
            }
            Event::ForeignChanged { uuid, bytes, .. } => {
                self.devices.get_mut(uuid).into_iter().for_each(|row| row.foreign = *bytes);
            }
            _ => {
                self.apply_to_slot(event, at)?;
                self.apply_to_workload(event)?;
            }
        }
        self.tidy();
        Ok(())
    }

    /// What each GPU of the next slot must give.
    #[must_use]
    pub fn needs(&self, spec: &ModelSpec, count: GpuCount) -> Option<Vec<GpuMemory>> {
        let corrected = self.models.get(&spec.name).and_then(|model| model.corrected.get(&count));
        let bytes = corrected.map(|bytes| bytes.iter().copied().map(GpuMemory::Bytes).collect());
        bytes.or_else(|| spec.memory_on(count))
    }

    /// Something else is charged from now on: out of memory, only more; learned, only where the model says so; never
    /// more than half above its entry, nor less than half of it.
    fn correct(
        &mut self,
        name: &ModelName,
        count: GpuCount,
        bytes: &[Bytes],
        why: CorrectionReason,
    ) -> AssertionResult {
        let Some(spec) = self.models.get(name).map(|model| model.spec.clone()) else { return Ok(()) };
        let as_bytes = |needs: Option<Vec<GpuMemory>>| -> Option<Vec<Bytes>> {
            needs?.into_iter().map(GpuMemory::bytes).collect()
        };
        let (entry, before) = (as_bytes(spec.memory_on(count)), as_bytes(self.needs(&spec, count)));
        let (Some(entry), Some(before)) = (entry, before) else {
            return Err(FailedAssertion { check: "corrections", text: format!("{name} has no number for {count}") });
        };
        let known = entry.len() == bytes.len() && bytes != before;
        let bounded = entry.iter().zip(bytes).all(|(entry, bytes)| {
            let (entry, bytes) = (u128::from(entry.get()), u128::from(bytes.get()));
            2 * bytes >= entry && 2 * bytes <= 3 * entry + 2
        });
        let allowed = match why {
            CorrectionReason::OutOfMemory => before.iter().zip(bytes).all(|(before, bytes)| bytes >= before),
            CorrectionReason::Learned => spec.memory.learn,
        };
        if !(known && bounded && allowed) {
            let text = format!("{name} on {count}: {entry:?}, then {before:?}, now {bytes:?} ({why:?})");
            return Err(FailedAssertion { check: "corrections", text });
        }
        if let Some(model) = self.models.get_mut(name) {
            model.corrected.insert(count, bytes.to_vec());
        }
        Ok(())
    }

    /// Notes a boot: there is no foreign use on the GPUs of the runner. The first report of a runner is no boot.
    fn boot(&mut self, runner: &RunnerId) {
        if !self.booted.insert(runner.clone()) {
            let here = |device: &&mut Device| device.seats.contains_key(runner);
            self.devices.values_mut().filter(here).for_each(|device| device.foreign = Bytes::ZERO);
        }
    }

    /// A device without a seat and without claims is no more, and so is a forgotten runner without slots.
    fn tidy(&mut self) {
        for device in self.devices.values_mut() {
            device.capacity = device.seats.values().min().copied().unwrap_or(device.capacity);
        }
        let slots = &self.slots;
        let claimed = |uuid: &DeviceUuid| slots.values().any(|slot| slot.claims.iter().any(|(on, ..)| on == uuid));
        self.devices.retain(|uuid, device| !device.seats.is_empty() || claimed(uuid));
        let empty: Vec<RunnerId> = self
            .forgotten
            .iter()
            .filter(|runner| !slots.values().any(|slot| slot.runner == **runner))
            .cloned()
            .collect();
        for runner in empty {
            self.forgotten.remove(&runner);
            self.booted.remove(&runner);
            let machine = self.machines.remove(&runner);
            self.traits.remove(&runner);
            let left = machine.filter(|machine| !self.machines.values().any(|other| other == machine));
            left.map(|machine| self.hosts.remove(&machine));
        }
    }
}
