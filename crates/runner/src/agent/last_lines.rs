//! The last log lines of slots that failed or ended by themselves, reported with their end.

use berth_domain::{LogTail, SlotEnd};
use berth_wire::ReportedSlot;

use super::slots::Slots;
use crate::process::Redactor;
use crate::reconcile::{LocalState, SlotRecord};

/// The most bytes of all last lines in one report. The rest is in the logs, which the server can ask for.
const MOST_BYTES: usize = 128 << 10;

/// Adds the last lines of slots that ended unasked to the report of their end.
///
/// They are repeated as long as the end is, since the agent does not know which report arrived.
pub(super) fn add_last_lines(reported: &mut [ReportedSlot], slots: &Slots, redactor: impl Fn() -> Redactor) {
    let mut left = MOST_BYTES;
    let mut made = None;
    // The newest slots have the largest ids.
    for slot in reported.iter_mut().rev() {
        let Some(record) = slots.records().get(&slot.id) else { continue };
        if !has_ended_unasked(&record.state) || record.generation != slot.generation {
            continue;
        }
        let tail = last_lines(slots, record, made.get_or_insert_with(&redactor));
        let Some(rest) = left.checked_sub(tail.lines().iter().map(String::len).sum()) else { return };
        left = rest;
        slot.last_lines = tail.lines().to_vec();
    }
}

/// Returns the last lines of a slot's log, without secrets. A log that cannot be read has none.
fn last_lines(slots: &Slots, record: &SlotRecord, redactor: &Redactor) -> LogTail {
    let log = slots.find_log(record.id, Some(record.generation)).ok().flatten();
    let bytes = log.and_then(|log| log.tail(LogTail::LOOKED_AT).ok()).unwrap_or_default();
    LogTail::of_bytes(&redactor.redact(bytes))
}

/// Returns whether a slot failed, or is a job that ended by itself.
fn has_ended_unasked(state: &LocalState) -> bool {
    let unasked = |why: &SlotEnd| matches!(why, SlotEnd::Failed(_) | SlotEnd::Exited(_));
    match state {
        LocalState::Ending { why, .. } | LocalState::TreeGone { why, .. } | LocalState::Gone { why, .. } => {
            unasked(why)
        }
        LocalState::GivenUp => true,
        LocalState::Planned | LocalState::Started { .. } | LocalState::Refused => false,
    }
}
