//! Bringing the shelves up to date with the ledgers after an event.

use std::collections::BTreeMap;
use std::sync::Arc;

use berth_domain::{Bytes, Fraction, GpuName, Placement};
use smallvec::SmallVec;

use super::reach::{Contested, Depth, HostDepth, SortedDepths};
use super::{ClassTraits, Gain, Lens, Names, Profile, Reach, Spot, SpotKey, Standing, Touched, VictimKey};
use crate::ledger::Phase;
use crate::reason::Exclusion;
use crate::state::{Admission, Device, Liveness, Machine, Runner, State};
use crate::table::{ClassKey, DeviceKey, ModelKey, RunnerKey};

type Spots = SmallVec<[Spot; 4]>;

impl State {
    /// Makes what plans are made from, after events were replayed.
    pub fn finish_replay(&mut self) {
        self.refresh_index();
    }

    /// Brings the shelves up to date with everything touched since the last time.
    pub(crate) fn refresh_index(&mut self) {
        if self.index.touched.all {
            self.rebuild_index();
            return;
        }
        let touched = std::mem::take(&mut self.index.touched);
        let Touched { devices, runners, hosts, .. } = touched;
        let mut sets = SmallVec::<[RunnerKey; 4]>::new();
        for machine in hosts {
            let of_machine = self.machines.get(machine).map(|machine| machine.runners.clone()).unwrap_or_default();
            of_machine.into_iter().for_each(|runner| push_new(&mut sets, runner));
        }
        // A host's room is part of every place on it.
        if self.index.lenses().any(|(_, lens)| lens.is_of_devices()) {
            sets.iter().for_each(|runner| self.refresh_attachments(*runner));
        }
        for device in devices {
            self.refresh_depth(device);
            let attachments = self.devices.get(device).map(|device| device.attachments.iter().map(|row| row.runner));
            let attachments: SmallVec<[RunnerKey; 2]> = attachments.into_iter().flatten().collect();
            for runner in attachments {
                self.refresh_attachment(runner, device);
                push_new(&mut sets, runner);
            }
        }
        runners.iter().for_each(|runner| self.refresh_runner(*runner));
        sets.into_iter().filter(|runner| !runners.contains(runner)).for_each(|runner| self.refresh_sets(runner));
    }

    /// Makes all shelves anew.
    pub(crate) fn rebuild_index(&mut self) {
        self.index.touched = Touched::default();
        self.index.classes.clear();
        for runner in self.runners.keys() {
            if let Some(row) = self.runners.get_mut(runner) {
                row.standing = None;
                row.spots.clear();
            }
        }
        for device in self.devices.keys() {
            for attachment in self.devices.get_mut(device).map(|row| &mut row.attachments).into_iter().flatten() {
                attachment.spots.clear();
                attachment.victims.clear();
            }
            self.refresh_depth(device);
        }
        for runner in self.runners.keys() {
            self.refresh_runner(runner);
        }
    }

    /// Takes a runner off all shelves, for good.
    pub(crate) fn leave_index(&mut self, runner: RunnerKey) {
        let devices = self.runners.get(runner).map(|row| row.devices.clone()).unwrap_or_default();
        for device in devices {
            self.leave_attachment(runner, device);
        }
        self.put_sets(runner, Spots::new());
        self.put_standing(runner, None);
    }

    /// Takes one device of a runner off the shelves.
    pub(crate) fn leave_attachment(&mut self, runner: RunnerKey, device: DeviceKey) {
        self.put_attachment(runner, device, Spots::new(), &[]);
    }

    fn refresh_runner(&mut self, runner: RunnerKey) {
        self.refresh_standing(runner);
        self.refresh_attachments(runner);
        self.refresh_sets(runner);
    }

    fn refresh_attachments(&mut self, runner: RunnerKey) {
        let devices = self.runners.get(runner).map(|row| row.devices.clone()).unwrap_or_default();
        for device in devices {
            self.refresh_depth(device);
            self.refresh_attachment(runner, device);
        }
    }

