//! What is known of a slot that is not on the disk: handles that end with the agent.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use berth_domain::{Bytes, DeviceUuid, ExitStatus, FailureReason, SlotEnd, Span, Timestamp, WorkloadKind};

use super::observe::end_of;
use crate::process::{Exit, HealthState, Process, SlotLog, Tree};
use crate::reconcile::Health;
use crate::runtime::Launch;

/// A slot at hand.
pub(super) struct LiveSlot {
    pub(super) tree: Tree,
    pub(super) process: Option<Arc<Process>>,
    pub(super) log: SlotLog,
    pub(super) launch: Option<Launch>,
    /// Whether it is a job: what the end of its process means.
    pub(super) kind: WorkloadKind,
    /// Between asking it to end and ending it, where its runtime says.
    pub(super) grace: Option<Span>,
    /// The same while it is not ready yet.
    pub(super) loading_grace: Option<Span>,
    pub(super) checks: Option<HealthState>,
    pub(super) health: Health,
    /// It was asked for its health, and has not answered yet.
    pub(super) is_probing: bool,
    /// How its first process ended.
    pub(super) ended: Option<SlotEnd>,
    /// How its first process ended, if nobody had asked it to.
    pub(super) exit: Option<ExitStatus>,
    /// Why it cannot be told whether its processes live, in words for the server.
    pub(super) unknown: Option<String>,
    /// Pids that its tree had: the driver must list none of them.
    pub(super) pids: BTreeSet<u32>,
    /// When each of them was last seen alive: what the driver said before that says nothing of it.
    pub(super) last_alive: BTreeMap<u32, Timestamp>,
    /// What the driver sees it use, where it can tell.
    pub(super) memory: BTreeMap<DeviceUuid, MemoryUse>,
}

/// What a slot uses of one device.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MemoryUse {
    pub(super) now: Bytes,
    /// The most, so far.
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

    /// Notes how its first process ended, and what that means. What it exits with after it was asked to end says
    /// nothing of it.
    pub(super) fn note_end(&mut self, exit: Exit, was_asked: bool) -> SlotEnd {
        let end = end_of(self, exit);
        // A program that could not be run did not exit: the code is the agent's own.
        let has_run = end != SlotEnd::Failed(FailureReason::BadBinary);
        self.exit = exit.status().filter(|_| has_run && !was_asked);
        self.ended = Some(end);
        end
    }

    /// When its health is asked for next.
    pub(super) fn next_probe(&self) -> Option<Timestamp> {
        self.checks.as_ref().filter(|_| !self.is_probing).and_then(HealthState::next)
    }
}

/// Whoever follows its log comes to the end of it.
impl Drop for LiveSlot {
    fn drop(&mut self) {
        self.log.close();
    }
}
