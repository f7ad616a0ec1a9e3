//! Scenarios: cases with numbers, written by people who never saw the code, played against the real core.
//!
//! A scenario is one TOML file: runners, models, and steps. A step does one thing (a submission, a report, a minute
//! that passes) or says what must be true (`expect`). `docs/SCENARIOS.md` in the repository describes all of it.
//!
//! What this crate promises:
//!
//! - A file means what it says: an unknown or misspelt key, word or name is refused with the file, the line, the step
//!   and what is known, before the first step runs.
//! - The core that runs is the real one, and only its public door is used: commands in, views out.
//! - Runners are played by simulated agents (`berth_sim`). They run what they are told to run, hold memory like real
//!   processes, and prove what they stop. Being told to start where the memory is not there fails the scenario.
//! - After every step everything in [`berth_core::invariants`] is checked. At the end the recorded events are applied
//!   to an empty state, and the result must be the same state.
//! - The same file gives the same result on every machine: there is no clock and no randomness here.
//!
//! Data goes one way: `format` (what a file may say) -> `cast` (who plays) and `spelling` (whether all names are known)
//! -> `world` (the core, the agents, the time) -> `steps` (what a step does) and `expect` (what must be true) ->
//! [`Passed`] or [`Failed`].

mod agent;
mod cast;
mod error;
mod expect;
mod format;
mod memory;
mod names;
mod places;
mod reports;
mod run;
mod spelling;
mod steps;
mod vocabulary;
mod waits;
mod world;

pub use error::{Failed, FailedStep};
pub use run::{Passed, run_file, run_text};
