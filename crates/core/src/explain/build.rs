//! Making an explanation out of a plan, on the state before it is carried out.

use std::cell::OnceCell;

use berth_domain::{Bytes, GpuCount, GpuMemory, Span, Timestamp, WorkloadId};
use smallvec::SmallVec;

use super::excluded::excluded;
use super::help;
use super::nearest::nearest;
use super::report::{ClaimRow, CountTried, CountVerdict, DeviceRow, Eviction, Outcome, Report, Verdict};
use crate::ledger::{Ask, Phase, Shortfall};
use crate::plan::{self, Choice, Demand, Plan, Site, Sizes, ask_of};
use crate::reason::{Closed, WaitReason};
use crate::state::{Device, State};
use crate::table::{DeviceKey, RunnerKey};

/// Explains a plan, on the state before it is carried out.
pub(crate) fn report(
    state: &State,
    demand: &Demand<'_>,
    plan: &Plan,
    workload: Option<WorkloadId>,
    now: Timestamp,
) -> Report {
    let mut report = Report {
        time: now,
        workload,
        model: demand.model.name.clone(),
        kind: demand.kind,
        outcome: Outcome::Reused,
        runner: None,
        slot: None,
        placement: demand.shape.placement,
        gpu_counts: SmallVec::new(),
        devices: Vec::new(),
        evictions: Vec::new(),
        excluded: Vec::new(),
        lacks: Vec::new(),
        runners: 0,
        examined: plan.examined,
        help: Vec::new(),
    };
    match &plan.choice {
        Choice::Reuse(slot) => {
            let slot = state.slots.get(*slot);
            report.slot = slot.map(|slot| slot.id);
            report.runner = slot.and_then(|slot| state.runners.get(slot.runner)).map(|runner| runner.id.clone());
        }
        Choice::Place(site) => explain_site(state, demand, site, now, &mut report),
        Choice::Wait(why) => {
            report.outcome = Outcome::Waiting(*why);
            // Room is not what it waits for: numbers of devices would be a false reason.
            if why.is_pause() {
                return report;
            }
            if *why == WaitReason::NoLongerFits {
                report.lacks = plan::lacks(state, demand);
            }
            explain_nowhere(state, demand, *why, now, &mut report);
        }
        Choice::Never(why) => {
            report.outcome = Outcome::Refused(*why);
            report.lacks = plan::lacks(state, demand);
            explain_nowhere(state, demand, WaitReason::FullNow, now, &mut report);
        }
    }
    report
}

fn explain_site(state: &State, demand: &Demand<'_>, site: &Site, now: Timestamp, report: &mut Report) {
    report.outcome = if site.promised { Outcome::Waiting(WaitReason::Releasing) } else { Outcome::Placed };
    report.runner = state.runners.get(site.runner).map(|runner| runner.id.clone());
    let sizes = OnceCell::new();
    let verdict = |count: GpuCount, needs: &[GpuMemory]| match count.cmp(&site.count) {
        std::cmp::Ordering::Less => why_not(state, demand, needs, &sizes),
        std::cmp::Ordering::Equal => CountVerdict::Chosen,
        std::cmp::Ordering::Greater => CountVerdict::NotNeeded,
    };
    report.gpu_counts = tried(demand, verdict);
    let needs = demand
        .shape
        .counts
        .iter()
        .find(|(count, _)| *count == site.count)
        .map(|(_, needs)| needs.as_slice())
        .unwrap_or_default();
    report.devices.reserve_exact((state.settings.explained_devices / 2).max(site.claims.len()));
    for (claim, need) in site.claims.iter().zip(needs) {
        report.devices.extend(chosen_row(state, site, claim, *need));
    }
    // Who was chosen matters most; half the rows are enough for who was not.
    let room = (state.settings.explained_devices / 2).saturating_sub(report.devices.len());
    if let Some(need) = needs.iter().min().filter(|_| room > 0) {
        let chosen = |device| site.claims.iter().any(|claim| claim.device == device);
        let nearest = nearest(state, demand, site.count, false, room + site.claims.len());
        let others = nearest.into_iter().filter(|(_, device)| !chosen(*device)).take(room);
        report.devices.extend(others.filter_map(|(runner, device)| row(state, runner, device, *need)));
    }
    for victim in site.victims.iter().filter_map(|victim| state.slots.get(*victim)) {
        report.evictions.push(Eviction {
            slot: victim.id,
            model: victim.model.and_then(|key| state.models.get(key)).map(|model| model.name.clone()),
            bytes: victim.total_bytes(),
            idle: victim.idle_since.map_or(Span::ZERO, |since| now.since(since)),
        });
    }
    (report.excluded, report.runners) = excluded(state, demand, None);
}

