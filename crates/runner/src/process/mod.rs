//! Processes of slots: from a launch to a proven end.
//!
//! A slot is a tree of processes that does not stay together by itself: programs fork, change their group and session,
//! outlive their parents and ignore requests to end. This module finds all of them, and reports a tree as gone only
//! after it looked at all processes of the machine.
//!
//! ```text
//! Launch ── Spawner ──> Process (pid + start time) ── exited ──> Exit ── classify ──> FailureReason
//!              │             └─ Tree: descendants, sessions, groups, cgroup, mark ── term, kill ──> no process left
//!              └─ SlotLog: the program writes to the file itself; the agent reads it
//! ```
//!
//! | module | what |
//! | --- | --- |
//! | [`ProcessId`], [`ProcessTable`] | the processes of the machine; an identity that survives a restart of the agent and is never reused |
//! | [`SlotMark`], [`Tree`] | which slot a process belongs to |
//! | [`Spawner`], [`Process`], [`trampoline`] | starting, watching, adopting, reaping |
//! | [`ExitFile`] | whether a job was started, and how it ended |
//! | [`LogDir`], [`SlotLog`] | the output of slots |
//! | [`Ports`], [`HealthState`], [`probe`], [`classify`] | a slot's port, its health, why it ended |
//!
//! No decision rests on a pid alone: before a signal is sent, the start time of its target is compared behind a pidfd.
//! The agent itself, its ancestors and kernel threads are never part of a tree. A mark counts only on processes that
//! [`MarkTrust`] accepts: other users cannot forge one.

mod cgroup;
mod children;
mod classify;
mod credentials;
mod exit_file;
mod handle;
mod health;
mod id;
mod log;
mod mark;
mod ports;
mod probe;
mod signal;
mod spawn;
mod table;
mod trampoline;
mod tree;

pub use cgroup::{Cgroup, Cgroups};
pub use classify::{UnexpectedEnd, classify};
pub use exit_file::{ExitFile, ExitNote};
pub use handle::{Adoption, Exit, Process};
pub use health::{HealthChange, HealthState, Probed};
pub(crate) use id::sees_every_process;
pub use id::{Liveness, ProcessId};
pub use log::{Chunk, Follower, LogDir, LogLimits, RedactedPieces, Redactor, SlotLog};
pub use mark::{
    MarkTrust, MarkedStart, SlotMark, SlotSecret, StartedAs, find_marked_processes, find_marked_starts,
    has_readable_environment,
};
pub use ports::{NoFreePort, Ports};
pub use probe::probe;
pub use spawn::{OnAgentExit, SpawnError, SpawnOptions, Spawner};
pub use table::{ProcessTable, Row};
pub use trampoline::trampoline;
pub use tree::{Depth, Tree};
