//! Finding a place: for every allowed GPU count, smallest first, the best-ranked runner and devices.

use std::ops::ControlFlow;

use berth_domain::{Bytes, GpuCount, GpuMemory, Placement};
use smallvec::SmallVec;

use super::{Search, Site, SiteClaim, excluded_by};
use crate::index::{Class, Soon, SpotKey, Wish};
use crate::ledger::{Ask, Ledger, Phase, Quantity, Shortfall};
use crate::sabotage::{self, Mutation};
use crate::state::{Device, Machine, Runner, State};
use crate::table::{DeviceKey, RunnerKey, SlotKey};

/// What a need means on one device.
pub(crate) fn ask_of(state: &State, device: &Device, need: GpuMemory) -> Ask<Bytes> {
    match need {
        GpuMemory::Bytes(bytes) => Ask::Amount(bytes),
        GpuMemory::Fraction(fraction) => Ask::Amount(fraction.of(device.ledger.capacity())),
        GpuMemory::Whole(least) => Ask::Whole { tolerance: state.settings.exclusive_tolerance, least },
    }
}

/// A place and its exact rank.
type Ranking = (SpotKey, Site);

impl Search<'_> {
    /// The best place that has what is needed that soon.
    pub(super) fn place(&self, soon: Soon) -> Option<Site> {
        let counts = &self.demand.shape.counts;
        let at = |count, needs: &[GpuMemory]| {
            self.place_count(count, needs, soon).or_else(|| self.place_reserved(count, needs, soon))
        };
        counts.iter().find_map(|(count, needs)| at(*count, needs))
    }

    fn place_count(&self, count: GpuCount, needs: &[GpuMemory], soon: Soon) -> Option<Site> {
        let mut best: Option<Ranking> = None;
        if self.demand.shape.constraints.gpu_uuids.is_empty() {
            self.walk_shelves(count, &self.demand.wish(count, needs), soon, |key, devices| {
                // What ranks equal was found first: no later place can be better.
                if best.as_ref().is_some_and(|(rank, _)| rank.rank <= key.rank) {
                    return ControlFlow::Break(());
                }
                self.keep_better(&mut best, self.rank_runner(key.runner, devices, count, needs, soon));
                ControlFlow::Continue(())
            });
        } else {
            for runner in self.pinned_runners() {
                self.keep_better(&mut best, self.rank_runner(runner, None, count, needs, soon));
            }
        }
        best.map(|(_, site)| site)
    }

    /// Walks the places that might do, best first in each class.
    pub(super) fn walk_shelves(
        &self,
        count: GpuCount,
        wish: &Wish,
        soon: Soon,
        mut visit: impl FnMut(&SpotKey, Option<DeviceKey>) -> ControlFlow<()>,
    ) {
        for class in self.state.index.classes().filter(|class| self.matches_class(class)) {
            let lens = self.state.index.lens_for(class, count, self.demand.shape);
            let Some(shelf) = self.state.index.shelf(class, lens) else { continue };
            let own = self.demand.own_mark();
            shelf.walk(
                |reach| reach.may(wish, soon, own),
                |key, _| visit(key, lens.is_of_devices().then_some(key.device)),
            );
        }
    }

    /// Runners that have one of the devices a model is pinned to.
    pub(super) fn pinned_runners(&self) -> Vec<RunnerKey> {
        let constraints = &self.demand.shape.constraints;
        let devices = constraints.gpu_uuids.iter().filter_map(|uuid| self.state.devices.find(uuid));
        let mut runners: Vec<RunnerKey> =
            devices.flat_map(|(_, device)| device.attachments.iter().map(|row| row.runner)).collect();
        runners.sort_unstable();
        runners.dedup();
        runners.into_iter().filter(|runner| self.is_of_matching_class(*runner)).collect()
    }

    /// Whether runners of a class are such that the model may run on them.
    pub(super) fn matches_class(&self, class: &Class) -> bool {
        excluded_by(&self.demand.shape.constraints, self.demand.kind, &class.traits).is_none()
    }

    fn is_of_matching_class(&self, runner: RunnerKey) -> bool {
        let class = self.state.runners.get(runner).and_then(|row| self.state.index.class(row.standing.as_ref()?.0));
        class.is_some_and(|class| self.matches_class(class))
    }

    fn keep_better(&self, best: &mut Option<Ranking>, found: Option<Ranking>) {
        let Some(found) = found else { return };
        if best.as_ref().is_none_or(|(rank, _)| found.0 < *rank) {
            *best = Some(found);
        }
    }

    /// Whether a runner is one that the model may run on at all.
    pub(crate) fn matches(&self, runner: RunnerKey) -> bool {
        self.is_of_matching_class(runner)
            && (self.demand.shape.constraints.gpu_uuids.is_empty() || self.pinned_runners().contains(&runner))
    }

    /// Whether a slot would fit on this runner without waiting for anybody.
    pub(crate) fn fits_now_on(&self, runner: RunnerKey) -> bool {
        let mut counts = self.demand.shape.counts.iter();
        let mut fits = || counts.any(|(count, needs)| self.place_on(runner, *count, needs, Soon::Now).is_some());
        self.matches(runner) && self.among_reserved(&mut fits)
    }

    /// Whether a slot would fit anywhere without waiting for anybody.
    pub(crate) fn fits_now(&self) -> bool {
        self.place(Soon::Now).is_some()
    }

    /// The best devices of this very runner.
    pub(super) fn place_on(&self, runner: RunnerKey, count: GpuCount, needs: &[GpuMemory], soon: Soon) -> Option<Site> {
        self.rank_runner(runner, None, count, needs, soon).map(|(_, site)| site)
    }

    /// The best devices of one runner, or of one device of it.
    fn rank_runner(
        &self,
        key: RunnerKey,
        only: Option<DeviceKey>,
        count: GpuCount,
        needs: &[GpuMemory],
        soon: Soon,
    ) -> Option<Ranking> {
        let runner = self.state.runners.get(key).filter(|row| row.is_open())?;
        if self.avoid.get() == Some(key) || !self.host_fits(runner, soon, &[]) {
            return None;
        }
        let devices = self.usable_devices(key, runner, only, count);
        self.count_examined(devices.len());
        let (claims, worst) = self.assign(&devices, needs, soon, &[])?;
        let one = claims.first().filter(|_| count.get() == 1);
        let index = one
            .and_then(|claim| self.state.devices.get(claim.device)?.attachment_on(key))
            .map_or(0, |row| row.attachment.index);
        let device = one.map_or_else(DeviceKey::default, |claim| claim.device);
        let rank = match (count.get(), self.demand.shape.placement) {
            (0, _) => self.host_rank(runner),
            // Several GPUs are packed on the runner that could least hold anything larger.
            (2.., Placement::Pack) => self.nth_room(runner, usize::from(count.get())),
            _ => worst,
        };
        let site = Site { runner: key, count, claims, promised: soon != Soon::Now, victims: SmallVec::new() };
        Some((SpotKey { rank, index, ordinal: runner.ordinal, runner: key, device }, site))
    }

    /// The room of the `count`-th roomiest device of a runner, as its shelf knows it.
    fn nth_room(&self, runner: &Runner, count: usize) -> u64 {
        let names = &self.demand.shape.constraints.gpu_names;
        let named = |gpu: &Device| names.is_empty() || names.contains(&gpu.name);
        let open = |gpu: &&Device| gpu.depth.open && !gpu.is_mig() && named(gpu);
        let devices = runner.devices.iter().filter_map(|device| self.state.devices.get(*device)).filter(open);
        let mut rooms: SmallVec<[u64; 8]> = devices.map(|gpu| gpu.depth.room).collect();
        rooms.sort_unstable_by(|a, b| b.cmp(a));
        count.checked_sub(1).and_then(|position| rooms.get(position)).copied().unwrap_or(0)
    }

    fn host_rank(&self, runner: &Runner) -> u64 {
        let Some(machine) = self.state.machines.get(runner.machine) else { return u64::MAX };
        let share = machine.cpu.claimed_share().max(machine.ram.claimed_share());
        match self.demand.shape.placement {
            Placement::Spread => u64::from(share),
            Placement::Pack => u64::from(berth_domain::Fraction::WHOLE.saturating_sub(share)),
        }
    }

    /// Devices of a runner that are open and match, one by one. MIG instances never work together.
    pub(super) fn usable_devices(
        &self,
        key: RunnerKey,
        runner: &Runner,
        only: Option<DeviceKey>,
        count: GpuCount,
    ) -> SmallVec<[DeviceKey; 8]> {
        let constraints = &self.demand.shape.constraints;
        let usable = |device: &DeviceKey| {
            let Some(row) = self.state.devices.get(*device) else { return false };
            self.may_use(row)
                && (count.get() == 1 || !row.is_mig())
                && (constraints.gpu_names.is_empty() || constraints.gpu_names.contains(&row.name))
                && (constraints.gpu_uuids.is_empty() || constraints.gpu_uuids.contains(&row.uuid))
        };
        debug_assert!(
            only.is_none_or(|device| self
                .state
                .devices
                .get(device)
                .is_some_and(|row| row.attachment_on(key).is_some()))
        );
        match only {
            Some(device) => Some(device).into_iter().filter(usable).collect(),
            None => runner.devices.iter().copied().filter(usable).collect(),
        }
    }

    /// Gives each rank a device, if the slots in `leaving` were being stopped. Also the rank of the worst device.
    ///
    /// The largest need chooses first: whatever fits it fits every smaller one, so no choice can spoil a later one.
    pub(super) fn assign(
        &self,
        devices: &[DeviceKey],
        needs: &[GpuMemory],
        soon: Soon,
        leaving: &[SlotKey],
    ) -> Option<(SmallVec<[SiteClaim; 1]>, u64)> {
        if devices.len() < needs.len() {
            return None;
        }
        let phase = if soon == Soon::Now { Phase::Held } else { Phase::Promised };
        let mut ranks: SmallVec<[usize; 8]> = (0..needs.len()).collect();
        ranks.sort_by(|a, b| needs[*b].cmp(&needs[*a]).then(a.cmp(b)));
        let mut order: SmallVec<[(u64, DeviceKey); 8]> =
            devices.iter().map(|device| (self.device_rank(*device), *device)).collect();
        // Stable: devices come by index, and index breaks ties.
        order.sort_by_key(|(rank, _)| *rank);
        let mut taken: SmallVec<[(usize, SiteClaim, u64); 8]> = SmallVec::new();
        for rank in ranks {
            let fits = |(worth, device): &(u64, DeviceKey)| {
                if taken.iter().any(|(_, claim, _)| claim.device == *device) {
                    return None;
                }
                let bytes = self.check_device(*device, needs[rank], phase, leaving).ok()?;
                let exclusive = matches!(needs[rank], GpuMemory::Whole(_));
                Some((rank, SiteClaim { device: *device, bytes, exclusive }, *worth))
            };
            let found = order.iter().find_map(fits)?;
            taken.push(found);
        }
        let worst = taken.iter().map(|(.., worth)| *worth).max().unwrap_or(0);
        taken.sort_by_key(|(rank, ..)| *rank);
        Some((taken.into_iter().map(|(_, claim, _)| claim).collect(), worst))
    }

    fn device_rank(&self, device: DeviceKey) -> u64 {
        let Some(row) = self.state.devices.get(device) else { return u64::MAX };
        match self.demand.shape.placement {
            Placement::Spread => u64::from(row.depth.share),
            Placement::Pack => row.depth.room,
        }
    }

    /// Whether one device can give one need. The ledger decides; nobody else does.
    pub(super) fn check_device(
        &self,
        device: DeviceKey,
        need: GpuMemory,
        phase: Phase,
        leaving: &[SlotKey],
    ) -> Result<Bytes, Shortfall<Bytes>> {
        let row = self.state.devices.get(device).ok_or(Shortfall::Nothing)?;
        let ask = ask_of(self.state, row, need);
        match (ask, sabotage::is(Mutation::CheckTotal)) {
            (Ask::Amount(bytes), true) if self.runner_total(row) >= bytes.get() => Ok(bytes),
            _ => row.ledger.check_without(ask, phase, leaving),
        }
    }

    /// What the sabotaged check looks at: everything that is free anywhere on the runner.
    fn runner_total(&self, device: &Device) -> u64 {
        let runner = device.attachments.first().and_then(|row| self.state.runners.get(row.runner));
        let rooms = runner.map(|row| {
            row.devices
                .iter()
                .filter_map(|key| self.state.devices.get(*key))
                .map(|row| row.ledger.headroom().get())
                .sum()
        });
        rooms.unwrap_or(0)
    }

    /// Whether the machine has the CPU and RAM.
    pub(super) fn host_fits(&self, runner: &Runner, soon: Soon, leaving: &[SlotKey]) -> bool {
        let Some(machine) = self.state.machines.get(runner.machine) else { return false };
        let phase = if soon == Soon::Now { Phase::Held } else { Phase::Promised };
        let (cpu, ram) = (self.demand.shape.cpu, self.demand.shape.ram);
        let (kept_cpu, kept_ram) = self.kept_host(machine);
        amount_fits(&machine.cpu, cpu, kept_cpu, phase, leaving)
            && amount_fits(&machine.ram, ram, kept_ram, phase, leaving)
    }

    /// CPU and RAM of a machine that are kept free for others.
    fn kept_host(&self, machine: &Machine) -> (u64, u64) {
        let reservations = machine.reserved_for.iter().filter_map(|owner| self.state.reservation_of(*owner));
        let kept =
            reservations.filter(|row| !self.outranks(row) && !self.was_reserved_before(row) && !self.may_backfill(row));
        kept.fold((0, 0), |(cpu, ram), row| {
            (u64::saturating_add(cpu, row.cpu.get()), u64::saturating_add(ram, row.ram.get()))
        })
    }
}

