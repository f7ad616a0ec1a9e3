//! Compares each placement, each eviction and each wait with a brute-force search.

use berth_core::view::DeviceView;
use berth_core::{Closed, Event, Liveness, PlacedSlot, ReservedFor, State, StopReason};
use berth_domain::{
    DeviceUuid, ModelName, ModelSpec, Placement, Priority, RunnerId, SlotId, SlotState, Span, Timestamp, WorkloadId,
    WorkloadKind, WorkloadState,
};

use crate::assertions::{ensure, owner_of};
use crate::reference::Reference;
use crate::reference::placement::{Place, PlacementRequest, ReferencePlanner, When};
use crate::system_under_test::{AssertionResult, FailedAssertion};

/// Checks the event at `position` against the state right before it.
pub(crate) fn check_decision(
    reference: &Reference,
    before: &State,
    events: &[Event],
    position: usize,
    at: Timestamp,
) -> AssertionResult {
    let evicts = |event: &Event| matches!(event, Event::SlotStopping { why: StopReason::Evicted, .. });
    let follows_victims = position > 0 && evicts(&events[position - 1]);
    match &events[position] {
        Event::SlotPlaced(placed) if !follows_victims => {
            let owner = events.get(position + 1).and_then(owner_of);
            check_place(reference, before, placed, owner)
        }
        event if evicts(event) && !follows_victims => {
            let victims: Vec<SlotId> = events[position..].iter().map_while(victim).collect();
            let Some(Event::SlotPlaced(placed)) = events.get(position + victims.len()) else {
                return Err(FailedAssertion { check: "eviction", text: format!("{victims:?} went for nothing") });
            };
            let owner = events.get(position + victims.len() + 1).and_then(owner_of);
            check_purpose(reference, before, placed, owner)?;
            check_victims(reference, before, placed, owner, &victims, at)
        }
        _ => Ok(()),
    }
}

fn victim(event: &Event) -> Option<SlotId> {
    match event {
        Event::SlotStopping { slot, why: StopReason::Evicted } => Some(*slot),
        _ => None,
    }
}

fn live(state: &State, model: &ModelName) -> u32 {
    state.models().into_iter().find(|row| row.name == *model).map_or(0, |row| row.live)
}

/// Checks that a new slot has a purpose: it is for a workload, or its model lacks a replica.
fn check_purpose(
    reference: &Reference,
    before: &State,
    placed: &PlacedSlot,
    owner: Option<WorkloadId>,
) -> AssertionResult {
    let model = reference.models.get(&placed.model).map(|model| model.spec.replicas).unwrap_or_default();
    let live = live(before, &placed.model);
    let needed = owner.is_some() || live < model.min;
    ensure!("one slot for each decision", needed, "{placed:?} is for nobody");
    let limited = placed.job.is_none() && model.max.is_some_and(|max| live >= max);
    ensure!("max_replicas", !limited, "{placed:?}: {live} already");
    Ok(())
}

/// What asks for a place, as reservations know it.
struct Requester {
    owner: ReservedFor,
    priority: Priority,
    kind: WorkloadKind,
    max_run: Option<Span>,
    live: u32,
}

impl Requester {
    /// Describes a workload, or a model whose replica no workload asked for.
    fn new(reference: &Reference, before: &State, model: &ModelName, owner: Option<WorkloadId>) -> Self {
        let submission = owner.and_then(|id| reference.workloads.get(&id)).map(|row| row.submission.clone());
        Self {
            owner: owner.map_or_else(|| ReservedFor::Replica(model.clone()), ReservedFor::Workload),
            priority: submission.as_ref().map(|row| row.priority).unwrap_or_default(),
            kind: submission.as_ref().map(|row| row.kind).unwrap_or_default(),
            max_run: submission.and_then(|row| row.job.max_run),
            live: live(before, model),
        }
    }

    fn request<'a>(&'a self, spec: &'a ModelSpec, avoid: Option<&'a RunnerId>) -> PlacementRequest<'a> {
        let Self { owner, priority, kind, max_run, live } = self;
        PlacementRequest { spec, owner, priority: *priority, kind: *kind, max_run: *max_run, live: *live, avoid }
    }

    fn has_a_reservation(&self, before: &State) -> bool {
        before.reservations().iter().any(|row| row.owner == self.owner)
    }
}

fn avoided(reference: &Reference, owner: Option<WorkloadId>, placed: &PlacedSlot) -> Option<RunnerId> {
    let avoid = owner.and_then(|id| reference.workloads.get(&id)).and_then(|row| row.avoid.clone());
    // Where it failed last is used when nowhere else will do.
    avoid.filter(|avoid| *avoid != placed.runner)
}

