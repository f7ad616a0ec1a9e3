//! The names in what is expected, and expectations that nothing would look at.

use std::collections::BTreeMap;

use super::Checked;
use super::roster::{Roster, read_gpu_count};
use crate::format::expect::{
    DeviceExpect, Expect, Expectations, ModelExpect, ReportExpect, RunnerExpect, SlotExpect, WorkloadExpect,
};
use crate::format::values::{Name, NameSet};
use crate::format::wanted::Wanted;

/// The name that means each of them.
const EACH: &str = "*";

pub(super) fn check(roster: &Roster, expect: &Expect) -> Checked {
    says_something("expect", expect)?;
    check_work(roster, expect)?;
    check_fleet(roster, expect)?;
    check_orders(roster, expect)?;
    for (key, report) in [("decision", &expect.decision), ("explain", &expect.explain), ("fit", &expect.fit)] {
        report.iter().try_for_each(|report| check_report(roster, key, report))?;
    }
    Ok(())
}

fn check_work(roster: &Roster, expect: &Expect) -> Checked {
    for (name, workload) in entries("workloads", expect.workloads.as_ref())? {
        roster.workload(name)?;
        check_workload(roster, name, workload)?;
    }
    for names in expect.queue.iter().flat_map(Wanted::values) {
        names.0.iter().try_for_each(|name| roster.workload(name))?;
    }
    entries("states", expect.states.as_ref()).map(|_| ())?;
    if expect.slots.as_ref().is_some_and(Vec::is_empty) {
        return Err("slots = [] says nothing; that there are none is [{ count = 0 }]".to_owned());
    }
    expect.slots.iter().flatten().try_for_each(|slot| check_slot(roster, slot))
}

fn check_workload(roster: &Roster, name: &str, expected: &WorkloadExpect) -> Checked {
    says_something(name, expected)?;
    let is_forgotten = expected.state.iter().flat_map(Wanted::values).any(|state| state.as_str() == "forgotten");
    if is_forgotten {
        says_nothing_beside("state", "a workload that is forgotten", expected)?;
    }
    check_sets(expected.on.as_ref(), |name| roster.device(name))?;
    check_sets(expected.reserved.as_ref(), |name| roster.device(name))?;
    for (uuid, _) in entries("memory", expected.memory.as_ref())? {
        roster.device(uuid.as_str())?;
    }
    check_names(expected.runner.as_ref(), |name| or("none", name, |name| roster.runner(name)))?;
    expected.same_slot_as.iter().try_for_each(|other| roster.workload(other))
}

fn check_slot(roster: &Roster, expected: &SlotExpect) -> Checked {
    check_names(expected.model.as_ref(), |name| roster.model(name))?;
    check_names(expected.runner.as_ref(), |name| roster.runner(name))?;
    check_names(expected.device.as_ref(), |name| roster.device(name))
}

fn check_fleet(roster: &Roster, expect: &Expect) -> Checked {
    for (uuid, device) in entries("devices", expect.devices.as_ref())? {
        check_known(uuid.as_str(), device.known, device, |name| roster.device(name))?;
        check_device(roster, device)?;
    }
    for (machine, host) in entries("hosts", expect.hosts.as_ref())? {
        says_something(machine.as_str(), host)?;
        or(EACH, machine.as_str(), |name| roster.machine(name))?;
    }
    for (name, model) in entries("models", expect.models.as_ref())? {
        check_known(name.as_str(), model.known, model, |name| roster.model(name))?;
        check_model(roster, name.as_str(), model)?;
    }
    for (id, runner) in entries("runners", expect.runners.as_ref())? {
        check_known(id.as_str(), runner.known, runner, |name| roster.runner(name))?;
        check_runner(roster, runner)?;
    }
    Ok(())
}

/// A name must be known, unless it is expected not to be; then nothing more can be said of it.
fn check_known(
    name: &str,
    known: Option<bool>,
    expected: &impl Expectations,
    is_in_file: impl Fn(&str) -> Checked,
) -> Checked {
    match known {
        Some(_) if name == EACH => Err("known is for one name, not for each of them".to_owned()),
        Some(false) => says_nothing_beside("known", &format!("{name}, which is not known,"), expected),
        _ => or(EACH, name, is_in_file),
    }
}

