//! Making room at the cost of idle slots: the cheapest set, as a whole, or none.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use berth_domain::{GpuCount, GpuMemory};
use smallvec::SmallVec;

use super::victims::{Cost, Loss, Priced, Target};
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
/// Sets that are added up on one device before the best so far is taken.
const COVER_BUDGET: usize = 4096;
/// With more idle slots than this on a runner, sets are built device by device.
const FEW_SLOTS: usize = 8;

/// The cheapest plan so far, and the next best.
#[derive(Debug, Default)]
pub(super) struct Cheapest {
    best: Option<Priced>,
    next: Option<Priced>,
}

impl Cheapest {
    fn offer(&mut self, found: Option<Priced>) {
        let Some(found) = found else { return };
        let is_less = |known: &Option<Priced>| known.as_ref().is_none_or(|(cost, _)| found.0 < *cost);
        if is_less(&self.best) {
            self.next = self.best.replace(found);
        } else if is_less(&self.next) {
            self.next = Some(found);
        }
    }

    fn into_site(self) -> Option<Site> {
        let next_best = self.next.map(|(cost, site)| (site.runner, cost.loss));
        self.best.map(|(_, site)| Site { next_best, ..site })
    }
}

impl Search<'_> {
    /// The cheapest eviction that makes a whole plan on so many GPUs fit.
    pub(super) fn evict(&self, count: GpuCount, needs: &[GpuMemory]) -> Option<Site> {
        let mut cheapest = Cheapest::default();
        if let ([need], true) = (needs, self.demand.shape.constraints.gpu_uuids.is_empty()) {
            self.evict_on_one_gpu(count, *need, &mut cheapest);
        }
        // Several GPUs, or a machine that is short of CPU or RAM: other slots than those on the GPU may have to go.
        if cheapest.best.is_none() {
            self.evict_on_runners(count, needs, &mut cheapest);
        }
        cheapest.into_site()
    }

    /// The cheapest eviction on this very runner.
    pub(super) fn evict_on(&self, runner: RunnerKey, count: GpuCount, needs: &[GpuMemory]) -> Option<Site> {
        self.cheapest_on(Target { runner, only: None, count, needs }).map(|(_, site)| site)
    }

    /// One GPU: idle slots are looked at from the one with which the least is lost. Each set that is cheaper than the
    /// best so far has a member that is, so the search ends where the next slot alone is no cheaper. That one is still
    /// looked at, for what the next best would have cost.
    fn evict_on_one_gpu(&self, count: GpuCount, need: GpuMemory, cheapest: &mut Cheapest) {
        let (mut seen, mut examined) = (BTreeSet::new(), 0);
        for class in self.state.index.classes().filter(|class| self.matches_class(class)) {
            class.victims.walk(
                |gain| gain.may(need, self.demand.own_mark()),
                |victim, _| {
                    if !seen.insert((victim.runner, victim.device)) {
                        return ControlFlow::Continue(());
                    }
                    let alone = (self.loss_of(victim.loss), victim.bytes);
                    let is_last = cheapest.best.as_ref().is_some_and(|(cost, _)| alone >= (cost.loss, cost.bytes));
                    examined += 1;
                    let (runner, only) = (victim.runner, Some(victim.device));
                    cheapest.offer(self.cheapest_on(Target { runner, only, count, needs: &[need] }));
                    let budget = if cheapest.best.is_some() { DEVICE_BUDGET } else { VAIN_BUDGET };
                    if is_last || examined >= budget { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                },
            );
        }
    }

    /// Runner by runner, within a budget.
    fn evict_on_runners(&self, count: GpuCount, needs: &[GpuMemory], cheapest: &mut Cheapest) {
        let start = self.examined.get();
        if self.demand.shape.constraints.gpu_uuids.is_empty() {
            let mut seen: SmallVec<[RunnerKey; 16]> = SmallVec::new();
            self.walk_runners(count, &self.demand.wish(count, needs), Soon::Cleared, |runner| {
                if seen.contains(&runner) {
                    return ControlFlow::Continue(());
                }
                seen.push(runner);
                cheapest.offer(self.cheapest_on(Target { runner, only: None, count, needs }));
                let budget = if cheapest.best.is_some() { DEVICE_BUDGET } else { VAIN_BUDGET };
                let spent = self.examined.get() - start >= budget;
                if spent { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
        } else {
            for runner in self.pinned_runners() {
                cheapest.offer(self.cheapest_on(Target { runner, only: None, count, needs }));
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

    /// The cheapest set of these.
    fn cheapest_of(&self, target: Target<'_>, candidates: &[SlotKey]) -> Option<Priced> {
        if candidates.is_empty() || !self.is_enough(target, candidates) {
            return None;
        }
        if let Some(priced) = self.cheapest_by_sum(target, candidates) {
            return Some(priced);
        }
        let (mut tried, mut cheapest): (usize, Option<Priced>) = (0, None);
        for size in 1..=candidates.len() {
            let finished = each_subset(candidates, size, &mut |set| {
                tried += 1;
                let may_be_cheaper = cheapest.as_ref().is_none_or(|(cost, _)| self.cost_of(&self.rows(set)) < *cost);
                if may_be_cheaper {
                    cheaper(&mut cheapest, self.price(target, set));
                }
                tried < SET_BUDGET
            });
            if !finished {
                break;
            }
        }
        let greedy = || self.price(target, &self.spare_what_is_not_needed(target, self.within_minimum(candidates)));
        cheapest.or_else(greedy)
    }

    /// On one device a set is enough if its bytes are: the cheapest is found by adding, and only that one is priced.
    fn cheapest_by_sum(&self, target: Target<'_>, candidates: &[SlotKey]) -> Option<Priced> {
        let (device, [need]) = (target.only?, target.needs) else { return None };
        let row = self.state.devices.get(device)?;
        let Ask::Amount(bytes) = ask_of(self.state, row, *need) else { return None };
        let slots = candidates.iter().filter_map(|key| {
            let slot = self.state.slots.get(*key)?;
            let gives = slot.on(device).map_or(0, |gpu| gpu.bytes.get());
            Some(Candidate { key: *key, gives, loss: self.loss_of(slot.loss), bytes: slot.total_bytes().get() })
        });
        let missing = bytes.saturating_sub(row.ledger.future_headroom()).get();
        let mut cover = Cover { candidates: slots.collect(), best: None, chosen: SmallVec::new(), tried: 0 };
        cover.choose(0, missing, Loss::default(), 0);
        let (.., set) = cover.best?;
        self.price(target, &set)
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

/// One of the slots that may go from a device.
struct Candidate {
    key: SlotKey,
    gives: u64,
    loss: Loss,
    bytes: u64,
}

/// The search for the cheapest set of slots that gives back enough, cheapest slots first. A set that costs as much as the
/// best already is left at once.
struct Cover {
    candidates: SmallVec<[Candidate; 8]>,
    best: Option<(Loss, u64, SmallVec<[SlotKey; 8]>)>,
    chosen: SmallVec<[SlotKey; 8]>,
    tried: usize,
}

impl Cover {
    fn choose(&mut self, from: usize, missing: u64, loss: Loss, bytes: u64) {
        self.tried += 1;
        if self.best.as_ref().is_some_and(|(least, fewest, _)| (loss, bytes) >= (*least, *fewest)) {
            return;
        }
        if missing == 0 {
            self.best = Some((loss, bytes, self.chosen.clone()));
            return;
        }
        for next in from..self.candidates.len() {
            if self.tried >= COVER_BUDGET {
                return;
            }
            let Candidate { key, gives, loss: more, bytes: own } = self.candidates[next];
            self.chosen.push(key);
            self.choose(next + 1, missing.saturating_sub(gives), loss.plus(more), bytes.saturating_add(own));
            self.chosen.pop();
        }
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
