//! One command, from the door to the last thing that follows from it.
//!
//! `timers -> decide -> apply -> settle`: what is due happens first, then the command is decided and made true, then
//! whatever it made possible is done. All events of a step belong together: a journal keeps all of them or none.

use berth_domain::Timestamp;

use crate::apply::apply_all;
use crate::command::{Answer, Command, Refusal};
use crate::decide::{self, Decision};
use crate::event::Event;
use crate::explain::Report;
use crate::state::State;
use crate::{invariants, sabotage, settle};

/// What came of a command.
#[derive(Clone, Debug)]
pub struct Step {
    /// When it happened: never before the step before it.
    pub at: Timestamp,
    /// Everything that happened, in order. They were applied.
    pub events: Vec<Event>,
    /// Everything that was chosen, with why.
    pub reports: Vec<Report>,
    /// What the command's sender hears. A refused command changed nothing (what was due happened all the same).
    pub answer: Result<Answer, Refusal>,
}

/// Carries out a command at `now`.
pub fn step(state: &mut State, command: &Command, now: Timestamp) -> Step {
    let step = step_unaudited(state, command, now);
    check_in_debug(state);
    step
}

/// Carries out a command at `now`, also in a debug build without the check of every ledger after it. For callers that
/// give many commands at once and check the state themselves after the last: the checks would cost the square of them.
pub fn step_unaudited(state: &mut State, command: &Command, now: Timestamp) -> Step {
    let at = now.max(state.now);
    let mut run = StepRun { state, at, events: Vec::new(), reports: Vec::new() };
    // A server that starts begins its timers anew: what was due while it was away is not.
    let starts = matches!(command, Command::Start { .. }) && decide::decide(run.state, command, at).is_ok();
    if !starts {
        run.notice_pause();
        run.state.now = at;
        run.catch_up();
    }
    let answer = run.execute(command);
    run.settle();
    run.catch_up();
    run.forget_ended();
    let StepRun { events, reports, .. } = run;
    state.now = at;
    Step { at, events, reports, answer }
}

struct StepRun<'a> {
    state: &'a mut State,
    at: Timestamp,
    events: Vec<Event>,
    reports: Vec<Report>,
}

impl StepRun<'_> {
    fn apply_decision(&mut self, decision: Decision) {
        apply_all(self.state, &decision.events, self.at);
        match self.events.is_empty() {
            true => self.events = decision.events,
            false => self.events.extend(decision.events),
        }
        self.reports.extend(decision.report);
    }

    /// A server that was paused must not take its own absence for everybody else's.
    fn notice_pause(&mut self) {
        let started = self.state.cluster.is_some();
        if started && self.at.since(self.state.now) > self.state.settings.pause_after {
            self.apply_decision(Decision::of(vec![Event::TimersRestarted]));
        }
    }

    /// What is due happens, and what follows from it, until nothing is due.
    fn catch_up(&mut self) {
        while self.state.timers.first_due(self.at).is_some() {
            self.fire_timers();
            self.settle();
        }
    }

    fn fire_timers(&mut self) {
        while let Some(timer) = self.state.timers.first_due(self.at) {
            let decision = decide::fire(self.state, timer, self.at);
            self.apply_decision(decision);
            // Whatever the answer was, the question was asked.
            if self.state.timers.armed_at(timer).is_some_and(|at| at <= self.at) {
                self.state.timers.disarm(timer);
            }
        }
    }

    fn execute(&mut self, command: &Command) -> Result<Answer, Refusal> {
        let mut answer = Answer::Done;
        for phase in decide::phases(command) {
            let (decision, said) = phase(self.state, command, self.at)?;
            self.apply_decision(decision);
            answer = said;
        }
        Ok(answer)
    }

    fn settle(&mut self) {
        let mut decisions = 0u32;
        while let Some(decision) = settle::next(self.state, self.at) {
            decisions += 1;
            debug_assert!(decisions < 200_000, "settling goes round in circles: {:?}", decision.events);
            self.apply_decision(decision);
        }
    }

    /// Ended workloads are kept up to a number; the oldest go first.
    fn forget_ended(&mut self) {
        while self.state.ended.len() > self.state.settings.keep_ended {
            let oldest = self.state.ended.front().and_then(|key| self.state.workloads.get(*key)).map(|row| row.id);
            let Some(workload) = oldest else { break };
            self.apply_decision(Decision::of(vec![Event::WorkloadForgotten { workload }]));
        }
    }
}

#[expect(clippy::panic, reason = "a debug build must not go on with a ledger that does not add up")]
fn check_in_debug(state: &State) {
    if cfg!(debug_assertions)
        && !sabotage::any()
        && let Err(violation) = invariants::check_ledgers(state)
    {
        panic!("{violation}");
    }
}
