//! Where to look, so that a decision examines a handful of devices and not the fleet.
//!
//! Runners that no model can tell apart (same pool, runtimes, GPU names, and those labels that some model asks for)
//! are one [`Class`]. Each class keeps *shelves*: its places in the order of a ranking, one shelf for each [`Lens`]
//! (GPU count and strategy) that the catalogue uses, with what each subtree could give ([`Reach`]). Idle slots stand
//! on a shelf of their own, cheapest first. All of it is derived: [`State::rebuild_index`] gives the same answers.

mod ranked;
mod reach;
mod refresh;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use berth_domain::{
    GpuCount, GpuName, LabelKey, LabelValue, Memory, ModelSpec, Placement, PoolName, RuntimeKind, RuntimeName,
};
use smallvec::SmallVec;

pub(crate) use ranked::Ranked;
pub(crate) use reach::{Count, Depth, Gain, Reach, Soon, Spot, SpotKey, VictimKey, Wish};

use crate::reason::Exclusion;
use crate::state::Shape;
use crate::table::{ClassKey, DeviceKey, Key, MachineKey, RunnerKey};

/// A GPU count and a strategy that some model uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Lens {
    pub(crate) count: u16,
    pub(crate) placement: Placement,
    /// Which set of GPU names it looks at, or all of them. Only runners with several names have shelves for some.
    pub(crate) names: Names,
}

/// One of the sets of GPU names that models ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Names {
    #[default]
    Any,
    Set(u32),
}

impl Lens {
    /// Whether its places are devices. To pack one GPU the tightest of all devices is looked for, wherever it is; for
    /// everything else a runner's best is enough to know.
    pub(crate) fn is_of_devices(self) -> bool {
        self.count == 1 && self.placement == Placement::Pack
    }
}

/// What tells classes apart.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ClassTraits {
    pub(crate) pool: PoolName,
    pub(crate) runtimes: BTreeMap<RuntimeName, RuntimeKind>,
    pub(crate) labels: BTreeMap<LabelKey, LabelValue>,
    pub(crate) gpu_names: BTreeSet<GpuName>,
}

/// How large a runner is when it is empty, as it last was: for "never fits". GPUs that it no longer lists count.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Profile {
    /// Whole GPUs, largest first.
    pub(crate) gpus: SmallVec<[(u64, GpuName); 8]>,
    /// The largest MIG instance of each name.
    pub(crate) mig: BTreeMap<GpuName, u64>,
    pub(crate) cpu: u64,
    pub(crate) ram: u64,
}

/// Whether a runner is on the shelves, or why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Standing {
    Open,
    Shut(Exclusion),
}

/// Runners that no model can tell apart.
#[derive(Clone, Debug)]
pub(crate) struct Class {
    pub(crate) traits: ClassTraits,
    pub(crate) standings: BTreeMap<Standing, u32>,
    pub(crate) profiles: BTreeMap<Arc<Profile>, u32>,
    shelves: Vec<Ranked<SpotKey, Reach>>,
    pub(crate) victims: Ranked<VictimKey, Gain>,
}

/// All classes, and what makes them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Index {
    /// Each with the number of models that use it. One that nobody uses any more is left empty for the next.
    lenses: Vec<Option<(Lens, u32)>>,
    /// How many models ask for a fraction of a device.
    fractions: u32,
    /// Label keys that models ask for, and how many do.
    labels: BTreeMap<LabelKey, u32>,
    /// Sets of GPU names that models ask for, and how many do. Left empty like lenses.
    names: Vec<Option<(BTreeSet<GpuName>, u32)>>,
    classes: Vec<Class>,
    touched: Touched,
}

/// What changed since the index was last brought up to date.
#[derive(Clone, Debug, Default)]
struct Touched {
    devices: SmallVec<[DeviceKey; 8]>,
    runners: SmallVec<[RunnerKey; 4]>,
    hosts: SmallVec<[MachineKey; 2]>,
    all: bool,
}

