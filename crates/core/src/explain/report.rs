//! The data of an explanation.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use berth_domain::{
    Bytes, DeviceUuid, GpuCount, GpuMemory, ModelName, Placement, RunnerId, SlotId, SlotState, Span, Timestamp,
    WorkloadId,
};

use smallvec::SmallVec;

use super::help::{self, Help};
use crate::index::{Lens, Standing};
use crate::ledger::{Ask, Balance, Phase, Shortfall};
use crate::plan::{self, Choice, Demand, Plan, Site, ask_of, excluded_by};
use crate::reason::{Closed, Exclusion, Unplaceable, WaitReason};
use crate::state::{Device, State};
use crate::table::{DeviceKey, RunnerKey};

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// An existing slot took it.
    Reused,
    /// A new slot was placed.
    Placed,
    /// It waits.
    Waiting(WaitReason),
    /// It can never run here.
    Refused(Unplaceable),
}

impl Outcome {
    /// The stable word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Reused => "reused",
            Self::Placed => "placed",
            Self::Waiting(_) => "waiting",
            Self::Refused(_) => "refused",
        }
    }

    /// The stable code to grep for.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Reused => "reused",
            Self::Placed => "placed",
            Self::Waiting(why) => why.code(),
            Self::Refused(why) => why.code(),
        }
    }
}

/// What became of one GPU count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountVerdict {
    /// This one.
    Chosen,
    /// Nowhere now.
    NoRoom,
    /// No runner is large enough.
    NeverFits,
    /// A smaller one was enough.
    NotNeeded,
}

/// One GPU count that the model allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountTried {
    /// How many GPUs.
    pub count: GpuCount,
    /// The most that one of them must give; a fraction and a whole GPU are zero here.
    pub needed: Bytes,
    /// What became of it.
    pub verdict: CountVerdict,
}

/// What one device said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Chosen.
    Chosen,
    /// It would do, but others rank before it.
    RanksLower,
    /// Too little is free.
    Short {
        /// By how much.
        missing: Bytes,
    },
    /// Somebody has it to themselves.
    Exclusive,
    /// Somebody is there, and it must be nobody.
    NotWhole,
    /// It takes nothing new.
    Closed(Closed),
}

/// A claim on a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimRow {
    /// Whose.
    pub slot: SlotId,
    /// What it serves, if the server made it.
    pub model: Option<ModelName>,
    /// In which state it is.
    pub state: SlotState,
    /// For how long.
    pub for_how_long: Span,
    /// What the claim is.
    pub phase: Phase,
    /// How much.
    pub bytes: Bytes,
    /// Whether anybody uses it.
    pub busy: bool,
}

/// One device that mattered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceRow {
    /// Which.
    pub uuid: DeviceUuid,
    /// Through which runner.
    pub runner: RunnerId,
    /// Its index there.
    pub index: u16,
    /// Its ledger before.
    pub before: Balance<Bytes>,
    /// Its ledger after, if it was chosen.
    pub after: Option<Balance<Bytes>>,
    /// What was needed of it.
    pub needed: Bytes,
    /// What it said.
    pub verdict: Verdict,
    /// Who is on it, for the first device of work that waits.
    pub claims: Vec<ClaimRow>,
}

/// A slot that goes for another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Eviction {
    /// Which.
    pub slot: SlotId,
    /// What it served.
    pub model: Option<ModelName>,
    /// What it gives back, on all its devices.
    pub bytes: Bytes,
    /// For how long nobody used it.
    pub idle: Span,
}

/// What was chosen and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// When.
    pub time: Timestamp,
    /// For whom; nobody for slots that their model must have, and for dry runs.
    pub workload: Option<WorkloadId>,
    /// The model.
    pub model: ModelName,
    /// What came of it.
    pub outcome: Outcome,
    /// Where.
    pub runner: Option<RunnerId>,
    /// In which slot.
    pub slot: Option<SlotId>,
    /// How candidates were ranked.
    pub placement: Placement,
    /// GPU counts that the model allows.
    pub gpu_counts: Vec<CountTried>,
    /// The chosen devices, then the nearest.
    pub devices: Vec<DeviceRow>,
    /// Who goes for it.
    pub evictions: Vec<Eviction>,
    /// Runners that were not used, by reason.
    pub excluded: Vec<(Exclusion, u32)>,
    /// All runners.
    pub runners: u32,
    /// Devices that were looked at.
    pub examined: u32,
    /// What would help.
    pub help: Vec<Help>,
}

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
        outcome: Outcome::Reused,
        runner: None,
        slot: None,
        placement: demand.shape.placement,
        gpu_counts: Vec::new(),
        devices: Vec::new(),
        evictions: Vec::new(),
        excluded: Vec::new(),
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
            explain_nowhere(state, demand, *why, now, &mut report);
        }
        Choice::Never(why) => {
            report.outcome = Outcome::Refused(*why);
            explain_nowhere(state, demand, WaitReason::FullNow, now, &mut report);
        }
    }
    report
}

