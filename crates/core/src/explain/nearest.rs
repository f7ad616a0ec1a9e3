//! Which devices to show: the nearest to doing.

use std::ops::ControlFlow;

use berth_domain::{GpuCount, Placement};
use smallvec::SmallVec;

use crate::index::SpotKey;
use crate::plan::{Demand, excluded_by};
use crate::state::{Runner, State};
use crate::table::{DeviceKey, RunnerKey};

/// The devices nearest to doing: in the order of the ranking, or those with the most room.
pub(super) fn nearest(
    state: &State,
    demand: &Demand<'_>,
    count: GpuCount,
    by_room: bool,
    most: usize,
) -> Vec<(RunnerKey, DeviceKey)> {
    if !demand.shape.constraints.gpu_uuids.is_empty() {
        let mut pinned = pinned_devices(state, demand, usize::MAX);
        pinned.retain(|(runner, _)| state.runners.get(*runner).is_some_and(|row| matches(state, demand, row)));
        pinned.truncate(most);
        return pinned;
    }
    let mut places: Vec<(u64, SpotKey)> = Vec::with_capacity(most);
    let constraints = &demand.shape.constraints;
    let is_matching = |class: &&crate::index::Class| excluded_by(constraints, demand.kind, &class.traits).is_none();
    for class in state.index.classes().filter(is_matching) {
        let lens = state.index.lens_for(class, count, demand.shape);
        let Some(shelf) = state.index.shelf(class, lens) else { continue };
        if by_room {
            let top = shelf.top(|reach| reach.room, most);
            places.extend(top.into_iter().map(|(key, reach)| (u64::MAX - reach.room, key)));
        } else {
            let mut left = most;
            shelf.walk(
                |_| true,
                |key, _| {
                    places.push((key.rank, *key));
                    left = left.saturating_sub(1);
                    if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                },
            );
        }
    }
    places.sort_by_key(|(rank, ..)| *rank);
    places.truncate(most);
    let of_devices = count.get() == 1 && demand.shape.placement == Placement::Pack;
    if of_devices && !places.is_empty() {
        return places.into_iter().map(|(_, spot)| (spot.runner, spot.device)).collect();
    }
    // A runner stands on its shelf for its best device, by the share that is claimed: it need not be looked for again.
    let best = |(_, spot): &(u64, SpotKey)| Some((spot.runner, device_at(state, spot.runner, spot.index)?));
    if count.get() == 1 && !by_room && places.len() == most {
        return places.iter().filter_map(best).collect();
    }
    let runners: Vec<RunnerKey> = places.into_iter().map(|(_, spot)| spot.runner).collect();
    let mut devices = best_of_each(state, demand, &runners, count, by_room, most);
    if devices.is_empty() {
        devices = shut_devices(state, demand, most);
    }
    devices
}

/// As many devices of each runner as a slot needs, the nearest first; where that is too few, the rest of them.
fn best_of_each(
    state: &State,
    demand: &Demand<'_>,
    runners: &[RunnerKey],
    count: GpuCount,
    by_room: bool,
    most: usize,
) -> Vec<(RunnerKey, DeviceKey)> {
    let names = &demand.shape.constraints.gpu_names;
    let named = |device: &DeviceKey| {
        names.is_empty() || state.devices.get(*device).is_some_and(|row| names.contains(&row.name))
    };
    let nearness = |device: &DeviceKey| {
        let depth = state.devices.get(*device).map(|row| row.depth).unwrap_or_default();
        (!depth.open, if by_room { u64::MAX - depth.room } else { u64::from(depth.share) })
    };
    let devices_of = |runner: &RunnerKey| {
        let devices = state.runners.get(*runner).map(|row| row.devices.as_slice()).unwrap_or_default();
        devices.iter().copied().filter(named).collect::<SmallVec<[DeviceKey; 8]>>()
    };
    let enough = usize::from(count.get()).max(1);
    let mut best: Vec<(RunnerKey, DeviceKey)> = Vec::with_capacity(most);
    for runner in runners.iter().take(most.div_ceil(enough)) {
        let mut devices = devices_of(runner);
        if enough == 1 {
            best.extend(devices.iter().min_by_key(|device| nearness(device)).map(|device| (*runner, *device)));
            continue;
        }
        devices.sort_by_key(nearness);
        best.extend(devices.into_iter().take(enough).map(|device| (*runner, device)));
    }
    if best.len() < most {
        let listed = best.clone();
        let rest = runners.iter().flat_map(|runner| devices_of(runner).into_iter().map(|device| (*runner, device)));
        best.extend(rest.filter(|place| !listed.contains(place)));
    }
    best.truncate(most);
    best
}

/// The device of a runner that has this index there. Devices stand in the order of their indexes, mostly without gaps.
fn device_at(state: &State, runner: RunnerKey, index: u16) -> Option<DeviceKey> {
    let devices = state.runners.get(runner)?.devices.as_slice();
    let is_it = |device: &DeviceKey| {
        let attachment = state.devices.get(*device).and_then(|row| row.attachment_on(runner));
        attachment.is_some_and(|row| row.attachment.index == index)
    };
    let guess = devices.get(usize::from(index)).filter(|device| is_it(device));
    guess.or_else(|| devices.iter().find(|device| is_it(device))).copied()
}

fn devices_of(state: &State, runner: RunnerKey) -> Vec<(RunnerKey, DeviceKey)> {
    let devices = state.runners.get(runner).map(|row| row.devices.as_slice()).unwrap_or_default();
    devices.iter().map(|device| (runner, *device)).collect()
}

/// The devices that a model is pinned to, wherever they are.
pub(super) fn pinned_devices(state: &State, demand: &Demand<'_>, most: usize) -> Vec<(RunnerKey, DeviceKey)> {
    let devices = demand.shape.constraints.gpu_uuids.iter().filter_map(|uuid| state.devices.find(uuid));
    devices.flat_map(|(key, device)| device.attachments.iter().map(move |row| (row.runner, key))).take(most).collect()
}

/// Devices of matching runners that are on no shelf: so that a closed device is shown with its reason.
fn shut_devices(state: &State, demand: &Demand<'_>, most: usize) -> Vec<(RunnerKey, DeviceKey)> {
    let runners = state.runners.iter().take(64).filter(|(_, row)| matches(state, demand, row));
    runners.flat_map(|(key, _)| devices_of(state, key)).take(most).collect()
}

/// Whether a runner has everything that is asked of it but room.
fn matches(state: &State, demand: &Demand<'_>, row: &Runner) -> bool {
    let class = row.standing.as_ref().and_then(|(class, ..)| state.index.class(*class));
    class.is_some_and(|class| excluded_by(&demand.shape.constraints, demand.kind, &class.traits).is_none())
}
