//! How long models took to load lately.

use std::collections::{HashMap, VecDeque};

use berth_core::view::SlotView;
use berth_domain::{ModelName, SlotState, Span};
use parking_lot::Mutex;

/// How many loads of a model are remembered.
const KEPT: usize = 15;

/// The last loads of each model. They are measured anew after a start of the server.
#[derive(Debug, Default)]
pub struct LoadTimes(Mutex<HashMap<ModelName, VecDeque<Span>>>);

impl LoadTimes {
    /// Notes that a slot became ready, if this is what happened to it.
    pub(super) fn note(&self, before: Option<&SlotView>, now: &SlotView) {
        let (Some(model), SlotState::Ready) = (&now.model, now.state) else { return };
        let began = match before {
            // The order to start it came when it began to start; what it waited for before is no part of a load.
            Some(before) if matches!(before.state, SlotState::Starting | SlotState::Pending) => before.since,
            None => now.created,
            Some(_) => return,
        };
        let mut times = self.0.lock();
        let loads = times.entry(model.clone()).or_default();
        if loads.len() == KEPT {
            loads.pop_front();
        }
        loads.push_back(now.since.since(began));
    }

    /// The median of the last loads of a model.
    #[must_use]
    pub fn median(&self, model: &ModelName) -> Option<Span> {
        let times = self.0.lock();
        let mut loads: Vec<Span> = times.get(model)?.iter().copied().collect();
        loads.sort_unstable();
        loads.get(loads.len() / 2).copied()
    }

    /// Forgets models that are no more.
    pub(super) fn forget(&self, model: &ModelName) {
        self.0.lock().remove(model);
    }
}
