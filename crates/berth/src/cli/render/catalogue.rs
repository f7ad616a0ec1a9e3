//! Models.

use berth_domain::{Memory, Placement, RankMemory};
use berth_wire::{Model, ModelMemory};

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
    table.render(look)
}

fn memory(row: &Model) -> String {
    match &row.memory {
        _ if row.exclusive => "whole GPU".to_owned(),
        None if row.charged.iter().all(|charged| charged.gpu_count.get() == 0) && !row.charged.is_empty() => {
            "no GPU".to_owned()
        }
        None => "unknown".to_owned(),
        Some(ModelMemory(Memory::Total(bytes))) => bytes.to_string(),
        Some(ModelMemory(Memory::Fraction(fraction))) => format!("{fraction} of a GPU"),
        Some(ModelMemory(Memory::PerGpu(counts))) => {
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
    let mut table = Table::new(&[">GPUS", "CHARGED BY", "ON EACH"], "it cannot be placed on any GPU count");
    for charged in &row.charged {
        let bytes = charged.gpu_bytes.as_ref().filter(|bytes| !bytes.is_empty());
        let bytes = bytes.map(|bytes| bytes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "));
        table.row([(&charged.gpu_count).into(), (&charged.by).into(), or_dash(bytes.as_ref())]);
    }
    format!("{}\n{}", fields.render(look), table.render(look))
}
