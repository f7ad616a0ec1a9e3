//! A slow, obvious model of slots, workloads and ledgers, written from the design alone: plain maps, folded over the
//! events, with every transition that is not in the lives of the design refused.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use berth_core::{Cause, Event, Phase, PlacedSlot, RunnerTraits};
use berth_domain::{
    Bytes, DeviceUuid, Generation, MachineId, Millicores, ModelName, ModelRevision, ModelSpec, RunnerId, SlotId,
    SlotState, Submission, Timestamp, WorkloadEnd, WorkloadId, WorkloadKind, WorkloadState,
};

use crate::checks::ensure;
use crate::run::{Broken, Outcome};

/// A slot's name: its id, and its runner if the server never made it.
pub type Name = (SlotId, Option<RunnerId>);

/// One slot.
#[derive(Clone, Debug)]
pub struct Slot {
    /// What it serves; nothing for a stray.
    pub placed: Option<Arc<PlacedSlot>>,
    /// Its model as it was placed.
    pub spec: Option<Arc<ModelSpec>>,
    /// Where.
    pub runner: RunnerId,
    /// Where it is in its life.
    pub state: SlotState,
    /// Which start.
    pub generation: Generation,
    /// On which devices, how much, alone or not.
    pub claims: Vec<(DeviceUuid, Bytes, bool)>,
    /// What its claims are.
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
    /// Which try.
    pub attempt: u32,
    /// Its slot.
    pub slot: Option<SlotId>,
    /// It pauses after a failure.
    pub pauses: bool,
    /// Where it failed last.
    pub avoid: Option<RunnerId>,
}

/// One device.
#[derive(Clone, Debug, Default)]
pub struct Device {
    /// The capacity that each runner sees.
    pub seats: BTreeMap<RunnerId, Bytes>,
    /// The last capacity that anybody saw.
    pub capacity: Bytes,
    /// In use by others.
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
}

/// Everything.
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
    /// What each runner is like.
    pub traits: BTreeMap<RunnerId, Arc<RunnerTraits>>,
    /// The catalogue.
    pub models: BTreeMap<ModelName, Model>,
    forgotten: BTreeSet<RunnerId>,
    submitted: u64,
}

impl Reference {
    /// Hears of an event.
    pub fn hear(&mut self, event: &Event, at: Timestamp) -> Outcome {
        match event {
            Event::ModelPut { spec, revision } => {
                let model = Model { spec: spec.clone(), revision: *revision, deleted: false };
                self.models.insert(spec.name.clone(), model);
            }
            Event::ModelDeleted { model } => self.models.get_mut(model).into_iter().for_each(|row| row.deleted = true),
            Event::RunnerRegistered { runner, machine, .. } => {
                self.machines.insert(runner.clone(), machine.clone());
                self.forgotten.remove(runner);
            }
            Event::MachineBooted { machine, .. } => self.boot(machine),
            Event::RunnerDescribed { runner, traits } => {
                self.traits.insert(runner.clone(), traits.clone());
            }
            Event::HostSized { machine, cpu, ram } => {
                self.hosts.insert(machine.clone(), (*cpu, *ram));
            }
            Event::DeviceAttached { runner, uuid, seat, .. } => {
                self.devices.entry(uuid.clone()).or_default().seats.insert(runner.clone(), seat.capacity);
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
                self.hear_of_slot(event, at)?;
                self.hear_of_workload(event)?;
            }
        }
        self.tidy();
        Ok(())
    }