fn check_place(
    reference: &Reference,
    before: &State,
    placed: &PlacedSlot,
    owner: Option<WorkloadId>,
) -> AssertionResult {
    check_purpose(reference, before, placed, owner)?;
    let min = reference.models.get(&placed.model).map_or(0, |model| model.spec.replicas.min);
    // A slot that its model must have may be given to a workload right after it was placed.
    let may_be_a_replica = owner.is_some() && placed.job.is_none() && live(before, &placed.model) < min;
    match check_place_for(reference, before, placed, owner) {
        Err(_) if may_be_a_replica => check_place_for(reference, before, placed, None),
        outcome => outcome,
    }
}

fn check_place_for(
    reference: &Reference,
    before: &State,
    placed: &PlacedSlot,
    owner: Option<WorkloadId>,
) -> AssertionResult {
    let Some(model) = reference.models.get(&placed.model) else { return Ok(()) };
    let board = ReferencePlanner::new(reference, before);
    let (asker, avoid) = (Requester::new(reference, before, &placed.model, owner), avoided(reference, owner, placed));
    let request = asker.request(&model.spec, avoid.as_ref());
    let here = |when| {
        let places = board.places(request, when);
        let devices: Vec<&DeviceUuid> = placed.claims.iter().map(|claim| &claim.uuid).collect();
        let found = places
            .iter()
            .any(|place| place.runner == placed.runner && place.devices.iter().eq(devices.iter().copied()));
        (found, places)
    };
    let (now, places) = here(When::Now);
    if placed.promised {
        ensure!("a promise only where nothing fits now", places.is_empty(), "{placed:?}, though {places:?}");
        let (later, places) = here(When::Later(&[]));
        ensure!("a promise keeps the future line", later, "{placed:?}, but {places:?}");
        return Ok(());
    }
    ensure!("placed where it fits, smallest count first", now, "{placed:?}, but {places:?}");
    // What is kept free is not ranked among the rest: it is used where nothing else will do.
    let is_kept = |uuid: &DeviceUuid| board.device(uuid).is_some_and(|device| device.closed == Some(Closed::Reserved));
    let open: Vec<Place> = places.into_iter().filter(|place| !place.devices.iter().any(is_kept)).collect();
    let on_kept = placed.claims.iter().any(|claim| is_kept(&claim.uuid));
    ensure!("reserved devices are used last", !on_kept || open.is_empty(), "{placed:?}, though {open:?}");
    if placed.claims.len() == 1 && !on_kept {
        check_ranking(&board, placed, model.spec.placement, &open)?;
    }
    Ok(())
}

/// Checks the ranking: `spread` takes the least claimed share, `pack` the least room.
fn check_ranking(
    board: &ReferencePlanner<'_>,
    placed: &PlacedSlot,
    placement: Placement,
    places: &[Place],
) -> AssertionResult {
    let rank = |device: &DeviceView| {
        let b = device.balance;
        let [capacity, held, releasing, promised, foreign] =
            [b.capacity, b.held, b.releasing, b.promised, b.foreign].map(|bytes| u128::from(bytes.get()));
        match placement {
            Placement::Spread => (held + releasing + promised + foreign) * 1_000_000 / capacity.max(1),
            Placement::Pack => capacity.saturating_sub(held + foreign + releasing.max(promised)),
        }
    };
    let of = |uuid: &DeviceUuid| board.device(uuid).map(rank);
    let chosen = placed.claims.first().and_then(|claim| of(&claim.uuid));
    let best = places.iter().filter_map(|place| place.devices.first().and_then(of)).min();
    ensure!("ranking", chosen == best, "{placed:?} at {chosen:?}, though {best:?} among {places:?}");
    Ok(())
}

