//! Decisions, explanations and dry runs.

use std::collections::BTreeMap;
use std::fmt::Display;

use berth_core::{DeviceRow, Report, Verdict};

use super::Findings;
use crate::error::StepError;
use crate::format::expect::{Expect, ReportExpect, RowExpect};
use crate::format::wanted::{Expectable, Wanted};
use crate::vocabulary::device_verdict;
use crate::world::World;

pub(super) fn check(world: &World, expect: &Expect, found: &mut Findings) -> Result<(), StepError> {
    if let Some(expected) = &expect.decision {
        let wanted = expected.workload.as_ref().map(|name| world.workload(name)).transpose()?;
        let report = world.reports.iter().rev().find(|report| wanted.is_none() || report.workload == wanted);
        check_one("decision", expected, report, found);
    }
    if let Some(expected) = &expect.explain {
        let name = expected.workload.as_ref().ok_or_else(|| StepError::meaningless("explain needs a workload"))?;
        let report = world.state.explain(world.workload(name)?, world.now);
        check_one(&format!("explain {name}"), expected, report.as_ref(), found);
    }
    if let Some(expected) = &expect.fit {
        let model = expected.model.as_ref().ok_or_else(|| StepError::meaningless("fit needs a model"))?;
        let report = world.state.fit(model, expected.kind.unwrap_or_default(), world.now);
        check_one(&format!("fit {model}"), expected, report.as_ref(), found);
    }
    Ok(())
}

fn check_one(name: &str, expected: &ReportExpect, report: Option<&Report>, found: &mut Findings) {
    let Some(report) = report else { return found.differs(format!("{name}: there is none")) };
    let before = found.count();
    let what = |part: &str| format!("{name}: {part}");
    found.wanted(what("outcome"), expected.outcome.as_ref(), report.outcome.as_str());
    found.wanted(what("code"), expected.code.as_ref(), report.outcome.code());
    let runner = report.runner.as_ref().map_or("none", |runner| runner.as_str());
    found.wanted(what("runner"), expected.runner.as_ref(), runner);
    let chosen = report.devices.iter().filter(|row| row.verdict == Verdict::Chosen);
    found.set(what("on"), expected.on.as_ref(), chosen.map(|row| row.uuid.to_string()).collect());
    let counts = report.gpu_counts.iter().map(|tried| (tried.count.to_string(), tried.verdict.code()));
    check_table(what("gpu_counts"), expected.gpu_counts.as_ref(), &counts.collect(), found);
    for (uuid, row) in expected.devices.iter().flatten() {
        match report.devices.iter().find(|there| there.uuid == *uuid) {
            Some(there) => check_row(name, row, there, found),
            None => found.differs(format!("{name}: no row for {uuid}")),
        }
    }
    let victim = |name: Option<&berth_domain::ModelName>| name.map_or("(unknown)".to_owned(), ToString::to_string);
    let victims = report.evictions.iter().map(|eviction| victim(eviction.model.as_ref())).collect();
    found.set(what("evictions"), expected.evictions.as_ref(), victims);
    let excluded: Vec<(String, u64)> =
        report.excluded.iter().map(|(reason, runners)| (reason.code().to_owned(), u64::from(*runners))).collect();
    let excluded = excluded.iter().map(|(reason, runners)| (reason.clone(), runners)).collect();
    check_table(what("excluded"), expected.excluded.as_ref(), &excluded, found);
    found.wanted(what("runners"), expected.runners.as_ref(), &u64::from(report.runners));
    if let Some(most) = expected.examined_at_most.filter(|most| report.examined > *most) {
        found.differs(format!("{name}: examined: expected at most {most}, found {}", report.examined));
    }
    let text = report.to_string();
    for part in expected.text.iter().flatten().filter(|part| !text.contains(part.as_str())) {
        found.differs(format!("{name}: text: {part:?} is not in it"));
    }
    if found.count() > before {
        found.explain(format!("{name}: {text}"));
    }
}

/// A table has these keys and no others, and each of its values is as expected.
fn check_table<K: Ord + AsRef<str>, T: Expectable>(
    what: impl Display,
    expected: Option<&BTreeMap<K, Wanted<T>>>,
    found: &BTreeMap<String, &T::Found>,
    findings: &mut Findings,
) {
    let Some(expected) = expected else { return };
    let admits = |(key, wanted): (&K, &Wanted<T>)| found.get(key.as_ref()).is_some_and(|there| wanted.admits(there));
    if expected.len() == found.len() && expected.iter().all(admits) {
        return;
    }
    let wanted: Vec<String> = expected.iter().map(|(key, wanted)| format!("{} = {wanted}", key.as_ref())).collect();
    let there: Vec<String> = found.iter().map(|(key, there)| format!("{key} = {}", T::show(there))).collect();
    findings.differs(format!("{what}: expected {{ {} }}, found {{ {} }}", wanted.join(", "), there.join(", ")));
}

fn check_row(name: &str, expected: &RowExpect, row: &DeviceRow, found: &mut Findings) {
    let what = |part: &str| format!("{name}: {}: {part}", row.uuid);
    found.wanted(what("verdict"), expected.verdict.as_ref(), device_verdict(row.verdict));
    let before = &row.before;
    for (part, expected, there) in [
        ("capacity", &expected.capacity, before.capacity),
        ("held", &expected.held, before.held),
        ("releasing", &expected.releasing, before.releasing),
        ("promised", &expected.promised, before.promised),
        ("foreign", &expected.foreign, before.foreign),
        ("free", &expected.free, before.free),
        ("needed", &expected.needed, row.needed),
    ] {
        found.wanted(what(part), expected.as_ref(), &there);
    }
    if let Verdict::Short { missing } = row.verdict {
        found.wanted(what("missing"), expected.missing.as_ref(), &missing);
    } else if expected.missing.is_some() {
        found.differs(format!("{name}: {}: nothing is missing", row.uuid));
    }
    let after = row.after.as_ref();
    for (part, expected, there) in [
        ("after_held", &expected.after_held, after.map(|after| after.held)),
        ("after_promised", &expected.after_promised, after.map(|after| after.promised)),
        ("after_free", &expected.after_free, after.map(|after| after.free)),
    ] {
        match there {
            Some(there) => found.wanted(what(part), expected.as_ref(), &there),
            None if expected.is_some() => found.differs(format!("{name}: {}: no numbers after", row.uuid)),
            None => {}
        }
    }
}
