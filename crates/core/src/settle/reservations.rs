//! Work that has waited too long gets a place kept free for it.
//!
//! Once a second everybody who waits is looked at in the order of the queue: the first who *can* have a place kept free
//! gets one, so one who cannot (pinned to a GPU that is shut, at the limit of its replicas) holds up nobody behind it.
//! A pool has one such place, and some more behind places that take long because of jobs in the way. A better place is
//! moved to, and one that can no longer be used is given up at once.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use berth_domain::{PoolName, Priority, Timestamp, WorkloadKind};

use crate::decide::Decision;
use crate::event::{Event, ReservedFor, ReservedPlace};
use crate::plan::{Demand, ReservedSite, Search, Wait, choose_reservation};
use crate::reason::Closed;
use crate::state::{Admission, Claimant, Liveness, Reservation, State};

/// Reservations of one pool, at most.
const MOST_PER_POOL: usize = 4;
/// Demands that are looked at in one review, at most.
const MOST_LOOKED_AT: usize = 64;

/// The order in which work waits: priority, then age.
type Order = (Reverse<Priority>, Timestamp, u64);

/// Somebody who has waited too long.
struct Candidate {
    order: Order,
    claimant: Claimant,
    pool: PoolName,
}

/// Ends a reservation that cannot be used any more.
pub(super) fn end_broken(state: &State) -> Option<Decision> {
    let broken = state.queue.reservations.iter().find(|row| !is_sound(state, row))?;
    Some(Decision::of(vec![Event::ReservationEnded { owner: state.name_of(broken.owner)? }]))
}

/// Looks at all reservations and at everybody who might need one. Gives one decision, or nothing once all is well.
pub(super) fn review(state: &State, now: Timestamp) -> Option<Decision> {
    let changed = state.queue.reservations.iter().find_map(|row| improve(state, row, now));
    changed.or_else(|| grant(state, now)).map(Decision::of)
}

/// Whether its place may still be built on. A runner that has not reported since the server started is waited for.
fn is_sound(state: &State, row: &Reservation) -> bool {
    let is_usable = |closed| matches!(closed, None | Some(Closed::Reserved));
    let open = |device: &crate::table::DeviceKey| {
        let device = state.devices.get(*device);
        device.is_some_and(|device| device.reserved_for == Some(row.owner) && is_usable(device.closed()))
    };
    let Some(demand) = Demand::of_claimant(state, row.owner) else { return false };
    let runner = state.runners.get(row.runner);
    is_waiting(state, row.owner)
        && Search::new(state, demand).matches(row.runner)
        && runner.is_some_and(|runner| {
            let is_open = runner.liveness == Liveness::Ready && runner.admission == Admission::Open;
            is_open && runner.machine == row.machine
        })
        && row.devices.iter().all(open)
}

/// Whether somebody still waits for a slot of their own.
fn is_waiting(state: &State, claimant: Claimant) -> bool {
    match claimant {
        Claimant::Workload(key) => {
            let Some(row) = state.workloads.get(key).filter(|row| row.queued.is_some()) else { return false };
            let model = state.models.get(row.model);
            let can_reuse =
                || Demand::of_workload(state, key).is_some_and(|demand| Search::new(state, demand).can_reuse());
            let needs_a_slot = |model: &crate::state::Model| match row.submission.kind {
                WorkloadKind::Job => true,
                WorkloadKind::Lease => model.may_grow() && !can_reuse(),
            };
            model.is_some_and(|model| !model.deleted && needs_a_slot(model))
        }
        Claimant::Replica(model) => {
            state.understaffed.contains(&model) && state.models.get(model).is_some_and(|row| row.retry_at.is_none())
        }
    }
}

/// Moves a reservation to a better place, or notes that what is in its way has changed.
fn improve(state: &State, row: &Reservation, now: Timestamp) -> Option<Vec<Event>> {
    let demand = Demand::of_claimant(state, row.owner)?;
    if !state.runners.get(row.runner).is_some_and(crate::state::Runner::is_open) {
        return None;
    }
    let needs = demand.shape.counts.iter().find(|(count, _)| usize::from(count.get()) == row.devices.len());
    let here = needs.and_then(|(count, needs)| Search::new(state, demand).reserve_on(row.runner, None, *count, needs));
    let best = choose_reservation(state, demand);
    match (here, best) {
        (None, None) => Some(vec![Event::ReservationEnded { owner: state.name_of(row.owner)? }]),
        (None, Some(best)) => reserve(state, row.owner, &demand, &best, row.since, now),
        (Some(here), Some(best)) if best.wait.is_worth_moving_from(&here.wait) => {
            reserve(state, row.owner, &demand, &best, row.since, now)
        }
        (Some(here), _) => {
            let same = place(state, row.owner, &demand, &here, row.since, now)?;
            let known = (row.runner, &row.devices, row.drains_host, row.backfill, row.free_at);
            let is_same = known == (here.runner, &here.devices, same.drains_host, same.backfill, same.free_at);
            (!is_same).then(|| reserve(state, row.owner, &demand, &here, row.since, now)).flatten()
        }
    }
}

/// Gives the first who needs a place and can have one their place.
fn grant(state: &State, now: Timestamp) -> Option<Vec<Event>> {
    let mut pools: BTreeMap<PoolName, bool> = BTreeMap::new();
    let mut looked_at = 0;
    for candidate in candidates(state, now) {
        let Candidate { order: (Reverse(priority), ..), claimant, pool } = candidate;
        if pools.get(&pool).copied().unwrap_or(false) {
            continue;
        }
        if !may_have_one_more(state, &pool, priority, now) {
            pools.insert(pool, true);
            continue;
        }
        if looked_at >= MOST_LOOKED_AT {
            return None;
        }
        looked_at += 1;
        let Some(demand) = Demand::of_claimant(state, claimant) else { continue };
        if let Some(site) = choose_reservation(state, demand) {
            return reserve(state, claimant, &demand, &site, now, now);
        }
    }
    None
}

