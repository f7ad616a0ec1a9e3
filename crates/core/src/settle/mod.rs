//! What a change made possible. Worked off until nothing is left to do.
//!
//! Each function looks at the dirty set and the state and returns one decision, or nothing. The order is the order of
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

/// The next thing to do, or nothing. What yields nothing is struck from the dirty set.
pub(crate) fn next(state: &mut State, now: Timestamp) -> Option<Decision> {
    loop {
        if let Some(slot) = state.dirty.slots.first().copied() {
            match starts::look_at(state, slot, now) {
                Some(decision) => return Some(decision),
                None => state.dirty.slots.remove(&slot),
            };
            continue;
        }
        if let Some(decision) = promises::next(state, now) {
            return Some(decision);
        }
        if let Some(runner) = state.dirty.runners.first().copied() {
            match drain::look_at(state, runner, now) {
                Some(decision) => return Some(decision),
                None => state.dirty.runners.remove(&runner),
            };
            continue;
        }
        if let Some(decision) = reservations::end_broken(state) {
            return Some(decision);
        }
        if state.dirty.reservations > 0 {
            state.dirty.reservations -= 1;
            if let Some(decision) = reservations::review(state, now) {
                return Some(decision);
            }
            state.dirty.reservations = 0;
        }
        if let Some(model) = state.dirty.models.first().copied() {
            match reuse::look_at(state, model, now) {
                Some(decision) => return Some(decision),
                None => state.dirty.models.remove(&model),
            };
            continue;
        }
        if !state.dirty.devices.is_empty() || !state.dirty.hosts.is_empty() {
            if let Some(decision) = room::next(state, now) {
                return Some(decision);
            }
            state.dirty.devices.clear();
            state.dirty.hosts.clear();
            continue;
        }
        if let Some(model) = state.dirty.replicas.first().copied() {
            match replicas::look_at(state, model, now) {
                Some(decision) => return Some(decision),
                None => state.dirty.replicas.remove(&model),
            };
            continue;
        }
        return None;
    }
}
