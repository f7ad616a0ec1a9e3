//! Keeping a place free for work that has waited too long: where, and how long that will take.
//!
//! A place is a runner, a device for each rank, and the CPU and RAM of its machine. What is in the way is either a slot
//! that drains (it takes no new leases and goes once it is idle) or a job, which nobody stops for this. So the place
//! with the fewest jobs of unknown length in the way is taken, then the one whose jobs end first, then the one where the
//! least has to go.

use std::ops::ControlFlow;

use berth_domain::{Bytes, GpuCount, GpuMemory, Millicores, SlotState, Timestamp};
use smallvec::SmallVec;

use super::{Demand, Search, ask_of};
use crate::index::{Soon, Wish};
use crate::ledger::{Ask, Ledger, Phase, Quantity};
use crate::state::{Machine, Runner, Slot, State};
use crate::table::{DeviceKey, RunnerKey, SlotKey};

/// Devices that are looked at for one demand, at most.
const DEVICE_BUDGET: u32 = 4096;

/// How long it takes until a place can be used. The field order is the ranking.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Wait {
    /// Jobs that must end first, and nobody knows when they do.
    pub(crate) unknown_jobs: u32,
    /// When the last of the other jobs that must end first has ended.
    pub(crate) jobs_end: Option<Timestamp>,
    /// What must go, in all.
    pub(crate) bytes: u64,
}

/// A place that could be kept free.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReservedSite {
    pub(crate) runner: RunnerKey,
    /// In rank order.
    pub(crate) devices: Vec<DeviceKey>,
    pub(crate) wait: Wait,
    /// CPU or RAM is short.
    pub(crate) drains_host: bool,
}

/// The place to keep free for a demand, or nothing if no place would ever be free for it.
pub(crate) fn choose_reservation(state: &State, demand: Demand<'_>) -> Option<ReservedSite> {
    let search = Search::new(state, demand);
    demand.shape.counts.iter().find_map(|(count, needs)| search.best_place(*count, needs))
}

