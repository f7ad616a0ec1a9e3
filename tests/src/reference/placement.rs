//! Placement by brute force: tries every runner, every GPU count and every set of devices with the plain inequalities.

use std::collections::BTreeMap;

use berth_core::view::{DeviceView, HostView, ReservationView, RunnerView};
use berth_core::{Admission, Closed, Liveness, Phase, ReservedFor, State};
use berth_domain::{
    Bytes, DeviceUuid, GpuCount, GpuMemory, MachineId, ModelSpec, Priority, RunnerId, SlotId, Span, Timestamp,
    WorkloadKind,
};

use crate::reference::{Reference, Slot};

/// A snapshot of a state, in which places for a slot are searched.
pub struct ReferencePlanner<'a> {
    reference: &'a Reference,
    devices: BTreeMap<DeviceUuid, DeviceView>,
    runners: Vec<RunnerView>,
    hosts: BTreeMap<MachineId, HostView>,
    tolerance: Bytes,
    reservations: Vec<ReservationView>,
    now: Timestamp,
    backfill_after: Span,
}

/// When the memory must be there.
#[derive(Clone, Copy, Debug)]
pub enum When<'a> {
    /// Now: both inequalities must hold.
    Now,
    /// Once releasing claims and these slots are gone: the inequality of the future must hold.
    Later(&'a [SlotId]),
}

/// What a place is searched for.
#[derive(Clone, Copy, Debug)]
pub struct PlacementRequest<'a> {
    /// The model.
    pub spec: &'a ModelSpec,
    /// The workload or replica, as reservations name it.
    pub owner: &'a ReservedFor,
    /// The priority of the work.
    pub priority: Priority,
    /// The kind of work.
    pub kind: WorkloadKind,
    /// How long a job runs at most.
    pub max_run: Option<Span>,
    /// How many slots of the model serve or will.
    pub live: u32,
    /// A runner that the search skips.
    pub avoid: Option<&'a RunnerId>,
}

/// A runner, and a device of it for each rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// How many GPUs.
    pub count: GpuCount,
    /// The runner.
    pub runner: RunnerId,
    /// The devices in rank order.
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

impl<'a> ReferencePlanner<'a> {
    /// Takes the snapshot.
    #[must_use]
    pub fn new(reference: &'a Reference, state: &State) -> Self {
        Self {
            reference,
            devices: state.devices().into_iter().map(|device| (device.uuid.clone(), device)).collect(),
            runners: state.runners(),
            hosts: state.hosts().into_iter().map(|host| (host.machine.clone(), host)).collect(),
            tolerance: state.settings().exclusive_tolerance,
            reservations: state.reservations(),
            now: state.now(),
            backfill_after: state.settings().backfill_after,
        }
    }

    /// Returns whether the request may use a reserved place: the reservation is its own or of a lower priority, or the work
    /// can leave in time.
    fn passes(&self, row: &ReservationView, request: PlacementRequest<'_>) -> bool {
        let needed = request.spec.replicas.pinned || request.live < request.spec.replicas.min;
        let leaves_in_time = match request.kind {
            WorkloadKind::Lease => !needed,
            WorkloadKind::Job => request.max_run.is_some_and(|span| match row.free_at {
                Some(free_at) => self.now.after(span) <= free_at,
                None => span <= self.backfill_after,
            }),
        };
        row.owner == *request.owner || row.priority < request.priority || (row.backfill && leaves_in_time)
    }

    /// Returns whether a slot takes the requested lease: no reservation of the same or a higher priority forbids it.
    #[must_use]
    pub fn takes_lease(&self, slot: &Slot, request: PlacementRequest<'_>) -> bool {
        let machine = |runner: &RunnerId| self.reference.machines.get(runner);
        let uses_host = slot.placed.as_ref().is_some_and(|placed| placed.cpu.get() > 0 || !placed.ram.is_zero());
        let concerns = |row: &ReservationView| {
            slot.claims.iter().any(|(uuid, ..)| row.devices.contains(uuid))
                || (row.drains_host && uses_host && machine(&row.runner) == machine(&slot.runner))
        };
        let keeps_back = |row: &&ReservationView| {
            !row.backfill && concerns(row) && row.owner != *request.owner && row.priority >= request.priority
        };
        !self.reservations.iter().any(|row| keeps_back(&row))
    }

    /// Returns one device.
    #[must_use]
    pub fn device(&self, uuid: &DeviceUuid) -> Option<&DeviceView> {
        self.devices.get(uuid)
    }

    /// Returns every place that fits, for the smallest GPU count that has one.
    #[must_use]
    pub fn places(&self, request: PlacementRequest<'_>, when: When<'_>) -> Vec<Place> {
        for count in request.spec.allowed_counts() {
            let Some(needs) = self.reference.needs(request.spec, count) else { continue };
            let mut places = Vec::new();
            for runner in self.runners.iter().filter(|runner| self.matches(runner, request)) {
                if self.host_fits(runner, request, when) {
                    self.choose(runner, count, &needs, request, when, &mut Vec::new(), &mut places);
                }
            }
            if !places.is_empty() {
                return places;
            }
        }
        Vec::new()
    }

