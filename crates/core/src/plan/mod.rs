//! Where a slot goes, and at whose cost. Reads the state, changes nothing.
//!
//! [`plan`] is the table of contents: reuse, place, promise, evict, wait. It is what a submission, freed memory and a
//! dry run all use, so that what is shown is what is done.
//!
//! A place that is kept free for somebody ([`reserve`]) shuts out work of the same or a lower priority, never work of a
//! higher one: that looks elsewhere first, and takes the reserved place if nowhere else will do.

mod admit;
mod evict;
mod filter;
mod lack;
mod place;
mod reserve;
mod size;
mod victims;

use std::cell::Cell;
use std::collections::BTreeSet;

use berth_domain::{Bytes, GpuCount, GpuMemory, Priority, Span, Submission, WorkloadKind};
use smallvec::SmallVec;

pub(crate) use admit::could_ever;
pub(crate) use filter::excluded_by;
pub(crate) use lack::lacks;
pub(crate) use place::{ask_of, could_use};
pub(crate) use reserve::{ReservedSite, Wait, choose_reservation};
pub(crate) use size::Sizes;

use crate::index::{Soon, Wish};
use crate::reason::{Closed, Unplaceable, WaitReason};
use crate::state::{Claimant, Device, Model, Reservation, Shape, State};
use crate::table::{DeviceKey, ModelKey, RunnerKey, SlotKey, WorkloadKey};

/// Who needs a slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Demand<'a> {
    pub(crate) key: ModelKey,
    pub(crate) model: &'a Model,
    pub(crate) shape: &'a Shape,
    pub(crate) kind: WorkloadKind,
    pub(crate) priority: Priority,
    /// The waiting workload or model, or `None` for a dry run and for a submission that is being taken in.
    pub(crate) claimant: Option<Claimant>,
    /// A job that is ended after running for so long.
    pub(crate) max_run: Option<Span>,
    /// Where it failed last.
    pub(crate) avoid: Option<RunnerKey>,
}

/// A place for a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Site {
    pub(crate) runner: RunnerKey,
    pub(crate) count: GpuCount,
    /// In rank order.
    pub(crate) claims: SmallVec<[SiteClaim; 1]>,
    /// Its memory is still to be released.
    pub(crate) promised: bool,
    /// Idle slots that must go for it.
    pub(crate) victims: SmallVec<[SlotKey; 2]>,
}

/// What a slot would take of one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SiteClaim {
    pub(crate) device: DeviceKey,
    pub(crate) bytes: Bytes,
    pub(crate) exclusive: bool,
}

/// What should be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// This slot takes the lease.
    Reuse(SlotKey),
    /// A new slot goes there.
    Place(Site),
    /// Nothing can be done now.
    Wait(WaitReason),
    /// Nothing can ever be done.
    Never(Unplaceable),
}

/// What should be done, and how much was looked at for it.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) choice: Choice,
    pub(crate) examined: u32,
    /// An idle slot of the same model stood in the way and was spared: others of its shape might not spare it.
    pub(crate) spared_own: bool,
}

impl Plan {
    /// The plan for work that was taken in: it waits for better days, unless its model changed so that nobody knows what
    /// it needs.
    pub(crate) fn for_queued_work(self) -> Self {
        let choice = match self.choice {
            Choice::Never(Unplaceable::UnknownMemory) => self.choice,
            Choice::Never(_) => Choice::Wait(WaitReason::NoLongerFits),
            _ => self.choice,
        };
        Self { choice, ..self }
    }
}

/// A search, and what it has looked at.
pub(crate) struct Search<'a> {
    pub(crate) state: &'a State,
    pub(crate) demand: Demand<'a>,
    pub(crate) examined: Cell<u32>,
    spared_own: Cell<bool>,
    /// Passed over at first.
    avoid: Cell<Option<RunnerKey>>,
    /// Whether devices that are kept free for this demand, or for a lower priority, are looked at too.
    with_reserved: Cell<bool>,
}

impl<'a> Demand<'a> {
    /// A demand for a model, by nobody in particular.
    pub(crate) fn of_model(state: &'a State, key: ModelKey, kind: WorkloadKind) -> Option<Self> {
        let model = state.models.get(key)?;
        let shape = &state.shapes.get(model.shape)?.shape;
        Some(Self {
            key,
            model,
            shape,
            kind,
            priority: Priority::default(),
            claimant: None,
            max_run: None,
            avoid: None,
        })
    }

