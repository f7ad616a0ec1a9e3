//! How much each owner has: what limits on submitters are held against.
//!
//! The counts follow from the workloads. They are kept beside them because a submission must not count everybody's work.

use std::collections::BTreeMap;

use berth_domain::{Owner, WorkloadState};

/// Where a workload of an owner is, as far as limits care.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnerPhase {
    /// It waits.
    Queued,
    /// It has a slot.
    Running,
}

impl OwnerPhase {
    /// The phase of a workload in this state; none once it has ended.
    pub(crate) const fn of(state: WorkloadState) -> Option<Self> {
        match state {
            WorkloadState::Queued => Some(Self::Queued),
            WorkloadState::Assigned | WorkloadState::Running => Some(Self::Running),
            WorkloadState::Ended(_) => None,
        }
    }

    /// What workloads in this phase do, in words.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Queued => "wait",
            Self::Running => "have a slot",
        }
    }
}

/// How many workloads an owner has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Owned {
    pub(crate) queued: u32,
    pub(crate) running: u32,
}

/// How many workloads each owner has. Owners without any are not listed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Owners(BTreeMap<Owner, Owned>);

impl Owners {
    pub(crate) fn of(&self, owner: &Owner) -> Owned {
        self.0.get(owner).copied().unwrap_or_default()
    }

    /// Counts a workload of an owner where it is now instead of where it was.
    pub(crate) fn move_one(&mut self, owner: &Owner, from: Option<OwnerPhase>, to: Option<OwnerPhase>) {
        if from == to {
            return;
        }
        let owned = self.0.entry(owner.clone()).or_default();
        if let Some(count) = from.map(|phase| owned.count(phase)) {
            *count = count.saturating_sub(1);
        }
        if let Some(count) = to.map(|phase| owned.count(phase)) {
            *count = count.saturating_add(1);
        }
        if *owned == Owned::default() {
            self.0.remove(owner);
        }
    }
}

impl Owned {
    const fn count(&mut self, phase: OwnerPhase) -> &mut u32 {
        match phase {
            OwnerPhase::Queued => &mut self.queued,
            OwnerPhase::Running => &mut self.running,
        }
    }
}
