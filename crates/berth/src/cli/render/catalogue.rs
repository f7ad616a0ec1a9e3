//! Models.

use berth_domain::{Bytes, Memory, Placement, RankMemory};
use berth_wire::{ChargedMemory, Model, ModelMemory};

use super::look::Look;
use super::table::{Fields, Table, or_dash};

/// Models below each other.
pub(crate) fn models(rows: &[Model], look: Look) -> String {
    let head = ["NAME", "RUNTIME", "MEMORY", "POOL", ">CONC", ">SLOTS", ">WAITING", ">EVICTED", ">REV"];
    let mut table = Table::new(&head, "no models: add some with `berth models apply FILE`");
    for row in rows {
        let name = if row.deleted { format!("{} (removed)", row.name) } else { row.name.to_string() };
        table.row([
            (&name).into(),
            (&row.runtime).into(),
            (&memory(row)).into(),
            (&row.pool).into(),
            (&row.concurrency).into(),
            (&row.live_slots).into(),
            (&row.waiting).into(),
            (&row.evictions).into(),
            (&row.revision).into(),
        ]);
    }
    let notes: String = rows.iter().filter(|row| !row.deleted).flat_map(notes).collect();
    let gap = if notes.is_empty() { "" } else { "\n" };
    format!("{}{gap}{notes}", table.render(look))
}

/// What somebody should look at: claims that are not what is used, and numbers that were raised.
fn notes(row: &Model) -> Vec<String> {
    row.charged.iter().filter_map(|charged| note(row, charged)).collect()
}

fn note(row: &Model, charged: &ChargedMemory) -> Option<String> {
    let place = format!("note: {} on {} GPU(s)", row.name, charged.gpu_count);
    let now = list(charged.gpu_bytes.as_deref()?);
    if let Some(seen) = charged.observed.as_ref().filter(|seen| seen.is_drift()) {
        let offer = seen.offered_bytes.as_deref().map(|bytes| format!("; {} would do", list(bytes)));
        return Some(format!(
            "{place} is {}: its slots use up to {}, {now} is charged{}\n",
            seen.verdict.replace('_', "-"),
            list(&seen.peak_bytes),
            offer.unwrap_or_default()
        ));
    }
    let entry = charged.entry_bytes.as_deref()?;
    let why = match charged.source.as_deref() {
        Some("out_of_memory") => "since it ran out of memory",
        _ => "as its slots use it",
    };
    Some(format!("{place} is charged {now} instead of {} {why}\n", list(entry)))
}

