//! What must be true, compared with what is. All differences of a step are told at once.

mod fleet;
mod report;
mod work;

use std::fmt::Display;

use berth_core::State;

use crate::error::StepError;
use crate::format::expect::Expect;
use crate::format::values::NameSet;
use crate::format::wanted::{Expectable, Wanted};
use crate::world::World;

/// Checks all expectations of a step.
pub(crate) fn check(world: &World, expect: &Expect) -> Result<(), StepError> {
    let mut found = Findings::default();
    work::check(world, expect, &mut found)?;
    fleet::check(world, expect, &mut found);
    report::check(world, expect, &mut found)?;
    found.verdict(world)
}

/// Differences between what was expected and what is, and what the core says to them.
#[derive(Default)]
pub(crate) struct Findings {
    lines: Vec<String>,
    explanations: Vec<String>,
}

impl Findings {
    /// A value is as expected, where something is.
    pub(crate) fn wanted<T: Expectable>(&mut self, what: impl Display, expected: Option<&Wanted<T>>, found: &T::Found) {
        if let Some(expected) = expected.filter(|expected| !expected.admits(found)) {
            self.lines.push(format!("{what}: expected {expected}, found {}", T::show(found)));
        }
    }

    /// A list whose order says nothing is as expected.
    pub(crate) fn set(&mut self, what: impl Display, expected: Option<&Wanted<NameSet>>, found: Vec<String>) {
        self.wanted(what, expected, NameSet::from(found).as_found());
    }

    /// Something is so or not, as expected.
    pub(crate) fn is(&mut self, what: impl Display, expected: Option<bool>, found: bool) {
        if let Some(expected) = expected.filter(|expected| *expected != found) {
            self.lines.push(format!("{what}: expected {expected}, found {found}"));
        }
    }

    /// Something else that is not as expected.
    pub(crate) fn differs(&mut self, line: String) {
        self.lines.push(line);
    }

    /// How many differences there are so far.
    pub(crate) fn count(&self) -> usize {
        self.lines.len()
    }

    /// What the core says to a difference.
    pub(crate) fn explain(&mut self, text: String) {
        if !self.explanations.contains(&text) {
            self.explanations.push(text);
        }
    }

    fn verdict(mut self, world: &World) -> Result<(), StepError> {
        if self.lines.is_empty() {
            return Ok(());
        }
        if self.explanations.is_empty() {
            self.explanations.extend(world.reports.last().map(|report| format!("last decision: {report}")));
        }
        self.explanations.push(ledgers(&world.state));
        Err(StepError::Otherwise { problem: self.lines.join("\n  "), explanation: self.explanations.join("\n") })
    }
}

/// A number of things, as it is compared.
fn many(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

/// The ledgers of a small fleet, for who reads a failure.
fn ledgers(state: &State) -> String {
    let line = |view: berth_core::view::DeviceView| {
        let balance = view.balance;
        format!(
            "  {}: capacity {}, held {}, releasing {}, promised {}, foreign {}, free {}{}",
            view.uuid,
            balance.capacity,
            balance.held,
            balance.releasing,
            balance.promised,
            balance.foreign,
            balance.free,
            view.closed.map(|why| format!(", closed ({})", why.code())).unwrap_or_default()
        )
    };
    let lines: Vec<String> = state.devices().into_iter().take(16).map(line).collect();
    format!("ledgers:\n{}", lines.join("\n"))
}
