//! What is known of a slot that is not on disk: handles that end with the agent.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use berth_domain::{Bytes, DeviceUuid, ExitStatus, FailureReason, SlotEnd, Span, Timestamp, WorkloadKind};

use super::observe::end_of;
use crate::process::{Exit, HealthState, Process, SlotLog, Tree};
use crate::reconcile::Health;
use crate::runtime::Launch;

/// A slot whose processes this agent follows.
pub(super) struct LiveSlot {
    pub(super) tree: Tree,
    pub(super) process: Option<Arc<Process>>,
    pub(super) log: SlotLog,
    pub(super) launch: Option<Launch>,
    /// Whether it is a job: what the end of its process means.
    pub(super) kind: WorkloadKind,
    /// The time between SIGTERM and SIGKILL, where its runtime states one.
    pub(super) grace: Option<Span>,
    /// The same while it is not ready yet.
    pub(super) loading_grace: Option<Span>,
    pub(super) checks: Option<HealthState>,
    pub(super) health: Health,
    /// A health probe is under way.
    pub(super) is_probing: bool,
    /// How its first process ended.
    pub(super) ended: Option<SlotEnd>,
    /// How its first process ended, if the agent had not asked it to.
    pub(super) exit: Option<ExitStatus>,
    /// Why it is unknown whether its processes live, as text for the server.
    pub(super) unknown: Option<String>,
    /// Pids that its tree had: the driver must list none of them.
    pub(super) pids: BTreeSet<u32>,
    /// When each of them was last seen alive: an older answer of the driver says nothing of it.
    pub(super) last_alive: BTreeMap<u32, Timestamp>,
    /// The memory that the driver attributes to it.
    pub(super) memory: BTreeMap<DeviceUuid, MemoryUse>,
}

/// The memory that a slot uses of one device.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MemoryUse {
    pub(super) now: Bytes,
    /// The most so far.
    pub(super) peak: Bytes,
}

impl LiveSlot {
    pub(super) fn new(tree: Tree, log: SlotLog) -> Self {
        Self {
            tree,
            process: None,
            log,
            launch: None,
            kind: WorkloadKind::default(),
            grace: None,
            loading_grace: None,
            checks: None,
            health: Health::Pending,
            is_probing: false,
            ended: None,
            exit: None,
            unknown: None,
            pids: BTreeSet::new(),
            last_alive: BTreeMap::new(),
            memory: BTreeMap::new(),
        }
    }

    /// Notes how its first process ended, and returns what that means. The exit status of a process that was asked to
    /// end is not kept.
    pub(super) fn note_end(&mut self, exit: Exit, was_asked: bool) -> SlotEnd {
        let end = end_of(self, exit);
        // A program that could not be run did not exit: the code is the agent's own.
        let has_run = end != SlotEnd::Failed(FailureReason::BadBinary);
        self.exit = exit.status().filter(|_| has_run && !was_asked);
        self.ended = Some(end);
        end
    }

    /// Returns when its health is probed next.
    pub(super) fn next_probe(&self) -> Option<Timestamp> {
        self.checks.as_ref().filter(|_| !self.is_probing).and_then(HealthState::next)
    }
}

/// Closes the log, so that its followers come to its end.
impl Drop for LiveSlot {
    fn drop(&mut self) {
        self.log.close();
    }
}
