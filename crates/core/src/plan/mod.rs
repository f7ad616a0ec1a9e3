//! Where a slot goes, and at whose cost. Reads the state, changes nothing.
//!
//! [`plan`] is the table of contents: reuse, place, promise, evict, wait. It is what a submission, freed memory and a
//! dry run all use, so that what is shown is what is done.

mod admit;
mod evict;
mod filter;
mod place;
mod reserve;
mod victims;

use std::cell::Cell;
use std::collections::BTreeSet;

use berth_domain::{Bytes, GpuCount, GpuMemory, WorkloadKind};
use smallvec::SmallVec;

pub(crate) use admit::could_ever;
pub(crate) use filter::excluded_by;
pub(crate) use place::{ask_of, could_use};
pub(crate) use reserve::choose_reservation;

use crate::index::{Soon, Wish};
use crate::reason::{Unplaceable, WaitReason};
use crate::state::{Model, Shape, State};
use crate::table::{DeviceKey, ModelKey, RunnerKey, SlotKey, WorkloadKey};

/// Who needs a slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Demand<'a> {
    pub(crate) key: ModelKey,
    pub(crate) model: &'a Model,
    pub(crate) shape: &'a Shape,
    pub(crate) kind: WorkloadKind,
    /// None for a dry run and for slots that nobody asked for.
    pub(crate) workload: Option<WorkloadKey>,
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

/// A search, and what it has looked at.
pub(crate) struct Search<'a> {
    pub(crate) state: &'a State,
    pub(crate) demand: Demand<'a>,
    pub(crate) examined: Cell<u32>,
    spared_own: Cell<bool>,
    /// Passed over at first.
    avoid: Cell<Option<RunnerKey>>,
}

impl<'a> Demand<'a> {
    /// A demand for a model, by nobody in particular.
    pub(crate) fn of_model(state: &'a State, key: ModelKey, kind: WorkloadKind) -> Option<Self> {
        let model = state.models.get(key)?;
        let shape = &state.shapes.get(model.shape)?.shape;
        Some(Self { key, model, shape, kind, workload: None, avoid: None })
    }

    /// The demand of a workload.
    pub(crate) fn of_workload(state: &'a State, workload: WorkloadKey) -> Option<Self> {
        let row = state.workloads.get(workload)?;
        let demand = Self::of_model(state, row.model, row.submission.kind)?;
        Some(Self { workload: Some(workload), avoid: row.avoid, ..demand })
    }

    /// The least of what each GPU must give, and the host's part.
    pub(crate) fn wish(&self, count: GpuCount, needs: &[GpuMemory]) -> Wish {
        let bytes = |need: &GpuMemory| match need {
            GpuMemory::Bytes(bytes) => Some(*bytes),
            GpuMemory::Fraction(_) | GpuMemory::Whole => None,
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
        let avoid = Cell::new(demand.avoid);
        Self { state, demand, examined: Cell::new(0), spared_own: Cell::new(false), avoid }
    }

    fn reuse(&self) -> Option<Choice> {
        if self.demand.kind == WorkloadKind::Job {
            return None;
        }
        self.demand.model.open.first().map(|open| Choice::Reuse(open.slot))
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
                .or_else(|| self.evict_reserved())
                .or_else(|| self.evict())
        };
        let site = anywhere().or_else(|| {
            self.avoid.take()?;
            anywhere()
        });
        site.map(Choice::Place)
    }

    /// Runners with a device that is kept for this demand.
    fn reserved_runners(&self) -> BTreeSet<RunnerKey> {
        let reservations = self.state.queue.reservations.values();
        let own = reservations.filter(|row| Some(row.workload) == self.demand.workload);
        let devices = own.flat_map(|row| &row.devices).filter_map(|device| self.state.devices.get(*device));
        let seats = devices.flat_map(|device| device.seats.iter().map(|row| row.runner));
        seats.filter(|runner| self.matches(*runner)).collect()
    }

    /// On the devices that are kept for it: they stand on no shelf.
    fn place_reserved(&self, count: GpuCount, needs: &[GpuMemory], soon: Soon) -> Option<Site> {
        self.reserved_runners().into_iter().find_map(|runner| self.place_on(runner, count, needs, soon))
    }

    fn evict_reserved(&self) -> Option<Site> {
        let runners = self.reserved_runners();
        let mut each =
            runners.iter().flat_map(|runner| self.demand.shape.counts.iter().map(move |tried| (*runner, tried)));
        each.find_map(|(runner, (count, needs))| self.evict_on(runner, *count, needs))
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
