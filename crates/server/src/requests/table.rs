//! The rows of open requests: who is told what and when, and who may answer. Time is an argument.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use berth_domain::RunnerId;
use berth_wire::{AgentRequest, RequestId, RequestKind};

/// A request that was told and not taken is told again after this: the answer to the poll may have been lost.
const TELL_AGAIN: Duration = Duration::from_secs(2);

/// How many requests may be open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// At one runner.
    pub per_runner: usize,
    /// At all of them.
    pub total: usize,
}

/// Why there is no row for another request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Full {
    /// At this runner.
    #[error("{0} requests are open at this runner, and no more may be: wait until somebody stops reading")]
    Runner(usize),
    /// Everywhere.
    #[error("{0} requests are open at all runners, and no more may be: wait until somebody stops reading")]
    All(usize),
}

/// Why a request cannot be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotOpen {
    /// It was never asked of this runner, or nobody waits for it any more.
    #[error("nobody waits for an answer to this request")]
    Unknown,
    /// Another answer came before.
    #[error("this request is being answered already")]
    Taken,
}

/// When a runner has to be told of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// There is something new.
    Now,
    /// Again, if nothing happens until then.
    At(Instant),
    /// There is nothing to tell.
    Never,
}

/// One request.
#[derive(Debug)]
pub(super) struct Row<T> {
    kind: RequestKind,
    told: Option<Instant>,
    /// Goes to the agent that takes it.
    taker: Option<T>,
}

impl<T> Row<T> {
    pub(super) fn new(kind: RequestKind, taker: T) -> Self {
        Self { kind, told: None, taker: Some(taker) }
    }
}

/// All rows, by runner and in the order of asking.
#[derive(Debug)]
pub(super) struct Table<T> {
    bounds: Bounds,
    rows: BTreeMap<RunnerId, BTreeMap<RequestId, Row<T>>>,
    total: usize,
}

impl<T> Table<T> {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self { bounds, rows: BTreeMap::new(), total: 0 }
    }

    /// From now on within these bounds. What is open stays open.
    pub(super) fn within(&mut self, bounds: Bounds) -> &mut Self {
        self.bounds = bounds;
        self
    }

    pub(super) fn len(&self) -> usize {
        self.total
    }

    pub(super) fn open(&mut self, runner: &RunnerId, id: RequestId, row: Row<T>) -> Result<(), Full> {
        if self.total >= self.bounds.total {
            return Err(Full::All(self.total));
        }
        let here = self.rows.get(runner).map_or(0, BTreeMap::len);
        if here >= self.bounds.per_runner {
            return Err(Full::Runner(here));
        }
        self.rows.entry(runner.clone()).or_default().insert(id, row);
        self.total += 1;
        Ok(())
    }

    pub(super) fn due(&self, runner: &RunnerId, now: Instant) -> Due {
        let Some(rows) = self.rows.get(runner) else { return Due::Never };
        let waiting = rows.values().filter(|row| row.taker.is_some());
        // What was never told comes first: it has no time.
        match waiting.map(|row| row.told).min() {
            None => Due::Never,
            Some(None) => Due::Now,
            Some(Some(told)) if now >= told + TELL_AGAIN => Due::Now,
            Some(Some(told)) => Due::At(told + TELL_AGAIN),
        }
    }

    pub(super) fn hand_out(&mut self, runner: &RunnerId, now: Instant) -> Vec<AgentRequest> {
        let Some(rows) = self.rows.get_mut(runner) else { return Vec::new() };
        let waiting = rows.iter_mut().filter(|(_, row)| row.taker.is_some());
        let tell = |(id, row): (&RequestId, &mut Row<T>)| {
            row.told = Some(now);
            AgentRequest { id: *id, kind: row.kind.clone() }
        };
        waiting.map(tell).collect()
    }

    pub(super) fn take(&mut self, runner: &RunnerId, id: RequestId) -> Result<T, NotOpen> {
        let row = self.rows.get_mut(runner).and_then(|rows| rows.get_mut(&id)).ok_or(NotOpen::Unknown)?;
        row.taker.take().ok_or(NotOpen::Taken)
    }

    pub(super) fn close(&mut self, runner: &RunnerId, id: RequestId) {
        let Some(rows) = self.rows.get_mut(runner) else { return };
        if rows.remove(&id).is_some() {
            self.total -= 1;
        }
        if rows.is_empty() {
            self.rows.remove(runner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u128) -> RequestId {
        RequestId(uuid::Uuid::from_u128(number))
    }

    fn runner(name: &str) -> RunnerId {
        RunnerId::new(name).unwrap()
    }

    fn row() -> Row<&'static str> {
        Row::new(RequestKind::Unknown, "reader")
    }

    fn table() -> Table<&'static str> {
        Table::new(Bounds { per_runner: 2, total: 3 })
    }

    #[test]
    fn a_request_is_told_at_once_and_then_again_only_after_a_while() {
        let (mut table, a, now) = (table(), runner("a"), Instant::now());
        assert_eq!(table.due(&a, now), Due::Never);
        table.open(&a, id(1), row()).unwrap();
        assert_eq!(table.due(&a, now), Due::Now);
        assert_eq!(table.due(&runner("b"), now), Due::Never, "it is nobody else's");
        assert_eq!(table.hand_out(&a, now).len(), 1);
        assert_eq!(table.due(&a, now), Due::At(now + TELL_AGAIN), "a poll that is repeated does not spin");
        table.open(&a, id(2), row()).unwrap();
        assert_eq!(table.due(&a, now), Due::Now, "the second is new");
        assert_eq!(table.hand_out(&a, now).iter().map(|told| told.id).collect::<Vec<_>>(), [id(1), id(2)]);
        assert_eq!(table.due(&a, now + TELL_AGAIN), Due::Now);
    }

    #[test]
    fn a_request_is_taken_once_and_by_its_own_runner() {
        let (mut table, a, now) = (table(), runner("a"), Instant::now());
        table.open(&a, id(1), row()).unwrap();
        assert_eq!(table.take(&runner("b"), id(1)), Err(NotOpen::Unknown));
        assert_eq!(table.take(&a, id(2)), Err(NotOpen::Unknown));
        assert_eq!(table.take(&a, id(1)), Ok("reader"));
        assert_eq!(table.take(&a, id(1)), Err(NotOpen::Taken));
        assert_eq!((table.due(&a, now), table.hand_out(&a, now).len()), (Due::Never, 0), "it is told no more");
        table.close(&a, id(1));
        assert_eq!(table.take(&a, id(1)), Err(NotOpen::Unknown));
    }

    #[test]
    fn there_is_an_end_to_how_many_are_open() {
        let (mut table, a, b, c) = (table(), runner("a"), runner("b"), runner("c"));
        table.open(&a, id(1), row()).unwrap();
        table.open(&a, id(2), row()).unwrap();
        assert_eq!(table.open(&a, id(3), row()), Err(Full::Runner(2)));
        table.open(&b, id(4), row()).unwrap();
        assert_eq!(table.open(&c, id(5), row()), Err(Full::All(3)));
        // One that is being answered is open, too.
        table.take(&a, id(1)).unwrap();
        assert_eq!(table.open(&c, id(5), row()), Err(Full::All(3)));
        table.close(&a, id(1));
        table.close(&a, id(1));
        assert_eq!(table.len(), 2);
        table.open(&c, id(5), row()).unwrap();
    }
}
