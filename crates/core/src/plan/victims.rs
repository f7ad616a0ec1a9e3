//! Who may go for a demand, and what it costs.

use berth_domain::{GpuCount, GpuMemory};
use smallvec::SmallVec;

use super::{Search, Site};
use crate::index::Soon;
use crate::state::{Runner, Slot};
use crate::table::{DeviceKey, RunnerKey, SlotKey};

/// Where room is to be made: on a runner, or on one device of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target<'a> {
    pub(super) runner: RunnerKey,
    pub(super) only: Option<DeviceKey>,
    pub(super) count: GpuCount,
    pub(super) needs: &'a [GpuMemory],
}

/// What an eviction costs. The field order is the ranking.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Cost {
    pub(super) victims: usize,
    bytes: u64,
    /// When the most recently used of them was last used.
    last_used: u64,
    count: GpuCount,
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
            self.state.slots.get(*slot).map(|row| (row.total_bytes(), row.idle_since, row.number))
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
        let idle = rows.iter().filter_map(|row| row.idle_since).map(berth_domain::Timestamp::millis);
        let cost = Cost {
            victims: rows.len(),
            bytes: rows.iter().map(|row| row.total_bytes().get()).fold(0, u64::saturating_add),
            last_used: idle.max().unwrap_or(0),
            count: target.count,
            numbers: rows.iter().map(|row| row.number).collect(),
        };
        let victims = victims.iter().copied().collect();
        Some((cost, Site { runner: target.runner, count: target.count, claims, promised: true, victims }))
    }

    fn rows(&self, slots: &[SlotKey]) -> SmallVec<[&Slot; 4]> {
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