    fn refresh_standing(&mut self, runner: RunnerKey) {
        let Some(row) = self.runners.get(runner) else { return };
        let next = self.standing_of(row).map(|(standing, profile)| {
            let same = |now: &(ClassKey, Standing, Arc<Profile>)| *now.2 == profile;
            (
                standing,
                row.standing
                    .as_ref()
                    .filter(|now| same(now))
                    .map_or_else(|| Arc::new(profile.clone()), |now| now.2.clone()),
            )
        });
        let Some((standing, profile)) = next else { return self.put_standing(runner, None) };
        // A class is looked up only when something that makes classes may have changed.
        let class = match &row.standing {
            Some((class, ..)) if self.index.class(*class).is_some_and(|known| self.is_of_class(row, &known.traits)) => {
                *class
            }
            _ => {
                let traits = self.class_traits(row);
                self.index.class_for(traits)
            }
        };
        if self.runners.get(runner).and_then(|row| row.standing.as_ref()).is_some_and(|(old, ..)| *old != class) {
            self.leave_index(runner);
        }
        self.put_standing(runner, Some((class, standing, profile)));
    }

    fn standing_of(&self, runner: &Runner) -> Option<(Standing, Profile)> {
        if runner.is_forgotten() || runner.traits.is_none() {
            return None;
        }
        let machine = self.machines.get(runner.machine)?;
        let mut profile =
            Profile { cpu: machine.cpu.capacity().get(), ram: machine.ram.capacity().get(), ..Profile::default() };
        let mut any_open = false;
        for device in runner.devices.iter().filter_map(|key| self.devices.get(*key)) {
            let closed = device.closed();
            any_open |= closed.is_none();
            match device.ledger.capacity().get() {
                _ if device.instances > 0 => {}
                capacity if device.is_mig() => {
                    let largest = profile.mig.entry(device.name.clone()).or_default();
                    *largest = capacity.max(*largest);
                }
                capacity => profile.gpus.push((capacity, device.name.clone())),
            }
        }
        profile.gpus.extend(runner.missing.iter().map(|gpu| (gpu.capacity.get(), gpu.name.clone())));
        profile.gpus.sort_unstable_by(|a, b| b.cmp(a));
        let standing = match (runner.liveness, runner.admission) {
            (Liveness::Lost, _) => Standing::Shut(Exclusion::Lost),
            (Liveness::Suspect, _) => Standing::Shut(Exclusion::Suspect),
            (_, Admission::Cordoned) => Standing::Shut(Exclusion::Cordoned),
            (_, Admission::Draining { .. } | Admission::Drained) => Standing::Shut(Exclusion::Draining),
            _ if !runner.reported => Standing::Shut(Exclusion::NotReported),
            _ if runner.barred.is_some() => Standing::Shut(runner.barred.unwrap_or(Exclusion::NotReported)),
            _ if !any_open && !runner.devices.is_empty() => Standing::Shut(Exclusion::DevicesClosed),
            _ => Standing::Open,
        };
        Some((standing, profile))
    }

    fn class_traits(&self, runner: &Runner) -> ClassTraits {
        let names = self.names_on(runner).cloned();
        let (pool, runtimes, labels) = match &runner.traits {
            Some(traits) => {
                let relevant = traits.labels.iter().filter(|(key, _)| self.index.labels.contains_key(*key));
                let labels = relevant.map(|(key, value)| (key.clone(), value.clone())).collect();
                (traits.pool.clone(), traits.runtimes.clone(), labels)
            }
            None => (berth_domain::PoolName::default_pool(), BTreeMap::new(), BTreeMap::new()),
        };
        ClassTraits { pool, runtimes, labels, gpu_names: names.collect() }
    }

    fn is_of_class(&self, runner: &Runner, class: &ClassTraits) -> bool {
        let Some(traits) = &runner.traits else { return false };
        let names = self.names_on(runner);
        let relevant = traits.labels.iter().filter(|(key, _)| self.index.labels.contains_key(*key));
        traits.pool == class.pool
            && traits.runtimes == class.runtimes
            && relevant.eq(class.labels.iter())
            && names.clone().all(|name| class.gpu_names.contains(name))
            && class.gpu_names.iter().all(|known| names.clone().any(|name| name == known))
    }

