//! Placement by brute force: every runner, every count, every set of devices, by the plain inequalities.

use std::collections::BTreeMap;

use berth_core::view::{DeviceView, HostView, RunnerView};
use berth_core::{Admission, Closed, Liveness, Phase, State};
use berth_domain::{Bytes, DeviceUuid, GpuCount, GpuMemory, MachineId, ModelSpec, RunnerId, SlotId};

use crate::reference::{Reference, Slot};

/// A state, ready to be asked where a slot would fit.
pub struct Board<'a> {
    reference: &'a Reference,
    devices: BTreeMap<DeviceUuid, DeviceView>,
    runners: Vec<RunnerView>,
    hosts: BTreeMap<MachineId, HostView>,
    tolerance: Bytes,
}

/// When the memory must be there.
#[derive(Clone, Copy, Debug)]
pub enum When<'a> {
    /// At once: both lines.
    Now,
    /// As soon as what is releasing, and these slots, are gone: the future line.
    Later(&'a [SlotId]),
}

/// Who asks.
#[derive(Clone, Copy, Debug)]
pub struct Asks<'a> {
    /// The model.
    pub spec: &'a ModelSpec,
    /// Devices that are kept for the one who asks.
    pub reserved: &'a [DeviceUuid],
    /// A runner to pass over.
    pub avoid: Option<&'a RunnerId>,
}

/// A place: a runner, and a device for each rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// How many GPUs.
    pub count: GpuCount,
    /// Where.
    pub runner: RunnerId,
    /// On which devices, in rank order.
    pub devices: Vec<DeviceUuid>,
}

/// Sums of one ledger.
struct Sums {
    capacity: u128,
    foreign: u128,
    held: u128,
    releasing: u128,
    promised: u128,
}

impl Sums {
    fn fits(&self, need: u128, when: When<'_>) -> bool {
        let now = self.held + self.releasing + self.foreign + need <= self.capacity;
        let future = self.held + self.promised + self.foreign + need <= self.capacity;
        match when {
            When::Now => now && future,
            // What is stuck counts as if it stayed.
            When::Later(_) => self.held + self.releasing + self.promised + self.foreign + need <= self.capacity,
        }
    }
}

impl<'a> Board<'a> {
    /// What can be seen of a state.
    #[must_use]
    pub fn new(reference: &'a Reference, state: &State) -> Self {
        Self {
            reference,
            devices: state.devices().into_iter().map(|device| (device.uuid.clone(), device)).collect(),
            runners: state.runners(),
            hosts: state.hosts().into_iter().map(|host| (host.machine.clone(), host)).collect(),
            tolerance: state.settings().exclusive_tolerance,
        }
    }

    /// One device.
    #[must_use]
    pub fn device(&self, uuid: &DeviceUuid) -> Option<&DeviceView> {
        self.devices.get(uuid)
    }

    /// Every place that would do, with the smallest count that has one.
    #[must_use]
    pub fn places(&self, asks: Asks<'_>, when: When<'_>) -> Vec<Place> {
        for count in asks.spec.allowed_counts() {
            let Some(needs) = self.reference.needs(asks.spec, count) else { continue };
            let mut places = Vec::new();
            for runner in self.runners.iter().filter(|runner| self.matches(runner, asks)) {
                if self.host_fits(runner, asks.spec, when) {
                    self.choose(runner, count, &needs, asks, when, &mut Vec::new(), &mut places);
                }
            }
            if !places.is_empty() {
                return places;
            }
        }
        Vec::new()
    }

    fn matches(&self, runner: &RunnerView, asks: Asks<'_>) -> bool {
        let constraints = &asks.spec.constraints;
        let Some(traits) = self.reference.traits.get(&runner.id) else { return false };
        let open = runner.reported && runner.liveness == Liveness::Ready && runner.admission == Admission::Open;
        let named = |uuid: &DeviceUuid| {
            self.devices.get(uuid).is_some_and(|device| constraints.gpu_names.contains(&device.name))
        };
        open && asks.avoid != Some(&runner.id)
            && traits.pool == constraints.pool
            && constraints.labels.iter().all(|(key, value)| traits.labels.get(key) == Some(value))
            && traits.runtimes.contains(&constraints.runtime)
            && (constraints.gpu_names.is_empty() || runner.devices.iter().any(named))
            && (constraints.gpu_uuids.is_empty()
                || runner.devices.iter().any(|uuid| constraints.gpu_uuids.contains(uuid)))
    }

    #[expect(clippy::too_many_arguments, reason = "a recursion that carries its question along")]
    fn choose(
        &self,
        runner: &RunnerView,
        count: GpuCount,
        needs: &[GpuMemory],
        asks: Asks<'_>,
        when: When<'_>,
        chosen: &mut Vec<DeviceUuid>,
        places: &mut Vec<Place>,
    ) {
        let Some(need) = needs.get(chosen.len()) else {
            places.push(Place { count, runner: runner.id.clone(), devices: chosen.clone() });
            return;
        };
        for uuid in &runner.devices {
            if !chosen.contains(uuid) && self.device_fits(uuid, *need, count, asks, when).is_some() {
                chosen.push(uuid.clone());
                self.choose(runner, count, needs, asks, when, chosen, places);
                chosen.pop();
            }
        }
    }

