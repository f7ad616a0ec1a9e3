//! Reaping ended processes, so that none of them stays in the machine's process table as a zombie.

use std::time::{Duration, Instant};

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::AgentError;

/// The process table is read for ended children at most this often.
const REAP_EVERY: Duration = Duration::from_millis(50);

/// Schedules the reaping of ended children.
pub(super) struct Reaper {
    /// Fires when any child ends, also one that a slot left behind.
    child_ended: Signal,
    next: Option<Instant>,
    last: Instant,
}

impl Reaper {
    pub(super) fn new() -> Result<Self, AgentError> {
        let child_ended = signal(SignalKind::child()).map_err(|error| AgentError::Io("no signals", error))?;
        Ok(Self { child_ended, next: None, last: Instant::now() })
    }

    /// Waits until a child ends, and schedules the next reading of the process table.
    pub(super) async fn child_ended(&mut self) -> Option<()> {
        self.child_ended.recv().await?;
        self.next = Some(Instant::now().max(self.last + REAP_EVERY));
        Some(())
    }

    /// Returns when children should be reaped, if any has ended.
    pub(super) fn next(&self) -> Option<Instant> {
        self.next
    }

    /// Returns whether children should be reaped now, once for each time that it is due.
    pub(super) fn take_due(&mut self) -> bool {
        let is_due = self.next.is_some_and(|at| Instant::now() >= at);
        if is_due {
            (self.next, self.last) = (None, Instant::now());
        }
        is_due
    }
}
