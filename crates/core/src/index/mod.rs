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

use berth_domain::{GpuCount, GpuName, LabelKey, LabelValue, Memory, ModelSpec, Placement, PoolName, RuntimeName};
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
    Set(u16),
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
    pub(crate) runtimes: BTreeSet<RuntimeName>,
    pub(crate) labels: BTreeMap<LabelKey, LabelValue>,
    pub(crate) gpu_names: BTreeSet<GpuName>,
}

/// How large a runner is when it is empty: for "never fits".
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Profile {
    /// Whole GPUs, largest first.
    pub(crate) gpus: SmallVec<[u64; 8]>,
    /// The largest MIG instance, or nothing.
    pub(crate) mig: u64,
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
    lenses: Vec<Lens>,
    /// Whether some model asks for a fraction of a device.
    fractions: bool,
    /// Label keys that some model asks for.
    labels: BTreeSet<LabelKey>,
    /// Sets of GPU names that some model asks for.
    names: Vec<BTreeSet<GpuName>>,
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
        if !asked.is_empty() && !self.names.contains(asked) {
            self.names.push(asked.clone());
        }
        let own = self.names_of(asked);
        for count in spec.allowed_counts() {
            for names in [Names::Any, own] {
                let lens = Lens { count: count.get(), placement: spec.placement, names };
                if !self.lenses.contains(&lens) {
                    self.lenses.push(lens);
                    self.touched.all = true;
                }
            }
        }
        if !self.fractions && matches!(spec.memory.charged(), Some(Memory::Fraction(_))) {
            self.fractions = true;
            self.touched.all = true;
        }
        for label in spec.constraints.labels.keys() {
            self.touched.all |= self.labels.insert(label.clone());
        }
    }

    fn names_of(&self, asked: &BTreeSet<GpuName>) -> Names {
        let position = self.names.iter().position(|known| known == asked);
        position.and_then(|position| u16::try_from(position).ok()).map_or(Names::Any, Names::Set)
    }

    /// Whether a lens looks at GPUs of this name.
    fn sees(&self, lens: Lens, name: &GpuName) -> bool {
        match lens.names {
            Names::Any => true,
            Names::Set(position) => self.names.get(usize::from(position)).is_some_and(|set| set.contains(name)),
        }
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
        let position = self.lenses.iter().position(|known| *known == lens)?;
        class.shelves.get(position)
    }

    fn class_for(&mut self, traits: ClassTraits) -> ClassKey {
        let position = self.classes.iter().position(|class| class.traits == traits).unwrap_or_else(|| {
            self.classes.push(Class::new(traits));
            self.classes.len() - 1
        });
        ClassKey::at(position)
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

    fn shelf_mut(&mut self, lens: u8) -> &mut Ranked<SpotKey, Reach> {
        let position = usize::from(lens);
        if self.shelves.len() <= position {
            self.shelves.resize_with(position + 1, Ranked::new);
        }
        &mut self.shelves[position]
    }
}

impl Class {
    /// Whether two classes give the same answers.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let shelf = |class: &Self, position: usize| {
            class.shelves.get(position).map(|shelf| shelf.iter().collect::<Vec<_>>()).unwrap_or_default()
        };
        let most = self.shelves.len().max(other.shelves.len());
        self.standings == other.standings
            && self.profiles == other.profiles
            && (0..most).all(|position| shelf(self, position) == shelf(other, position))
            && self.victims.iter().eq(other.victims.iter())
    }
}