    /// What one device would be charged for one need, if it can give it.
    #[must_use]
    pub fn device_fits(
        &self,
        uuid: &DeviceUuid,
        need: GpuMemory,
        count: GpuCount,
        asks: Asks<'_>,
        when: When<'_>,
    ) -> Option<Bytes> {
        let device = self.devices.get(uuid)?;
        let constraints = &asks.spec.constraints;
        let open = device.closed.is_none() || device.closed == Some(Closed::Reserved) && asks.reserved.contains(uuid);
        let right = (constraints.gpu_names.is_empty() || constraints.gpu_names.contains(&device.name))
            && (constraints.gpu_uuids.is_empty() || constraints.gpu_uuids.contains(uuid))
            && (device.parent.is_none() || count.get() == 1);
        if !open || !right || device.overcommitted {
            return None;
        }
        let claims: Vec<(&Slot, Bytes, bool)> = self.staying(when).flat_map(|slot| on(slot, uuid)).collect();
        if claims.iter().any(|(.., exclusive)| *exclusive) {
            return None;
        }
        let of = |phase| sum(claims.iter().filter(|(slot, ..)| slot.phase == phase).map(|(_, bytes, _)| bytes.get()));
        let sums = Sums {
            capacity: u128::from(device.balance.capacity.get()),
            foreign: u128::from(device.balance.foreign.get()),
            held: of(Phase::Held),
            releasing: of(Phase::Releasing),
            promised: of(Phase::Promised),
        };
        let bytes = match need {
            GpuMemory::Bytes(bytes) => bytes,
            GpuMemory::Fraction(fraction) => fraction.of(device.balance.capacity),
            GpuMemory::Whole if !claims.is_empty() || device.balance.foreign > self.tolerance => return None,
            GpuMemory::Whole => device.balance.capacity.saturating_sub(device.balance.foreign),
        };
        (!bytes.is_zero() && sums.fits(u128::from(bytes.get()), when)).then_some(bytes)
    }

    /// Slots whose claims count: all of them now; later, those that are not leaving.
    fn staying(&self, when: When<'_>) -> impl Iterator<Item = &Slot> {
        let leaves = move |(id, stray): &(SlotId, Option<RunnerId>), slot: &Slot| match when {
            When::Now => false,
            When::Later(leaving) => {
                (slot.phase == Phase::Releasing && !slot.stalled) || (stray.is_none() && leaving.contains(id))
            }
        };
        self.reference.slots.iter().filter(move |(name, slot)| !leaves(name, slot)).map(|(_, slot)| slot)
    }

    fn host_fits(&self, runner: &RunnerView, spec: &ModelSpec, when: When<'_>) -> bool {
        let Some(host) = self.hosts.get(&runner.machine) else { return false };
        let here: Vec<&Slot> = self
            .staying(when)
            .filter(|slot| self.reference.machines.get(&slot.runner) == Some(&runner.machine))
            .collect();
        let sums = |capacity: u64, amount: fn(&Slot) -> u64| {
            let of = |phase| sum(here.iter().filter(|slot| slot.phase == phase).map(|slot| amount(slot)));
            let (held, releasing, promised) = (of(Phase::Held), of(Phase::Releasing), of(Phase::Promised));
            Sums { capacity: u128::from(capacity), foreign: 0, held, releasing, promised }
        };
        let cpu = sums(host.cpu.capacity.get(), |slot| slot.placed.as_ref().map_or(0, |placed| placed.cpu.get()));
        let ram = sums(host.ram.capacity.get(), |slot| slot.placed.as_ref().map_or(0, |placed| placed.ram.get()));
        let over = |held: u64, releasing: u64, promised: u64, all: u64| {
            u128::from(held) + u128::from(releasing.max(promised)) > u128::from(all)
        };
        let (c, r) = (host.cpu, host.ram);
        let cpu_over = over(c.held.get(), c.releasing.get(), c.promised.get(), c.capacity.get());
        let ram_over = over(r.held.get(), r.releasing.get(), r.promised.get(), r.capacity.get());
        let needs = (u128::from(spec.cpu.get()), u128::from(spec.ram.get()));
        (needs.0 == 0 || !cpu_over && cpu.fits(needs.0, when)) && (needs.1 == 0 || !ram_over && ram.fits(needs.1, when))
    }
}

fn on<'s>(slot: &'s Slot, uuid: &DeviceUuid) -> Option<(&'s Slot, Bytes, bool)> {
    slot.claims.iter().find(|(device, ..)| device == uuid).map(|(_, bytes, exclusive)| (slot, *bytes, *exclusive))
}

fn sum(amounts: impl Iterator<Item = u64>) -> u128 {
    amounts.map(u128::from).sum()
}
