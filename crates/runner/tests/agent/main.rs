//! A real agent process against a server that says what the test wants: no scheduler, no journal, no luck.
#![expect(clippy::unwrap_used, reason = "tests")]

mod account;
mod arguments;
mod doors;
mod forged;
mod jobs;
mod machine;
mod protocol;
mod server;
mod unrecorded;
