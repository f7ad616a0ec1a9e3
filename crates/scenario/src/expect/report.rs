//! Decisions, explanations and dry runs.

use std::collections::BTreeMap;

use berth_core::{CountVerdict, DeviceRow, Report, Verdict};

use super::Findings;
use crate::error::StepError;
use crate::format::expect::{Expect, ReportExpect, RowExpect};
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
        let report = world.state.fit(model, expected.kind, world.now);
        check_one(&format!("fit {model}"), expected, report.as_ref(), found);
    }
    Ok(())
}

fn check_one(name: &str, expected: &ReportExpect, report: Option<&Report>, found: &mut Findings) {
    let Some(report) = report else { return found.differs(format!("{name}: there is none")) };
    let before = found.count();
    let what = |part: &str| format!("{name}: {part}");
    found.word(what("outcome"), expected.outcome.as_ref(), report.outcome.as_str());
    found.word(what("code"), expected.code.as_ref(), report.outcome.code());
    let runner = report.runner.as_ref().map_or("none", |runner| runner.as_str());
    found.word(what("runner"), expected.runner.as_ref(), runner);
    let chosen = report.devices.iter().filter(|row| row.verdict == Verdict::Chosen);
    found.set(what("on"), expected.on.as_ref(), chosen.map(|row| row.uuid.to_string()).collect());
    check_counts(name, expected, report, found);
    for (uuid, row) in &expected.devices {
        match report.devices.iter().find(|there| there.uuid == *uuid) {
            Some(there) => check_row(name, row, there, found),
            None => found.differs(format!("{name}: no row for {uuid}")),
        }
    }
    let victim = |name: Option<&berth_domain::ModelName>| name.map_or("(unknown)".to_owned(), ToString::to_string);
    let victims = report.evictions.iter().map(|eviction| victim(eviction.model.as_ref())).collect();
    found.set(what("evictions"), expected.evictions.as_ref(), victims);
    if let Some(wanted) = &expected.excluded {
        let there: BTreeMap<String, u32> =
            report.excluded.iter().map(|(reason, many)| (reason.code().to_owned(), *many)).collect();
        if *wanted != there {
            found.differs(format!("{name}: excluded: expected {wanted:?}, found {there:?}"));
        }
    }
    found.same(what("runners"), expected.runners.as_ref(), &report.runners);
    if let Some(most) = expected.examined_at_most.filter(|most| report.examined > *most) {
        found.differs(format!("{name}: examined: expected at most {most}, found {}", report.examined));
    }
    let text = report.to_string();
    for part in expected.text.iter().filter(|part| !text.contains(part.as_str())) {
        found.differs(format!("{name}: text: {part:?} is not in it"));
    }
    if found.count() > before {
        found.explain(format!("{name}: {text}"));
    }
}

fn check_counts(name: &str, expected: &ReportExpect, report: &Report, found: &mut Findings) {
    let Some(wanted) = &expected.gpu_counts else { return };
    let word = |verdict| match verdict {
        CountVerdict::Chosen => "chosen",
        CountVerdict::NoRoom => "no_room",
        CountVerdict::NeverFits => "never_fits",
        CountVerdict::NotNeeded => "not_needed",
    };
    let there: BTreeMap<String, String> =
        report.gpu_counts.iter().map(|tried| (tried.count.to_string(), word(tried.verdict).to_owned())).collect();
    if *wanted != there {
        found.differs(format!("{name}: gpu_counts: expected {wanted:?}, found {there:?}"));
    }
}

fn check_row(name: &str, expected: &RowExpect, row: &DeviceRow, found: &mut Findings) {
    let what = |part: &str| format!("{name}: {}: {part}", row.uuid);
    let verdict = match row.verdict {
        Verdict::Chosen => "chosen",
        Verdict::RanksLower => "ranks_lower",
        Verdict::Short { .. } => "short",
        Verdict::Exclusive => "exclusive",
        Verdict::NotWhole => "not_whole",
        Verdict::Closed(why) => why.code(),
    };
    found.word(what("verdict"), expected.verdict.as_ref(), verdict);
    let before = &row.before;
    for (part, expected, there) in [
        ("capacity", expected.capacity, before.capacity),
        ("held", expected.held, before.held),
        ("releasing", expected.releasing, before.releasing),
        ("promised", expected.promised, before.promised),
        ("foreign", expected.foreign, before.foreign),
        ("free", expected.free, before.free),
        ("needed", expected.needed, row.needed),
    ] {
        found.size(what(part), expected, there);
    }
    if let Verdict::Short { missing } = row.verdict {
        found.size(what("missing"), expected.missing, missing);
    } else if expected.missing.is_some() {
        found.differs(format!("{name}: {}: nothing is missing", row.uuid));
    }
    let after = row.after.as_ref();
    for (part, expected, there) in [
        ("after_held", expected.after_held, after.map(|after| after.held)),
        ("after_promised", expected.after_promised, after.map(|after| after.promised)),
        ("after_free", expected.after_free, after.map(|after| after.free)),
    ] {
        match there {
            Some(there) => found.size(what(part), expected, there),
            None if expected.is_some() => found.differs(format!("{name}: {}: no numbers after", row.uuid)),
            None => {}
        }
    }
}