fn check_device(roster: &Roster, expected: &DeviceExpect) -> Checked {
    check_sets(expected.runners.as_ref(), |name| roster.runner(name))
}

fn check_model(roster: &Roster, name: &str, expected: &ModelExpect) -> Checked {
    for (count, memory) in entries("memory", expected.memory.as_ref())? {
        says_something(count, memory)?;
        roster.gpu_count(name, count)?;
    }
    Ok(())
}

fn check_runner(roster: &Roster, expected: &RunnerExpect) -> Checked {
    check_sets(expected.devices.as_ref(), |name| roster.device(name))?;
    check_sets(expected.disputed.as_ref(), |name| roster.device(name))
}

/// Slots of strays have no model that the server knows.
fn check_orders(roster: &Roster, expect: &Expect) -> Checked {
    let model = |name: &str| or("unknown", name, |name| roster.model(name));
    for (runner, orders) in entries("desired", expect.desired.as_ref())? {
        roster.runner(runner.as_str())?;
        check_sets(Some(orders), |order| match order.strip_prefix("run ").or_else(|| order.strip_prefix("stop ")) {
            Some(name) => model(name),
            None => Err(format!("{order:?} is not like \"run m\" or \"stop m\"")),
        })?;
    }
    for (runner, models) in entries("accounts", expect.accounts.as_ref())? {
        roster.runner(runner.as_str())?;
        check_sets(Some(models), model)?;
    }
    Ok(())
}

fn check_report(roster: &Roster, key: &str, expected: &ReportExpect) -> Checked {
    says_something(key, expected)?;
    let (needed, others) = match key {
        "decision" => (None, &["model", "kind"][..]),
        "explain" => (Some("workload"), &["model", "kind"][..]),
        _ => (Some("model"), &["workload"][..]),
    };
    if let Some(needed) = needed.filter(|needed| !expected.keys().contains(needed)) {
        return Err(format!("{key} needs a {needed}"));
    }
    if let Some(other) = expected.keys().into_iter().find(|said| others.contains(said)) {
        return Err(format!("{key} has no {other}"));
    }
    expected.workload.iter().try_for_each(|name| roster.workload(name))?;
    expected.model.iter().try_for_each(|name| roster.model(name.as_str()))?;
    check_names(expected.runner.as_ref(), |name| or("none", name, |name| roster.runner(name)))?;
    check_sets(expected.on.as_ref(), |name| roster.device(name))?;
    check_sets(expected.evictions.as_ref(), |name| or("(unknown)", name, |name| roster.model(name)))?;
    expected.gpu_counts.iter().flatten().try_for_each(|(count, _)| read_gpu_count(count).map(|_| ()))?;
    for (uuid, row) in entries("devices", expected.devices.as_ref())? {
        says_something(uuid.as_str(), row)?;
        roster.device(uuid.as_str())?;
    }
    Ok(())
}

/// The entries of a table that is there. An empty one would be looked at by nobody.
fn entries<'a, K, V>(
    key: &str,
    table: Option<&'a BTreeMap<K, V>>,
) -> Result<impl Iterator<Item = (&'a K, &'a V)>, String> {
    match table {
        Some(table) if table.is_empty() => Err(format!("{key} says nothing")),
        table => Ok(table.into_iter().flatten()),
    }
}

fn says_something(what: &str, expected: &impl Expectations) -> Checked {
    if expected.keys().is_empty() { Err(format!("{what} says nothing")) } else { Ok(()) }
}

fn says_nothing_beside(key: &str, what: &str, expected: &impl Expectations) -> Checked {
    match expected.keys().into_iter().find(|said| *said != key) {
        None => Ok(()),
        Some(other) => Err(format!("{what} has no {other}")),
    }
}

/// One word stands for something else than a name.
fn or(word: &str, name: &str, check: impl Fn(&str) -> Checked) -> Checked {
    if name == word { Ok(()) } else { check(name) }
}

fn check_names(wanted: Option<&Wanted<Name>>, check: impl Fn(&str) -> Checked) -> Checked {
    wanted.into_iter().flat_map(Wanted::values).try_for_each(|name| check(&name.0))
}

fn check_sets(wanted: Option<&Wanted<NameSet>>, check: impl Fn(&str) -> Checked) -> Checked {
    wanted.into_iter().flat_map(Wanted::values).flat_map(|set| &set.0).try_for_each(|name| check(name))
}
