//! The step: commands in, records and answers out. No clock, no channel, no file, no socket.
//!
//! The writer drives it with the real clock and the real journal; a simulator may drive it with its own.

mod boot;
mod record;

use berth_core::{Answer, Command, Event, FleetChanges, Refusal, Report, Snapshot, State, WorkChanges, step};
use berth_domain::{Revision, Timestamp};

pub use boot::{BootError, Recovery};
pub use record::{Record, RecordError};

/// What one command came to. Nobody may hear of it before its record is durable.
#[derive(Debug)]
pub struct Outcome {
    /// When it happened.
    pub at: Timestamp,
    /// What a journal keeps, in order. Empty if nothing happened that must be kept.
    pub kept: Vec<Event>,
    /// What no journal keeps and an operator should hear of all the same.
    pub passing: Vec<Event>,
    /// What was chosen, and why.
    pub reports: Vec<Report>,
    /// The revision after it.
    pub revision: Revision,
}

fn is_worth_a_line(event: &Event) -> bool {
    matches!(event, Event::TimersRestarted | Event::LossDeferred { .. })
}

/// The state and its one door.
#[derive(Debug)]
pub struct Engine {
    state: State,
}

impl Engine {
    /// An engine on this state. It tells what changed from here on, beginning with everything.
    #[must_use]
    pub fn new(mut state: State) -> Self {
        state.watch();
        Self { state }
    }

    /// Executes one command on the private state. The answer belongs to the command's sender, once the outcome is durable.
    pub fn execute(&mut self, command: &Command, now: Timestamp) -> (Outcome, Result<Answer, Refusal>) {
        let done = step(&mut self.state, command, now);
        let mut kept = done.events;
        let passing = kept.extract_if(.., |event| !event.is_durable()).filter(is_worth_a_line).collect();
        let outcome = Outcome { at: done.at, kept, passing, reports: done.reports, revision: self.state.revision() };
        (outcome, done.answer)
    }

    /// Which workloads and slots changed since this was last asked.
    pub fn take_work_changes(&mut self) -> WorkChanges {
        self.state.take_work_changes()
    }

    /// What else changed since this was last asked.
    pub fn take_fleet_changes(&mut self) -> FleetChanges {
        self.state.take_fleet_changes()
    }

    /// Begins a snapshot of the state as it is now.
    pub fn begin_snapshot(&mut self) {
        self.state.begin_snapshot();
    }

    /// Goes on with it by so many rows, and gives it away once it is whole.
    pub fn continue_snapshot(&mut self, rows: usize) -> Option<Snapshot> {
        self.state.continue_snapshot(rows)
    }

    /// The state, to look at.
    #[must_use]
    pub fn state(&self) -> &State {
        &self.state
    }
}
