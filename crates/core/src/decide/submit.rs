//! A gateway submits a workload: admit, reuse, place, or wait.

use std::sync::Arc;

use berth_domain::{OwnerLimits, SlotId, Submission, Timestamp, WorkloadId, WorkloadKind};

use super::{Decision, arguments, retire};
use crate::command::{Answer, Refusal};
use crate::event::{Event, PlacedClaim, PlacedSlot};
use crate::explain::{self, Outcome};
use crate::plan::{self, Choice, Demand, Plan, Site};
use crate::reason::StopReason;
use crate::sabotage::{self, Mutation};
use crate::state::{OwnerPhase, State};
use crate::table::WorkloadKey;

pub(super) fn submit(
    state: &State,
    id: WorkloadId,
    submission: &Submission,
    limits: Option<&OwnerLimits>,
    now: Timestamp,
) -> Result<(Decision, Answer), Refusal> {
    if let Some(known) = repeated(state, submission)? {
        return Ok((Decision::default(), Answer::Submitted { workload: known, repeated: true }));
    }
    if state.workloads.key(&id).is_some() {
        return Err(Refusal::WorkloadIdTaken(id));
    }
    let owned = submission.owner.as_ref().map(|owner| state.owners.of(owner)).unwrap_or_default();
    check_limit(OwnerPhase::Running, owned.running, limits.map(|limits| limits.running))?;
    let unknown = || Refusal::UnknownModel(submission.model.clone());
    let (key, model) = state.models.find(&submission.model).filter(|(_, model)| !model.deleted).ok_or_else(unknown)?;
    arguments::check_job(state, &model.spec, submission)?;
    let demand = Demand::of_submission(state, key, submission).ok_or_else(unknown)?;
    let plan = plan::plan(state, demand);
    match plan.choice {
        Choice::Never(why) => {
            let lacks = plan::lacks(state, &demand);
            return Err(Refusal::Unplaceable { model: model.name.clone(), why, lacks });
        }
        Choice::Wait(_) if state.queue.order.len() >= state.settings.queue_limit => {
            return Err(Refusal::QueueFull(state.queue.order.len()));
        }
        Choice::Wait(_) => check_limit(OwnerPhase::Queued, owned.queued, limits.map(|limits| limits.queued))?,
        _ => {}
    }
    let waits = matches!(plan.choice, Choice::Wait(_));
    let submitted = Event::WorkloadSubmitted { workload: id, submission: Arc::new(submission.clone()), waits };
    let mut decision = assign(state, &demand, plan, id, now);
    decision.events.insert(0, submitted);
    Ok((decision, Answer::Submitted { workload: id, repeated: false }))
}

/// Refuses one more where the owner has as many as it may.
fn check_limit(phase: OwnerPhase, count: u32, limit: Option<u32>) -> Result<(), Refusal> {
    match limit {
        Some(limit) if count >= limit => Err(Refusal::OwnerLimit { phase, count, limit }),
        _ => Ok(()),
    }
}

/// The same key and body is the same workload; the same key with another body is a mistake.
fn repeated(state: &State, submission: &Submission) -> Result<Option<WorkloadId>, Refusal> {
    let Some(known) = submission.idempotency_key.as_ref().and_then(|key| state.keys.get(key)) else { return Ok(None) };
    match state.workloads.find(known) {
        Some((_, row)) if *row.submission == *submission => Ok(Some(*known)),
        Some(_) => Err(Refusal::KeyReused(*known)),
        None => Ok(None),
    }
}

