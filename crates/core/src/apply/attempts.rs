//! An attempt at a workload is over: what is known of it is kept.

use berth_domain::Timestamp;

use crate::reason::Cause;
use crate::state::{PastAttempt, State};
use crate::table::WorkloadKey;

impl State {
    /// Notes where a workload was and why it leaves its slot. To be called while it still has the slot; one that waits
    /// has none, and was not attempted.
    pub(super) fn note_attempt(&mut self, key: WorkloadKey, cause: Cause, at: Timestamp) {
        let Some(row) = self.workloads.get(key) else { return };
        let Some(slot) = row.slot.and_then(|slot| self.slots.get(slot)) else { return };
        let Some(runner) = self.runners.get(slot.runner) else { return };
        let past = PastAttempt {
            attempt: row.attempt,
            slot: slot.id,
            generation: slot.generation,
            runner: runner.id.clone(),
            began: row.assigned.unwrap_or(row.since),
            ran: row.ran,
            ended: at,
            cause,
            exit: slot.exit,
        };
        if let Some(row) = self.workloads.get_mut(key) {
            row.attempts.push(past);
            (row.assigned, row.ran) = (None, None);
        }
    }
}