fn list(ranks: &[Bytes]) -> String {
    ranks.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn memory(row: &Model) -> String {
    match &row.memory {
        _ if row.exclusive => "whole GPU".to_owned(),
        None if row.charged.iter().all(|charged| charged.gpu_count.get() == 0) && !row.charged.is_empty() => {
            "no GPU".to_owned()
        }
        None => "unknown".to_owned(),
        Some(ModelMemory { stated, file, prefer_estimate, .. }) => match stated {
            Some(stated) if file.is_none() || !prefer_estimate => number(stated),
            _ => format!("{} (estimated)", charged(row)),
        },
    }
}

/// What is charged on each number of GPUs, where that is bytes.
fn charged(row: &Model) -> String {
    let one = |charged: &ChargedMemory| {
        let ranks = charged.gpu_bytes.as_deref().unwrap_or_default();
        let even = ranks.iter().all(|bytes| Some(bytes) == ranks.first());
        let each = if even { ranks.get(..1).unwrap_or_default() } else { ranks };
        let each: Vec<String> = each.iter().map(ToString::to_string).collect();
        match even {
            true => format!("{} x {}", charged.gpu_count, each.join(", ")),
            false => format!("{} x ({})", charged.gpu_count, each.join(", ")),
        }
    };
    row.charged.iter().map(one).collect::<Vec<_>>().join(" or ")
}

fn number(memory: &Memory) -> String {
    match memory {
        Memory::Total(bytes) => bytes.to_string(),
        Memory::Fraction(fraction) => format!("{fraction} of a GPU"),
        Memory::PerGpu(counts) => {
            let one = |(count, ranks): (&berth_domain::GpuCount, &RankMemory)| match ranks {
                RankMemory::Even(bytes) => format!("{count} x {bytes}"),
                RankMemory::Ranks(list) => {
                    let ranks: Vec<String> = list.iter().map(ToString::to_string).collect();
                    format!("{count} x ({})", ranks.join(", "))
                }
            };
            counts.iter().map(one).collect::<Vec<_>>().join(" or ")
        }
    }
}

/// One model, with what it costs on each GPU count.
pub(crate) fn model(row: &Model, look: Look) -> String {
    let mut fields = Fields::default();
    fields.add("name", &row.name);
    fields.add("revision", &row.revision);
    if row.deleted {
        fields.add("removed", "its last slots finish");
    }
    fields.add("runtime", &row.runtime);
    fields.add("memory", &memory(row));
    if let Some(made) = &row.estimate {
        let inputs = &made.inputs;
        let what = format!(
            "of {}: {}, context {} x {}, cache {}, batch {}",
            made.file, inputs.profile, inputs.context, inputs.parallel, inputs.kv_type, inputs.batch
        );
        fields.add("estimate", &what);
        fields.list("estimate notes", made.notes.iter().map(|note| note.text.clone()));
    }
    fields.add("concurrency", &row.concurrency);
    let most = row.max_replicas.map_or_else(|| "any number".to_owned(), |most| most.to_string());
    fields.add("replicas", &format!("at least {}, at most {most}", row.min_replicas));
    if row.pinned {
        fields.add("pinned", "never evicted, never stopped for being idle");
    }
    fields.maybe("keep_alive", row.keep_alive);
    fields.maybe("min_run", row.min_run);
    fields.add(
        "placement",
        match row.placement {
            Placement::Spread => "spread",
            Placement::Pack => "pack",
        },
    );
    fields.add("pool", &row.pool);
    fields.list("labels", row.labels.iter().map(|(key, value)| format!("{key}={value}")));
    fields.list("gpu_names", &row.gpu_names);
    fields.list("gpu_uuids", &row.gpu_uuids);
    fields.add("host", &format!("{}, {} RAM for each slot", row.cpu_millicores, row.ram));
    fields.list("args", &row.args);
    fields
        .add("now", &format!("{} slot(s), {} waiting, {} evicted so far", row.live_slots, row.waiting, row.evictions));
    let head = [">GPUS", "CHARGED BY", "ON EACH", "SOURCE", "STATED", "ESTIMATED", "SEEN", "VERDICT"];
    let mut table = Table::new(&head, "it cannot be placed on any GPU count");
    for charged in &row.charged {
        let each = |bytes: &Option<Vec<Bytes>>| bytes.as_deref().filter(|bytes| !bytes.is_empty()).map(list);
        let difference = charged.difference_percent.map(|percent| format!(" ({percent:+} %)")).unwrap_or_default();
        let estimated = each(&charged.estimated_bytes).map(|bytes| format!("{bytes}{difference}"));
        let seen = charged.observed.as_ref();
        table.row([
            (&charged.gpu_count).into(),
            (&charged.by).into(),
            or_dash(each(&charged.gpu_bytes).as_ref()),
            or_dash(charged.source.as_ref()),
            or_dash(each(&charged.stated_bytes).as_ref()),
            or_dash(estimated.as_ref()),
            or_dash(seen.map(|seen| list(&seen.peak_bytes)).as_ref()),
            or_dash(seen.map(|seen| seen.verdict.replace('_', "-")).as_ref()),
        ]);
    }
    let notes: String = notes(row).concat();
    let gap = if notes.is_empty() { "" } else { "\n" };
    format!("{}\n{}{gap}{notes}", fields.render(look), table.render(look))
}
