//! The history of the server, and the fingerprint of its state.

use berth_domain::{ClusterId, HistoryPoint, RunnerId};

use super::sorted;
use crate::state::State;

/// The starts of the server that its state knows of, and whether anything is missing from them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryView {
    /// The point that the server has reached.
    pub now: HistoryPoint,
    /// The starts of its epochs, oldest first; very old ones are dropped.
    pub epochs: Vec<HistoryPoint>,
    /// The newest answer that a runner obeyed and this server did not give, while no operator has continued.
    pub went_back: Option<HistoryPoint>,
    /// Runners that have not reported since the history went back.
    pub waits_for: Vec<RunnerId>,
}

impl State {
    /// Returns the id of the cluster, once the state was started.
    #[must_use]
    pub fn cluster(&self) -> Option<ClusterId> {
        self.cluster
    }

    /// Returns the point in its history that the server has reached.
    #[must_use]
    pub fn point(&self) -> HistoryPoint {
        HistoryPoint { epoch: self.epoch, tag: self.history.tag(), revision: self.revision }
    }

    /// Returns the newest answer that a runner obeyed and this server did not give, while no operator has continued.
    #[must_use]
    pub fn went_back(&self) -> Option<HistoryPoint> {
        self.history.beyond()
    }

    /// Lists the starts of the server that the state knows of, and says whether anything is missing from them.
    #[must_use]
    pub fn history(&self) -> HistoryView {
        let unheard = self.runners.iter().map(|(_, row)| row).filter(|row| !row.caught_up && !row.is_forgotten());
        let point = |start: &crate::state::EpochStart| HistoryPoint {
            epoch: start.epoch,
            tag: start.tag,
            revision: start.first,
        };
        HistoryView {
            now: self.point(),
            epochs: self.history.starts().iter().map(point).collect(),
            went_back: self.went_back(),
            waits_for: sorted(unheard.map(|row| row.id.clone()).collect(), RunnerId::clone),
        }
    }

    /// Hashes everything that can be read from the state. Equal states have equal fingerprints in every process.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        use std::hash::BuildHasher;
        let slots: Vec<_> = self.slots().into_iter().map(|slot| format!("{slot:?}")).collect();
        let parts = format!(
            "{:?}{:?}{:?}{slots:?}{:?}{:?}{:?}{:?}{:?}{:?}",
            self.cluster,
            self.history(),
            self.devices(),
            self.hosts(),
            self.workloads(),
            self.runners(),
            self.models(),
            self.queue(),
            self.reservations(),
        );
        foldhash::fast::FixedState::default().hash_one(parts)
    }
}
