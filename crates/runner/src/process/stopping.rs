//! Ending a tree in fact: looks, orders, signals.

use std::io;
use std::time::{Duration, Instant};

use berth_domain::Timestamp;

use super::id::ProcessId;
use super::stop::{Order, Stop, StopLimits};
use super::table::ProcessTable;
use super::tree::{Depth, Tree};

/// How far an end has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// These are left.
    Waiting(Vec<ProcessId>),
    /// These are left, and force does not help (they may wait for a device that does not answer). It is repeated.
    Unkillable(Vec<ProcessId>),
    /// Nobody is left: looked for everywhere, twice.
    Ended,
}

/// One tree on its way out.
#[derive(Debug)]
pub struct Stopping {
    tree: Tree,
    stop: Stop,
    begun: bool,
}

impl Stopping {
    /// Begins to end a tree; nothing happens before the first step.
    #[must_use]
    pub fn begin(tree: Tree, limits: StopLimits, now: Timestamp) -> Self {
        Self { tree, stop: Stop::begin(limits, now), begun: false }
    }

    /// Looks who is left and does what is due. One table may serve many trees; it must be newer than the last step.
    pub fn step(&mut self, table: &ProcessTable, now: Timestamp) -> io::Result<Progress> {
        let wait = self.begun && !self.stop.is_forced();
        let mut left = self.tree.look(table, if wait { Depth::Quick } else { Depth::Thorough })?;
        let order = match self.stop.step(now, &left) {
            Order::Wait => return Ok(Progress::Waiting(left)),
            order if !wait => order,
            // What a quick look takes for the end, or what is about to be forced, is worth a thorough one.
            _ => {
                left = self.tree.look(table, Depth::Thorough)?;
                self.stop.step(now, &left)
            }
        };
        self.begun = true;
        Ok(match order {
            Order::Ended => Progress::Ended,
            Order::Wait => Progress::Waiting(left),
            Order::Term => {
                self.tree.term();
                Progress::Waiting(left)
            }
            Order::Kill => {
                self.tree.kill();
                Progress::Waiting(left)
            }
            Order::Unkillable => {
                self.tree.kill();
                Progress::Unkillable(left)
            }
        })
    }

    /// Steps until nobody is left, or until it counts as unkillable. For whoever has only one tree to end.
    pub async fn finish(&mut self, begun: Timestamp) -> io::Result<Progress> {
        const LOOK: Duration = Duration::from_millis(20);
        let clock = Instant::now();
        loop {
            let passed = u64::try_from(clock.elapsed().as_millis()).unwrap_or(u64::MAX);
            let now = begun.after(berth_domain::Span::from_millis(passed));
            match self.step(&ProcessTable::read()?, now)? {
                Progress::Waiting(_) => tokio::time::sleep(LOOK).await,
                progress => return Ok(progress),
            }
        }
    }

    /// The tree, to look at it again.
    #[must_use]
    pub fn into_tree(self) -> Tree {
        self.tree
    }
}