fn explain_site(state: &State, demand: &Demand<'_>, site: &Site, now: Timestamp, report: &mut Report) {
    report.outcome = if site.promised { Outcome::Waiting(WaitReason::Releasing) } else { Outcome::Placed };
    report.runner = state.runners.get(site.runner).map(|runner| runner.id.clone());
    let verdict = |count: GpuCount, needs: &[GpuMemory]| match count.cmp(&site.count) {
        std::cmp::Ordering::Less => why_not(state, demand, needs),
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
    report.devices.reserve_exact(state.settings.explained_devices.max(site.claims.len()));
    for claim in &site.claims {
        report.devices.extend(chosen_row(state, site, claim));
    }
    if let Some(need) = needs.iter().min() {
        let chosen = |device| site.claims.iter().any(|claim| claim.device == device);
        let room = state.settings.explained_devices.saturating_sub(report.devices.len());
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
    report.gpu_counts = tried(demand, |_, needs| why_not(state, demand, needs));
    let first_possible =
        demand.shape.counts.iter().zip(&report.gpu_counts).find(|(_, tried)| tried.verdict == CountVerdict::NoRoom);
    let shown = first_possible.map(|(count, _)| count).or(demand.shape.counts.first());
    if let Some((count, needs)) = shown {
        if let Some(need) = needs.iter().max() {
            let nearest = nearest(state, demand, *count, true, state.settings.explained_devices);
            report.devices =
                nearest.iter().filter_map(|(runner, device)| row(state, *runner, *device, *need)).collect();
            if let (Some(first), Some((_, device))) = (report.devices.first_mut(), nearest.first()) {
                first.claims = claim_rows(state, *device, now);
            }
        }
    }
    (report.excluded, report.runners) = excluded(state, demand, Some(why));
    report.help = help::what_would_help(demand, why, report);
}

fn tried(demand: &Demand<'_>, verdict: impl Fn(GpuCount, &[GpuMemory]) -> CountVerdict) -> Vec<CountTried> {
    let tried = |(count, needs): &(GpuCount, Vec<GpuMemory>)| CountTried {
        count: *count,
        needed: most(needs),
        verdict: verdict(*count, needs),
    };
    demand.shape.counts.iter().map(tried).collect()
}

fn why_not(state: &State, demand: &Demand<'_>, needs: &[GpuMemory]) -> CountVerdict {
    if plan::could_ever(state, demand, needs) { CountVerdict::NoRoom } else { CountVerdict::NeverFits }
}

fn most(needs: &[GpuMemory]) -> Bytes {
    let bytes = needs.iter().map(|need| match need {
        GpuMemory::Bytes(bytes) => *bytes,
        GpuMemory::Fraction(_) | GpuMemory::Whole => Bytes::ZERO,
    });
    bytes.max().unwrap_or_default()
}

fn chosen_row(state: &State, site: &Site, claim: &plan::SiteClaim) -> Option<DeviceRow> {
    let device = state.devices.get(claim.device)?;
    let mut after = device.ledger.clone();
    site.victims.iter().for_each(|victim| after.begin_release(*victim));
    let ask = if claim.exclusive { Ask::Whole { tolerance: Bytes::MAX } } else { Ask::Amount(claim.bytes) };
    let phase = if site.promised { Phase::Promised } else { Phase::Held };
    // The slot has no row yet; any key that owns nothing here stands for it.
    let nobody = crate::table::Key::at(usize::MAX);
    let taken = after.claim(nobody, ask, phase).is_ok();
    Some(DeviceRow {
        uuid: device.uuid.clone(),
        runner: state.runners.get(site.runner)?.id.clone(),
        index: device.seat_on(site.runner).map_or(0, |row| row.seat.index),
        before: device.ledger.balance(),
        after: taken.then(|| after.balance()),
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
        Ask::Whole { .. } => device.ledger.capacity().saturating_sub(device.ledger.foreign()),
    };
    Some(DeviceRow {
        uuid: device.uuid.clone(),
        runner: state.runners.get(runner)?.id.clone(),
        index: device.seat_on(runner).map_or(0, |row| row.seat.index),
        before: device.ledger.balance(),
        after: None,
        needed,
        verdict: verdict_of(device, ask),
        claims: Vec::new(),
    })
}

fn verdict_of(device: &Device, ask: Ask<Bytes>) -> Verdict {
    if let Some(closed) = device.closed() {
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

/// The devices nearest to doing: in the order of the ranking, or those with the most room.
fn nearest(
    state: &State,
    demand: &Demand<'_>,
    count: GpuCount,
    by_room: bool,
    most: usize,
) -> Vec<(RunnerKey, DeviceKey)> {
    let lens = Lens { count: count.get(), placement: demand.shape.placement };
    if !demand.shape.constraints.gpu_uuids.is_empty() {
        return pinned_devices(state, demand, most);
    }
    let mut places: Vec<(u64, RunnerKey, DeviceKey)> = Vec::with_capacity(most);
    let constraints = &demand.shape.constraints;
    for class in state.index.classes().filter(|class| excluded_by(constraints, &class.traits).is_none()) {
        let Some(shelf) = state.index.shelf(class, lens) else { continue };
        if by_room {
            let top = shelf.top(|reach| reach.room, most);
            places.extend(top.into_iter().map(|(key, reach)| (u64::MAX - reach.room, key.runner, key.device)));
        } else {
            let mut left = most;
            shelf.walk(
                |_| true,
                |key, _| {
                    places.push((key.rank, key.runner, key.device));
                    left = left.saturating_sub(1);
                    if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                },
            );
        }
    }
    places.sort_by_key(|(rank, ..)| *rank);
    places.truncate(most);
    if lens.is_of_devices() && !places.is_empty() {
        return places.into_iter().map(|(_, runner, device)| (runner, device)).collect();
    }
    let runners: Vec<RunnerKey> = places.into_iter().map(|(_, runner, _)| runner).collect();
    let mut devices = best_of_each(state, demand, &runners, count, by_room, most);
    if devices.is_empty() {
        devices = shut_devices(state, demand, most);
    }
    devices
}

/// As many devices of each runner as a slot needs, the nearest first; where that is too few, the rest of them.
fn best_of_each(
    state: &State,
    demand: &Demand<'_>,
    runners: &[RunnerKey],
    count: GpuCount,
    by_room: bool,
    most: usize,
) -> Vec<(RunnerKey, DeviceKey)> {
    let names = &demand.shape.constraints.gpu_names;
    let named = |device: &DeviceKey| {
        names.is_empty() || state.devices.get(*device).is_some_and(|row| names.contains(&row.name))
    };
    let nearness = |device: &DeviceKey| {
        let depth = state.devices.get(*device).map(|row| row.depth).unwrap_or_default();
        (!depth.open, if by_room { u64::MAX - depth.room } else { u64::from(depth.share) })
    };
    let devices_of = |runner: &RunnerKey| {
        let devices = state.runners.get(*runner).map(|row| row.devices.as_slice()).unwrap_or_default();
        devices.iter().copied().filter(named).collect::<SmallVec<[DeviceKey; 8]>>()
    };
    let enough = usize::from(count.get()).max(1);
    let mut best: Vec<(RunnerKey, DeviceKey)> = Vec::with_capacity(most);
    for runner in runners.iter().take(most.div_ceil(enough)) {
        let mut devices = devices_of(runner);
        devices.sort_by_key(nearness);
        best.extend(devices.into_iter().take(enough).map(|device| (*runner, device)));
    }
    if best.len() < most {
        let listed = best.clone();
        let rest = runners.iter().flat_map(|runner| devices_of(runner).into_iter().map(|device| (*runner, device)));
        best.extend(rest.filter(|place| !listed.contains(place)));
    }
    best.truncate(most);
    best
}

fn devices_of(state: &State, runner: RunnerKey) -> Vec<(RunnerKey, DeviceKey)> {
    let devices = state.runners.get(runner).map(|row| row.devices.as_slice()).unwrap_or_default();
    devices.iter().map(|device| (runner, *device)).collect()
}

/// The devices that a model is pinned to, wherever they are.
fn pinned_devices(state: &State, demand: &Demand<'_>, most: usize) -> Vec<(RunnerKey, DeviceKey)> {
    let devices = demand.shape.constraints.gpu_uuids.iter().filter_map(|uuid| state.devices.find(uuid));
    devices.flat_map(|(key, device)| device.seats.iter().map(move |row| (row.runner, key))).take(most).collect()
}

/// Devices of matching runners that are on no shelf: so that a closed device is shown with its reason.
fn shut_devices(state: &State, demand: &Demand<'_>, most: usize) -> Vec<(RunnerKey, DeviceKey)> {
    let matches = |row: &crate::state::Runner| {
        let class = row.standing.as_ref().and_then(|(class, ..)| state.index.class(*class));
        class.is_some_and(|class| excluded_by(&demand.shape.constraints, &class.traits).is_none())
    };
    let runners = state.runners.iter().take(64).filter(|(_, row)| matches(row));
    runners.flat_map(|(key, _)| devices_of(state, key)).take(most).collect()
}

/// How many runners of a class have none of the devices that a model is pinned to.
fn without_pinned(state: &State, demand: &Demand<'_>, class: &crate::index::Class) -> u32 {
    if demand.shape.constraints.gpu_uuids.is_empty() {
        return 0;
    }
    let mut with: Vec<RunnerKey> =
        pinned_devices(state, demand, usize::MAX).into_iter().map(|(runner, _)| runner).collect();
    with.sort_unstable();
    with.dedup();
    let of_class = |runner: &&RunnerKey| {
        let standing = state.runners.get(**runner).and_then(|row| row.standing.as_ref());
        standing.and_then(|(key, ..)| state.index.class(*key)).is_some_and(|other| other.traits == class.traits)
    };
    class.runners().saturating_sub(u32::try_from(with.iter().filter(of_class).count()).unwrap_or(u32::MAX))
}

/// How many runners were not used for which reason; with `why`, those that could not be used are counted too.
fn excluded(state: &State, demand: &Demand<'_>, why: Option<WaitReason>) -> (Vec<(Exclusion, u32)>, u32) {
    let fewest = demand.shape.counts.first().map_or(0, |(count, _)| usize::from(count.get()));
    let (mut counts, mut total) = (BTreeMap::new(), 0);
    for class in state.index.classes() {
        total += class.runners();
        if let Some(reason) = excluded_by(&demand.shape.constraints, &class.traits) {
            *counts.entry(reason).or_default() += class.runners();
            continue;
        }
        let elsewhere = without_pinned(state, demand, class);
        if elsewhere > 0 {
            *counts.entry(Exclusion::GpuUuid).or_default() += elsewhere;
        }
        if elsewhere == class.runners() {
            continue;
        }
        for (standing, runners) in &class.standings {
            let runners = &runners.saturating_sub(elsewhere);
            match (standing, why) {
                (Standing::Shut(reason), _) => *counts.entry(*reason).or_default() += runners,
                (Standing::Open, Some(why)) => {
                    let small = |len: usize| len > 0 && len < fewest;
                    let without = |is: &dyn Fn(usize) -> bool| {
                        let profiles =
                            class.profiles.iter().filter(|(profile, _)| is(profile.gpus.len()) && profile.mig == 0);
                        profiles.map(|(_, runners)| *runners).sum::<u32>().min(*runners)
                    };
                    let none = if fewest > 0 { without(&|len| len == 0) } else { 0 };
                    let few = without(&small).min(runners - none);
                    let rest =
                        if why == WaitReason::HostFull || fewest == 0 { Exclusion::Host } else { Exclusion::GpuMemory };
                    for (reason, many) in
                        [(Exclusion::NoGpus, none), (Exclusion::TooFewGpus, few), (rest, runners - none - few)]
                    {
                        if many > 0 {
                            *counts.entry(reason).or_default() += many;
                        }
                    }
                }
                (Standing::Open, None) => {}
            }
        }
    }
    let mut counts: Vec<(Exclusion, u32)> = counts.into_iter().collect();
    // The dominant reason first.
    counts.sort_by_key(|(reason, many)| (std::cmp::Reverse(*many), *reason));
    (counts, total)
}