/// Turns a plan for a workload into events and a report.
pub(crate) fn assign(state: &State, demand: &Demand<'_>, plan: Plan, id: WorkloadId, now: Timestamp) -> Decision {
    let mut report = explain::report(state, demand, &plan, Some(id), now);
    let mut events = Vec::with_capacity(4);
    match plan.choice {
        Choice::Reuse(slot) => {
            if let Some(slot) = state.slots.get(slot) {
                events.push(Event::WorkloadAssigned { workload: id, slot: slot.id });
            }
        }
        Choice::Place(site) => {
            let job = (demand.kind == WorkloadKind::Job).then_some(id);
            let slot = state.next_slot_id();
            report.slot = Some(slot);
            place(state, demand, &site, slot, job, &mut events);
            events.push(Event::WorkloadAssigned { workload: id, slot });
        }
        Choice::Wait(why) => events.push(Event::WorkloadWaits { workload: id, why }),
        Choice::Never(_) => report.outcome = Outcome::Waiting(crate::reason::WaitReason::NoLongerFits),
    }
    Decision { events, report: Some(report) }
}

/// The events that stop the victims and create the slot: all of a plan, or none of it.
pub(crate) fn place(
    state: &State,
    demand: &Demand<'_>,
    site: &Site,
    slot: SlotId,
    job: Option<WorkloadId>,
    events: &mut Vec<Event>,
) {
    for victim in site.victims.iter().filter_map(|victim| state.slots.get(*victim)) {
        retire::stop(state, victim, StopReason::Evicted, events);
    }
    let Some(runner) = state.runners.get(site.runner) else { return };
    let claim = |claim: &plan::SiteClaim| {
        let uuid = state.devices.get(claim.device)?.uuid.clone();
        Some(PlacedClaim { uuid, bytes: claim.bytes, exclusive: claim.exclusive })
    };
    let placed = PlacedSlot {
        slot,
        model: demand.model.name.clone(),
        revision: demand.model.revision,
        runner: runner.id.clone(),
        claims: site.claims.iter().filter_map(claim).collect(),
        cpu: demand.shape.cpu,
        ram: demand.shape.ram,
        promised: site.promised,
        granted: !site.promised && state.may_start(site.claims.iter().map(|claim| claim.device)),
        job,
    };
    events.push(Event::SlotPlaced(Arc::new(placed)));
    if sabotage::is(Mutation::LostBreak) {
        place_again(state, site, events);
    }
}

/// What a loop that goes on after it has placed would do: the same slot on the next runner too.
fn place_again(state: &State, site: &Site, events: &mut Vec<Event>) {
    let Some(Event::SlotPlaced(placed)) = events.last() else { return };
    let next = state
        .runners
        .iter()
        .find(|(key, row)| *key != site.runner && row.is_open() && row.devices.len() >= placed.claims.len());
    let Some((_, runner)) = next else { return };
    let devices = runner.devices.iter().filter_map(|key| state.devices.get(*key));
    let claims = placed
        .claims
        .iter()
        .zip(devices)
        .map(|(claim, device)| PlacedClaim { uuid: device.uuid.clone(), ..claim.clone() });
    let (high, low) = placed.slot.uuid().as_u64_pair();
    let slot = SlotId::new(uuid::Uuid::from_u64_pair(!high, low));
    let again = PlacedSlot { slot, runner: runner.id.clone(), claims: claims.collect(), ..(**placed).clone() };
    events.insert(events.len() - 1, Event::SlotPlaced(Arc::new(again)));
}

impl State {
    /// Whether these devices take a start and nothing else is starting on them: engines measure free memory as they start.
    pub(crate) fn may_start(&self, devices: impl Iterator<Item = crate::table::DeviceKey>) -> bool {
        let starting = |claim: &crate::ledger::Claim<berth_domain::Bytes>| {
            self.slots.get(claim.slot).is_some_and(|slot| slot.state == berth_domain::SlotState::Starting)
        };
        let mut devices = devices.filter_map(|device| self.devices.get(device));
        devices.all(|device| device.takes_starts() && !device.ledger.claims().iter().any(starting))
    }

    /// The workloads of a slot, its job among them.
    pub(crate) fn workloads_of(&self, slot: &crate::state::Slot) -> Vec<WorkloadKey> {
        slot.leases.iter().copied().chain(slot.job).collect()
    }
}
