//! The last decisions, with why. Bounded: the oldest go first.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use berth_core::Report;
use berth_domain::{DecisionId, ModelName, Revision, RunnerId, WorkloadId};
use parking_lot::RwLock;

/// One decision.
#[derive(Debug)]
pub struct RecordedDecision {
    /// Counted since the server started.
    pub id: DecisionId,
    /// The revision after it.
    pub revision: Revision,
    /// How long its whole step took.
    pub duration: Duration,
    /// What was chosen, and why.
    pub report: Report,
}

/// Which decisions are wanted.
#[derive(Clone, Debug, Default)]
#[expect(missing_docs, reason = "each is what a decision must be about")]
pub struct Wanted {
    pub workload: Option<WorkloadId>,
    pub model: Option<ModelName>,
    pub runner: Option<RunnerId>,
    pub after: Option<DecisionId>,
    pub limit: Option<usize>,
}

impl Wanted {
    fn matches(&self, decided: &RecordedDecision) -> bool {
        let RecordedDecision { id, report, .. } = decided;
        self.workload.is_none_or(|workload| report.workload == Some(workload))
            && self.model.as_ref().is_none_or(|model| report.model == *model)
            && self.runner.as_ref().is_none_or(|runner| report.runner.as_ref() == Some(runner))
            && self.after.is_none_or(|after| *id > after)
    }
}

/// The last decisions.
#[derive(Debug)]
pub struct History {
    kept: usize,
    entries: RwLock<(u64, VecDeque<Arc<RecordedDecision>>)>,
}

impl History {
    pub(super) fn new(kept: usize) -> Self {
        Self { kept: kept.max(1), entries: RwLock::new((0, VecDeque::new())) }
    }

    pub(super) fn push(&self, report: Report, revision: Revision, duration: Duration) -> Arc<RecordedDecision> {
        let mut entries = self.entries.write();
        entries.0 += 1;
        let decided = Arc::new(RecordedDecision { id: DecisionId::new(entries.0), revision, duration, report });
        if entries.1.len() == self.kept {
            entries.1.pop_front();
        }
        entries.1.push_back(decided.clone());
        decided
    }

    /// Those that are wanted, oldest first.
    #[must_use]
    pub fn list(&self, wanted: &Wanted) -> Vec<Arc<RecordedDecision>> {
        // A copy of the pointers, so that the writer need not wait for a filter.
        let all: Vec<Arc<RecordedDecision>> = self.entries.read().1.iter().cloned().collect();
        let matching = all.into_iter().filter(|decided| wanted.matches(decided));
        matching.take(wanted.limit.unwrap_or(usize::MAX)).collect()
    }

    /// The last decision about a workload.
    #[must_use]
    pub fn last_of(&self, workload: WorkloadId) -> Option<Arc<RecordedDecision>> {
        let all: Vec<Arc<RecordedDecision>> = self.entries.read().1.iter().cloned().collect();
        all.into_iter().rev().find(|decided| decided.report.workload == Some(workload))
    }
}