    /// The demand of a submission that is being taken in.
    pub(crate) fn of_submission(state: &'a State, key: ModelKey, submission: &Submission) -> Option<Self> {
        let demand = Self::of_model(state, key, submission.kind)?;
        Some(Self { priority: submission.priority, max_run: submission.job.max_run, ..demand })
    }

    /// The demand for a slot that a model must have and nobody asked for.
    pub(crate) fn of_replica(state: &'a State, key: ModelKey) -> Option<Self> {
        let demand = Self::of_model(state, key, WorkloadKind::Lease)?;
        Some(Self { claimant: Some(Claimant::Replica(key)), ..demand })
    }

    /// The demand of whoever waits.
    pub(crate) fn of_claimant(state: &'a State, claimant: Claimant) -> Option<Self> {
        match claimant {
            Claimant::Workload(workload) => Self::of_workload(state, workload),
            Claimant::Replica(model) => Self::of_replica(state, model),
        }
    }

    /// The demand of a workload.
    pub(crate) fn of_workload(state: &'a State, workload: WorkloadKey) -> Option<Self> {
        let row = state.workloads.get(workload)?;
        let demand = Self::of_submission(state, row.model, &row.submission)?;
        Some(Self { claimant: Some(Claimant::Workload(workload)), avoid: row.avoid, ..demand })
    }

    /// Whether its slot would be one that its model must have: it could not be evicted again.
    fn is_needed(&self) -> bool {
        self.model.spec.replicas.pinned || self.model.live < self.model.spec.replicas.min
    }

    /// How the index marks slots that this demand must spare: its model's own, of the current revision.
    pub(crate) fn own_mark(&self) -> Option<ModelKey> {
        Some(self.key)
    }

    /// The least of what each GPU must give, and the host's part.
    pub(crate) fn wish(&self, count: GpuCount, needs: &[GpuMemory]) -> Wish {
        let bytes = |need: &GpuMemory| match need {
            GpuMemory::Bytes(bytes) => Some(*bytes),
            GpuMemory::Fraction(_) | GpuMemory::Whole(_) => None,
        };
        Wish {
            count: count.get(),
            least: needs.iter().copied().min(),
            most: needs.iter().filter_map(bytes).max().unwrap_or_default(),
            cpu: self.shape.cpu,
            ram: self.shape.ram,
        }
    }
}

/// What should be done for a demand.
pub(crate) fn plan(state: &State, demand: Demand<'_>) -> Plan {
    let search = Search::new(state, demand);
    let choice = search
        .reuse()
        .or_else(|| search.replica_limit())
        .or_else(|| search.new_slot())
        .unwrap_or_else(|| search.wait_or_never());
    Plan { choice, examined: search.examined.get(), spared_own: search.spared_own.get() }
}

/// What should be done for a demand that must have a slot of its own, however many there are.
pub(crate) fn plan_slot(state: &State, demand: Demand<'_>) -> Plan {
    let search = Search::new(state, demand);
    let choice = search.new_slot().unwrap_or_else(|| search.wait_or_never());
    Plan { choice, examined: search.examined.get(), spared_own: search.spared_own.get() }
}

impl<'a> Search<'a> {
    pub(crate) fn new(state: &'a State, demand: Demand<'a>) -> Self {
        let (avoid, with_reserved) = (Cell::new(demand.avoid), Cell::new(false));
        Self { state, demand, examined: Cell::new(0), spared_own: Cell::new(false), avoid, with_reserved }
    }

    /// Looks with other eyes: at devices that are kept free too, where that is allowed.
    fn among_reserved<T>(&self, look: impl FnOnce() -> T) -> T {
        let before = self.with_reserved.replace(true);
        let found = look();
        self.with_reserved.set(before);
        found
    }

    fn reuse(&self) -> Option<Choice> {
        if self.demand.kind == WorkloadKind::Job {
            return None;
        }
        let kept_back = || self.demand.model.kept_back.iter().find(|open| self.passes_reservations(open.slot));
        self.demand.model.open.first().or_else(kept_back).map(|open| Choice::Reuse(open.slot))
    }

    /// Whether a slot that is there takes a lease of this demand.
    pub(crate) fn can_reuse(&self) -> bool {
        self.reuse().is_some()
    }

    /// Whether a slot that is kept back for others takes a lease of this demand all the same.
    fn passes_reservations(&self, slot: SlotKey) -> bool {
        let Some(slot) = self.state.slots.get(slot) else { return false };
        self.state.reservations_on(slot).all(|reservation| self.outranks(reservation))
    }

