//! The last lines of slots that failed or ended, as their agents told them with the end.
//!
//! They are kept in memory and never in the journal: programs write what they are asked, prompts among it. After a
//! restart of the server they are read from the agents, which keep the logs of their last slots.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use berth_domain::{Generation, LogTail, RunnerId, SlotId};

/// How many are kept: with [`LogTail::BYTES`] each, 4 MiB at most.
const KEPT: usize = 1000;

/// One start of a slot.
type Start = (SlotId, Generation);

/// The last lines of the last slots that ended.
#[derive(Debug, Default)]
pub(super) struct Tails {
    lines: HashMap<Start, Arc<LogTail>>,
    /// In the order in which they came, by runner: one runner whose slots fail again and again makes place for itself
    /// and not at the cost of others.
    order: HashMap<RunnerId, VecDeque<Start>>,
}

impl Tails {
    /// Keeps the last lines of one start of a slot, instead of what was kept of it before.
    pub(super) fn keep(&mut self, runner: &RunnerId, start: Start, tail: LogTail) {
        if tail.is_empty() {
            return;
        }
        if self.lines.insert(start, Arc::new(tail)).is_none() {
            self.order.entry(runner.clone()).or_default().push_back(start);
        }
        if self.lines.len() > KEPT {
            self.drop_one();
        }
    }

    pub(super) fn find(&self, start: Start) -> Option<Arc<LogTail>> {
        self.lines.get(&start).cloned()
    }

    /// Drops the oldest of the runner that has most.
    fn drop_one(&mut self) {
        let most = self.order.iter_mut().max_by_key(|(_, starts)| starts.len());
        if let Some(oldest) = most.and_then(|(_, starts)| starts.pop_front()) {
            self.lines.remove(&oldest);
        }
        self.order.retain(|_, starts| !starts.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(number: usize) -> Start {
        (SlotId::new(uuid::Uuid::from_u128(number as u128)), Generation::new(1))
    }

    fn tail(text: &str) -> LogTail {
        LogTail::of_bytes(text.as_bytes())
    }

    fn runner(name: &str) -> RunnerId {
        RunnerId::new(name).unwrap()
    }

    #[test]
    fn so_many_are_kept_and_a_runner_that_fails_much_displaces_its_own() {
        let mut tails = Tails::default();
        tails.keep(&runner("quiet"), start(0), tail("once"));
        for number in 1..=3 * KEPT {
            tails.keep(&runner("noisy"), start(number), tail("again"));
        }
        assert_eq!(tails.lines.len(), KEPT);
        assert_eq!(tails.order.values().map(VecDeque::len).sum::<usize>(), KEPT);
        assert_eq!(tails.find(start(0)).as_deref(), Some(&tail("once")));
        assert_eq!(tails.find(start(1)), None);
        assert!(tails.find(start(3 * KEPT)).is_some());
    }

    #[test]
    fn what_was_said_last_of_a_start_counts_and_nothing_is_not_kept() {
        let mut tails = Tails::default();
        tails.keep(&runner("box"), start(1), tail("first"));
        tails.keep(&runner("box"), start(1), tail("first\nsecond"));
        tails.keep(&runner("box"), start(2), tail(""));
        assert_eq!(tails.find(start(1)).as_deref(), Some(&tail("first\nsecond")));
        assert_eq!((tails.lines.len(), tails.order[&runner("box")].len()), (1, 1));
    }
}
