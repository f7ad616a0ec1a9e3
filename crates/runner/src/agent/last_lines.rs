//! The last lines of slots that failed or ended by themselves, told with their end.

use berth_domain::{LogTail, SlotEnd};
use berth_wire::ReportedSlot;

use super::Agent;
use crate::process::Redactor;
use crate::reconcile::{Kept, Life};

/// The most bytes of all last lines in one report. What is left out is in the logs, which the server asks for.
const MOST_BYTES: usize = 128 << 10;

impl Agent {
    /// Adds their last lines to what is told of slots that came to their end unasked. It is repeated as long as the end
    /// is: nobody knows which report arrived.
    pub(super) fn add_last_lines(&self, slots: &mut [ReportedSlot]) {
        let mut left = MOST_BYTES;
        let mut redactor = None;
        // The newest slots have the largest ids.
        for slot in slots.iter_mut().rev() {
            let Some(kept) = self.record.kept().get(&slot.id) else { continue };
            if !ended_unasked(&kept.life) || kept.generation != slot.generation {
                continue;
            }
            let tail = self.last_lines(kept, redactor.get_or_insert_with(|| self.redactor()));
            let Some(rest) = left.checked_sub(tail.lines().iter().map(String::len).sum()) else { return };
            left = rest;
            slot.last_lines = tail.lines().to_vec();
        }
    }

    /// The last lines of a slot's log, without secrets. A log that cannot be read has none.
    fn last_lines(&self, kept: &Kept, redactor: &Redactor) -> LogTail {
        let log = match self.live.get(&kept.id) {
            Some(live) => Some(live.log.clone()),
            // An agent that was started again has nothing at hand of what was over before.
            None => self.logs.past(kept.id, Some(kept.generation)).ok().flatten(),
        };
        let bytes = log.and_then(|log| log.tail(LogTail::LOOKED_AT).ok()).unwrap_or_default();
        LogTail::of_bytes(&redactor.redact(bytes))
    }
}

/// Whether a slot failed, or is a job that ended by itself.
fn ended_unasked(life: &Life) -> bool {
    let unasked = |why: &SlotEnd| matches!(why, SlotEnd::Failed(_) | SlotEnd::Exited(_));
    match life {
        Life::Ending { why, .. } | Life::TreeGone { why, .. } | Life::Gone { why, .. } => unasked(why),
        Life::GivenUp => true,
        Life::Planned | Life::Started { .. } | Life::Refused => false,
    }
}
