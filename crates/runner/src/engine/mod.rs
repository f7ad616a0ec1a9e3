//! The engines on this machine: their versions, and whether they have what the runtimes' templates need.
//!
//! When the agent starts, and when a program changes, the agent runs `--version` and `--help` of each engine in the
//! background. A runtime is offered only if its program has all options of its template; otherwise the report, the log
//! and `berth runners` say which one is missing. An engine that cannot be asked (it fails, hangs or prints no help) is
//! offered with a note.
//!
//! [`answers`] and [`version`] are pure; [`ask`] runs the programs; [`found`] keeps what is known, also over restarts.

mod answers;
mod ask;
mod found;
mod version;

pub(crate) use answers::Needs;
pub(crate) use found::KnownEngines;
pub(crate) use version::EngineVersion;
