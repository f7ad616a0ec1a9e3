//! Where slots were that are no more: their logs are still there for a while.

use std::collections::{HashMap, VecDeque};

use berth_domain::{Generation, RunnerId, SlotId};

/// How many are remembered.
const KEPT: usize = 10_000;

/// Where a slot is, or was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Whereabouts {
    /// On which runner.
    pub runner: RunnerId,
    /// Which start of it was the last.
    pub generation: Generation,
}

/// The last slots that ended. In memory: after a restart of the server nobody knows them.
#[derive(Debug, Default)]
pub(super) struct PastSlots {
    places: HashMap<SlotId, Whereabouts>,
    order: VecDeque<SlotId>,
}

impl PastSlots {
    pub(super) fn note(&mut self, slot: SlotId, was: Whereabouts) {
        if self.places.insert(slot, was).is_none() {
            self.order.push_back(slot);
        }
        if self.order.len() > KEPT
            && let Some(oldest) = self.order.pop_front()
        {
            self.places.remove(&oldest);
        }
    }

    pub(super) fn find(&self, slot: SlotId) -> Option<Whereabouts> {
        self.places.get(&slot).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ones_are_remembered_and_only_so_many() {
        let mut past = PastSlots::default();
        let slot = |number: usize| SlotId::new(uuid::Uuid::from_u128(number as u128));
        let was =
            |generation| Whereabouts { runner: RunnerId::new("a").unwrap(), generation: Generation::new(generation) };
        for number in 0..=KEPT {
            past.note(slot(number), was(0));
        }
        assert_eq!(past.find(slot(0)), None);
        past.note(slot(1), was(2));
        assert_eq!(past.find(slot(1)), Some(was(2)));
        assert_eq!((past.places.len(), past.order.len()), (KEPT, KEPT));
    }
}
