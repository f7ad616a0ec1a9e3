//! Who may go for a demand, and what it costs.

use berth_domain::{GpuCount, GpuMemory, Span};
use smallvec::SmallVec;

use super::{Search, Site};
use crate::index::Soon;
use crate::log2::Log2;
use crate::state::{Runner, Slot, use_at};
use crate::table::{DeviceKey, RunnerKey, SlotKey};

/// Where room is to be made: on a runner, or on one device of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target<'a> {
    pub(super) runner: RunnerKey,
    pub(super) only: Option<DeviceKey>,
    pub(super) count: GpuCount,
    pub(super) needs: &'a [GpuMemory],
}

/// Bits after the point of a [`Loss`].
const LOSS_BITS: u32 = 64;

/// What is lost with slots that go: for each the uses it may expect, times the milliseconds that it takes to start it
/// again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Loss(u128);

impl Loss {
    /// Together with another.
    pub(super) fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// As a time, rounded down.
    pub(crate) fn span(self) -> Span {
        Span::from_millis(u64::try_from(self.0 >> LOSS_BITS).unwrap_or(u64::MAX))
    }
}

/// What an eviction costs. The field order is the ranking.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Cost {
    pub(super) loss: Loss,
    pub(super) bytes: u64,
    /// When the most recently used of them was last used.
    last_used: u64,
    numbers: SmallVec<[u64; 2]>,
}

/// A place and what it costs.
pub(super) type Priced = (Cost, Site);

impl Search<'_> {
    /// Slots that may go for this demand, cheapest first; those without a claim on its devices only for their CPU and
    /// RAM.
    pub(super) fn candidates(&self, runner: &Runner, devices: &[DeviceKey], host_is_short: bool) -> Vec<SlotKey> {
        let on_devices = devices.iter().filter_map(|device| self.state.devices.get(*device));
        let mut slots: Vec<SlotKey> =
            on_devices.flat_map(|device| device.ledger.claims().iter().map(|claim| claim.slot)).collect();
        if host_is_short {
            let machine = self.state.machines.get(runner.machine);
            let runners = machine.into_iter().flat_map(|machine| &machine.runners);
            let rows = runners.filter_map(|runner| self.state.runners.get(*runner));
            slots.extend(rows.flat_map(|row| row.slots.iter().copied()));
        }
        slots.retain(|slot| self.state.slots.get(*slot).is_some_and(|row| self.may_go(row)));
        slots.sort_unstable_by_key(|slot| {
            self.state.slots.get(*slot).map(|row| (row.loss, row.total_bytes(), row.idle_since, row.number))
        });
        slots.dedup();
        slots
    }

    /// Of these, as many of each model as may go together, the cheapest of them.
    pub(super) fn within_minimum(&self, candidates: &[SlotKey]) -> Vec<SlotKey> {
        let mut kept: Vec<SlotKey> = Vec::with_capacity(candidates.len());
        for candidate in candidates {
            kept.push(*candidate);
            if !self.leaves_minimum(&self.rows(&kept)) {
                kept.pop();
            }
        }
        kept
    }

    /// Whether it would fit if all of these went, be that allowed or not.
    pub(super) fn is_enough(&self, target: Target<'_>, victims: &[SlotKey]) -> bool {
        let Some(runner) = self.state.runners.get(target.runner).filter(|row| row.is_open()) else { return false };
        let devices = self.usable_devices(target.runner, runner, target.only, target.count);
        self.host_fits(runner, Soon::Later, victims)
            && self.assign(&devices, target.needs, Soon::Later, victims).is_some()
    }

    /// What it costs to place here at the cost of exactly these, or `None` if that is not enough or not allowed.
    pub(super) fn price(&self, target: Target<'_>, victims: &[SlotKey]) -> Option<Priced> {
        let runner = self.state.runners.get(target.runner).filter(|row| row.is_open())?;
        let rows = self.rows(victims);
        let allowed = rows.iter().all(|row| self.may_go(row)) && self.leaves_minimum(&rows);
        if victims.is_empty() || self.avoid.get() == Some(target.runner) || !allowed {
            return None;
        }
        if !self.host_fits(runner, Soon::Later, victims) {
            return None;
        }
        let devices = self.usable_devices(target.runner, runner, target.only, target.count);
        let (claims, _) = self.assign(&devices, target.needs, Soon::Later, victims)?;
        let cost = self.cost_of(&rows);
        let site = Site {
            claims,
            promised: true,
            victims: victims.iter().copied().collect(),
            loss: cost.loss,
            ..Site::on(target.runner, target.count)
        };
        Some((cost, site))
    }

    /// What is lost with a slot, as it is now.
    pub(super) fn loss_of(&self, loss: Log2) -> Loss {
        Loss(loss.over(use_at(self.state.counters.requests)).scaled(LOSS_BITS))
    }

    pub(super) fn cost_of(&self, rows: &[&Slot]) -> Cost {
        let idle = rows.iter().filter_map(|row| row.idle_since).map(berth_domain::Timestamp::millis);
        Cost {
            loss: rows.iter().map(|row| self.loss_of(row.loss)).fold(Loss::default(), Loss::plus),
            bytes: rows.iter().map(|row| row.total_bytes().get()).fold(0, u64::saturating_add),
            last_used: idle.max().unwrap_or(0),
            numbers: rows.iter().map(|row| row.number).collect(),
        }
    }

    pub(super) fn rows(&self, slots: &[SlotKey]) -> SmallVec<[&Slot; 4]> {
        slots.iter().filter_map(|slot| self.state.slots.get(*slot)).collect()
    }

    /// Whether an idle slot may go for this demand. A model does not evict itself.
    fn may_go(&self, slot: &Slot) -> bool {
        if !slot.evictable {
            return false;
        }
        let own = slot.model == Some(self.demand.key) && slot.revision == self.demand.model.revision;
        self.spared_own.set(self.spared_own.get() || own);
        !own
    }

    /// Whether every model keeps its minimum without these slots.
    fn leaves_minimum(&self, victims: &[&Slot]) -> bool {
        victims.iter().all(|victim| {
            let Some(model) = victim.model.and_then(|key| self.state.models.get(key)) else { return false };
            let same = victims.iter().filter(|other| other.model == victim.model && other.live).count();
            !victim.live || same <= usize::try_from(model.spare_replicas()).unwrap_or(usize::MAX)
        })
    }
}
