//! Attempts at a workload that are over: where each was, how it ended, its last lines, and what may help.

use berth_domain::WorkloadId;
use berth_wire::{PastAttempt, Reason};

use super::look::{Colour, Look, clean, short};

/// A reason in words, with its code.
pub(super) fn reason(reason: &Reason) -> String {
    format!("{} ({})", reason.text, reason.code)
}

/// A reason's code, and which attempt it is of if that is not the present one.
pub(super) fn code(reason: &Reason) -> String {
    match reason.attempt {
        Some(attempt) => format!("attempt {attempt}: {}", reason.code),
        None => reason.code.clone(),
    }
}

/// One attempt in one line.
pub(super) fn in_short(row: &PastAttempt, look: Look) -> String {
    format!("{}: {}\n", head(row, look), clean(&reason(&row.reason)))
}

/// One attempt with everything about it.
pub(super) fn in_full(workload: WorkloadId, row: &PastAttempt, look: Look) -> String {
    let mut text = in_short(row, look);
    text.push_str(&format!(
        "  slot {} on runner {}, {}\n",
        row.slot_id,
        clean(row.runner_id.as_str()),
        times(row, look)
    ));
    for line in &row.last_lines {
        text.push_str(&format!("  {} {}\n", look.paint(Colour::Dim, "|"), clean(line)));
    }
    if row.last_lines.is_empty() && row.hint.is_some() {
        text.push_str(&format!("  last lines: `berth logs {workload} --attempt {}`\n", row.attempt));
    }
    if let Some(hint) = &row.hint {
        text.push_str(&format!("  to do: {}\n", clean(hint)));
    }
    text
}

fn head(row: &PastAttempt, look: Look) -> String {
    look.paint(Colour::Bold, &format!("attempt {}", row.attempt))
}

/// When it ended, and how far it had come.
fn times(row: &PastAttempt, look: Look) -> String {
    let ended = look.age(row.ended);
    match row.ran {
        Some(ran) => format!("ended {ended} ago, after running for {}", short(row.ended.0.since(ran.0))),
        None => {
            format!("ended {ended} ago, {} after its start and before it ran", short(row.ended.0.since(row.began.0)))
        }
    }
}
