//! What a change made possible. Worked off until nothing is left to do.
//!
//! Each function looks at the agenda and the state and returns one decision, or nothing. The order is the order of
//! rights: starts and promises that were made, then what must go, then places that are kept free, then leases that an
//! existing slot can take, then memory for those who wait in order, then slots that nobody asked for.

mod drain;
mod promises;
mod replicas;
mod reservations;
mod reuse;
mod room;
mod starts;

use berth_domain::Timestamp;

use crate::decide::Decision;
use crate::state::State;

/// The next thing to do, or nothing. What yields nothing is struck from the agenda.
pub(crate) fn next(state: &mut State, now: Timestamp) -> Option<Decision> {
    loop {
        if let Some(slot) = state.agenda.slots.first().copied() {
            match starts::look_at(state, slot, now) {
                Some(decision) => return Some(decision),
                None => state.agenda.slots.remove(&slot),
            };
            continue;
        }
        if let Some(decision) = promises::next(state, now) {
            return Some(decision);
        }
        if let Some(runner) = state.agenda.runners.first().copied() {
            match drain::look_at(state, runner, now) {
                Some(decision) => return Some(decision),
                None => state.agenda.runners.remove(&runner),
            };
            continue;
        }
        if let Some(decision) = reservations::end_broken(state) {
            return Some(decision);
        }
        if state.agenda.reservations > 0 {
            state.agenda.reservations -= 1;
            if let Some(decision) = reservations::review(state, now) {
                return Some(decision);
            }
            state.agenda.reservations = 0;
        }
        if let Some(model) = state.agenda.models.first().copied() {
            match reuse::look_at(state, model, now) {
                Some(decision) => return Some(decision),
                None => state.agenda.models.remove(&model),
            };
            continue;
        }
        if !state.agenda.devices.is_empty() || !state.agenda.hosts.is_empty() {
            if let Some(decision) = room::next(state, now) {
                return Some(decision);
            }
            state.agenda.devices.clear();
            state.agenda.hosts.clear();
            continue;
        }
        if let Some(model) = state.agenda.replicas.first().copied() {
            match replicas::look_at(state, model, now) {
                Some(decision) => return Some(decision),
                None => state.agenda.replicas.remove(&model),
            };
            continue;
        }
        return None;
    }
}
