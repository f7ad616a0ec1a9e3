//! How many requests wait for a model, and how many may.

use std::collections::HashMap;
use std::sync::Arc;

use berth_domain::ModelName;
use parking_lot::Mutex;

/// The requests that are held.
#[derive(Debug)]
pub(crate) struct HeldRequests {
    per_model: usize,
    total: usize,
    now: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    all: usize,
    by_model: HashMap<ModelName, usize>,
}

/// One request that is held. It is one less when this is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    requests: Arc<HeldRequests>,
    model: ModelName,
}

impl HeldRequests {
    pub(crate) fn new(per_model: usize, total: usize) -> Arc<Self> {
        Arc::new(Self { per_model, total, now: Mutex::default() })
    }

    /// Whether one more for this model may be held. It is asked before anything is submitted, so that the next one too
    /// many costs nothing.
    pub(crate) fn has_room_for(&self, model: &ModelName) -> bool {
        let now = self.now.lock();
        now.all < self.total && now.by_model.get(model).is_none_or(|held| *held < self.per_model)
    }

    /// Holds one more request for this model, if there may be one more.
    pub(crate) fn enter(self: &Arc<Self>, model: &ModelName) -> Option<Held> {
        let mut now = self.now.lock();
        let all = now.all;
        let held = now.by_model.entry(model.clone()).or_default();
        if all >= self.total || *held >= self.per_model {
            return None;
        }
        *held += 1;
        now.all += 1;
        Some(Held { requests: self.clone(), model: model.clone() })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut now = self.requests.now.lock();
        now.all -= 1;
        if let Some(held) = now.by_model.get_mut(&self.model) {
            *held -= 1;
            if *held == 0 {
                now.by_model.remove(&self.model);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_model_leaves_room_for_another_and_a_leaver_makes_room() {
        let held = HeldRequests::new(1, 2);
        let (a, b) = (ModelName::new("a").unwrap(), ModelName::new("b").unwrap());
        let first = held.enter(&a).unwrap();
        assert!(!held.has_room_for(&a) && held.enter(&a).is_none());
        let _second = held.enter(&b).unwrap();
        assert!(held.enter(&ModelName::new("c").unwrap()).is_none(), "two in all");
        drop(first);
        assert!(held.has_room_for(&a) && held.enter(&a).is_some());
    }
}
