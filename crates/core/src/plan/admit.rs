//! "Full now" is never an error, and "never fits" is never a wait.
//!
//! Judged on the full size of every runner that was not forgotten, as it last was: lost runners count, and so do GPUs
//! that a runner no longer lists since its machine was booted. All that a model asks for must be there on one runner.

use berth_domain::{GpuMemory, GpuName, WorkloadKind};
use smallvec::SmallVec;

use super::filter::lacks_only_runtime;
use super::{Demand, excluded_by};
use crate::index::{Class, Profile, Standing};
use crate::reason::{Unplaceable, WaitReason};
use crate::state::{Runner, State};

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
    if !demand.shape.counts.iter().any(|(_, needs)| could_ever(state, demand, needs)) {
        return Err(Unplaceable::NeverFits);
    }
    Ok(wait_reason(state, demand, &matching))
}

fn matching_classes<'a>(state: &'a State, demand: &Demand<'_>) -> Result<Vec<&'a Class>, Unplaceable> {
    let constraints = &demand.shape.constraints;
    let mut only_runtime_missing = false;
    let mut matching = Vec::new();
    for class in state.index.classes() {
        match excluded_by(constraints, demand.kind, &class.traits) {
            None => matching.push(class),
            Some(_) => only_runtime_missing |= lacks_only_runtime(constraints, demand.kind, &class.traits),
        }
    }
    if matching.is_empty() {
        return Err(match (is_for_other_work(state, demand), only_runtime_missing, demand.kind) {
            (true, _, WorkloadKind::Job) => Unplaceable::RuntimeNotForJobs,
            (true, _, WorkloadKind::Lease) => Unplaceable::RuntimeOnlyForJobs,
            (false, true, _) => Unplaceable::RuntimeMissing,
            (false, false, _) => Unplaceable::NoMatchingRunner,
        });
    }
    if !constraints.gpu_uuids.is_empty() && pinned_runners(state, demand).next().is_none() {
        return Err(Unplaceable::NoMatchingRunner);
    }
    Ok(matching)
}

/// Whether every runner that has the runtime says that it is for the other kind of work.
fn is_for_other_work(state: &State, demand: &Demand<'_>) -> bool {
    let runtime = &demand.shape.constraints.runtime;
    let mut offers = state.index.classes().filter_map(|class| class.traits.runtimes.get(runtime)).peekable();
    offers.peek().is_some() && !offers.any(|offered| offered.takes(demand.kind))
}

/// Runners of a matching class that have, or had, one of the devices that a model is pinned to.
pub(super) fn pinned_runners<'a>(state: &'a State, demand: &'a Demand<'_>) -> impl Iterator<Item = &'a Runner> {
    let constraints = &demand.shape.constraints;
    let has_one = |row: &Runner| {
        let listed = row.devices.iter().filter_map(|key| state.devices.get(*key)).map(|device| &device.uuid);
        listed.chain(row.missing.iter().map(|gpu| &gpu.uuid)).any(|uuid| constraints.gpu_uuids.contains(uuid))
    };
    let matches = |row: &Runner| {
        let class = row.standing.as_ref().and_then(|(class, ..)| state.index.class(*class));
        class.is_some_and(|class| excluded_by(constraints, demand.kind, &class.traits).is_none())
    };
    state.runners.iter().map(|(_, row)| row).filter(move |row| matches(row) && has_one(row))
}

fn is_without_gpus(profile: &Profile) -> bool {
    profile.gpus.is_empty() && profile.mig.is_empty()
}

/// Whether some runner, empty, could hold a slot with these needs: all of what the model asks for together.
pub(crate) fn could_ever(state: &State, demand: &Demand<'_>, needs: &[GpuMemory]) -> bool {
    each_size(state, demand, |gpus, cpu, ram| host_could_hold(demand, cpu, ram) && gpus.could_hold(needs))
}

/// Shows what each runner that matches has when it is empty (GPUs, CPU, RAM), runners of one size once, until `found`
/// says yes. Says whether it did.
pub(super) fn each_size(state: &State, demand: &Demand<'_>, mut found: impl FnMut(Gpus, u64, u64) -> bool) -> bool {
    let constraints = &demand.shape.constraints;
    if constraints.gpu_uuids.is_empty() {
        let matching = |class: &&Class| excluded_by(constraints, demand.kind, &class.traits).is_none();
        let mut profiles = state.index.classes().filter(matching).flat_map(|class| class.profiles.keys());
        return profiles.any(|profile| found(Gpus::of_profile(profile, demand), profile.cpu, profile.ram));
    }
    pinned_runners(state, demand).any(|runner| {
        let Some(machine) = state.machines.get(runner.machine) else { return false };
        let gpus = Gpus::pinned_on(state, runner, demand);
        found(gpus, machine.cpu.capacity().get(), machine.ram.capacity().get())
    })
}

