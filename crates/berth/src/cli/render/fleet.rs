//! Runners and slots.

use berth_domain::RuntimeName;
use berth_wire::{EngineReport, Runner, RunnerStatus, Slot};

use super::look::Look;
use super::table::{Fields, Table, or_dash, state};

/// Runners below each other.
pub(crate) fn runners(rows: &[Runner], look: Look) -> String {
    let head = ["ID", "STATE", "ADMISSION", "POOL", ">GPUS", ">SLOTS", ">SEEN", "VERSION", "RUNTIMES"];
    let mut table = Table::new(&head, "no runner has registered yet");
    for row in rows {
        let runtimes: Vec<String> = row.runtimes.iter().map(|name| runtime_with_version(row, name)).collect();
        table.row([
            (&row.id).into(),
            state(word(row)),
            state(row.admission.as_str()),
            (&row.pool).into(),
            (&row.gpus.len()).into(),
            (&row.slots.len()).into(),
            or_dash(row.last_seen.map(|time| look.age(time)).as_ref()),
            (&row.version).into(),
            (&runtimes.join(",")).into(),
        ]);
    }
    table.render(look)
}

/// A runtime, and the version of its engine where the agent knows it.
fn runtime_with_version(row: &Runner, name: &RuntimeName) -> String {
    match row.engines.get(name).and_then(|found| found.version.as_ref()) {
        Some(version) => format!("{name} {version}"),
        None => name.to_string(),
    }
}

/// Why a runtime whose program is on the machine is not offered.
fn not_offered(row: &Runner, name: &RuntimeName, found: &EngineReport) -> Option<String> {
    if row.runtimes.contains(name) {
        return None;
    }
    let version = found.version.as_ref().map(|version| format!(" {version}")).unwrap_or_default();
    let lacks = (!found.missing.is_empty()).then(|| format!("its program lacks {}", found.missing.join(" ")));
    let why = lacks.or_else(|| found.note.clone()).unwrap_or_else(|| "its program cannot be used".to_owned());
    Some(format!("{name}{version}: {why}"))
}

/// A runner that has not reported since the server started is not ready, whatever was known of it before.
fn word(row: &Runner) -> &str {
    match &row.barred {
        _ if !row.reported => "not_reported",
        Some(why) => &why.code,
        None => row.state.as_str(),
    }
}

/// One runner, with what it last reported if it did.
pub(crate) fn runner(row: &Runner, status: Option<&RunnerStatus>, look: Look) -> String {
    let mut fields = Fields::default();
    fields.add("id", &row.id);
    fields.add("state", state(word(row)));
    fields.maybe("takes nothing new", row.barred.as_ref().map(|why| &why.text));
    fields.add("admission", state(row.admission.as_str()));
    fields.maybe("drains until", row.deadline);
    fields.add("machine", &row.machine_id);
    fields.add("incarnation", &row.incarnation);
    fields.add("pool", &row.pool);
    fields.list("labels", row.labels.iter().map(|(key, value)| format!("{key}={value}")));
    fields.list("runtimes", row.runtimes.iter().map(|name| runtime_with_version(row, name)));
    fields.list("not offered", row.engines.iter().filter_map(|(name, found)| not_offered(row, name, found)));
    fields.add("version", &row.version);
    fields.add("address", &row.address);
    fields.add("host", &format!("{}, {} RAM", row.host.cpu_millicores, row.host.ram_bytes));
    fields.maybe("last seen", row.last_seen.map(|time| format!("{time} ({} ago)", look.age(time))));
    fields.list("disputed", &row.disputed);
    fields.list("slots", &row.slots);
    let mut text = fields.render(look);
    if let Some(status) = status {
        text.push('\n');
        text.push_str(&reported(status, look));
    }
    text
}

fn reported(status: &RunnerStatus, look: Look) -> String {
    let head = [">GPU", "UUID", "NAME", "HEALTH", "STATE", ">TOTAL", ">USED", ">BUSY", ">HEAT", ">FREE TO PLACE"];
    let mut table = Table::new(&head, "it reports no GPU");
    for gpu in &status.gpus {
        let health = serde_json::to_value(gpu.health).ok();
        let health = health.as_ref().and_then(|word| word.as_str()).unwrap_or_default().to_owned();
        table.row([
            (&gpu.index).into(),
            (&gpu.uuid).into(),
            (&gpu.name).into(),
            state(&health),
            state(gpu.state.as_str()),
            (&gpu.memory_total_bytes).into(),
            (&gpu.memory_used_bytes).into(),
            or_dash(gpu.utilization_percent.map(|percent| format!("{percent} %")).as_ref()),
            or_dash(gpu.telemetry.temperature_celsius.map(|celsius| format!("{celsius} C")).as_ref()),
            or_dash(gpu.ledger.map(|ledger| ledger.free_bytes).as_ref()),
        ]);
    }
    format!("reported {} ago (number {}):\n{}", look.age(status.received), status.sequence, table.render(look))
}

/// Slots below each other.
pub(crate) fn slots(rows: &[Slot], look: Look) -> String {
    let head = ["ID", "MODEL", "RUNNER", "STATE", ">GPUS", ">MEMORY", ">ACTIVE", ">AGE", "ENDPOINT"];
    let mut table = Table::new(&head, "no slots");
    for row in rows {
        table.row([
            (&row.id).into(),
            or_dash(row.model.as_ref()),
            (&row.runner_id).into(),
            state(row.state.as_str()),
            (&row.gpu_allocation.gpu_count).into(),
            (&row.gpu_allocation.total_bytes).into(),
            (&format!("{}/{}", row.active, row.concurrency)).into(),
            (&look.age(row.created)).into(),
            or_dash(row.endpoint.as_ref()),
        ]);
    }
    table.render(look)
}

/// One slot.
pub(crate) fn slot(row: &Slot, look: Look) -> String {
    let mut fields = Fields::default();
    fields.add("id", &row.id);
    fields.maybe("model", row.model.as_ref().map(|model| format!("{model} (revision {})", row.model_revision)));
    fields.add("runner", &row.runner_id);
    fields.add("state", state(row.state.as_str()));
    fields.add("since", &format!("{} ({} ago)", row.since, look.age(row.since)));
    if row.stalled {
        fields.add("stalled", "its stop takes too long; its memory stays charged until it is proven gone");
    }
    fields.maybe("reason", row.reason.as_ref().map(|reason| format!("{} ({})", reason.text, reason.code)));
    fields.maybe("endpoint", row.endpoint.as_ref());
    fields.add("active", &format!("{} of {}", row.active, row.concurrency));
    fields.maybe("idle since", row.idle_since);
    fields.add("generation", &row.generation);
    fields.add("created", &format!("{} ({} ago)", row.created, look.age(row.created)));
    let mut table = Table::new(&[">GPU", "UUID", "PHASE", ">CLAIM", ">OBSERVED"], "no GPU");
    for gpu in &row.gpu_allocation.gpus {
        table.row([
            or_dash(gpu.index.as_ref()),
            (&gpu.uuid).into(),
            state(gpu.phase.as_str()),
            (&gpu.bytes).into(),
            or_dash(gpu.observed_bytes.as_ref()),
        ]);
    }
    format!("{}\n{}", fields.render(look), table.render(look))
}
