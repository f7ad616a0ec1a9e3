//! How many runners were not used, and why: counted from what the index keeps, not by looking at them.

use std::collections::BTreeMap;

use super::nearest::pinned_devices;
use crate::index::{Class, Standing};
use crate::plan::{Demand, excluded_by};
use crate::reason::{Exclusion, WaitReason};
use crate::state::State;
use crate::table::RunnerKey;

/// How many runners of a class have none of the devices that a model is pinned to.
fn without_pinned(state: &State, demand: &Demand<'_>, class: &Class) -> u32 {
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

/// How many runners were not used for which reason, the dominant one first; with `why`, those that could not be used
/// are counted too. Also how many runners there are.
pub(super) fn excluded(state: &State, demand: &Demand<'_>, why: Option<WaitReason>) -> (Vec<(Exclusion, u32)>, u32) {
    let (mut tally, mut total) = (Tally::default(), 0);
    for class in state.index.classes() {
        total += class.runners();
        match excluded_by(&demand.shape.constraints, demand.kind, &class.traits) {
            Some(reason) => tally.add(reason, class.runners()),
            None => count_matching(state, demand, class, why, &mut tally),
        }
    }
    (tally.dominant_first(), total)
}

/// Runners that match: those without the pinned devices, those that are shut, and those that have no room.
fn count_matching(state: &State, demand: &Demand<'_>, class: &Class, why: Option<WaitReason>, tally: &mut Tally) {
    let elsewhere = without_pinned(state, demand, class);
    tally.add(Exclusion::GpuUuid, elsewhere);
    for (standing, runners) in &class.standings {
        let runners = runners.saturating_sub(elsewhere);
        match (standing, why) {
            (Standing::Shut(reason), _) => tally.add(*reason, runners),
            (Standing::Open, Some(why)) => count_full(demand, class, why, runners, tally),
            (Standing::Open, None) => {}
        }
    }
}

/// Open runners that could not be used: without a GPU, with too few, or without room.
fn count_full(demand: &Demand<'_>, class: &Class, why: WaitReason, runners: u32, tally: &mut Tally) {
    let fewest = demand.shape.counts.first().map_or(0, |(count, _)| usize::from(count.get()));
    let with_gpus = |is: &dyn Fn(usize) -> bool| {
        let profiles = class.profiles.iter().filter(|(profile, _)| profile.mig.is_empty() && is(profile.gpus.len()));
        profiles.map(|(_, runners)| *runners).sum::<u32>()
    };
    let none = with_gpus(&|gpus| gpus == 0 && fewest > 0).min(runners);
    let few = with_gpus(&|gpus| gpus > 0 && gpus < fewest).min(runners - none);
    let host = why == WaitReason::HostFull || fewest == 0;
    tally.add(Exclusion::NoGpus, none);
    tally.add(Exclusion::TooFewGpus, few);
    tally.add(if host { Exclusion::Host } else { Exclusion::GpuMemory }, runners - none - few);
}

#[derive(Default)]
struct Tally(BTreeMap<Exclusion, u32>);

impl Tally {
    fn add(&mut self, reason: Exclusion, runners: u32) {
        if runners > 0 {
            *self.0.entry(reason).or_default() += runners;
        }
    }

    fn dominant_first(self) -> Vec<(Exclusion, u32)> {
        let mut counts: Vec<(Exclusion, u32)> = self.0.into_iter().collect();
        counts.sort_by_key(|(reason, runners)| (std::cmp::Reverse(*runners), *reason));
        counts
    }
}
