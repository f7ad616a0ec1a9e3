//! Making room at the cost of idle slots: the cheapest set, as a whole, or none.

use std::ops::ControlFlow;

use berth_domain::{GpuCount, GpuMemory};
use smallvec::SmallVec;

use super::victims::{Cost, Priced, Target};
use super::{Search, Site, ask_of};
use crate::index::Soon;
use crate::ledger::{Ask, Phase};
use crate::state::Runner;
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
        self.cheapest_on(Target { runner, only: None, count, needs }).map(|(_, site)| site)
    }

    /// One GPU, one victim: the first on the shelf of victims whose going is enough.
    fn evict_one(&self, count: GpuCount, need: GpuMemory) -> Option<Priced> {
        let (mut best, mut vain): (Option<Priced>, u32) = (None, 0);
        for class in self.state.index.classes() {
            if !self.matches_class(class) {
                continue;
            }
            let found = class.victims.walk(
                |gain| gain.may(need, self.demand.own_mark()),
                |victim, _| {
                    self.count_examined(1);
                    vain += 1;
                    let (runner, only) = (victim.runner, Some(victim.device));
                    match self.price(Target { runner, only, count, needs: &[need] }, &[victim.slot]) {
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
            self.walk_shelves(count, &self.demand.wish(count, needs), Soon::Cleared, |key, device| {
                cheaper(best, self.cheapest_on(Target { runner: key.runner, only: device, count, needs }));
                let budget = if best.is_some() { DEVICE_BUDGET } else { VAIN_BUDGET };
                let spent = self.examined.get() - start >= budget;
                if spent { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
        } else {
            for runner in self.pinned_runners() {
                cheaper(best, self.cheapest_on(Target { runner, only: None, count, needs }));
            }
        }
    }

    /// The cheapest victims on one runner (or one device of it).
    fn cheapest_on(&self, target: Target<'_>) -> Option<Priced> {
        let runner = self.state.runners.get(target.runner).filter(|row| row.is_open())?;
        let devices = self.usable_devices(target.runner, runner, target.only, target.count);
        self.count_examined(devices.len());
        let host_is_short = !self.host_fits(runner, Soon::Later, &[]);
        if target.needs.len() == 1 && !host_is_short {
            let mut best = None;
            for device in devices {
                let candidates = self.candidates(runner, &[device], false);
                cheaper(&mut best, self.cheapest_of(Target { only: Some(device), ..target }, &candidates));
            }
            return best;
        }
        let candidates = self.candidates(runner, &devices, host_is_short);
        let many = candidates.len() > FEW_SLOTS && !host_is_short;
        let by_device = many.then(|| self.device_by_device(target, runner, &devices)).flatten();
        let priced = by_device.and_then(|set| self.price(target, &self.spare_what_is_not_needed(target, set)));
        priced.or_else(|| self.cheapest_of(target, &candidates))
    }

    /// The cheapest of these: sets of one, then of two, and so on.
    fn cheapest_of(&self, target: Target<'_>, candidates: &[SlotKey]) -> Option<Priced> {
        if candidates.is_empty() || !self.is_enough(target, candidates) {
            return None;
        }
        if let Some(priced) = self.cheapest_by_sum(target, candidates) {
            return Some(priced);
        }
        let mut tried = 0;
        for size in 1..=candidates.len() {
            let mut cheapest: Option<Priced> = None;
            let finished = each_subset(candidates, size, &mut |set| {
                tried += 1;
                cheaper(&mut cheapest, self.price(target, set));
                tried < SET_BUDGET
            });
            if cheapest.is_some() {
                return cheapest;
            }
            if !finished {
                break;
            }
        }
        self.price(target, &self.spare_what_is_not_needed(target, self.within_minimum(candidates)))
    }

    /// On one device a set is enough if its bytes are: the cheapest is found by adding, and only that one is priced.
    fn cheapest_by_sum(&self, target: Target<'_>, candidates: &[SlotKey]) -> Option<Priced> {
        let (device, [need]) = (target.only?, target.needs) else { return None };
        let row = self.state.devices.get(device)?;
        let Ask::Amount(bytes) = ask_of(self.state, row, *need) else { return None };
        let missing = bytes.saturating_sub(row.ledger.future_headroom()).get();
        let mut tried = 0;
        for size in 1..=candidates.len() {
            let mut cheapest: Option<(u64, u64, SmallVec<[SlotKey; 8]>)> = None;
            each_subset(candidates, size, &mut |set| {
                tried += 1;
                let (mut back, mut cost, mut used) = (0u64, 0u64, 0u64);
                for slot in set.iter().filter_map(|slot| self.state.slots.get(*slot)) {
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
                return self.price(target, &set);
            }
        }
        None
    }

    /// Victims for several GPUs where there are many: the devices that are cheapest to clear, each by itself.
    fn device_by_device(&self, target: Target<'_>, runner: &Runner, devices: &[DeviceKey]) -> Option<Vec<SlotKey>> {
        let most = *target.needs.iter().max()?;
        let mut prices: Vec<(Cost, SmallVec<[SlotKey; 2]>)> = Vec::new();
        let mut free = 0;
        for device in devices {
            if self.check_device(*device, most, Phase::Promised, &[]).is_ok() {
                free += 1;
                continue;
            }
            let candidates = self.candidates(runner, &[*device], false);
            let one = Target { only: Some(*device), count: GpuCount::new(1), needs: &[most], ..target };
            prices.extend(self.cheapest_of(one, &candidates).map(|(cost, site)| (cost, site.victims)));
        }
        prices.sort_by(|a, b| a.0.cmp(&b.0));
        let wanted = target.needs.len().saturating_sub(free);
        if prices.len() < wanted {
            return None;
        }
        let mut set: Vec<SlotKey> = prices.into_iter().take(wanted).flat_map(|(_, victims)| victims).collect();
        set.sort_unstable();
        set.dedup();
        Some(set)
    }

    /// From all that may go, lets the dearest stay as long as the plan still fits.
    fn spare_what_is_not_needed(&self, target: Target<'_>, mut set: Vec<SlotKey>) -> Vec<SlotKey> {
        let mut position = set.len();
        while position > 0 {
            position -= 1;
            let spared = set.remove(position);
            if self.price(target, &set).is_none() {
                set.insert(position, spared);
            }
        }
        set
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