fn host_could_hold(demand: &Demand<'_>, cpu: u64, ram: u64) -> bool {
    cpu >= demand.shape.cpu.get() && ram >= demand.shape.ram.get()
}

/// The GPUs of one runner that a model may use, by size.
pub(super) struct Gpus {
    /// Largest first.
    whole: SmallVec<[u64; 8]>,
    largest_mig: Option<u64>,
}

impl Gpus {
    fn of_profile(profile: &Profile, demand: &Demand<'_>) -> Self {
        let is_named = |name: &GpuName| is_named(demand, name);
        let whole = profile.gpus.iter().filter(|(_, name)| is_named(name)).map(|(size, _)| *size);
        let mig = profile.mig.iter().filter(|(name, _)| is_named(name)).map(|(_, size)| *size);
        Self { whole: whole.collect(), largest_mig: mig.max() }
    }

    fn pinned_on(state: &State, runner: &Runner, demand: &Demand<'_>) -> Self {
        let pinned = &demand.shape.constraints.gpu_uuids;
        let listed = runner.devices.iter().filter_map(|key| state.devices.get(*key));
        let usable =
            listed.filter(|row| pinned.contains(&row.uuid) && is_named(demand, &row.name) && row.instances == 0);
        let (mut whole, mut largest_mig) = (SmallVec::<[u64; 8]>::new(), None);
        for device in usable {
            let size = device.ledger.capacity().get();
            match device.is_mig() {
                true => largest_mig = largest_mig.max(Some(size)),
                false => whole.push(size),
            }
        }
        let missing = runner.missing.iter().filter(|gpu| pinned.contains(&gpu.uuid) && is_named(demand, &gpu.name));
        whole.extend(missing.map(|gpu| gpu.capacity.get()));
        whole.sort_unstable_by(|a, b| b.cmp(a));
        Self { whole, largest_mig }
    }

    /// Whether they could hold a slot with these needs, each its own. MIG instances never work together.
    pub(super) fn could_hold(&self, needs: &[GpuMemory]) -> bool {
        if let ([need], Some(size)) = (needs, self.largest_mig)
            && fits_empty(*need, size)
        {
            return true;
        }
        let mut largest_first: SmallVec<[GpuMemory; 8]> = needs.iter().copied().collect();
        largest_first.sort_unstable_by(|a, b| b.cmp(a));
        needs.len() <= self.whole.len()
            && largest_first.iter().zip(&self.whole).all(|(need, size)| fits_empty(*need, *size))
    }

    /// The sizes of so many GPUs that one slot can have together, largest first, or `None` if there are not so many.
    pub(super) fn largest(&self, count: usize) -> Option<SmallVec<[u64; 8]>> {
        if count == 1 {
            let largest = self.whole.first().copied().max(self.largest_mig)?;
            return Some(SmallVec::from_slice(&[largest]));
        }
        Some(self.whole.get(..count)?.into())
    }

    /// How many GPUs one slot can have at most.
    pub(super) fn most_together(&self) -> usize {
        self.whole.len().max(usize::from(self.largest_mig.is_some()))
    }
}

fn is_named(demand: &Demand<'_>, name: &GpuName) -> bool {
    let names = &demand.shape.constraints.gpu_names;
    names.is_empty() || names.contains(name)
}

pub(super) fn fits_empty(need: GpuMemory, capacity: u64) -> bool {
    match need {
        GpuMemory::Bytes(bytes) => bytes.get() <= capacity,
        GpuMemory::Fraction(_) => capacity > 0,
        GpuMemory::Whole(least) => capacity > 0 && least.get() <= capacity,
    }
}

fn wait_reason(state: &State, demand: &Demand<'_>, matching: &[&Class]) -> WaitReason {
    if state.history.has_gone_back() {
        return WaitReason::HistoryWentBack;
    }
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
            .any(|shelf| shelf.summary().may_memory(&wish, crate::index::Soon::Now, None))
    });
    let needs_host = demand.shape.cpu.get() > 0 || !demand.shape.ram.is_zero();
    if needs_host && memory_somewhere { WaitReason::HostFull } else { WaitReason::FullNow }
}