    fn matches(&self, runner: &RunnerView, request: PlacementRequest<'_>) -> bool {
        let constraints = &request.spec.constraints;
        let Some(traits) = self.reference.traits.get(&runner.id) else { return false };
        let open = runner.barred.is_none()
            && runner.reported
            && runner.liveness == Liveness::Ready
            && runner.admission == Admission::Open;
        let named = |uuid: &DeviceUuid| {
            self.devices.get(uuid).is_some_and(|device| constraints.gpu_names.contains(&device.name))
        };
        open && request.avoid != Some(&runner.id)
            && traits.pool == constraints.pool
            && constraints.labels.iter().all(|(key, value)| traits.labels.get(key) == Some(value))
            && traits.runtimes.get(&constraints.runtime).is_some_and(|offered| offered.takes(request.kind))
            && (constraints.gpu_names.is_empty()
                || runner.devices.iter().any(named)
                || runner.missing.iter().any(|(_, name)| constraints.gpu_names.contains(name)))
            && (constraints.gpu_uuids.is_empty()
                || runner.devices.iter().any(|uuid| constraints.gpu_uuids.contains(uuid)))
    }

    #[expect(clippy::too_many_arguments, reason = "a recursion that carries its question along")]
    fn choose(
        &self,
        runner: &RunnerView,
        count: GpuCount,
        needs: &[GpuMemory],
        request: PlacementRequest<'_>,
        when: When<'_>,
        chosen: &mut Vec<DeviceUuid>,
        places: &mut Vec<Place>,
    ) {
        let Some(need) = needs.get(chosen.len()) else {
            places.push(Place { count, runner: runner.id.clone(), devices: chosen.clone() });
            return;
        };
        for uuid in &runner.devices {
            if !chosen.contains(uuid) && self.device_fits(uuid, *need, count, request, when).is_some() {
                chosen.push(uuid.clone());
                self.choose(runner, count, needs, request, when, chosen, places);
                chosen.pop();
            }
        }
    }

    /// Returns what one device would be charged for one rank, if it fits there.
    #[must_use]
    pub fn device_fits(
        &self,
        uuid: &DeviceUuid,
        need: GpuMemory,
        count: GpuCount,
        request: PlacementRequest<'_>,
        when: When<'_>,
    ) -> Option<Bytes> {
        let device = self.devices.get(uuid)?;
        let constraints = &request.spec.constraints;
        let reservation = self.reservations.iter().find(|row| row.devices.contains(uuid));
        let open = matches!(device.closed, None | Some(Closed::Reserved))
            && reservation.is_none_or(|row| self.passes(row, request));
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
            GpuMemory::Whole(_) if !claims.is_empty() || device.balance.foreign > self.tolerance => return None,
            GpuMemory::Whole(least) if device.balance.capacity < least => return None,
            GpuMemory::Whole(_) => device.balance.capacity.saturating_sub(device.balance.foreign),
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

    fn host_fits(&self, runner: &RunnerView, request: PlacementRequest<'_>, when: When<'_>) -> bool {
        let spec = request.spec;
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
        // Of two that count on the same RAM the older reservation goes first.
        let position = |owner: &ReservedFor| self.reservations.iter().position(|row| row.owner == *owner);
        let is_older = |row: &ReservationView| {
            position(request.owner).zip(position(&row.owner)).is_some_and(|(own, other)| own < other)
                && row.priority <= request.priority
        };
        let here = |row: &&ReservationView| {
            self.reference.machines.get(&row.runner) == Some(&runner.machine)
                && !self.passes(row, request)
                && !is_older(row)
        };
        let kept = self.reservations.iter().filter(here);
        let kept_cpu: u128 = kept.clone().map(|row| u128::from(row.cpu.get())).sum();
        let kept_ram: u128 = kept.map(|row| u128::from(row.ram.get())).sum();
        let leaves = |sums: &Sums, need: u128, kept: u128, later: &Sums| {
            sums.fits(need, when) && (kept == 0 || later.fits(need + kept, When::Later(&[])))
        };
        let (later_cpu, later_ram) = self.host_later(runner, host, when);
        (needs.0 == 0 || !cpu_over && leaves(&cpu, needs.0, kept_cpu, &later_cpu))
            && (needs.1 == 0 || !ram_over && leaves(&ram, needs.1, kept_ram, &later_ram))
    }

    /// Sums the claims on the host once everything that is releasing is free.
    fn host_later(&self, runner: &RunnerView, host: &HostView, when: When<'_>) -> (Sums, Sums) {
        let later = if let When::Later(leaving) = when { When::Later(leaving) } else { When::Later(&[]) };
        let here: Vec<&Slot> = self
            .staying(later)
            .filter(|slot| self.reference.machines.get(&slot.runner) == Some(&runner.machine))
            .collect();
        let sums = |capacity: u64, amount: fn(&Slot) -> u64| {
            let of = |phase| sum(here.iter().filter(|slot| slot.phase == phase).map(|slot| amount(slot)));
            let (held, releasing, promised) = (of(Phase::Held), of(Phase::Releasing), of(Phase::Promised));
            Sums { capacity: u128::from(capacity), foreign: 0, held, releasing, promised }
        };
        (
            sums(host.cpu.capacity.get(), |slot| slot.placed.as_ref().map_or(0, |placed| placed.cpu.get())),
            sums(host.ram.capacity.get(), |slot| slot.placed.as_ref().map_or(0, |placed| placed.ram.get())),
        )
    }
}

fn on<'s>(slot: &'s Slot, uuid: &DeviceUuid) -> Option<(&'s Slot, Bytes, bool)> {
    slot.claims.iter().find(|(device, ..)| device == uuid).map(|(_, bytes, exclusive)| (slot, *bytes, *exclusive))
}

fn sum(amounts: impl Iterator<Item = u64>) -> u128 {
    amounts.map(u128::from).sum()
}
