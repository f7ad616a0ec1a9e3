//! Every account, drawn.

use berth_domain::Bytes;
use berth_wire::{DeviceLedger, DeviceState, HostLedger, Ledger};

use super::bar::{Account, legend};
use super::look::{Colour, Look, clean};

/// All GPUs as bars of their capacity, then the machines, then what the signs mean.
pub(crate) fn ledger(ledger: &Ledger, claims: bool, look: Look) -> String {
    if ledger.devices.is_empty() && ledger.hosts.is_empty() {
        return "no runner has registered yet, so there is nothing to account for\n".to_owned();
    }
    let mut text = String::new();
    for row in &ledger.devices {
        text.push_str(&device(row, claims, look));
    }
    if !ledger.hosts.is_empty() {
        text.push_str(&format!("{}\n", look.paint(Colour::Bold, "machines")));
    }
    for row in &ledger.hosts {
        text.push_str(&host(row, look));
    }
    text.push_str(&summary(ledger));
    text.push_str(&legend(look));
    text
}

fn device(row: &DeviceLedger, claims: bool, look: Look) -> String {
    let runners: Vec<String> = row.runner_ids.iter().map(|id| clean(id.as_str())).collect();
    let place = if runners.is_empty() { "(no runner)".to_owned() } else { runners.join(" + ") };
    let index = row.index.map(|index| format!(" GPU {index}")).unwrap_or_default();
    let word = row.state.as_str();
    let word = Colour::of_state(word).map_or_else(|| word.to_owned(), |colour| look.paint(colour, word));
    let head = look.paint(Colour::Bold, &format!("{place}{index}"));
    let mut text =
        format!("{head}  {}  {}  {word}{}\n", clean(row.name.as_str()), clean(row.uuid.as_str()), flags(row));
    let account = Account { closed: is_closed(row), ..Account::from(&row.balance) };
    text.push_str(&bars("    ", "", &account, size, look));
    if claims {
        for claim in &row.claims {
            text.push_str(&format!("      slot {}  {}  {}\n", claim.slot_id, claim.phase.as_str(), claim.bytes));
        }
    }
    text
}

/// Whether what is not in use on a device is nobody's to have. What is kept for somebody, or for a moment, is not closed.
fn is_closed(row: &DeviceLedger) -> bool {
    !matches!(row.state, DeviceState::Open | DeviceState::Reserved | DeviceState::BackingOff)
}

fn flags(row: &DeviceLedger) -> String {
    let replicas = (row.replicas > 1).then(|| format!("{} replicas", row.replicas));
    let parent = row.parent_uuid.as_ref().map(|uuid| format!("part of {}", clean(uuid.as_str())));
    let differ = row.sizes_differ.then(|| "sizes differ".to_owned());
    let unattributed = (!row.attributed && !row.balance.foreign_bytes.is_zero()).then(|| "unattributed".to_owned());
    let flags: Vec<String> = [replicas, parent, differ, unattributed].into_iter().flatten().collect();
    if flags.is_empty() { String::new() } else { format!("  ({})", flags.join(", ")) }
}

/// The bar of now with its numbers, and below it the bar of then where anything is promised.
fn bars(indent: &str, name: &str, account: &Account, unit: fn(u64) -> String, look: Look) -> String {
    let mut text = format!("{indent}{name}{}  {}\n", account.now(look), account.words(unit));
    if account.promised > 0 {
        let spaces = " ".repeat(name.len());
        text.push_str(&format!("{indent}{spaces}{}  once it is released\n", account.then(look)));
    }
    text
}

fn host(row: &HostLedger, look: Look) -> String {
    let runners: Vec<String> = row.runner_ids.iter().map(|id| clean(id.as_str())).collect();
    let head = format!("  {}  ({})\n", clean(row.machine_id.as_str()), runners.join(", "));
    let cpu = bars("    ", "CPU ", &Account::from(&row.cpu), cores, look);
    let ram = bars("    ", "RAM ", &Account::from(&row.ram), size, look);
    head + &cpu + &ram
}

/// What all GPUs have together. What is free on a closed one is nobody's to take.
fn summary(ledger: &Ledger) -> String {
    let sum = |amounts: &mut dyn Iterator<Item = Bytes>| amounts.fold(Bytes::ZERO, Bytes::saturating_add);
    let capacity = sum(&mut ledger.devices.iter().map(|row| row.balance.capacity_bytes));
    let open: Vec<&DeviceLedger> = ledger.devices.iter().filter(|row| row.state == DeviceState::Open).collect();
    let free = sum(&mut open.iter().map(|row| row.balance.free_bytes));
    let (devices, open, revision) = (ledger.devices.len(), open.len(), ledger.revision);
    format!("{devices} GPU(s) with {capacity}; {free} free on the {open} that take new work; revision {revision}\n")
}

fn size(bytes: u64) -> String {
    Bytes::new(bytes).to_string()
}

/// Thousandths of a core as cores.
fn cores(millicores: u64) -> String {
    let text = format!("{}.{:03}", millicores / 1000, millicores % 1000);
    format!("{} cores", text.trim_end_matches('0').trim_end_matches('.'))
}