/// Whether a host ledger can give an amount and still, once all that is releasing is free, what is kept for others.
fn amount_fits<Q: Quantity>(ledger: &Ledger<Q>, amount: Q, kept: u64, phase: Phase, leaving: &[SlotKey]) -> bool {
    let with_kept = || Ask::Amount(Q::of_units(amount.units().saturating_add(kept)));
    amount.units() == 0
        || (ledger.check_without(Ask::Amount(amount), phase, leaving).is_ok()
            && (kept == 0 || ledger.check_without(with_kept(), Phase::Promised, leaving).is_ok()))
}

/// Whether a demand could use what a runner has to give, be it now, later or at the cost of idle slots. Quick: it is
/// asked for every waiting shape when memory is freed.
pub(crate) fn could_use(search: &Search<'_>, key: RunnerKey) -> bool {
    let state = search.state;
    let Some(runner) = state.runners.get(key).filter(|row| row.is_open()) else { return false };
    if !search.matches(key) {
        return false;
    }
    let fits_one = |device: &Device, need: GpuMemory| {
        let free = device.ledger.future_headroom().saturating_add(device.evictable);
        match ask_of(state, device, need) {
            Ask::Amount(bytes) => bytes <= free,
            Ask::Whole { .. } => device.depth.whole_cleared,
        }
    };
    search.demand.shape.counts.iter().any(|(count, needs)| {
        let devices = search.among_reserved(|| search.usable_devices(key, runner, None, *count));
        let Some(least) = needs.iter().min() else { return true };
        let fitting =
            devices.iter().filter_map(|device| state.devices.get(*device)).filter(|device| fits_one(device, *least));
        fitting.count() >= needs.len()
    })
}
