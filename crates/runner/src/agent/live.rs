//! What is known of a slot that is not on the disk: handles that end with the agent.

use std::collections::BTreeMap;

use berth_domain::{Bytes, DeviceUuid, Timestamp};

use crate::process::{HealthState, Process, SlotLog, Tree};
use crate::reconcile::{End, Health};
use crate::runtime::Launch;

/// A slot at hand.
pub(super) struct Live {
    pub(super) tree: Tree,
    pub(super) process: Option<Process>,
    pub(super) log: SlotLog,
    pub(super) launch: Option<Launch>,
    pub(super) checks: Option<HealthState>,
    pub(super) health: Health,
    /// How its first process ended.
    pub(super) ended: Option<End>,
    /// Every pid that its tree ever had: the driver must list none of them.
    pub(super) pids: Vec<u32>,
    /// The most that the driver saw it use.
    pub(super) peak: BTreeMap<DeviceUuid, Bytes>,
    /// What it uses now.
    pub(super) used: BTreeMap<DeviceUuid, Bytes>,
}

impl Live {
    pub(super) fn new(tree: Tree, log: SlotLog) -> Self {
        Self {
            tree,
            process: None,
            log,
            launch: None,
            checks: None,
            health: Health::Pending,
            ended: None,
            pids: Vec::new(),
            peak: BTreeMap::new(),
            used: BTreeMap::new(),
        }
    }

    /// When its health is asked for next.
    pub(super) fn next_probe(&self) -> Option<Timestamp> {
        self.checks.as_ref().and_then(HealthState::next)
    }
}