fn check_victims(
    reference: &Reference,
    before: &State,
    placed: &PlacedSlot,
    owner: Option<WorkloadId>,
    victims: &[SlotId],
    at: Timestamp,
) -> AssertionResult {
    let Some(model) = reference.models.get(&placed.model) else { return Ok(()) };
    ensure!("eviction", placed.promised, "{placed:?} does not wait for {victims:?}");
    let asker = Requester::new(reference, before, &placed.model, owner);
    for id in victims {
        let Some(victim) = reference.slots.get(&(*id, None)) else { continue };
        let (Some(of), Some(spec)) = (&victim.placed, &victim.spec) else { continue };
        let users = reference.workloads.values().filter(|row| row.slot == Some(*id)).count();
        ensure!(
            "eviction: ready and idle",
            victim.state == SlotState::Ready && users == 0,
            "{victim:?}, {users} users"
        );
        let min_run = spec.min_run.unwrap_or(before.settings().min_run);
        let ripe = victim.ready_since.is_some_and(|since| since.after(min_run) <= at);
        ensure!("eviction: past min_run", ripe, "{victim:?} at {at:?}");
        let theirs = reference.models.get(&of.model);
        let current = theirs.is_some_and(|row| row.revision == of.revision && !row.deleted);
        ensure!("eviction: not pinned", !(current && spec.replicas.pinned), "{victim:?}");
        let own = of.model == placed.model && of.revision == placed.revision;
        ensure!("eviction: of another model or revision", !own, "{victim:?}");
        let same = victims.iter().filter(|other| {
            let other = reference.slots.get(&(**other, None)).and_then(|row| row.placed.as_ref());
            other.is_some_and(|other| other.model == of.model && other.revision == of.revision)
        });
        let left = live(before, &of.model).saturating_sub(u32::try_from(same.count()).unwrap_or(u32::MAX));
        let min = theirs.map_or(0, |row| row.spec.replicas.min);
        ensure!("eviction: not needed", !current || left >= min, "{victim:?}: {left} of at least {min}");
    }
    let board = ReferencePlanner::new(reference, before);
    let avoid = avoided(reference, owner, placed);
    let request = asker.request(&model.spec, avoid.as_ref());
    let is_reserved = asker.has_a_reservation(before);
    let now = board.places(request, When::Now);
    ensure!("eviction: only when nothing fits", now.is_empty(), "{placed:?} for {victims:?}, though {now:?}");
    let fits = |leaving: &[SlotId]| {
        let mut places = board.places(request, When::Later(leaving));
        places.retain(|place| !is_reserved || place.runner == placed.runner);
        !places.is_empty()
    };
    ensure!("eviction: is enough", fits(victims), "{placed:?} for {victims:?}");
    for spared in 0..(1u32 << victims.len().min(16)) - 1 {
        let fewer: Vec<SlotId> =
            victims.iter().enumerate().filter(|(n, _)| spared & (1 << n) != 0).map(|(_, id)| *id).collect();
        ensure!(
            "eviction: no more than needed",
            !fits(&fewer),
            "{placed:?} for {victims:?}, though {fewer:?} would do"
        );
    }
    Ok(())
}

/// Checks that no workload waits that a slot could serve or that fits somewhere now.
pub(crate) fn check_waiting(reference: &Reference, state: &State) -> AssertionResult {
    let board = ReferencePlanner::new(reference, state);
    let may = |row: &crate::reference::Workload| !row.pauses && row.waits_for.is_none();
    let waiting = reference.workloads.iter().filter(|(_, row)| row.state == WorkloadState::Queued && may(row));
    for (id, row) in waiting {
        let Some(model) = reference.models.get(&row.submission.model).filter(|model| !model.deleted) else { continue };
        let shown = state.workload(*id);
        let asker = Requester::new(reference, state, &row.submission.model, Some(*id));
        let request = asker.request(&model.spec, None);
        if row.submission.kind == WorkloadKind::Lease {
            let open = open_slot(reference, state, &board, request);
            ensure!("nothing waits that a slot could serve", open.is_none(), "{shown:?} beside {open:?}");
            if model.spec.replicas.max.is_some_and(|max| live(state, &row.submission.model) >= max) {
                continue;
            }
        }
        let places = board.places(request, When::Now);
        ensure!("nothing waits that fits now", places.is_empty(), "{shown:?}, though {places:?}");
    }
    Ok(())
}

/// Finds a slot of the model's current revision that would take the requested lease.
fn open_slot(
    reference: &Reference,
    state: &State,
    board: &ReferencePlanner<'_>,
    request: PlacementRequest<'_>,
) -> Option<SlotId> {
    let model = &request.spec.name;
    let current = reference.models.get(model)?;
    let open = |id: &SlotId, slot: &crate::reference::Slot| {
        let users = reference.workloads.values().filter(|row| row.slot == Some(*id)).count();
        let runner = state.runner(&slot.runner);
        slot.placed
            .as_ref()
            .is_some_and(|placed| placed.model == *model && placed.revision == current.revision && placed.job.is_none())
            && slot.state.is_live()
            && slot.spec.as_ref().is_some_and(|spec| users < spec.concurrency as usize)
            && runner
                .is_some_and(|runner| runner.reported && runner.barred.is_none() && runner.liveness == Liveness::Ready)
            && board.takes_lease(slot, request)
    };
    reference.slots.iter().find(|((id, stray), slot)| stray.is_none() && open(id, slot)).map(|((id, _), _)| *id)
}