impl Index {
    pub(crate) fn touch_all(&mut self) {
        self.touched = Touched { all: true, ..Touched::default() };
    }

    pub(crate) fn touch_device(&mut self, device: DeviceKey) {
        if !self.touched.devices.contains(&device) {
            self.touched.devices.push(device);
        }
    }

    pub(crate) fn touch_runner(&mut self, runner: RunnerKey) {
        if !self.touched.runners.contains(&runner) {
            self.touched.runners.push(runner);
        }
    }

    pub(crate) fn touch_host(&mut self, machine: MachineKey) {
        if !self.touched.hosts.contains(&machine) {
            self.touched.hosts.push(machine);
        }
    }

    /// Makes sure that the shelves answer for this model. A new lens or label means that all shelves are made anew.
    pub(crate) fn serve(&mut self, spec: &ModelSpec) {
        let asked = &spec.constraints.gpu_names;
        if !asked.is_empty() {
            count_up(&mut self.names, asked);
        }
        for lens in self.lenses_of(spec) {
            self.touched.all |= count_up(&mut self.lenses, &lens);
        }
        if asks_for_fractions(spec) {
            self.touched.all |= self.fractions == 0;
            self.fractions += 1;
        }
        for label in spec.constraints.labels.keys() {
            let models = self.labels.entry(label.clone()).or_default();
            self.touched.all |= *models == 0;
            *models += 1;
        }
    }

    /// A model is no more, or another: what only it asked for is forgotten.
    pub(crate) fn dismiss(&mut self, spec: &ModelSpec) {
        for lens in self.lenses_of(spec) {
            count_down_one(&mut self.lenses, &lens);
        }
        if !spec.constraints.gpu_names.is_empty() {
            count_down_one(&mut self.names, &spec.constraints.gpu_names);
        }
        if asks_for_fractions(spec) {
            self.fractions = self.fractions.saturating_sub(1);
            self.touched.all |= self.fractions == 0;
        }
        for label in spec.constraints.labels.keys() {
            let Some(models) = self.labels.get_mut(label) else { continue };
            *models = models.saturating_sub(1);
            if *models == 0 {
                self.labels.remove(label);
                // Runners that only this label told apart are one class again.
                self.touched.all = true;
            }
        }
    }

    fn lenses_of(&self, spec: &ModelSpec) -> BTreeSet<Lens> {
        let own = self.names_of(&spec.constraints.gpu_names);
        let lens = |count: GpuCount, names| Lens { count: count.get(), placement: spec.placement, names };
        let counts = spec.allowed_counts();
        counts.into_iter().flat_map(|count| [lens(count, Names::Any), lens(count, own)]).collect()
    }

    fn names_of(&self, asked: &BTreeSet<GpuName>) -> Names {
        let is_it = |known: &Option<(BTreeSet<GpuName>, u32)>| known.as_ref().is_some_and(|(set, _)| set == asked);
        self.names.iter().position(is_it).map_or(Names::Any, |position| Names::Set(number(position)))
    }

    /// Whether a lens looks at GPUs of this name.
    fn sees(&self, lens: Lens, name: &GpuName) -> bool {
        match lens.names {
            Names::Any => true,
            Names::Set(position) => {
                let set = self.names.get(position as usize).and_then(Option::as_ref);
                set.is_some_and(|(set, _)| set.contains(name))
            }
        }
    }

    /// The lenses in use, each with the number of its shelf.
    fn lenses(&self) -> impl Iterator<Item = (u32, Lens)> + Clone {
        let used = self.lenses.iter().enumerate();
        used.filter_map(|(position, entry)| entry.as_ref().map(|(lens, _)| (number(position), *lens)))
    }

