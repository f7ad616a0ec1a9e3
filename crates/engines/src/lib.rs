//! The options of inference engines: what each means, and whether a model entry or a job may pass it.
//!
//! An option can take another share of a GPU, listen on another address, or run a program. So each engine that Berth
//! knows has a table with the meaning of each of its options ([`Meaning`]). [`Engine::read`] reads arguments as the
//! engine itself does, and [`check`] decides whether a model entry or a job may pass them. The server checks when a
//! model is applied or work is submitted, and the agent checks again before it starts a process.
//!
//! | meaning | model entry | job |
//! | --- | --- | --- |
//! | harmless | yes | yes |
//! | model, memory | yes | no: the memory of a job is that of its model |
//! | placement | if the agent allows it by name | no |
//! | network, files, secret, code, unusable, not in the table | if the agent allows it by name | if the agent allows it by name |
//!
//! A custom command has no table: its model entries may pass anything, and its jobs what the agent allows.
//!
//! The crate is pure data and pure functions. The tables were made from llama-server 0.7.0, vLLM 0.32.0 and
//! Ollama 0.17.4; `tests/recorded` holds the names of their options.

mod allow;
mod argparse;
mod check;
mod engine;
mod needs;
mod read;
mod table;

pub use allow::{Allow, AllowError};
pub use check::{ArgumentSource, Forbidden, Why, check, check_job_memory};
pub use engine::Engine;
pub use needs::{Unfit, check_model, has_model};
pub use read::{Misread, ParsedOption};
pub use table::{Meaning, OptionSpec, Takes};