    /// Names of a runner's GPUs, those that it no longer lists among them.
    fn names_on<'a>(&'a self, runner: &'a Runner) -> impl Iterator<Item = &'a GpuName> + Clone {
        let listed = runner.devices.iter().filter_map(|key| self.devices.get(*key)).map(|device| &device.name);
        listed.chain(runner.missing.iter().map(|gpu| &gpu.name))
    }

    fn put_standing(&mut self, runner: RunnerKey, next: Option<(ClassKey, Standing, Arc<Profile>)>) {
        let Some(row) = self.runners.get_mut(runner) else { return };
        if row.standing == next {
            return;
        }
        let before = std::mem::replace(&mut row.standing, next.clone());
        if let Some((class, standing, profile)) = before
            && let Some(class) = self.index.classes.get_mut(crate::table::Key::row(class))
        {
            count_down(&mut class.standings, &standing);
            count_down(&mut class.profiles, &profile);
        }
        if let Some((class, standing, profile)) = next
            && let Some(class) = self.index.classes.get_mut(crate::table::Key::row(class))
        {
            *class.standings.entry(standing).or_default() += 1;
            *class.profiles.entry(profile).or_default() += 1;
        }
    }

    /// One device on one runner: its place where devices are packed, and the idle slots on it.
    fn refresh_attachment(&mut self, runner: RunnerKey, device: DeviceKey) {
        let (Some(row), Some(gpu)) = (self.runners.get(runner), self.devices.get(device)) else { return };
        let (Some(machine), Some(attachment)) = (self.machines.get(row.machine), gpu.attachment_on(runner)) else {
            return;
        };
        if !row.is_open() || !gpu.depth.open {
            return self.put_attachment(runner, device, Spots::new(), &[]);
        }
        let mixed = self.is_mixed(row);
        let applies = |lens: &Lens| {
            lens.is_of_devices() && (lens.names == Names::Any || mixed) && self.index.sees(*lens, &gpu.name)
        };
        let lenses = self.index.lenses().filter(|(_, lens)| applies(lens));
        let key =
            SpotKey { rank: gpu.depth.room, index: attachment.attachment.index, ordinal: row.ordinal, runner, device };
        let reach = Reach::of_device(&gpu.depth, &host_depth(machine));
        let spots: Spots = lenses.map(|(lens, _)| Spot { lens, key, reach }).collect();
        if spots.is_empty() && attachment.victims.is_empty() && gpu.evictable_slots == 0 {
            return;
        }
        let victims = self.victims_of(gpu, device, runner);
        self.put_attachment(runner, device, spots, &victims);
    }

    fn victims_of(&self, gpu: &Device, device: DeviceKey, runner: RunnerKey) -> SmallVec<[(VictimKey, Gain); 2]> {
        if gpu.evictable_slots == 0 {
            return SmallVec::new();
        }
        let remaining = gpu.ledger.claims().iter().filter(|claim| claim.phase != Phase::Releasing).count();
        let victim = |claim: &crate::ledger::Claim<Bytes>| {
            let slot = self.slots.get(claim.slot).filter(|slot| slot.evictable)?;
            let left = gpu.ledger.future_headroom().saturating_add(claim.amount);
            let key = VictimKey {
                bytes: slot.total_bytes().get(),
                idle_since: slot.idle_since.map_or(0, berth_domain::Timestamp::millis),
                number: slot.number,
                slot: claim.slot,
                device,
                runner,
            };
            let whole = remaining == 1 && gpu.ledger.foreign() <= self.settings.exclusive_tolerance;
            let own = self.own_mark(slot);
            let gain = Gain {
                bytes: Contested::new(left.get(), own, 0),
                share: Contested::new(u64::from(gpu.ledger.share_of(left)), own, 0),
                whole: Contested::new(u64::from(whole), own, 0),
            };
            Some((key, gain))
        };
        gpu.ledger.claims().iter().filter_map(victim).collect()
    }

    /// The model that must spare this slot: its own, while the slot is of its current revision.
    fn own_mark(&self, slot: &crate::state::Slot) -> Option<ModelKey> {
        slot.model.filter(|key| self.models.get(*key).is_some_and(|model| model.revision == slot.revision))
    }

