//! A real agent process against a server that says what the test wants: no scheduler, no journal, no luck.
#![expect(clippy::unwrap_used, reason = "tests")]

mod arguments;
mod forged_marks;
mod jobs;
mod machine;
mod protocol;
mod server;
mod single_start;
mod subprocess;
mod unknown_slots;
