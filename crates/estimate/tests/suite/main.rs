//! What the crate promises, shown on files.
#![allow(clippy::expect_used, clippy::panic, reason = "a test that cannot go on fails")]

mod cache_types;
mod folders;
mod hostile;
mod launching;
mod measured;
mod parts;
mod python;
mod reference;
mod rendering;
mod shapes;
#[path = "../support/mod.rs"]
mod support;
