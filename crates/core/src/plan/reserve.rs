//! Keeping devices free for work that has waited too long.

use std::ops::ControlFlow;

use berth_domain::{Bytes, GpuCount, GpuMemory, SlotState};

use super::{Demand, Search, ask_of};
use crate::index::Soon;
use crate::ledger::{Ask, Phase};
use crate::state::{Device, Slot, State};
use crate::table::{DeviceKey, RunnerKey};

/// The runner and devices to keep for a demand: those with the least on them that will go by itself.
pub(crate) fn choose_reservation(state: &State, demand: Demand<'_>) -> Option<(RunnerKey, Vec<DeviceKey>)> {
    let search = Search::new(state, demand);
    demand
        .shape
        .counts
        .iter()
        .filter(|(count, _)| count.get() > 0)
        .find_map(|(count, needs)| search.reserve_count(*count, needs))
}

impl Search<'_> {
    fn reserve_count(&self, count: GpuCount, needs: &[GpuMemory]) -> Option<(RunnerKey, Vec<DeviceKey>)> {
        let mut best: Option<(u64, RunnerKey, Vec<DeviceKey>)> = None;
        let mut consider = |runner: RunnerKey, only: Option<DeviceKey>| {
            if let Some((burden, devices)) = self.lightest(runner, only, count, needs)
                && best.as_ref().is_none_or(|(least, ..)| burden < *least)
            {
                best = Some((burden, runner, devices));
            }
        };
        if self.demand.shape.constraints.gpu_uuids.is_empty() {
            // Any place will do in time, so nothing is passed over for having no room now.
            let anything: Vec<GpuMemory> = Vec::new();
            self.walk_shelves(count, &anything, Soon::Cleared, |key, device| {
                consider(key.runner, device);
                if self.examined.get() >= 4096 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
        } else {
            self.pinned_runners().into_iter().for_each(|runner| consider(runner, None));
        }
        best.map(|(_, runner, devices)| (runner, devices))
    }

    /// The devices of one runner that could hold it in time, with the least to wait for.
    fn lightest(
        &self,
        key: RunnerKey,
        only: Option<DeviceKey>,
        count: GpuCount,
        needs: &[GpuMemory],
    ) -> Option<(u64, Vec<DeviceKey>)> {
        let runner = self.state.runners.get(key).filter(|row| row.is_open())?;
        let devices = self.usable_devices(key, runner, only, count);
        self.count_examined(devices.len());
        let mut fitting: Vec<(u64, DeviceKey)> = Vec::new();
        let most = *needs.iter().max()?;
        for device in devices {
            let row = self.state.devices.get(device)?;
            if self.fits_in_time(row, most) {
                fitting.push((self.must_go(row, most), device));
            }
        }
        fitting.sort_unstable();
        fitting.truncate(needs.len());
        (fitting.len() == needs.len()).then(|| {
            (fitting.iter().map(|(burden, _)| *burden).sum(), fitting.into_iter().map(|(_, device)| device).collect())
        })
    }

    /// Whether a device could give it once everything that may end has ended.
    fn fits_in_time(&self, device: &Device, need: GpuMemory) -> bool {
        let leaving: Vec<_> = device
            .ledger
            .claims()
            .iter()
            .map(|claim| claim.slot)
            .filter(|slot| self.state.slots.get(*slot).is_some_and(|slot| self.will_end(slot)))
            .collect();
        device.ledger.check_without(ask_of(self.state, device, need), Phase::Promised, &leaving).is_ok()
    }

    fn will_end(&self, slot: &Slot) -> bool {
        let Some(model) = slot.model.and_then(|key| self.state.models.get(key)) else { return false };
        let needed = slot.is_pinned() || (slot.live && model.spare_replicas() == 0);
        slot.state != SlotState::Unknown && !needed
    }

    /// Bytes that must go before it fits.
    fn must_go(&self, device: &Device, need: GpuMemory) -> u64 {
        let claimed = device.ledger.claims().iter().fold(Bytes::ZERO, |sum, claim| sum.saturating_add(claim.amount));
        match ask_of(self.state, device, need) {
            Ask::Amount(bytes) => bytes.saturating_sub(device.ledger.room()).get(),
            Ask::Whole { .. } => claimed.get(),
        }
    }
}