/// A pool has one reservation, and more only behind those that take long. Those of lower priorities count for nobody.
fn may_have_one_more(state: &State, pool: &PoolName, priority: Priority, now: Timestamp) -> bool {
    let in_pool = state.queue.reservations.iter().filter(|row| row.pool == *pool && row.priority >= priority);
    let mut known = 0;
    for row in in_pool {
        known += 1;
        if !row.takes_long(now, state.settings.backfill_after) {
            return false;
        }
    }
    known < MOST_PER_POOL
}

/// Everybody who has waited too long and has no place kept free, in order: the first of each model and kind, those who
/// failed and pause, and models with too few slots.
fn candidates(state: &State, now: Timestamp) -> Vec<Candidate> {
    let heads = state.queue.shapes.values().filter_map(|shape| state.shapes.get(*shape)).flat_map(|row| &row.heads);
    let entries = heads.map(|(entry, ..)| entry).chain(&state.queue.paused);
    let workloads = entries.filter_map(|entry| {
        let row = state.workloads.get(entry.workload)?;
        let order = (Reverse(row.submission.priority), row.created, row.number);
        Some(Candidate { order, claimant: Claimant::Workload(entry.workload), pool: state.pool_of(row.model)? })
    });
    let replicas = state.understaffed.iter().filter_map(|key| {
        let order = (Reverse(Priority::default()), state.models.get(*key)?.short_since?, 0);
        Some(Candidate { order, claimant: Claimant::Replica(*key), pool: state.pool_of(*key)? })
    });
    let has_waited = |candidate: &Candidate| now.since(candidate.order.1) >= state.settings.age_limit;
    let has_none = |candidate: &Candidate| state.reservation_of(candidate.claimant).is_none();
    let waits = |candidate: &Candidate| is_waiting(state, candidate.claimant);
    let mut candidates: Vec<Candidate> =
        workloads.chain(replicas).filter(|row| has_waited(row) && has_none(row) && waits(row)).collect();
    candidates.sort_unstable_by(|a, b| (&a.order, a.claimant).cmp(&(&b.order, b.claimant)));
    candidates
}

/// The events that keep a place free: whoever of a lower priority had one of its devices loses theirs.
fn reserve(
    state: &State,
    owner: Claimant,
    demand: &Demand<'_>,
    site: &ReservedSite,
    since: Timestamp,
    now: Timestamp,
) -> Option<Vec<Event>> {
    let others = site.devices.iter().filter_map(|device| state.devices.get(*device)?.reserved_for);
    let mut losers: Vec<Claimant> = others.filter(|other| *other != owner).collect();
    losers.sort_unstable();
    losers.dedup();
    let ended = losers.into_iter().filter_map(|loser| state.name_of(loser));
    let mut events: Vec<Event> = ended.map(|owner| Event::ReservationEnded { owner }).collect();
    events.push(Event::Reserved(Box::new(place(state, owner, demand, site, since, now)?)));
    Some(events)
}

fn place(
    state: &State,
    owner: Claimant,
    demand: &Demand<'_>,
    site: &ReservedSite,
    since: Timestamp,
    now: Timestamp,
) -> Option<ReservedPlace> {
    let Wait { unknown_jobs, jobs_end, .. } = site.wait;
    let devices = site.devices.iter().filter_map(|device| state.devices.get(*device)).map(|row| row.uuid.clone());
    let free_at = jobs_end.filter(|_| unknown_jobs == 0);
    let is_late = unknown_jobs > 0 || jobs_end.is_some_and(|end| end > now);
    Some(ReservedPlace {
        owner: state.name_of(owner)?,
        runner: state.runners.get(site.runner)?.id.clone(),
        devices: devices.collect(),
        cpu: demand.shape.cpu,
        ram: demand.shape.ram,
        drains_host: site.drains_host,
        waits_for_unknown_jobs: unknown_jobs > 0,
        free_at,
        backfill: is_late && now.since(since) >= state.settings.backfill_after,
    })
}

impl Reservation {
    /// Whether it takes long until its place can be used: then the next in order may have one too.
    fn takes_long(&self, now: Timestamp, long: berth_domain::Span) -> bool {
        self.waits_for_unknown_jobs || self.free_at.is_some_and(|end| end > now.after(long))
    }
}

impl State {
    /// The outside name of somebody who waits.
    pub(crate) fn name_of(&self, claimant: Claimant) -> Option<ReservedFor> {
        Some(match claimant {
            Claimant::Workload(key) => ReservedFor::Workload(self.workloads.get(key)?.id),
            Claimant::Replica(key) => ReservedFor::Replica(self.models.get(key)?.name.clone()),
        })
    }

    /// Whoever has this outside name.
    pub(crate) fn claimant(&self, name: &ReservedFor) -> Option<Claimant> {
        Some(match name {
            ReservedFor::Workload(id) => Claimant::Workload(self.workloads.key(id)?),
            ReservedFor::Replica(name) => Claimant::Replica(self.models.key(name)?),
        })
    }

    fn pool_of(&self, model: crate::table::ModelKey) -> Option<PoolName> {
        self.models.get(model).map(|row| row.spec.constraints.pool.clone())
    }
}