    /// The one model whose idle slots are all that could be cleared on a device.
    fn cleared_of(&self, gpu: &Device) -> Option<ModelKey> {
        let slots = gpu.ledger.claims().iter().filter_map(|claim| self.slots.get(claim.slot));
        let mut owners = slots.filter(|slot| slot.evictable).map(|slot| self.own_mark(slot));
        let first = owners.next()??;
        owners.all(|owner| owner == Some(first)).then_some(first)
    }

    /// A runner's own places: for each lens, the best that its devices could give together.
    fn refresh_sets(&mut self, runner: RunnerKey) {
        let Some(row) = self.runners.get(runner) else { return };
        let devices = || row.devices.iter().filter_map(|key| self.devices.get(*key)).filter(|gpu| gpu.depth.open);
        let any_open = row.devices.is_empty() || devices().next().is_some();
        let Some(machine) = self.machines.get(row.machine).filter(|_| row.is_open()) else {
            return self.put_sets(runner, Spots::new());
        };
        let host = host_depth(machine);
        let mixed = self.is_mixed(row);
        let mut spots = Spots::new();
        let mut sorted = SortedFor { has_mig: devices().any(Device::is_mig), kept: None };
        for (number, lens) in self.index.lenses() {
            if lens.is_of_devices() || (lens.names != Names::Any && !mixed) {
                continue;
            }
            let sorted = sorted.get(lens, || {
                // MIG instances never work together, but each may be the one.
                let seen =
                    devices().filter(|gpu| (lens.count == 1 || !gpu.is_mig()) && self.index.sees(lens, &gpu.name));
                let index_of = |gpu: &Device| gpu.attachment_on(runner).map_or(0, |row| row.attachment.index);
                SortedDepths::of(seen.map(|gpu| (index_of(gpu), gpu.depth)), self.index.fractions > 0)
            });
            let count = usize::from(lens.count);
            if count > sorted.len() {
                continue;
            }
            let (rank, index, reach) = place_of(lens, sorted, &host);
            let key = SpotKey { rank, index, ordinal: row.ordinal, runner, device: DeviceKey::default() };
            spots.push(Spot { lens: number, key, reach });
        }
        let standing = row.standing.as_ref().map(|(_, standing, _)| *standing);
        self.put_sets(runner, spots);
        if any_open != (standing == Some(Standing::Open)) {
            self.refresh_standing(runner);
        }
    }

    /// Whether a runner has GPUs of several names.
    fn is_mixed(&self, runner: &Runner) -> bool {
        let mut names = self.names_on(runner);
        let first = names.next();
        names.any(|name| Some(name) != first)
    }

    /// What a device could give now.
    fn refresh_depth(&mut self, device: DeviceKey) {
        let Some(depth) = self.devices.get(device).map(|gpu| self.depth_of(gpu)) else { return };
        if let Some(gpu) = self.devices.get_mut(device) {
            gpu.depth = depth;
        }
    }

    fn depth_of(&self, gpu: &Device) -> Depth {
        let ledger = &gpu.ledger;
        let (room, later) = (ledger.headroom(), ledger.future_headroom());
        let cleared = later.saturating_add(gpu.evictable);
        let quiet = ledger.foreign() <= self.settings.exclusive_tolerance;
        let staying = ledger.claims().iter().filter(|claim| claim.phase != Phase::Releasing || claim.stuck).count();
        Depth {
            share: ledger.claimed_share(),
            room: room.get(),
            later: later.get(),
            cleared: cleared.get(),
            cleared_of: if gpu.evictable_slots == 0 { None } else { self.cleared_of(gpu) },
            room_share: ledger.share_of(room),
            cleared_share: ledger.share_of(cleared),
            whole: quiet && ledger.claims().is_empty(),
            whole_later: quiet && staying == 0,
            whole_cleared: quiet && staying <= usize::from(gpu.evictable_slots),
            open: gpu.closed().is_none(),
        }
    }

