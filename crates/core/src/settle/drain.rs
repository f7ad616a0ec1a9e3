//! A runner that is drained: nothing is left, or something must go.

use berth_domain::Timestamp;

use super::starts;
use crate::decide::Decision;
use crate::event::Event;
use crate::state::{Admission, State};
use crate::table::RunnerKey;

pub(super) fn look_at(state: &State, key: RunnerKey, now: Timestamp) -> Option<Decision> {
    let runner = state.runners.get(key)?;
    if !matches!(runner.admission, Admission::Draining { .. }) {
        return None;
    }
    if runner.slots.is_empty() {
        return Some(Decision::of(vec![Event::RunnerDrained { runner: runner.id.clone() }]));
    }
    runner.slots.iter().find_map(|slot| starts::look_at(state, *slot, now))
}