fn explain_nowhere(state: &State, demand: &Demand<'_>, why: WaitReason, now: Timestamp, report: &mut Report) {
    let sizes = OnceCell::new();
    report.gpu_counts = tried(demand, |_, needs| why_not(state, demand, needs, &sizes));
    let first_possible =
        demand.shape.counts.iter().zip(&report.gpu_counts).find(|(_, tried)| tried.verdict == CountVerdict::NoRoom);
    let shown = first_possible.map(|(count, _)| count).or(demand.shape.counts.first());
    if let Some((count, needs)) = shown
        && let Some(need) = needs.iter().max()
    {
        let nearest = nearest(state, demand, *count, true, state.settings.explained_devices);
        report.devices = nearest.iter().filter_map(|(runner, device)| row(state, *runner, *device, *need)).collect();
        if let (Some(first), Some((_, device))) = (report.devices.first_mut(), nearest.first()) {
            first.claims = claim_rows(state, *device, now);
        }
    }
    (report.excluded, report.runners) = excluded(state, demand, Some(why));
    report.help = help::what_would_help(demand, why, report);
}

fn tried(demand: &Demand<'_>, verdict: impl Fn(GpuCount, &[GpuMemory]) -> CountVerdict) -> SmallVec<[CountTried; 5]> {
    let tried = |(count, needs): &(GpuCount, Vec<GpuMemory>)| CountTried {
        count: *count,
        needed: needs.iter().copied().max(),
        verdict: verdict(*count, needs),
    };
    demand.shape.counts.iter().map(tried).collect()
}

/// Why a slot with these needs is nowhere. `sizes` is filled at the first count that could never be, for all counts.
fn why_not(state: &State, demand: &Demand<'_>, needs: &[GpuMemory], sizes: &OnceCell<Sizes>) -> CountVerdict {
    if plan::could_ever(state, demand, needs) {
        return CountVerdict::NoRoom;
    }
    let sizes = sizes.get_or_init(|| Sizes::of(state, demand));
    sizes.too_small(demand, needs).map_or(CountVerdict::NoMatch, CountVerdict::NeverFits)
}

fn chosen_row(state: &State, site: &Site, claim: &plan::SiteClaim, asked: GpuMemory) -> Option<DeviceRow> {
    let device = state.devices.get(claim.device)?;
    let phase = if site.promised { Phase::Promised } else { Phase::Held };
    Some(DeviceRow {
        uuid: device.uuid.clone(),
        runner: state.runners.get(site.runner)?.id.clone(),
        index: device.attachment_on(site.runner).map_or(0, |row| row.attachment.index),
        before: device.ledger.balance(),
        after: Some(device.ledger.balance_with(claim.bytes, phase, &site.victims)),
        asked,
        needed: claim.bytes,
        verdict: Verdict::Chosen,
        claims: Vec::new(),
    })
}

fn row(state: &State, runner: RunnerKey, key: DeviceKey, need: GpuMemory) -> Option<DeviceRow> {
    let device = state.devices.get(key)?;
    let ask = ask_of(state, device, need);
    let needed = match ask {
        Ask::Amount(bytes) => bytes,
        Ask::Whole { least, .. } => device.ledger.capacity().saturating_sub(device.ledger.foreign()).max(least),
    };
    Some(DeviceRow {
        uuid: device.uuid.clone(),
        runner: state.runners.get(runner)?.id.clone(),
        index: device.attachment_on(runner).map_or(0, |row| row.attachment.index),
        before: state.balance_of(device),
        after: None,
        asked: need,
        needed,
        verdict: verdict_of(state, device, ask),
        claims: Vec::new(),
    })
}

fn verdict_of(state: &State, device: &Device, ask: Ask<Bytes>) -> Verdict {
    if let Some(closed) = state.why_closed(device) {
        return Verdict::Closed(closed);
    }
    match device.ledger.check(ask, Phase::Held) {
        Ok(_) => Verdict::RanksLower,
        Err(Shortfall::Short { needed, free }) => Verdict::Short { missing: needed.saturating_sub(free) },
        Err(Shortfall::Exclusive) => Verdict::Exclusive,
        Err(Shortfall::NotWhole | Shortfall::Nothing) => Verdict::NotWhole,
        Err(Shortfall::Overcommitted) => Verdict::Closed(Closed::Overcommitted),
    }
}

fn claim_rows(state: &State, device: DeviceKey, now: Timestamp) -> Vec<ClaimRow> {
    let Some(device) = state.devices.get(device) else { return Vec::new() };
    let row = |claim: &crate::ledger::Claim<Bytes>| {
        let slot = state.slots.get(claim.slot)?;
        Some(ClaimRow {
            slot: slot.id,
            model: slot.model.and_then(|key| state.models.get(key)).map(|model| model.name.clone()),
            state: slot.state,
            for_how_long: now.since(slot.since),
            phase: claim.phase,
            bytes: claim.amount,
            busy: !slot.is_idle(),
        })
    };
    device.ledger.claims().iter().filter_map(row).collect()
}