    /// The lens for a shape on a class. Where all GPUs have one name, looking at all of them is the same.
    pub(crate) fn lens_for(&self, class: &Class, count: GpuCount, shape: &Shape) -> Lens {
        let asked = &shape.constraints.gpu_names;
        let mixed = class.traits.gpu_names.len() > 1 && !asked.is_empty();
        let names = if mixed { self.names_of(asked) } else { Names::Any };
        Lens { count: count.get(), placement: shape.placement, names }
    }

    pub(crate) fn class(&self, key: ClassKey) -> Option<&Class> {
        self.classes.get(key.row())
    }

    pub(crate) fn classes(&self) -> impl Iterator<Item = &Class> {
        self.classes.iter().filter(|class| !class.standings.is_empty())
    }

    /// The shelf of a class for a lens.
    pub(crate) fn shelf<'a>(&self, class: &'a Class, lens: Lens) -> Option<&'a Ranked<SpotKey, Reach>> {
        let is_it = |known: &Option<(Lens, u32)>| known.as_ref().is_some_and(|(known, _)| *known == lens);
        class.shelves.get(self.lenses.iter().position(is_it)?)
    }

    fn class_for(&mut self, traits: ClassTraits) -> ClassKey {
        let position = self.classes.iter().position(|class| class.traits == traits).unwrap_or_else(|| {
            self.classes.push(Class::new(traits));
            self.classes.len() - 1
        });
        ClassKey::at(position)
    }
}

/// The number of a position. There are never so many that it does not fit.
fn number(position: usize) -> u32 {
    u32::try_from(position).unwrap_or(u32::MAX)
}

fn asks_for_fractions(spec: &ModelSpec) -> bool {
    matches!(spec.memory.charged(), Some(Memory::Fraction(_)))
}

/// Counts one more user of a key, which gets a place if it has none. Says whether it is new.
fn count_up<K: Clone + PartialEq>(list: &mut Vec<Option<(K, u32)>>, key: &K) -> bool {
    if let Some((_, users)) = list.iter_mut().flatten().find(|(known, _)| known == key) {
        *users += 1;
        return false;
    }
    match list.iter_mut().find(|entry| entry.is_none()) {
        Some(free) => *free = Some((key.clone(), 1)),
        None => list.push(Some((key.clone(), 1))),
    }
    true
}

/// Counts one user of a key less. Its place is free once nobody uses it.
fn count_down_one<K: PartialEq>(list: &mut [Option<(K, u32)>], key: &K) {
    let is_it = |entry: &&mut Option<(K, u32)>| entry.as_ref().is_some_and(|(known, _)| known == key);
    let Some(entry) = list.iter_mut().find(is_it) else { return };
    if let Some((_, users)) = entry {
        *users -= 1;
        if *users == 0 {
            *entry = None;
        }
    }
}

impl Class {
    fn new(traits: ClassTraits) -> Self {
        Self {
            traits,
            standings: BTreeMap::new(),
            profiles: BTreeMap::new(),
            shelves: Vec::new(),
            victims: Ranked::new(),
        }
    }

    pub(crate) fn runners(&self) -> u32 {
        self.standings.values().sum()
    }

    fn shelf_mut(&mut self, lens: u32) -> &mut Ranked<SpotKey, Reach> {
        let position = lens as usize;
        if self.shelves.len() <= position {
            self.shelves.resize_with(position + 1, Ranked::new);
        }
        &mut self.shelves[position]
    }
}

impl Class {
    /// Whether two classes give the same answers through the lenses in use.
    pub(crate) fn is_same(&self, other: &Self, index: &Index) -> bool {
        let shelf = |class: &Self, position: u32| {
            class.shelves.get(position as usize).map(|shelf| shelf.iter().collect::<Vec<_>>()).unwrap_or_default()
        };
        self.standings == other.standings
            && self.profiles == other.profiles
            && index.lenses().all(|(position, _)| shelf(self, position) == shelf(other, position))
            && self.victims.iter().eq(other.victims.iter())
    }
}
