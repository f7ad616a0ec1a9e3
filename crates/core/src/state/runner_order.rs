//! The order of runners by their ids, as numbers: the last tie-break of a ranking, whoever registered first.

use std::collections::BTreeMap;
use std::ops::Bound;

use berth_domain::RunnerId;

/// The distance between neighbours that are numbered anew.
const GAP: u64 = 1 << 32;

/// A number for each runner; a smaller id has a smaller number.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunnerOrder(BTreeMap<RunnerId, u64>);

impl RunnerOrder {
    /// Gives a runner a number between those of its neighbours, or nothing if there is none: then all are to be numbered
    /// anew.
    pub(crate) fn insert(&mut self, id: &RunnerId) -> Option<u64> {
        if let Some(known) = self.0.get(id) {
            return Some(*known);
        }
        let before = self.0.range((Bound::Unbounded, Bound::Excluded(id))).next_back().map(|(_, number)| *number);
        let after = self.0.range((Bound::Excluded(id), Bound::Unbounded)).next().map(|(_, number)| *number);
        let number = match (before, after) {
            (before, None) => before.unwrap_or(GAP).saturating_add(GAP),
            (before, Some(after)) => {
                let before = before.unwrap_or(0);
                before + (after - before) / 2
            }
        };
        let is_free = before.is_none_or(|before| before < number) && after.is_none_or(|after| number < after);
        self.0.insert(id.clone(), number);
        is_free.then_some(number)
    }

    pub(crate) fn remove(&mut self, id: &RunnerId) {
        self.0.remove(id);
    }

    /// Numbers all runners anew, with room between them.
    pub(crate) fn renumber(&mut self) -> impl Iterator<Item = (&RunnerId, u64)> {
        let mut last = 0;
        self.0.iter_mut().map(move |(id, number)| {
            last += GAP;
            *number = last;
            (id, last)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> RunnerId {
        RunnerId::new(text).unwrap()
    }

    #[test]
    fn numbers_are_in_the_order_of_ids_whoever_came_first() {
        let mut order = RunnerOrder::default();
        let names = ["m", "z", "a", "n", "b", "y"];
        for name in names {
            assert!(order.insert(&id(name)).is_some());
        }
        let mut numbers: Vec<(u64, &str)> = names.iter().map(|name| (order.0[&id(name)], *name)).collect();
        numbers.sort_unstable();
        assert_eq!(numbers.into_iter().map(|(_, name)| name).collect::<Vec<_>>(), ["a", "b", "m", "n", "y", "z"]);
    }

    #[test]
    fn a_gap_that_is_used_up_asks_for_new_numbers() {
        let mut order = RunnerOrder::default();
        order.insert(&id("b"));
        let mut name = String::from("a");
        let mut inserted = 0;
        while order.insert(&id(&name)).is_some() {
            name.push('a');
            inserted += 1;
            assert!(inserted < 100, "the gap never ends");
        }
        let renumbered: Vec<u64> = order.renumber().map(|(_, number)| number).collect();
        assert!(renumbered.is_sorted_by(|a, b| a < b));
    }
}