    fn put_attachment(&mut self, runner: RunnerKey, device: DeviceKey, spots: Spots, victims: &[(VictimKey, Gain)]) {
        let Some(class) = self.runners.get(runner).and_then(|row| row.standing.as_ref()).map(|(class, ..)| *class)
        else {
            return;
        };
        let Some(class) = self.index.classes.get_mut(crate::table::Key::row(class)) else { return };
        let attachments = self.devices.get_mut(device).map(|row| &mut row.attachments);
        let Some(attachment) = attachments.into_iter().flatten().find(|row| row.runner == runner) else { return };
        put_spots(class, &attachment.spots, &spots);
        attachment.spots = spots.into_iter().collect();
        for old in &attachment.victims {
            if !victims.iter().any(|(key, _)| key == old) {
                class.victims.remove(old);
            }
        }
        for (key, gain) in victims {
            class.victims.insert(*key, *gain);
        }
        attachment.victims = victims.iter().map(|(key, _)| *key).collect();
    }

    fn put_sets(&mut self, runner: RunnerKey, spots: Spots) {
        let Some(row) = self.runners.get_mut(runner) else { return };
        let Some((class, ..)) = &row.standing else { return };
        let Some(class) = self.index.classes.get_mut(crate::table::Key::row(*class)) else { return };
        put_spots(class, &row.spots, &spots);
        row.spots = spots;
    }
}

/// Most spots are as they were: a shelf is only looked at where something changed.
fn put_spots(class: &mut super::Class, before: &[Spot], after: &[Spot]) {
    for spot in before {
        if !after.iter().any(|other| other.is_where(spot)) {
            class.shelf_mut(spot.lens).remove(&spot.key);
        }
    }
    for spot in after {
        let there = before.iter().find(|other| other.is_where(spot));
        if there == Some(spot) {
            continue;
        }
        let shelf = class.shelf_mut(spot.lens);
        if there.is_none() || !shelf.replace(&spot.key, spot.reach) {
            shelf.insert(spot.key, spot.reach);
        }
    }
}

/// What was sorted for a lens, kept as long as the next one looks at the same devices.
struct SortedFor {
    /// Whether it makes a difference that a lens is of one GPU.
    has_mig: bool,
    kept: Option<((bool, Names), SortedDepths)>,
}

impl SortedFor {
    fn get(&mut self, lens: Lens, sort: impl FnOnce() -> SortedDepths) -> &SortedDepths {
        let looks_at = (self.has_mig && lens.count == 1, lens.names);
        if self.kept.as_ref().is_none_or(|(kept, _)| *kept != looks_at) {
            self.kept = None;
        }
        &self.kept.get_or_insert_with(|| (looks_at, sort())).1
    }
}

/// The rank of a runner under a lens, and what it could give.
fn place_of(lens: Lens, sorted: &SortedDepths, host: &HostDepth) -> (u64, u16, Reach) {
    let count = usize::from(lens.count);
    let reach = if count == 0 { Reach::of_host(host) } else { Reach::of_set(sorted, count, host) };
    let (share, index) = sorted.best_share(count);
    match (lens.count, lens.placement) {
        (0, Placement::Spread) => (u64::from(host.share), 0, reach),
        (0, Placement::Pack) => (u64::from(Fraction::WHOLE.saturating_sub(host.share)), 0, reach),
        (1, Placement::Spread) => (u64::from(share), index, reach),
        (_, Placement::Spread) => (u64::from(share), 0, reach),
        (_, Placement::Pack) => (reach.room, 0, reach),
    }
}

fn host_depth(machine: &Machine) -> HostDepth {
    let (cpu, ram) = (&machine.cpu, &machine.ram);
    HostDepth {
        cpu: cpu.headroom().get(),
        ram: ram.headroom().get(),
        cpu_cleared: cpu.future_headroom().get().saturating_add(machine.evictable_cpu.get()),
        ram_cleared: ram.future_headroom().get().saturating_add(machine.evictable_ram.get()),
        share: cpu.claimed_share().max(ram.claimed_share()),
    }
}

fn push_new<const N: usize>(list: &mut SmallVec<[RunnerKey; N]>, runner: RunnerKey)
where
    [RunnerKey; N]: smallvec::Array<Item = RunnerKey>,
{
    if !list.contains(&runner) {
        list.push(runner);
    }
}

fn count_down<K: Ord>(counts: &mut BTreeMap<K, u32>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}
