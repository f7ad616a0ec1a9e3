//! What must be true, compared with what is. All differences of a step are told at once.

mod fleet;
mod report;
mod work;

use std::fmt::{Debug, Display};

use berth_core::State;
use berth_domain::Bytes;

use crate::error::StepError;
use crate::format::expect::{Expect, Size};
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
    /// An exact match, where one is asked for.
    pub(crate) fn same<T: PartialEq + Display>(&mut self, what: impl Display, expected: Option<&T>, found: &T) {
        if let Some(expected) = expected.filter(|expected| *expected != found) {
            self.lines.push(format!("{what}: expected {expected}, found {found}"));
        }
    }

    /// A word.
    pub(crate) fn word(&mut self, what: impl Display, expected: Option<&String>, found: &str) {
        self.same(what, expected, &found.to_owned());
    }

    /// A size, exact to the byte.
    pub(crate) fn size(&mut self, what: impl Display, expected: Option<Size>, found: Bytes) {
        if let Some(Size(expected)) = expected.filter(|expected| expected.0 != found) {
            let (more, less) = (expected.get(), found.get());
            self.lines.push(format!("{what}: expected {expected} ({more} B), found {found} ({less} B)"));
        }
    }

    /// A list whose order says something.
    pub(crate) fn list<T: PartialEq + Debug>(&mut self, what: impl Display, expected: Option<&Vec<T>>, found: &Vec<T>) {
        if let Some(expected) = expected.filter(|expected| *expected != found) {
            self.lines.push(format!("{what}: expected {expected:?}, found {found:?}"));
        }
    }

    /// A list whose order says nothing.
    pub(crate) fn set(&mut self, what: impl Display, expected: Option<&Vec<String>>, found: Vec<String>) {
        let sorted = |mut list: Vec<String>| {
            list.sort();
            list
        };
        let expected = expected.cloned().map(sorted);
        self.list(what, expected.as_ref(), &sorted(found));
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