    /// Nobody uses anything on a machine that has just started.
    fn boot(&mut self, machine: &MachineId) {
        let machines = &self.machines;
        let here = |device: &&mut Device| device.seats.keys().any(|runner| machines.get(runner) == Some(machine));
        self.devices.values_mut().filter(here).for_each(|device| device.foreign = Bytes::ZERO);
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
            let machine = self.machines.remove(&runner);
            self.traits.remove(&runner);
            let left = machine.filter(|machine| !self.machines.values().any(|other| other == machine));
            left.map(|machine| self.hosts.remove(&machine));
        }
    }

    fn hear_of_slot(&mut self, event: &Event, at: Timestamp) -> Outcome {
        use SlotState::{Draining, Failed, Pending, Promised, Ready, Starting, Stopping, Unknown};
        match event {
            Event::SlotPlaced(placed) => self.place(placed)?,
            Event::SlotGranted { slot } => self.turn(event, *slot, &[Pending], Starting)?,
            Event::SlotReady { slot, .. } => {
                self.turn(event, *slot, &[Starting], Ready)?;
                self.slot(*slot).into_iter().for_each(|row| row.ready_since = Some(at));
                self.run_assigned(*slot);
            }
            Event::SlotDrainBegun { slot } => self.turn(event, *slot, &[Ready], Draining)?,
            Event::SlotDrainEnded { slot } => self.turn(event, *slot, &[Draining], Ready)?,
            Event::SlotStopping { slot, .. } => {
                self.turn(event, *slot, &[Starting, Ready, Draining, Unknown, Failed], Stopping)?;
                self.slot(*slot).into_iter().for_each(|row| (row.phase, row.stalled) = (Phase::Releasing, false));
            }
            Event::StopStalled { slot } => self.slot(*slot).into_iter().for_each(|row| row.stalled = true),
            Event::SlotFailed { slot, .. } => {
                self.turn(event, *slot, &[Starting, Ready, Draining, Unknown, Stopping], Failed)?;
                self.slot(*slot).into_iter().for_each(|row| row.phase = Phase::Held);
            }
            Event::SlotUnknown { slot } => {
                self.turn(event, *slot, &[Starting, Ready, Draining, Failed, Stopping], Unknown)?;
            }
            Event::SlotReturned { slot, ready } => {
                let held = self.slot(*slot).is_some_and(|row| row.phase == Phase::Held);
                ensure!("lives of slots", held, "{event:?}: its memory was not held");
                self.turn(event, *slot, &[Unknown], if *ready { Ready } else { Starting })?;
                if *ready {
                    self.slot(*slot).into_iter().for_each(|row| row.ready_since = row.ready_since.or(Some(at)));
                    self.run_assigned(*slot);
                }
            }
            Event::SlotRestarted { slot, generation } => {
                self.turn(event, *slot, &[Failed, Ready, Draining], Pending)?;
                let row = self.slot(*slot);
                let next = row.as_ref().is_some_and(|row| row.generation.next() == *generation);
                ensure!("lives of slots", next, "{event:?}: not the next generation");
                row.into_iter().for_each(|row| {
                    (row.phase, row.generation, row.ready_since) = (Phase::Held, *generation, None);
                });
            }
            Event::SlotReleased { slot, .. } => self.release(event, (*slot, None), false)?,
            Event::PromiseWithdrawn { slot } => self.release(event, (*slot, None), true)?,
            Event::PromiseKept { slot, granted } => {
                self.turn(event, *slot, &[Promised], if *granted { Starting } else { Pending })?;
                self.slot(*slot).into_iter().for_each(|row| row.phase = Phase::Held);
            }
            Event::SlotCharged { slot, uuid, bytes } => {
                let claims = self.slot(*slot).map(|row| &mut row.claims);
                let claim = claims.into_iter().flatten().find(|(on, ..)| on == uuid);
                claim.into_iter().for_each(|claim| claim.1 = *bytes);
            }
            Event::StrayFound { runner, slot, generation, claims, stop } => {
                let stray = Slot {
                    placed: None,
                    spec: None,
                    runner: runner.clone(),
                    state: if *stop { Stopping } else { Unknown },
                    generation: *generation,
                    claims: claims.iter().map(|claim| (claim.uuid.clone(), claim.bytes, false)).collect(),
                    phase: Phase::Held,
                    stalled: false,
                    ready_since: None,
                };
                let known = self.slots.insert((*slot, Some(runner.clone())), stray);
                ensure!("lives of slots", known.is_none(), "{event:?}: known already");
            }
            Event::StrayCondemned { runner, slot } => {
                let stray = self.slots.get_mut(&(*slot, Some(runner.clone())));
                stray.into_iter().for_each(|row| row.state = Stopping);
            }
            Event::StrayReleased { runner, slot, .. } => {
                self.release(event, (*slot, Some(runner.clone())), false)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn place(&mut self, placed: &Arc<PlacedSlot>) -> Outcome {
        let model = self.models.get(&placed.model);
        let current = model.is_some_and(|model| model.revision == placed.revision && !model.deleted);
        ensure!("lives of slots", current, "{placed:?}: not of the model's current revision");
        let slot = Slot {
            spec: model.map(|model| model.spec.clone()),
            runner: placed.runner.clone(),
            state: match (placed.promised, placed.granted) {
                (true, _) => SlotState::Promised,
                (false, true) => SlotState::Starting,
                (false, false) => SlotState::Pending,
            },
            generation: Generation::new(1),
            claims: placed.claims.iter().map(|claim| (claim.uuid.clone(), claim.bytes, claim.exclusive)).collect(),
            phase: if placed.promised { Phase::Promised } else { Phase::Held },
            stalled: false,
            ready_since: None,
            placed: Some(placed.clone()),
        };
        let known = self.slots.insert((placed.slot, None), slot);
        ensure!("lives of slots", known.is_none(), "{placed:?}: an id twice");
        Ok(())
    }

    /// The slot of this id that the server made.
    pub fn slot(&mut self, slot: SlotId) -> Option<&mut Slot> {
        self.slots.get_mut(&(slot, None))
    }

    fn turn(&mut self, event: &Event, slot: SlotId, from: &[SlotState], to: SlotState) -> Outcome {
        let row = self.slot(slot);
        let legal = row.as_ref().is_some_and(|row| from.contains(&row.state));
        ensure!("lives of slots", legal, "{event:?} while {:?}", row.map(|row| row.state));
        row.into_iter().for_each(|row| row.state = to);
        Ok(())
    }

    fn release(&mut self, event: &Event, name: Name, promise: bool) -> Outcome {
        let known = self.slots.remove(&name);
        let legal = known.as_ref().is_some_and(|row| (row.state == SlotState::Promised) || !promise);
        ensure!("lives of slots", legal, "{event:?} of {known:?}");
        let busy = self.workloads.iter().find(|(_, row)| name.1.is_none() && row.slot == Some(name.0));
        ensure!("nobody is left on a released slot", busy.is_none(), "{event:?}: {busy:?}");
        Ok(())
    }

    fn run_assigned(&mut self, slot: SlotId) {
        let on_it = self.workloads.values_mut().filter(|row| row.slot == Some(slot));
        on_it.for_each(|row| row.state = WorkloadState::Running);
    }

    fn hear_of_workload(&mut self, event: &Event) -> Outcome {
        use WorkloadState::{Assigned, Ended, Queued, Running};
        match event {
            Event::WorkloadSubmitted { workload, submission, .. } => {
                self.submitted += 1;
                let row = Workload {
                    number: self.submitted,
                    submission: submission.clone(),
                    state: Queued,
                    attempt: 1,
                    slot: None,
                    pauses: false,
                    avoid: None,
                };
                let known = self.workloads.insert(*workload, row);
                ensure!("lives of workloads", known.is_none(), "{event:?}: known already");
            }
            Event::WorkloadAssigned { workload, slot } => self.assign(event, *workload, *slot)?,
            Event::WorkloadRequeued { workload, cause, not_before } => {
                let failed = cause.is_failure();
                let runner = self.runner_of(*workload).filter(|_| failed);
                let row = self.workload(event, *workload, |state| matches!(state, Assigned | Running))?;
                (row.state, row.slot, row.attempt) = (Queued, None, row.attempt + 1);
                (row.pauses, row.avoid) = (not_before.is_some(), runner);
            }
            Event::WorkloadEligible { workload } => {
                self.workload(event, *workload, |state| state == Queued)?.pauses = false;
            }
            Event::WorkloadEnded { workload, end, cause } => {
                let succeeded = *end == WorkloadEnd::Succeeded;
                let done = matches!(cause, Cause::Completed | Cause::JobExited(0));
                ensure!("lives of workloads", !succeeded || done, "{event:?}");
                let row = self.workload(event, *workload, |state| !matches!(state, Ended(_)))?;
                (row.state, row.slot, row.pauses) = (Ended(*end), None, false);
            }
            Event::WorkloadForgotten { workload } => {
                self.workload(event, *workload, |state| matches!(state, Ended(_)))?;
                self.workloads.remove(workload);
            }
            _ => {}
        }
        Ok(())
    }

    fn runner_of(&mut self, workload: WorkloadId) -> Option<RunnerId> {
        let slot = self.workloads.get(&workload)?.slot?;
        self.slot(slot).map(|row| row.runner.clone())
    }

    fn workload(
        &mut self,
        event: &Event,
        id: WorkloadId,
        legal: impl FnOnce(WorkloadState) -> bool,
    ) -> Outcome<&mut Workload> {
        match self.workloads.get_mut(&id) {
            Some(row) if legal(row.state) => Ok(row),
            row => {
                Err(Broken { check: "lives of workloads", text: format!("{event:?} while {:?}", row.map(|r| r.state)) })
            }
        }
    }

    /// A lease takes one unit of a slot that serves or will; a job takes the slot that was made for it.
    fn assign(&mut self, event: &Event, id: WorkloadId, slot: SlotId) -> Outcome {
        let taken = self.workloads.values().filter(|row| row.slot == Some(slot)).count();
        let row = self.slots.get(&(slot, None)).cloned();
        let Some(Slot { state, placed: Some(placed), spec: Some(spec), .. }) = row else {
            return Err(Broken { check: "lives of workloads", text: format!("{event:?}: no such slot") });
        };
        let current = self.models.get(&placed.model).is_some_and(|model| model.revision == placed.revision);
        let workload = self.workload(event, id, |state| state == WorkloadState::Queued)?;
        let right = match workload.submission.kind {
            WorkloadKind::Lease => placed.job.is_none() && taken < spec.concurrency as usize,
            WorkloadKind::Job => placed.job == Some(id) && taken == 0,
        };
        ensure!("concurrency", right, "{event:?}: {taken} on {placed:?}");
        let serves = workload.submission.model == placed.model && current && state.is_live() && !workload.pauses;
        ensure!("leases go to live slots of their model", serves, "{event:?}: {state} {placed:?}");
        workload.slot = Some(slot);
        workload.state = if state == SlotState::Ready { WorkloadState::Running } else { WorkloadState::Assigned };
        Ok(())
    }
}
