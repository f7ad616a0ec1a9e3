//! "Full now" is never an error, and "never fits" is never a wait.

use berth_domain::{GpuCount, GpuMemory};

use super::filter::lacks_only_runtime;
use super::{Demand, excluded_by};
use crate::index::{Class, Profile, Standing};
use crate::reason::{Unplaceable, WaitReason};
use crate::state::State;

/// Judged on the full last-known size of every runner that was not forgotten, lost ones included.
/// Why a demand that cannot be met now waits, or why it can never be met.
pub(super) fn judge(state: &State, demand: &Demand<'_>) -> Result<WaitReason, Unplaceable> {
    if demand.shape.counts.is_empty() {
        return Err(Unplaceable::UnknownMemory);
    }
    if state.index.classes().next().is_none() {
        return Ok(WaitReason::NoRunners);
    }
    let matching = matching_classes(state, demand)?;
    if !demand.shape.is_cpu_only()
        && matching.iter().all(|class| class.profiles.keys().all(|profile| is_without_gpus(profile)))
    {
        return Ok(WaitReason::NoGpus);
    }
    let large_enough = |class: &&Class| class.profiles.keys().any(|profile| could_hold(profile, demand));
    if !matching.iter().any(large_enough) || !pinned_could_hold(state, demand) {
        return Err(Unplaceable::NeverFits);
    }
    Ok(wait_reason(state, demand, &matching))
}

fn matching_classes<'a>(state: &'a State, demand: &Demand<'_>) -> Result<Vec<&'a Class>, Unplaceable> {
    let constraints = &demand.shape.constraints;
    let mut only_runtime_missing = false;
    let mut matching = Vec::new();
    for class in state.index.classes() {
        match excluded_by(constraints, &class.traits) {
            None => matching.push(class),
            Some(_) => only_runtime_missing |= lacks_only_runtime(constraints, &class.traits),
        }
    }
    let pinned = &constraints.gpu_uuids;
    if !pinned.is_empty() && !pinned.iter().any(|uuid| state.devices.key(uuid).is_some()) {
        return Err(Unplaceable::NoMatchingRunner);
    }
    match (matching.is_empty(), only_runtime_missing) {
        (false, _) => Ok(matching),
        (true, true) => Err(Unplaceable::RuntimeMissing),
        (true, false) => Err(Unplaceable::NoMatchingRunner),
    }
}

fn is_without_gpus(profile: &Profile) -> bool {
    profile.gpus.is_empty() && profile.mig == 0
}

/// Whether an empty runner of this size could hold the demand with some allowed count.
fn could_hold(profile: &Profile, demand: &Demand<'_>) -> bool {
    let host = profile.cpu >= demand.shape.cpu.get() && profile.ram >= demand.shape.ram.get();
    host && demand.shape.counts.iter().any(|(count, needs)| holds_count(profile, *count, needs))
}

/// Whether some runner, empty, could hold a slot with these needs.
pub(crate) fn could_ever(state: &State, demand: &Demand<'_>, needs: &[GpuMemory]) -> bool {
    let count = GpuCount::new(u16::try_from(needs.len()).unwrap_or(u16::MAX));
    let matching = |class: &&Class| excluded_by(&demand.shape.constraints, &class.traits).is_none();
    let profiles = state.index.classes().filter(matching).flat_map(|class| class.profiles.keys());
    profiles.into_iter().any(|profile| holds_count(profile, count, needs))
}

fn holds_count(profile: &Profile, count: GpuCount, needs: &[GpuMemory]) -> bool {
    if let ([need], true) = (needs, profile.mig > 0)
        && fits_empty(*need, profile.mig)
    {
        return true;
    }
    let enough = usize::from(count.get()) <= profile.gpus.len();
    if let ([first, rest @ ..], true) = (needs, enough)
        && rest.iter().all(|need| need == first)
    {
        return fits_empty(*first, profile.gpus[rest.len()]);
    }
    let mut largest_first = needs.to_vec();
    largest_first.sort_unstable_by(|a, b| b.cmp(a));
    enough && largest_first.iter().zip(&profile.gpus).all(|(need, capacity)| fits_empty(*need, *capacity))
}

fn fits_empty(need: GpuMemory, capacity: u64) -> bool {
    match need {
        GpuMemory::Bytes(bytes) => bytes.get() <= capacity,
        GpuMemory::Fraction(_) | GpuMemory::Whole => capacity > 0,
    }
}

/// A model pinned to devices must fit those devices, whatever else a runner has.
fn pinned_could_hold(state: &State, demand: &Demand<'_>) -> bool {
    let pinned = &demand.shape.constraints.gpu_uuids;
    if pinned.is_empty() || demand.shape.is_cpu_only() {
        return true;
    }
    let mut capacities: Vec<u64> = pinned
        .iter()
        .filter_map(|uuid| state.devices.find(uuid))
        .map(|(_, device)| device.ledger.capacity().get())
        .collect();
    capacities.sort_unstable_by(|a, b| b.cmp(a));
    demand.shape.counts.iter().any(|(_, needs)| {
        let mut largest_first = needs.clone();
        largest_first.sort_unstable_by(|a, b| b.cmp(a));
        needs.len() <= capacities.len()
            && largest_first.iter().zip(&capacities).all(|(need, capacity)| fits_empty(*need, *capacity))
    })
}

fn wait_reason(state: &State, demand: &Demand<'_>, matching: &[&Class]) -> WaitReason {
    if matching.iter().all(|class| !class.standings.contains_key(&Standing::Open)) {
        return WaitReason::RunnersNotReady;
    }
    let memory_somewhere = demand.shape.counts.iter().any(|(count, needs)| {
        let wish = demand.wish(*count, needs);
        let shelves = matching
            .iter()
            .filter_map(|class| state.index.shelf(class, state.index.lens_for(class, *count, demand.shape)));
        shelves
            .filter(|shelf| !shelf.is_empty())
            .any(|shelf| shelf.summary().may_memory(&wish, crate::index::Soon::Now))
    });
    let needs_host = demand.shape.cpu.get() > 0 || !demand.shape.ram.is_zero();
    if needs_host && memory_somewhere { WaitReason::HostFull } else { WaitReason::FullNow }
}
