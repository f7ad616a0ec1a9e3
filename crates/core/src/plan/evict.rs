//! Making room at the cost of idle slots: the cheapest set, as a whole, or none.

use std::ops::ControlFlow;

use berth_domain::{GpuCount, GpuMemory, SlotState};
use smallvec::SmallVec;

use super::{Search, Site, ask_of, excluded_by};
use crate::index::Soon;
use crate::ledger::Ask;
use crate::state::{Runner, Slot};
use crate::table::{DeviceKey, RunnerKey, SlotKey};

/// Devices looked at before the cheapest plan so far is taken.
const DEVICE_BUDGET: u32 = 48;
/// Devices looked at in vain before it is taken for granted that nothing can be made to fit. The index rules out
/// nearly all such devices; what it cannot know is whose idle slots they are.
const VAIN_BUDGET: u32 = 256;
/// Victim sets tried on one device or runner before a good set is taken for the best.
const SET_BUDGET: usize = 256;
/// With more idle slots than this on a runner, sets are built device by device.
const FEW_SLOTS: usize = 8;

/// What an eviction costs. The field order is the ranking.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Cost {
    victims: usize,
    bytes: u64,
    /// When the most recently used of them was last used.
    last_used: u64,
    count: GpuCount,
    numbers: SmallVec<[u64; 2]>,
}

type Priced = (Cost, Site);