    /// Whether what is kept free by a reservation is free for this demand.
    pub(super) fn outranks(&self, reservation: &Reservation) -> bool {
        Some(reservation.owner) == self.demand.claimant || reservation.priority < self.demand.priority
    }

    /// Whether this demand has a reservation of its own that is older: two that count on the same CPU or RAM must not
    /// hold each other back.
    pub(super) fn was_reserved_before(&self, other: &Reservation) -> bool {
        let reservations = &self.state.queue.reservations;
        let position = |owner: Claimant| reservations.iter().position(|row| row.owner == owner);
        let own = self.demand.claimant.and_then(position);
        own.zip(position(other.owner)).is_some_and(|(own, other)| own < other) && other.priority <= self.demand.priority
    }

    /// Whether this demand may use what a reservation keeps free until its owner can use it.
    pub(super) fn may_backfill(&self, reservation: &Reservation) -> bool {
        let ends_in_time = |max_run: Span| match reservation.free_at {
            Some(free_at) => self.state.now.after(max_run) <= free_at,
            None => max_run <= self.state.settings.backfill_after,
        };
        reservation.backfill
            && match self.demand.kind {
                // Its slot takes no new leases, and goes once it is idle, as soon as nothing else is in the way.
                WorkloadKind::Lease => !self.demand.is_needed(),
                WorkloadKind::Job => self.demand.max_run.is_some_and(ends_in_time),
            }
    }

    /// Whether this demand may use a device: it is open, and kept for nobody who goes first.
    pub(super) fn may_use(&self, device: &Device) -> bool {
        let reservation = device.reserved_for.and_then(|owner| self.state.reservation_of(owner));
        let passes =
            || reservation.is_none_or(|reservation| self.outranks(reservation) || self.may_backfill(reservation));
        match device.closed() {
            None => passes(),
            Some(Closed::Reserved) => self.with_reserved.get() && passes(),
            Some(_) => false,
        }
    }

    fn replica_limit(&self) -> Option<Choice> {
        let limited = self.demand.kind == WorkloadKind::Lease && !self.demand.model.may_grow();
        limited.then_some(Choice::Wait(WaitReason::ReplicaLimit))
    }

    /// Now, else later, else at others' cost; where it failed last only if nowhere else will do.
    fn new_slot(&self) -> Option<Choice> {
        let anywhere = || {
            self.place(Soon::Now)
                .or_else(|| self.place(Soon::Later))
                .or_else(|| self.evict_on_reserved(true))
                .or_else(|| self.evict())
                .or_else(|| self.evict_on_reserved(false))
        };
        let site = anywhere().or_else(|| {
            self.avoid.take()?;
            anywhere()
        });
        site.map(Choice::Place)
    }

    /// Runners with a device that is kept for this demand; or, unless only `own` ones are asked for, for one of a lower
    /// priority.
    pub(super) fn reserved_runners(&self, own: bool) -> BTreeSet<RunnerKey> {
        let is_own = |row: &&Reservation| Some(row.owner) == self.demand.claimant;
        let reservations = self.state.queue.reservations.iter();
        let usable = reservations.filter(|row| is_own(row) || (!own && self.outranks(row)));
        let devices = usable.flat_map(|row| &row.devices).filter_map(|device| self.state.devices.get(*device));
        let attachments = devices.flat_map(|device| device.attachments.iter().map(|row| row.runner));
        attachments.filter(|runner| self.matches(*runner)).collect()
    }

    /// On devices that are kept for it, or for a lower priority: they stand on no shelf.
    fn place_reserved(&self, count: GpuCount, needs: &[GpuMemory], soon: Soon) -> Option<Site> {
        let runners = self.reserved_runners(false);
        self.among_reserved(|| runners.into_iter().find_map(|runner| self.place_on(runner, count, needs, soon)))
    }

    fn evict_on_reserved(&self, own: bool) -> Option<Site> {
        let runners = self.reserved_runners(own);
        let mut each =
            runners.iter().flat_map(|runner| self.demand.shape.counts.iter().map(move |tried| (*runner, tried)));
        self.among_reserved(|| each.find_map(|(runner, (count, needs))| self.evict_on(runner, *count, needs)))
    }

    fn wait_or_never(&self) -> Choice {
        match admit::judge(self.state, &self.demand) {
            Ok(reason) => Choice::Wait(reason),
            Err(never) => Choice::Never(never),
        }
    }

    pub(crate) fn count_examined(&self, devices: usize) {
        let devices = u32::try_from(devices).unwrap_or(u32::MAX);
        self.examined.set(self.examined.get().saturating_add(devices));
    }
}
