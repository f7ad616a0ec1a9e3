//! The life of a slot, as the design draws it.

use std::sync::Arc;

use berth_core::{Event, Phase, PlacedSlot};
use berth_domain::{Generation, SlotId, SlotState, Timestamp, WorkloadState};

use super::{Name, Reference, Slot};
use crate::assertions::ensure;
use crate::system_under_test::{AssertionResult, FailedAssertion};

impl Reference {
    pub(super) fn apply_to_slot(&mut self, event: &Event, at: Timestamp) -> AssertionResult {
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
            Event::SlotUnknown { slot, .. } => {
                self.turn(event, *slot, &[Starting, Ready, Draining, Failed, Stopping, Unknown], Unknown)?;
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
            Event::SlotOvertaken { slot, generation } => {
                let later = self.slot(*slot).is_some_and(|row| row.generation < *generation);
                ensure!("lives of slots", later, "{event:?}: not a later generation");
                self.slot(*slot).into_iter().for_each(|row| row.generation = *generation);
                if self.slot(*slot).is_some_and(|row| row.state != Stopping) {
                    self.turn(event, *slot, &[Starting, Ready, Draining, Failed, Unknown], Unknown)?;
                }
            }
            Event::SlotReleased { slot, .. } => self.release(event, &(*slot, None), false)?,
            Event::PromiseWithdrawn { slot } => self.release(event, &(*slot, None), true)?,
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
                self.release(event, &(*slot, Some(runner.clone())), false)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn place(&mut self, placed: &Arc<PlacedSlot>) -> AssertionResult {
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

    fn turn(&mut self, event: &Event, slot: SlotId, from: &[SlotState], to: SlotState) -> AssertionResult {
        let row = self.slot(slot);
        let legal = row.as_ref().is_some_and(|row| from.contains(&row.state));
        ensure!("lives of slots", legal, "{event:?} while {:?}", row.map(|row| row.state));
        row.into_iter().for_each(|row| row.state = to);
        Ok(())
    }

    fn release(&mut self, event: &Event, name: &Name, promise: bool) -> AssertionResult {
        let known = self.slots.remove(name);
        let legal = known.as_ref().is_some_and(|row| (row.state == SlotState::Promised) || !promise);
        ensure!("lives of slots", legal, "{event:?} of {known:?}");
        let busy = self.workloads.iter().find(|(_, row)| name.1.is_none() && row.slot == Some(name.0));
        ensure!("nobody is left on a released slot", busy.is_none(), "{event:?}: {busy:?}");
        let freed = self.workloads.values_mut().filter(|row| name.1.is_none() && row.waits_for == Some(name.0));
        freed.for_each(|row| row.waits_for = None);
        Ok(())
    }

    fn run_assigned(&mut self, slot: SlotId) {
        let on_it = self.workloads.values_mut().filter(|row| row.slot == Some(slot));
        on_it.for_each(|row| row.state = WorkloadState::Running);
    }
}
