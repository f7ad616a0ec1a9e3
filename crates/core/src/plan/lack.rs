//! What the fleet lacks for work that can never run on it.
//!
//! What no runner has at all is named, all of it at once. Where each thing is somewhere but no runner has everything,
//! the first thing is named that excludes the last runners, in the order of [`excluded_by`].

use std::cmp::Reverse;
use std::collections::BTreeMap;

use berth_domain::{DeviceUuid, LabelKey, LabelValue};

use super::filter::{excluded_by, has_gpu_name, has_label, has_pool, has_runtime, has_runtime_for};
use super::size::nearest_size;
use super::{Demand, admit};
use crate::index::{Class, ClassTraits};
use crate::lack::{Lack, Offers, PinnedElsewhere};
use crate::reason::Exclusion;
use crate::state::{Runner, State};

/// How many names a list of what there is shows at most.
const SHOWN: usize = 5;

/// Everything that the fleet lacks for a demand. Empty if the demand can be met, or could be by an emptier fleet.
pub(crate) fn lacks(state: &State, demand: &Demand<'_>) -> Vec<Lack> {
    if demand.shape.counts.is_empty() {
        return vec![Lack::KnownMemory];
    }
    let fleet = Fleet { demand, classes: state.index.classes().collect() };
    let mut missing = fleet.missing_everywhere();
    let pins = &demand.shape.constraints.gpu_uuids;
    let is_pin_unknown = !pins.is_empty() && pins.iter().all(|uuid| owners(state, uuid).next().is_none());
    if is_pin_unknown {
        missing.push(pinned(state, demand));
    }
    if !missing.is_empty() {
        return missing;
    }
    if let Some(lack) = fleet.missing_together() {
        return vec![lack];
    }
    if !pins.is_empty() && admit::pinned_runners(state, demand).next().is_none() {
        return vec![pinned(state, demand)];
    }
    nearest_size(state, demand).into_iter().collect()
}

/// All classes of runners, and what is asked of them.
struct Fleet<'a> {
    demand: &'a Demand<'a>,
    classes: Vec<&'a Class>,
}

