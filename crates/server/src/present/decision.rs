//! What was decided and why.

use std::collections::BTreeMap;

use berth_core::view::WorkloadView;
use berth_core::{CountVerdict, Outcome, Report, Verdict};
use berth_domain::{Placement, WorkloadKind};
use berth_wire as wire;

use super::attempt::attempts;
use super::lack::{is_whole, lack, least};
use super::{memory, phase};
use crate::views::history::RecordedDecision;

/// The stable code of what a device said.
#[must_use]
pub fn verdict_code(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Chosen => "chosen",
        Verdict::RanksLower => "ranks_lower",
        Verdict::Short { .. } => "short",
        Verdict::Exclusive => "exclusive",
        Verdict::NotWhole => "not_whole",
        Verdict::Closed(why) => why.code(),
    }
}

/// A decision on record.
#[must_use]
pub fn decision(decided: &RecordedDecision) -> wire::Decision {
    wire::Decision {
        id: decided.id,
        time: wire::Time(decided.report.time),
        revision: decided.revision,
        workload_id: decided.report.workload,
        judgement: judgement(&decided.report),
        duration_us: u64::try_from(decided.duration.as_micros()).unwrap_or(u64::MAX),
    }
}

/// The answer to a dry run.
#[must_use]
pub fn fit(kind: WorkloadKind, report: &Report) -> wire::Fit {
    wire::Fit { kind, judgement: judgement(report) }
}

/// Why a workload is where it is.
#[must_use]
pub fn explanation(
    view: &WorkloadView,
    now: wire::Now,
    judgement: wire::Judgement,
    decisions: Vec<wire::Decision>,
) -> wire::Explanation {
    wire::Explanation {
        workload_id: view.id,
        state: view.state.into(),
        position: view.position.map(|position| position as u64),
        created: wire::Time(view.created),
        now,
        judgement,
        attempts: attempts(view),
        decisions,
    }
}

/// What holds of a workload that has ended: that it has.
#[must_use]
pub fn ended(view: &WorkloadView, now: &wire::Now) -> wire::Judgement {
    let last = view.attempts.last();
    wire::Judgement {
        model: view.model.clone(),
        outcome: wire::Outcome::Ended,
        code: now.code.clone(),
        text: now.text.clone(),
        runner_id: last.map(|last| last.runner.clone()),
        slot_id: last.map(|last| last.slot),
        placement: Placement::default(),
        gpu_counts: Vec::new(),
        devices: Vec::new(),
        evictions: Vec::new(),
        counts: BTreeMap::new(),
        lacks: Vec::new(),
        runners: 0,
        examined: 0,
        help: Vec::new(),
    }
}

/// What was chosen and why, or would be.
#[must_use]
pub fn judgement(report: &Report) -> wire::Judgement {
    let outcome = match report.outcome {
        Outcome::Reused => wire::Outcome::Reused,
        Outcome::Placed => wire::Outcome::Placed,
        Outcome::Waiting(_) => wire::Outcome::Waiting,
        Outcome::Refused(_) => wire::Outcome::Refused,
    };
    wire::Judgement {
        model: report.model.clone(),
        outcome,
        code: report.outcome.code().to_owned(),
        text: report.to_string(),
        runner_id: report.runner.clone(),
        slot_id: report.slot,
        placement: report.placement,
        gpu_counts: report.gpu_counts.iter().map(count).collect(),
        devices: report.devices.iter().map(row).collect(),
        evictions: report.evictions.iter().map(eviction).collect(),
        counts: report.excluded.iter().map(|(why, many)| (why.code().to_owned(), *many)).collect(),
        lacks: report.lacks.iter().map(lack).collect(),
        runners: report.runners,
        examined: report.examined,
        help: report.help.iter().map(ToString::to_string).collect(),
    }
}

fn count(tried: &berth_core::CountTried) -> wire::CountTried {
    let text = match tried.verdict {
        CountVerdict::NeverFits(why) => Some(why.for_count(tried.count).to_string()),
        CountVerdict::Chosen | CountVerdict::NoRoom | CountVerdict::NoMatch | CountVerdict::NotNeeded => None,
    };
    wire::CountTried {
        count: tried.count,
        needed_bytes: tried.needed.and_then(least).unwrap_or_default(),
        whole: tried.needed.is_some_and(is_whole),
        verdict: tried.verdict.code().to_owned(),
        text,
    }
}

fn row(row: &berth_core::DeviceRow) -> wire::DeviceRow {
    let missing = match row.verdict {
        Verdict::Short { missing } => Some(missing),
        _ => None,
    };
    let claim = |claim: &berth_core::ClaimRow| wire::RowClaim {
        slot_id: claim.slot,
        model: claim.model.clone(),
        state: claim.state,
        age_ms: claim.for_how_long.millis(),
        phase: phase(claim.phase),
        bytes: claim.bytes,
        busy: claim.busy,
    };
    wire::DeviceRow {
        uuid: row.uuid.clone(),
        runner_id: row.runner.clone(),
        index: row.index,
        before: memory(row.before),
        after: row.after.map(memory),
        needed_bytes: row.needed,
        whole: is_whole(row.asked),
        verdict: verdict_code(&row.verdict).to_owned(),
        missing_bytes: missing,
        claims: row.claims.iter().map(claim).collect(),
    }
}

fn eviction(eviction: &berth_core::Eviction) -> wire::Eviction {
    wire::Eviction {
        slot_id: eviction.slot,
        model: eviction.model.clone(),
        bytes: eviction.bytes,
        idle_ms: eviction.idle.millis(),
    }
}