impl Wait {
    fn plus(self, other: Self) -> Self {
        Self {
            unknown_jobs: self.unknown_jobs.saturating_add(other.unknown_jobs),
            jobs_end: self.jobs_end.max(other.jobs_end),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }

    /// Whether this is so much better that a place is given up for it. What drains a little faster is not.
    pub(crate) fn is_worth_moving_from(&self, now: &Self) -> bool {
        (self.unknown_jobs, self.jobs_end) < (now.unknown_jobs, now.jobs_end)
            || ((self.unknown_jobs, self.jobs_end) == (now.unknown_jobs, now.jobs_end) && self.bytes < now.bytes / 2)
    }
}

impl Search<'_> {
    fn best_place(&self, count: GpuCount, needs: &[GpuMemory]) -> Option<ReservedSite> {
        // Where it failed last only if nowhere else will do.
        let mut best: Option<((bool, Wait), ReservedSite)> = None;
        let mut consider = |runner: RunnerKey, only: Option<DeviceKey>| {
            let Some(site) = self.reserve_on(runner, only, count, needs) else { return };
            let rank = (self.demand.avoid == Some(runner), site.wait);
            if best.as_ref().is_none_or(|(least, _)| rank < *least) {
                best = Some((rank, site));
            }
        };
        if self.demand.shape.constraints.gpu_uuids.is_empty() {
            // Devices that are kept already stand on no shelf.
            self.reserved_runners(false).into_iter().for_each(|runner| consider(runner, None));
            // Any place will do in time, so nothing is passed over for having no room now.
            let anything =
                Wish { count: count.get(), least: None, most: Bytes::ZERO, cpu: Millicores::ZERO, ram: Bytes::ZERO };
            self.walk_shelves(count, &anything, Soon::Cleared, |key, device| {
                consider(key.runner, device);
                if self.examined.get() >= DEVICE_BUDGET { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
        } else {
            self.pinned_runners().into_iter().for_each(|runner| consider(runner, None));
        }
        best.map(|(_, site)| site)
    }

    /// The devices of one runner (or one of them) that could hold it in time, with the least to wait for.
    pub(crate) fn reserve_on(
        &self,
        key: RunnerKey,
        only: Option<DeviceKey>,
        count: GpuCount,
        needs: &[GpuMemory],
    ) -> Option<ReservedSite> {
        let runner = self.state.runners.get(key).filter(|row| row.is_open())?;
        let machine = self.state.machines.get(runner.machine)?;
        let host = self.wait_for_host(machine)?;
        let mut wait = host;
        let mut usable = self.among_reserved(|| self.usable_devices(key, runner, only, count));
        // What others keep may be used for a while, but not kept.
        usable.retain(|device| {
            let owner = self.state.devices.get(*device).and_then(|row| row.reserved_for);
            owner.and_then(|owner| self.state.reservation_of(owner)).is_none_or(|row| self.outranks(row))
        });
        self.count_examined(usable.len().max(1));
        let mut ranks: SmallVec<[usize; 8]> = (0..needs.len()).collect();
        ranks.sort_by(|a, b| needs[*b].cmp(&needs[*a]).then(a.cmp(b)));
        let mut devices: Vec<Option<DeviceKey>> = vec![None; needs.len()];
        // The largest need chooses first: whatever could hold it could hold every smaller one.
        for rank in ranks {
            let free = usable.iter().filter(|device| !devices.contains(&Some(**device)));
            let waits = free.filter_map(|device| Some((self.wait_for_device(*device, needs[rank])?, *device)));
            let (least, device) = waits.min_by_key(|(wait, _)| *wait)?;
            devices[rank] = Some(device);
            wait = wait.plus(least);
        }
        let drains_host = host != Wait::default();
        Some(ReservedSite { runner: key, devices: devices.into_iter().flatten().collect(), wait, drains_host })
    }

    fn wait_for_device(&self, device: DeviceKey, need: GpuMemory) -> Option<Wait> {
        let row = self.state.devices.get(device)?;
        let claims = row.ledger.claims().iter().map(|claim| claim.slot);
        wait_for(self.state, &row.ledger, ask_of(self.state, row, need), claims.collect())
    }

    fn wait_for_host(&self, machine: &Machine) -> Option<Wait> {
        let slots = || {
            let runners = machine.runners.iter().filter_map(|runner| self.state.runners.get(*runner));
            runners.flat_map(|runner: &Runner| runner.slots.iter().copied()).collect::<Vec<SlotKey>>()
        };
        let (cpu, ram) = (self.demand.shape.cpu, self.demand.shape.ram);
        let mut wait = Wait::default();
        if cpu > Millicores::ZERO {
            wait = wait.plus(wait_for(self.state, &machine.cpu, Ask::Amount(cpu), slots())?);
        }
        if !ram.is_zero() {
            wait = wait.plus(wait_for(self.state, &machine.ram, Ask::Amount(ram), slots())?);
        }
        Some(wait)
    }
}

/// How long until a ledger can give what is asked: slots that drain go first, then jobs in the order of their ends.
/// Nothing if it never can.
fn wait_for<Q: Quantity>(state: &State, ledger: &Ledger<Q>, ask: Ask<Q>, slots: Vec<SlotKey>) -> Option<Wait> {
    let fits = |leaving: &[SlotKey]| ledger.check_without(ask, Phase::Promised, leaving).is_ok();
    if fits(&[]) {
        return Some(Wait::default());
    }
    let mut wait = Wait { bytes: missing(ledger, ask), ..Wait::default() };
    let mut leaving = Vec::new();
    let mut jobs = Vec::new();
    for key in slots {
        match state.slots.get(key).map(|slot| leaves(state, slot)) {
            Some(Leaves::Drains) => leaving.push(key),
            Some(Leaves::Ends(at)) => jobs.push((at.is_none(), at, key)),
            Some(Leaves::Never) | None => {}
        }
    }
    if fits(&leaving) {
        return Some(wait);
    }
    jobs.sort_unstable();
    for (is_unknown, at, key) in jobs {
        leaving.push(key);
        wait.unknown_jobs += u32::from(is_unknown);
        wait.jobs_end = wait.jobs_end.max(at);
        if fits(&leaving) {
            return Some(wait);
        }
    }
    None
}

fn missing<Q: Quantity>(ledger: &Ledger<Q>, ask: Ask<Q>) -> u64 {
    match ask {
        Ask::Amount(amount) => amount.units().saturating_sub(ledger.future_headroom().units()),
        Ask::Whole { .. } => ledger.claims().iter().fold(0, |sum, claim| sum.saturating_add(claim.amount.units())),
    }
}

/// How a slot makes room.
enum Leaves {
    /// It takes no new leases and goes once it is idle; or it is on its way already.
    Drains,
    /// A job, which ends then, if anybody knows.
    Ends(Option<Timestamp>),
    /// Its model must have it, or nobody can say whether it exists.
    Never,
}

fn leaves(state: &State, slot: &Slot) -> Leaves {
    let Some(model) = slot.model.and_then(|key| state.models.get(key)) else { return Leaves::Never };
    let needed = slot.is_pinned() || (slot.live && model.spare_replicas() == 0);
    match slot.state {
        SlotState::Unknown => Leaves::Never,
        SlotState::Stopping if slot.stalled => Leaves::Never,
        SlotState::Stopping | SlotState::Failed => Leaves::Drains,
        _ if slot.is_job => Leaves::Ends(job_ends(state, slot)),
        _ if needed => Leaves::Never,
        _ => Leaves::Drains,
    }
}

/// When a job is ended at the latest.
fn job_ends(state: &State, slot: &Slot) -> Option<Timestamp> {
    let job = slot.job.and_then(|key| state.workloads.get(key))?;
    let max_run = job.submission.job.max_run?;
    Some(slot.ready_since.unwrap_or(state.now).after(max_run))
}
