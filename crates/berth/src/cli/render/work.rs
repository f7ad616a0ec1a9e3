//! Workloads, the queue, and what the fleet lacks.

use berth_domain::WorkloadKind;
use berth_wire::{Demand, Explanation, QueueEntry, Workload};

use super::attempts;
use super::look::{Colour, Look, clean, clean_lines, short};
use super::table::{Fields, Table, or_dash, state};

pub(crate) fn kind(kind: WorkloadKind) -> &'static str {
    match kind {
        WorkloadKind::Lease => "lease",
        WorkloadKind::Job => "job",
    }
}

/// Workloads below each other.
pub(crate) fn workloads(rows: &[Workload], look: Look) -> String {
    let head = ["ID", "MODEL", "KIND", "STATE", ">POS", ">PRIO", ">AGE", "RUNNER", "REASON"];
    let mut table = Table::new(&head, "no workloads");
    for row in rows {
        table.row([
            (&row.id).into(),
            (&row.model).into(),
            kind(row.kind).into(),
            state(row.state.as_str()),
            or_dash(row.position.as_ref()),
            (&row.priority).into(),
            (&look.age(row.created)).into(),
            or_dash(row.slot.as_ref().map(|slot| &slot.runner_id)),
            or_dash(row.reason.as_ref().map(attempts::code).as_ref()),
        ]);
    }
    table.render(look)
}

/// One workload.
pub(crate) fn workload(row: &Workload, look: Look) -> String {
    let mut fields = Fields::default();
    fields.add("id", &row.id);
    fields.add("model", &row.model);
    fields.add("kind", kind(row.kind));
    fields.add("state", state(row.state.as_str()));
    fields.maybe("position", row.position);
    fields.add("attempt", &row.attempt);
    fields.add("priority", &row.priority);
    fields.maybe("tenant", row.tenant.as_ref());
    if let Some(slot) = &row.slot {
        fields.maybe("endpoint", slot.endpoint.as_ref());
        fields.add("slot", &slot.id);
        fields.add("runner", &slot.runner_id);
        fields.list("gpus", &slot.gpus);
    }
    fields.list("reserved", &row.reserved_gpus);
    fields.maybe("reason", row.reason.as_ref().map(attempts::reason));
    fields.add("created", &format!("{} ({} ago)", row.created, look.age(row.created)));
    let mut text = fields.render(look);
    // The last attempt says most of how things are.
    if let Some((last, earlier)) = row.attempts.split_last() {
        earlier.iter().for_each(|attempt| text.push_str(&attempts::in_short(attempt, look)));
        text.push_str(&attempts::in_full(row.id, last, look));
    }
    text
}

/// Why a workload is where it is.
pub(crate) fn explanation(row: &Explanation, look: Look) -> String {
    let place = row.position.map(|position| format!(", {position} in the queue")).unwrap_or_default();
    let word = row.state.as_str();
    let word = Colour::of_state(word).map_or_else(|| word.to_owned(), |colour| look.paint(colour, word));
    let head = format!("workload {} is {word}{place}, {} old", row.workload_id, look.age(row.created));
    let mut text = format!("{head}\n{} {}\n", look.paint(Colour::Bold, "now:"), clean(&row.now.text));
    let is_over = row.state.is_ended();
    if !is_over {
        text.push_str(&format!("{}\n", clean_lines(row.judgement.text.trim_end())));
    }
    if !row.attempts.is_empty() {
        text.push_str(if is_over { "attempts:\n" } else { "attempts before:\n" });
        row.attempts.iter().for_each(|attempt| text.push_str(&attempts::in_full(row.workload_id, attempt, look)));
    }
    // The only decision about one that is not over is what was just told.
    if row.decisions.len() > usize::from(!is_over) {
        text.push_str("decided before:\n");
        for decision in &row.decisions {
            let first = decision.judgement.text.lines().next().unwrap_or(&decision.judgement.code);
            text.push_str(&format!("  {}  {}\n", decision.time, clean(first)));
        }
    }
    text
}

/// What waits, first in order first.
pub(crate) fn queue(rows: &[QueueEntry], look: Look) -> String {
    let mut table = Table::new(&[">POS", "WORKLOAD", "MODEL", "KIND", ">PRIO", ">AGE", "REASON"], "nothing waits");
    for row in rows {
        table.row([
            (&row.position).into(),
            (&row.workload_id).into(),
            (&row.model).into(),
            kind(row.kind).into(),
            (&row.priority).into(),
            (&short(berth_domain::Span::from_millis(row.age_ms))).into(),
            (&format!("{} ({})", row.reason.text, row.reason.code)).into(),
        ]);
    }
    table.render(look)
}

/// What the fleet lacks.
pub(crate) fn demand(rows: &[Demand], look: Look) -> String {
    let head = ["MODEL", "KIND", ">WAITING", ">OLDEST", "REASON", "ANY OF"];
    let mut table = Table::new(&head, "nothing waits: there is no unmet demand");
    for row in rows {
        let need = |need: &berth_wire::DemandNeed| match (need.gpu_bytes.iter().max(), need.whole) {
            (Some(bytes), true) => format!("{} x a whole GPU of at least {bytes}", need.gpu_count),
            (None, true) => format!("{} x a whole GPU", need.gpu_count),
            (Some(bytes), false) => format!("{} x {bytes}", need.gpu_count),
            (None, false) if need.gpu_count.get() == 0 => "no GPU".to_owned(),
            (None, false) => format!("{} x (a share)", need.gpu_count),
        };
        let needs: Vec<String> = row.needs.iter().map(need).collect();
        table.row([
            (&row.model).into(),
            kind(row.kind).into(),
            (&row.waiting).into(),
            (&short(berth_domain::Span::from_millis(row.oldest_age_ms))).into(),
            (&row.reason.code).into(),
            (&needs.join(", ")).into(),
        ]);
    }
    table.render(look)
}
