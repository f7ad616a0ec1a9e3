//! Decisions, events, tokens and the audit log.

use berth_server::trust::audit::Findings;
use berth_wire::{AuditEntry, Decision, Fit, RunnerGrant, StreamEvent, Token};

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
            let needed = if device.whole { "a whole GPU".to_owned() } else { device.needed_bytes.to_string() };
            format!("{needed} needed, {free} free: {}", device.verdict)
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

/// Tokens below each other, or `nothing` in words.
pub(crate) fn tokens(rows: &[Token], nothing: &'static str, look: Look) -> String {
    let head = ["ID", "NAME", "ROLE", "RUNNER", "GRANTS", ">USES LEFT", "CREATED", "EXPIRES", "LAST USED"];
    let mut table = Table::new(&head, nothing);
    for row in rows {
        table.row([
            (&row.id).into(),
            (&row.name).into(),
            (&row.role).into(),
            or_dash(row.runner_id.as_ref()),
            or_dash(row.grant.as_ref().map(granted).as_ref()),
            or_dash(row.uses_left.as_ref()),
            (&row.created).into(),
            or_dash(row.expires.as_ref()),
            or_dash(row.last_used.as_ref()),
        ]);
    }
    table.render(look)
}

/// What a token lets a runner be, on one line.
fn granted(grant: &RunnerGrant) -> String {
    let labels = grant.labels.iter().map(|(key, value)| format!("{key}={value}"));
    let machine = grant.machine_id.iter().map(|machine| format!("machine {machine}"));
    let address = grant.address.iter().map(|address| format!("at {address}"));
    let parts = [format!("pool {}", grant.pool)].into_iter().chain(labels).chain(machine).chain(address);
    parts.collect::<Vec<_>>().join(", ")
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

/// What a check of the audit log found.
pub(crate) fn audit_findings(found: &Findings) -> String {
    let Findings { lines, files, first, last, is_torn, flaws, flaw_count } = found;
    let mut text: String = flaws.iter().map(|flaw| format!("{}\n", clean(&flaw.to_string()))).collect();
    if *flaw_count > flaws.len() {
        text.push_str(&format!("and {} more\n", flaw_count - flaws.len()));
    }
    if *is_torn {
        text.push_str("the last line is not complete: it is being written, or a crash tore it\n");
    }
    match (flaw_count, last) {
        (0, Some(last)) => text.push_str(&format!(
            "the audit log is whole: {lines} lines from {first} to {} in {files} files\nlast line  {last}\n",
            last.seq
        )),
        (0, None) => text.push_str("the audit log is whole: nothing was recorded yet\n"),
        _ => text.push_str(
            "the audit log is NOT whole: compare it with a copy, and with berth::audit in the server's log\n",
        ),
    }
    text
}
