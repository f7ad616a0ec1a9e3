//! The scenario language: what a file may say, what it is told when it is wrong, and what its agents do.

mod agents;
mod bounds;
mod durations;
mod foreign;
mod large;
mod places;
mod spelling;
mod waited;

use berth_scenario::{Failed, run_text};

/// Two runners and two models; the first step submits `m`, which runs on `r1/0`.
const FLEET: &str = r#"id = "x"
title = "x"
[[runner]]
id = "r1"
gpus = "1x80GiB"
[[runner]]
id = "r2"
pool = "other"
machine = "host"
gpus = "1x80GiB"
[[model]]
name = "m"
memory = "60GiB"
[[model]]
name = "huge"
memory = "500GiB"
[[step]]
submit = "m"
"#;

/// The line on which the step after [`FLEET`] begins.
const NEXT_LINE: usize = 19;

/// Plays a scenario that must pass.
fn passes(text: &str) {
    if let Err(failed) = run_text("case.toml", text) {
        unreachable!("{failed}\n\n{text}");
    }
}

/// What is said of a file that is no scenario.
fn refusal(text: &str) -> String {
    match run_text("case.toml", text) {
        Err(failed) if failed.is_bad_file() => failed.to_string(),
        Err(failed) => unreachable!("it was played: {failed}\n\n{text}"),
        Ok(_) => unreachable!("it passed\n\n{text}"),
    }
}

/// What is said of a scenario that does not do what it says.
fn failure(text: &str) -> String {
    match run_text("case.toml", text) {
        Err(failed @ Failed::Step(_)) => failed.to_string(),
        Err(failed) => unreachable!("it was not played: {failed}\n\n{text}"),
        Ok(_) => unreachable!("it passed\n\n{text}"),
    }
}

/// All parts are in the text.
fn assert_says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in: {text}");
    }
}

/// The fleet, and one more step.
fn then(step: &str) -> String {
    format!("{FLEET}[[step]]\n{step}\n")
}