impl Fleet<'_> {
    fn missing_everywhere(&self) -> Vec<Lack> {
        let constraints = &self.demand.shape.constraints;
        let nobody = |has: &dyn Fn(&ClassTraits) -> bool| !self.classes.iter().any(|class| has(&class.traits));
        let all = self.classes.as_slice();
        let mut missing = Vec::new();
        if nobody(&|class| has_pool(constraints, class)) {
            missing.push(self.pool());
        }
        for (key, value) in &constraints.labels {
            if nobody(&|class| has_label(key, value, class)) {
                missing.push(self.label(key, value, all));
            }
        }
        if nobody(&|class| has_runtime(constraints, class)) {
            missing.push(self.runtime(all));
        } else if nobody(&|class| has_runtime_for(constraints, self.demand.kind, class)) {
            missing.push(self.runtime_kind(all));
        }
        if nobody(&|class| has_gpu_name(constraints, class)) {
            missing.push(self.gpu_name(all));
        }
        missing
    }

    /// What excludes the runners that come furthest.
    fn missing_together(&self) -> Option<Lack> {
        let excluded = |class: &&Class| excluded_by(&self.demand.shape.constraints, self.demand.kind, &class.traits);
        if self.classes.iter().any(|class| excluded(class).is_none()) {
            return None;
        }
        let last = self.classes.iter().filter_map(&excluded).max()?;
        let furthest: Vec<&Class> =
            self.classes.iter().copied().filter(|class| excluded(class) >= Some(last)).collect();
        Some(match last {
            Exclusion::Labels => self.first_label(&furthest)?,
            Exclusion::Runtime => self.runtime(&furthest),
            Exclusion::RuntimeKind => self.runtime_kind(&furthest),
            Exclusion::GpuName => self.gpu_name(&furthest),
            _ => self.pool(),
        })
    }

    /// The label after which none of these runners is left.
    fn first_label(&self, among: &[&Class]) -> Option<Lack> {
        let mut left = among.to_vec();
        for (key, value) in &self.demand.shape.constraints.labels {
            let next: Vec<&Class> = left.iter().copied().filter(|class| has_label(key, value, &class.traits)).collect();
            if next.is_empty() {
                return Some(self.label(key, value, &left));
            }
            left = next;
        }
        None
    }

    fn pool(&self) -> Lack {
        let wanted = self.demand.shape.constraints.pool.clone();
        let named = self.classes.iter().map(|class| (class.traits.pool.clone(), class.runners()));
        Lack::Pool { there: self.offers(named, &self.classes, |_| false), wanted }
    }

    fn label(&self, key: &LabelKey, wanted: &LabelValue, among: &[&Class]) -> Lack {
        let named = among.iter().filter_map(|class| Some((class.traits.labels.get(key)?.clone(), class.runners())));
        let there = self.offers(named, among, |class| has_label(key, wanted, class));
        Lack::Label { key: key.clone(), wanted: wanted.clone(), there }
    }

    fn runtime(&self, among: &[&Class]) -> Lack {
        let constraints = &self.demand.shape.constraints;
        let runtimes = |class: &&Class| {
            let runners = class.runners();
            class.traits.runtimes.keys().map(move |name| (name.clone(), runners)).collect::<Vec<_>>()
        };
        let there = self.offers(among.iter().flat_map(runtimes), among, |class| has_runtime(constraints, class));
        Lack::Runtime { wanted: constraints.runtime.clone(), there }
    }

    fn runtime_kind(&self, among: &[&Class]) -> Lack {
        let constraints = &self.demand.shape.constraints;
        let with_runtime = among.iter().filter(|class| has_runtime(constraints, &class.traits));
        Lack::RuntimeKind {
            runtime: constraints.runtime.clone(),
            kind: self.demand.kind,
            runners: with_runtime.map(|class| class.runners()).sum(),
        }
    }

    fn gpu_name(&self, among: &[&Class]) -> Lack {
        let constraints = &self.demand.shape.constraints;
        let names = |class: &&Class| {
            let runners = class.runners();
            class.traits.gpu_names.iter().map(move |name| (name.clone(), runners)).collect::<Vec<_>>()
        };
        let there = self.offers(among.iter().flat_map(names), among, |class| has_gpu_name(constraints, class));
        Lack::GpuName { wanted: constraints.gpu_names.iter().cloned().collect(), there }
    }

    /// What these runners have, and how many others have what is asked for.
    fn offers<N: Ord>(
        &self,
        named: impl Iterator<Item = (N, u32)>,
        among: &[&Class],
        has_it: impl Fn(&ClassTraits) -> bool,
    ) -> Offers<N> {
        let mut counts = BTreeMap::<N, u32>::new();
        for (name, runners) in named {
            *counts.entry(name).or_default() += runners;
        }
        let mut names: Vec<(N, u32)> = counts.into_iter().collect();
        names.sort_by_key(|(_, runners)| Reverse(*runners));
        let left_out = names.len().saturating_sub(SHOWN);
        names.truncate(SHOWN);
        let mut elsewhere = BTreeMap::<Exclusion, u32>::new();
        for class in self.classes.iter().filter(|class| has_it(&class.traits)) {
            let why = excluded_by(&self.demand.shape.constraints, self.demand.kind, &class.traits);
            if let Some(why) = why {
                *elsewhere.entry(why).or_default() += class.runners();
            }
        }
        Offers {
            names,
            left_out,
            among: among.iter().map(|class| class.runners()).sum(),
            elsewhere: elsewhere.into_iter().collect(),
        }
    }
}

/// The runners that have a GPU, or had it since their machine was booted.
fn owners<'a>(state: &'a State, uuid: &'a DeviceUuid) -> impl Iterator<Item = &'a Runner> {
    let attachments = state.devices.find(uuid).into_iter().flat_map(|(_, device)| device.attachments.iter());
    let listed = attachments.filter_map(|row| state.runners.get(row.runner));
    let missing =
        state.runners.iter().map(|(_, row)| row).filter(|row| row.missing.iter().any(|gpu| gpu.uuid == *uuid));
    listed.chain(missing)
}

fn pinned(state: &State, demand: &Demand<'_>) -> Lack {
    let constraints = &demand.shape.constraints;
    let elsewhere = |uuid: &DeviceUuid| {
        let owner = owners(state, uuid).next()?;
        let class = owner.standing.as_ref().and_then(|(class, ..)| state.index.class(*class))?;
        let excluded_by = excluded_by(constraints, demand.kind, &class.traits)?;
        Some(PinnedElsewhere { uuid: uuid.clone(), runner: owner.id.clone(), excluded_by })
    };
    Lack::GpuUuid {
        wanted: constraints.gpu_uuids.iter().take(SHOWN).cloned().collect(),
        elsewhere: constraints.gpu_uuids.iter().filter_map(elsewhere).take(SHOWN).collect(),
    }
}
