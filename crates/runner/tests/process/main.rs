//! Processes that behave, and processes that do not: started, found, ended, adopted, heard.
#![expect(clippy::unwrap_used, reason = "tests")]

mod health;
mod log;
mod process_tree;
mod slot_users;
mod spawn;
mod support;