impl Search<'_> {
    /// The cheapest eviction that makes a whole plan fit.
    pub(super) fn evict(&self) -> Option<Site> {
        let mut best: Option<Priced> = None;
        for (count, needs) in &self.demand.shape.counts {
            let before = best.as_ref().map(|(cost, _)| cost.clone());
            if let ([need], true) = (needs.as_slice(), self.demand.shape.constraints.gpu_uuids.is_empty()) {
                cheaper(&mut best, self.evict_one(*count, *need));
            }
            // One victim is the fewest there is, and the shelf of victims gave the cheapest of those.
            if best.as_ref().is_some_and(|(cost, _)| cost.victims == 1 && Some(cost) != before.as_ref()) {
                continue;
            }
            self.evict_sets(*count, needs, &mut best);
        }
        best.map(|(_, site)| site)
    }

    /// The cheapest eviction on this very runner.
    pub(super) fn evict_on(&self, runner: RunnerKey, count: GpuCount, needs: &[GpuMemory]) -> Option<Site> {
        self.cheapest_on(runner, None, count, needs).map(|(_, site)| site)
    }

    /// One GPU, one victim: the first on the shelf of victims whose going is enough.
    fn evict_one(&self, count: GpuCount, need: GpuMemory) -> Option<Priced> {
        let (mut best, mut vain): (Option<Priced>, u32) = (None, 0);
        for class in self.state.index.classes() {
            if excluded_by(&self.demand.shape.constraints, &class.traits).is_some() {
                continue;
            }
            let found = class.victims.walk(
                |gain| gain.may(need),
                |victim, _| {
                    self.count_examined(1);
                    vain += 1;
                    match self.price(victim.runner, Some(victim.device), count, &[need], &[victim.slot]) {
                        Some(priced) => ControlFlow::Break(Some(priced)),
                        None if vain >= VAIN_BUDGET => ControlFlow::Break(None),
                        None => ControlFlow::Continue(()),
                    }
                },
            );
            cheaper(&mut best, found.flatten());
        }
        best
    }

    /// Several victims, or several GPUs: runner by runner, within a budget.
    fn evict_sets(&self, count: GpuCount, needs: &[GpuMemory], best: &mut Option<Priced>) {
        let start = self.examined.get();
        if self.demand.shape.constraints.gpu_uuids.is_empty() {
            self.walk_shelves(count, needs, Soon::Cleared, |key, device| {
                cheaper(best, self.cheapest_on(key.runner, device, count, needs));
                let budget = if best.is_some() { DEVICE_BUDGET } else { VAIN_BUDGET };
                let spent = self.examined.get() - start >= budget;
                if spent { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
        } else {
            for runner in self.pinned_runners() {
                cheaper(best, self.cheapest_on(runner, None, count, needs));
            }
        }
    }

    /// The cheapest victims on one runner (or one device of it).
    fn cheapest_on(
        &self,
        key: RunnerKey,
        only: Option<DeviceKey>,
        count: GpuCount,
        needs: &[GpuMemory],
    ) -> Option<Priced> {
        let runner = self.state.runners.get(key).filter(|row| row.is_open())?;
        let devices = self.usable_devices(key, runner, only, count);
        self.count_examined(devices.len());
        let host_is_short = !self.host_fits(runner, Soon::Later, &[]);
        if let ([need], false) = (needs, host_is_short) {
            let mut best = None;
            for device in devices {
                let candidates = self.candidates(runner, &[device], false);
                cheaper(&mut best, self.cheapest_of(key, Some(device), count, &[*need], &candidates));
            }
            return best;
        }
        let candidates = self.candidates(runner, &devices, host_is_short);
        self.price(key, only, count, needs, &candidates)?;
        let one_by_one = (candidates.len() > FEW_SLOTS).then(|| self.device_by_device(key, runner, &devices, needs));
        match one_by_one.flatten().filter(|_| !host_is_short) {
            Some(set) => {
                self.price(key, only, count, needs, &self.spare_what_is_not_needed(key, only, count, needs, set))
            }
            None => self.cheapest_of(key, only, count, needs, &candidates),
        }
    }

    /// The cheapest of these: sets of one, then of two, and so on.
    fn cheapest_of(
        &self,
        key: RunnerKey,
        only: Option<DeviceKey>,
        count: GpuCount,
        needs: &[GpuMemory],
        candidates: &[SlotKey],
    ) -> Option<Priced> {
        self.price(key, only, count, needs, candidates)?;
        if let Some(priced) = self.cheapest_by_sum(key, only, count, needs, candidates) {
            return Some(priced);
        }
        let mut tried = 0;
        for size in 1..=candidates.len() {
            let mut cheapest: Option<Priced> = None;
            let finished = each_subset(candidates, size, &mut |set| {
                tried += 1;
                cheaper(&mut cheapest, self.price(key, only, count, needs, set));
                tried < SET_BUDGET
            });
            if cheapest.is_some() {
                return cheapest;
            }
            if !finished {
                break;
            }
        }
        let set = self.spare_what_is_not_needed(key, only, count, needs, candidates.to_vec());
        self.price(key, only, count, needs, &set)
    }

    /// On one device a set is enough if its bytes are: the cheapest is found by adding, and only that one is priced.
    fn cheapest_by_sum(
        &self,
        key: RunnerKey,
        only: Option<DeviceKey>,
        count: GpuCount,
        needs: &[GpuMemory],
        candidates: &[SlotKey],
    ) -> Option<Priced> {
        let (device, [need]) = (only?, needs) else { return None };
        let row = self.state.devices.get(device)?;
        let Ask::Amount(bytes) = ask_of(self.state, row, *need) else { return None };
        let missing = bytes.saturating_sub(row.ledger.future_room()).get();
        let mut tried = 0;
        for size in 1..=candidates.len() {
            let mut cheapest: Option<(u64, u64, SmallVec<[SlotKey; 8]>)> = None;
            each_subset(candidates, size, &mut |set| {
                tried += 1;
                let rows = set.iter().filter_map(|slot| self.state.slots.get(*slot));
                let (mut back, mut cost, mut used) = (0u64, 0u64, 0u64);
                for slot in rows {
                    back = back.saturating_add(slot.on(device).map_or(0, |gpu| gpu.bytes.get()));
                    cost = cost.saturating_add(slot.total_bytes().get());
                    used = used.max(slot.idle_since.map_or(0, berth_domain::Timestamp::millis));
                }
                let cheaper = cheapest.as_ref().is_none_or(|(least, first, _)| (cost, used) < (*least, *first));
                if back >= missing && cheaper {
                    cheapest = Some((cost, used, set.iter().copied().collect()));
                }
                tried < SET_BUDGET
            });
            if let Some((.., set)) = cheapest {
                return self.price(key, only, count, needs, &set);
            }
        }
        None
    }

    /// Victims for several GPUs where there are many: the devices that are cheapest to clear, each by itself.
    fn device_by_device(
        &self,
        key: RunnerKey,
        runner: &Runner,
        devices: &[DeviceKey],
        needs: &[GpuMemory],
    ) -> Option<Vec<SlotKey>> {
        let most = *needs.iter().max()?;
        let one = GpuCount::new(1);
        let mut prices: Vec<(Cost, SmallVec<[SlotKey; 2]>)> = Vec::new();
        let mut free = 0;
        for device in devices {
            if self.check_device(*device, most, crate::ledger::Phase::Promised, &[]).is_ok() {
                free += 1;
                continue;
            }
            let candidates = self.candidates(runner, &[*device], false);
            let priced = self.cheapest_of(key, Some(*device), one, &[most], &candidates);
            prices.extend(priced.map(|(cost, site)| (cost, site.victims)));
        }
        prices.sort_by(|a, b| a.0.cmp(&b.0));
        let wanted = needs.len().saturating_sub(free);
        if prices.len() < wanted {
            return None;
        }
        let mut set: Vec<SlotKey> = prices.into_iter().take(wanted).flat_map(|(_, victims)| victims).collect();
        set.sort_unstable();
        set.dedup();
        Some(set)
    }

    /// From all that may go, lets the most recently used stay as long as the plan still fits.
    fn spare_what_is_not_needed(
        &self,
        key: RunnerKey,
        only: Option<DeviceKey>,
        count: GpuCount,
        needs: &[GpuMemory],
        mut set: Vec<SlotKey>,
    ) -> Vec<SlotKey> {
        let mut position = set.len();
        while position > 0 {
            position -= 1;
            let spared = set.remove(position);
            if self.price(key, only, count, needs, &set).is_none() {
                set.insert(position, spared);
            }
        }
        set
    }

    /// Slots that may go for this demand, cheapest first; those without a claim on its devices only for their CPU and
    /// RAM.
    fn candidates(&self, runner: &Runner, devices: &[DeviceKey], host_is_short: bool) -> Vec<SlotKey> {
        let on_devices = devices.iter().filter_map(|device| self.state.devices.get(*device));
        let mut slots: Vec<SlotKey> =
            on_devices.flat_map(|device| device.ledger.claims().iter().map(|claim| claim.slot)).collect();
        if host_is_short {
            let runners =
                self.state.machines.get(runner.machine).map(|machine| machine.runners.as_slice()).unwrap_or_default();
            slots.extend(
                runners
                    .iter()
                    .filter_map(|runner| self.state.runners.get(*runner))
                    .flat_map(|row| row.slots.iter().copied()),
            );
        }
        slots.retain(|slot| self.state.slots.get(*slot).is_some_and(|row| self.may_go(row)));
        let price =
            |slot: &SlotKey| self.state.slots.get(*slot).map(|row| (row.total_bytes(), row.idle_since, row.number));
        slots.sort_unstable_by_key(price);
        slots.dedup();
        slots
    }

    /// Whether an idle slot may go for this demand. A model does not evict itself.
    fn may_go(&self, slot: &Slot) -> bool {
        let reserved = self.demand.workload.is_some() && self.is_reserved_for_us(slot);
        if !slot.evictable && (!reserved || !self.may_go_for_reservation(slot)) {
            return false;
        }
        let own = slot.model == Some(self.demand.key) && slot.revision == self.demand.model.revision;
        self.spared_own.set(self.spared_own.get() || own);
        !own
    }

    fn is_reserved_for_us(&self, slot: &Slot) -> bool {
        let reserved =
            |device| self.state.devices.get(device).is_some_and(|row| row.reserved_for == self.demand.workload);
        slot.gpus.iter().any(|gpu| reserved(gpu.device))
    }

    // A reservation has waited long enough: `min_run` protects nobody on its devices.
    fn may_go_for_reservation(&self, slot: &Slot) -> bool {
        let ripe = Slot { ripe: true, ..slot.clone() };
        matches!(slot.state, SlotState::Ready | SlotState::Draining)
            && slot.is_idle()
            && self.state.is_evictable(&Slot { state: SlotState::Ready, ..ripe })
    }

    /// What it costs to place here at the cost of exactly these, or `None` if that is not enough or not allowed.
    fn price(
        &self,
        key: RunnerKey,
        only: Option<DeviceKey>,
        count: GpuCount,
        needs: &[GpuMemory],
        victims: &[SlotKey],
    ) -> Option<Priced> {
        let runner = self.state.runners.get(key).filter(|row| row.is_open())?;
        let rows: SmallVec<[&Slot; 4]> = victims.iter().filter_map(|slot| self.state.slots.get(*slot)).collect();
        if victims.is_empty()
            || self.avoid.get() == Some(key)
            || !rows.iter().all(|row| self.may_go(row))
            || !self.leaves_minimum(&rows)
        {
            return None;
        }
        if !self.host_fits(runner, Soon::Later, victims) {
            return None;
        }
        let devices = self.usable_devices(key, runner, only, count);
        let (claims, _) = self.assign(&devices, needs, Soon::Later, victims)?;
        let cost = Cost {
            victims: rows.len(),
            bytes: rows.iter().map(|row| row.total_bytes().get()).fold(0, u64::saturating_add),
            last_used: rows
                .iter()
                .filter_map(|row| row.idle_since)
                .map(berth_domain::Timestamp::millis)
                .max()
                .unwrap_or(0),
            count,
            numbers: rows.iter().map(|row| row.number).collect(),
        };
        let site = Site { runner: key, count, claims, promised: true, victims: victims.iter().copied().collect() };
        Some((cost, site))
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

fn cheaper(best: &mut Option<Priced>, found: Option<Priced>) {
    let Some(found) = found else { return };
    if best.as_ref().is_none_or(|(cost, _)| found.0 < *cost) {
        *best = Some(found);
    }
}

/// Calls `visit` with every subset of `size`, in order, until it says stop. Tells whether it saw them all.
fn each_subset(items: &[SlotKey], size: usize, visit: &mut dyn FnMut(&[SlotKey]) -> bool) -> bool {
    fn choose(
        items: &[SlotKey],
        size: usize,
        chosen: &mut SmallVec<[SlotKey; 8]>,
        visit: &mut dyn FnMut(&[SlotKey]) -> bool,
    ) -> bool {
        if size == 0 {
            return visit(chosen);
        }
        for (position, item) in items.iter().enumerate() {
            if items.len() - position < size {
                break;
            }
            chosen.push(*item);
            let go_on = choose(&items[position + 1..], size - 1, chosen, visit);
            chosen.pop();
            if !go_on {
                return false;
            }
        }
        true
    }
    choose(items, size, &mut SmallVec::new(), visit)
}
