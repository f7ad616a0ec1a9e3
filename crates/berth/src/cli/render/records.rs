//! Decisions, events, tokens and the audit log.

use berth_wire::{AuditEntry, Decision, Fit, StreamEvent, Token};

use super::look::{Look, clean, clean_lines};
use super::table::{Table, or_dash, state};

/// Decisions, one line each.
pub(crate) fn decisions(rows: &[Decision], look: Look) -> String {
    let head = [">ID", "TIME", "MODEL", "OUTCOME", "CODE", "RUNNER", "WORKLOAD", ">US", "NEAREST GPU"];
    let mut table = Table::new(&head, "no decisions on record");
    for row in rows {
        let judgement = &row.judgement;
        let nearest = judgement.devices.first().map(|device| {
            let free = device.before.free_bytes;
            format!("{} needed, {free} free: {}", device.needed_bytes, device.verdict)
        });
        table.row([
            (&row.id).into(),
            (&row.time).into(),
            (&judgement.model).into(),
            state(judgement.outcome.as_str()),
            (&judgement.code).into(),
            or_dash(judgement.runner_id.as_ref()),
            or_dash(row.workload_id.as_ref()),
            (&row.duration_us).into(),
            or_dash(nearest.as_ref()),
        ]);
    }
    table.render(look)
}

/// Decisions with all their numbers.
pub(crate) fn decisions_in_full(rows: &[Decision]) -> String {
    let one = |row: &Decision| {
        let workload = row.workload_id.map(|id| format!(" for workload {id}")).unwrap_or_default();
        let slot = row.judgement.slot_id.map(|id| format!(" in slot {id}")).unwrap_or_default();
        let text = clean_lines(row.judgement.text.trim_end()).replace('\n', "\n  ");
        format!("decision {} at {}{workload}{slot}, {} us\n  {text}\n", row.id, row.time, row.duration_us)
    };
    if rows.is_empty() { "no decisions on record\n".to_owned() } else { rows.iter().map(one).collect() }
}

/// What a dry run said.
pub(crate) fn fit(row: &Fit) -> String {
    format!("{}\n", clean_lines(row.judgement.text.trim_end()))
}

/// One event, on one line.
pub(crate) fn event(row: &StreamEvent) -> String {
    format!("{}  {}  {}  {}\n", row.revision, row.time, clean(&row.kind), clean(&row.text))
}

/// Tokens below each other.
pub(crate) fn tokens(rows: &[Token], look: Look) -> String {
    let nothing = "no tokens: whoever reaches the server may do everything";
    let mut table = Table::new(&["ID", "NAME", "ROLE", "RUNNER", "CREATED", "LAST USED"], nothing);
    for row in rows {
        table.row([
            (&row.id).into(),
            (&row.name).into(),
            (&row.role).into(),
            or_dash(row.runner_id.as_ref()),
            (&row.created).into(),
            or_dash(row.last_used.as_ref()),
        ]);
    }
    table.render(look)
}

/// Who did what.
pub(crate) fn audit(rows: &[AuditEntry], look: Look) -> String {
    let head = ["TIME", "BY", "ROLE", "ACTION", "TARGET", "OUTCOME", ">REVISION", "REASON"];
    let mut table = Table::new(&head, "nobody did anything yet");
    for row in rows {
        table.row([
            (&row.time).into(),
            (&row.by).into(),
            or_dash(row.role.as_ref()),
            (&row.action).into(),
            (&row.target).into(),
            state(&row.outcome),
            or_dash(row.revision.as_ref()),
            or_dash(row.reason.as_ref()),
        ]);
    }
    table.render(look)
}
