//! Work that has waited too long gets devices kept for it: one reservation for each pool.

use berth_domain::{PoolName, Timestamp, WorkloadKind};

use crate::decide::Decision;
use crate::event::Event;
use crate::plan::{Demand, Search, choose_reservation};
use crate::reason::Closed;
use crate::state::{QueueKey, Reservation, State};
use crate::table::WorkloadKey;

/// Of the first in order, how many are asked. Those that wait for other reasons than memory are passed over.
const LOOK_AHEAD: usize = 8;

pub(super) fn next(state: &State, now: Timestamp) -> Option<Decision> {
    end_broken(state)
        .or_else(|| state.queue.pools.iter().find_map(|(pool, waiting)| reserve(state, pool, waiting, now)))
}

fn end_broken(state: &State) -> Option<Decision> {
    let broken = state.queue.reservations.values().find(|row| !is_sound(state, row))?;
    let workload = state.workloads.get(broken.workload)?.id;
    Some(Decision::of(vec![Event::ReservationEnded { workload }]))
}

fn is_sound(state: &State, row: &Reservation) -> bool {
    let open = |device: &crate::table::DeviceKey| {
        state.devices.get(*device).is_some_and(|device| device.closed() == Some(Closed::Reserved))
    };
    let demand = Demand::of_workload(state, row.workload);
    demand.is_some_and(|demand| Search::new(state, demand).matches(row.runner))
        && state.runners.get(row.runner).is_some_and(crate::state::Runner::is_open)
        && row.devices.iter().all(open)
}

fn reserve(
    state: &State,
    pool: &PoolName,
    waiting: &std::collections::BTreeSet<QueueKey>,
    now: Timestamp,
) -> Option<Decision> {
    if state.queue.reservations.contains_key(pool) {
        return None;
    }
    let first = waiting
        .iter()
        .take(LOOK_AHEAD)
        .map(|entry| entry.workload)
        .find(|workload| waits_for_memory(state, *workload))?;
    let row = state.workloads.get(first)?;
    if now.since(row.created.max(state.timers_from)) < state.settings.age_limit {
        return None;
    }
    let demand = Demand::of_workload(state, first)?;
    let (runner, devices) = choose_reservation(state, demand)?;
    let devices =
        devices.into_iter().filter_map(|device| state.devices.get(device)).map(|row| row.uuid.clone()).collect();
    let runner = state.runners.get(runner)?.id.clone();
    Some(Decision::of(vec![Event::Reserved { workload: row.id, runner, devices }]))
}

fn waits_for_memory(state: &State, workload: WorkloadKey) -> bool {
    let Some(demand) = Demand::of_workload(state, workload) else { return false };
    demand.kind == WorkloadKind::Job || demand.model.may_grow()
}
