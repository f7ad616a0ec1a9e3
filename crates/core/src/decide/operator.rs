//! What operators do to runners, devices and slots.

use berth_domain::{Bytes, DeviceUuid, ReasonText, RunnerId, SlotId, SlotState, Span, Timestamp};

use super::retire::{self, give_up, give_up_lost, settle_proven};
use crate::command::Refusal;
use crate::event::Event;
use crate::reason::{Cause, Proof, StopReason, UnknownReason};
use crate::state::{Admission, Device, Liveness, Runner, Slot, SlotGpu, State};
use crate::table::{ModelKey, RunnerKey};

fn find<'a>(state: &'a State, id: &RunnerId) -> Result<(RunnerKey, &'a Runner), Refusal> {
    state.runners.find(id).filter(|(_, row)| !row.is_forgotten()).ok_or_else(|| Refusal::UnknownRunner(id.clone()))
}

pub(super) fn cordon(state: &State, id: &RunnerId) -> Result<Vec<Event>, Refusal> {
    let (_, runner) = find(state, id)?;
    if runner.admission == Admission::Cordoned {
        return Ok(Vec::new());
    }
    let mut events = vec![Event::RunnerCordoned { runner: id.clone() }];
    end_drains(state, runner, &mut events);
    Ok(events)
}

/// Slots that were draining with their runner serve again, unless others have taken their place.
fn end_drains(state: &State, runner: &Runner, events: &mut Vec<Event>) {
    let mut revived: Vec<ModelKey> = Vec::new();
    for slot in runner.slots.iter().filter_map(|key| state.slots.get(*key)) {
        let Some((key, model)) = slot.model.and_then(|key| Some((key, state.models.get(key)?))) else { continue };
        let current = model.revision == slot.revision && !model.deleted;
        let already = revived.iter().filter(|other| **other == key).count();
        let live = model.live.saturating_add(u32::try_from(already).unwrap_or(u32::MAX));
        let allowed = slot.is_job || model.spec.replicas.max.is_none_or(|max| live < max);
        if slot.state == SlotState::Draining && current && allowed {
            events.push(Event::SlotDrainEnded { slot: slot.id });
            revived.push(key);
        }
    }
}

/// Work again; slots that were draining for it serve again.
pub(super) fn uncordon(state: &State, id: &RunnerId) -> Result<Vec<Event>, Refusal> {
    let (_, runner) = find(state, id)?;
    if runner.admission == Admission::Open {
        return Ok(Vec::new());
    }
    let mut events = vec![Event::RunnerUncordoned { runner: id.clone() }];
    end_drains(state, runner, &mut events);
    Ok(events)
}

pub(super) fn drain(
    state: &State,
    id: &RunnerId,
    deadline: Option<Span>,
    now: Timestamp,
) -> Result<Vec<Event>, Refusal> {
    find(state, id)?;
    let deadline = deadline.map(|span| now.after(span));
    Ok(vec![Event::RunnerDraining { runner: id.clone(), deadline }])
}

/// The operator says that a runner is no more. On devices that another live runner shares nothing is freed: the
/// machine is still there, and so may be its processes.
pub(super) fn forget(state: &State, id: &RunnerId, reason: &ReasonText) -> Result<Vec<Event>, Refusal> {
    let (key, runner) = find(state, id)?;
    if reason.as_str().trim().is_empty() {
        return Err(Refusal::ReasonMissing);
    }
    let in_use = runner.liveness == Liveness::Ready && runner.reported && !runner.slots.is_empty();
    if in_use {
        return Err(Refusal::RunnerInUse(id.clone()));
    }
    let mut events = Vec::new();
    for slot in runner.slots.iter().filter_map(|key| state.slots.get(*key)) {
        let shared = is_shared(state, slot, key);
        if !shared {
            settle_proven(state, slot, Cause::RunnerLost, state.now, &mut events);
            events.push(released(state, slot, Proof::Forgotten, Some(reason.clone())));
            continue;
        }
        give_up_lost(state, slot, state.now, &mut events);
        if slot.is_stray() {
            continue;
        }
        match slot.state {
            SlotState::Unknown | SlotState::Stopping => {}
            // The runner never heard of it: there is nothing to prove.
            SlotState::Promised | SlotState::Pending => retire::stop(state, slot, StopReason::Abandoned, &mut events),
            _ => events.push(Event::SlotUnknown { slot: slot.id, why: UnknownReason::RunnerForgotten }),
        }
    }
    events.push(Event::RunnerForgotten { runner: id.clone(), reason: reason.clone() });
    Ok(events)
}

/// Whether another runner that lives has one of the slot's devices.
fn is_shared(state: &State, slot: &Slot, forgotten: RunnerKey) -> bool {
    let lives = |runner: RunnerKey| {
        runner != forgotten
            && state.runners.get(runner).is_some_and(|row| !row.is_forgotten() && row.liveness != Liveness::Lost)
    };
    let devices = slot.gpus.iter().filter_map(|gpu| state.devices.get(gpu.device));
    devices.flat_map(|device| device.attachments.iter()).any(|attachment| lives(attachment.runner))
}

pub(super) fn cordon_device(state: &State, uuid: &DeviceUuid, cordoned: bool) -> Result<Vec<Event>, Refusal> {
    let was = state.cordons.contains(uuid);
    if state.devices.find(uuid).is_none() && !was {
        return Err(Refusal::UnknownDevice(uuid.clone()));
    }
    Ok(match (was, cordoned) {
        (false, true) => vec![Event::DeviceCordoned { uuid: uuid.clone() }],
        (true, false) => vec![Event::DeviceUncordoned { uuid: uuid.clone() }],
        _ => Vec::new(),
    })
}

/// Finds a slot by its id: one that the server made, else a stray.
fn find_slot(state: &State, id: SlotId) -> Result<&Slot, Refusal> {
    let stray = || state.slots.iter().map(|(_, row)| row).find(|row| row.is_stray() && row.id == id);
    state.slot(id).map(|(_, row)| row).or_else(stray).ok_or(Refusal::UnknownSlot(id))
}

/// Stops a slot now. Its leases go elsewhere.
pub(super) fn stop_slot(state: &State, id: SlotId) -> Result<Vec<Event>, Refusal> {
    let slot = find_slot(state, id)?;
    let mut events = Vec::new();
    if slot.state == SlotState::Stopping {
        return Ok(events);
    }
    if slot.state == SlotState::Failed {
        return Err(Refusal::WrongSlotState { slot: id, state: slot.state });
    }
    give_up(state, slot, Cause::SlotStopped, state.now, &mut events);
    retire::stop(state, slot, StopReason::Operator, &mut events);
    Ok(events)
}

/// Frees a slot's memory on an operator's word, on record. What it was last seen to use is foreign until a report says
/// otherwise: the operator's word frees the claim, not the GPU.
pub(super) fn force_release(state: &State, id: SlotId, reason: &ReasonText) -> Result<Vec<Event>, Refusal> {
    let slot = find_slot(state, id)?;
    if reason.as_str().trim().is_empty() {
        return Err(Refusal::ReasonMissing);
    }
    let mut events = Vec::new();
    settle_proven(state, slot, Cause::SlotStopped, state.now, &mut events);
    events.push(released(state, slot, Proof::Forced, Some(reason.clone())));
    for gpu in &slot.gpus {
        let Some(device) = state.devices.get(gpu.device) else { continue };
        let left = last_seen_use(state, slot, gpu, device);
        if !left.is_zero() {
            let bytes = device.ledger.foreign().saturating_add(left);
            let (uuid, attributed) = (device.uuid.clone(), device.attributed);
            events.push(Event::ForeignChanged { uuid, bytes, attributed, left_behind: !attributed });
        }
    }
    Ok(events)
}

/// What a slot used of a device when it was last seen; where the driver cannot tell, what it may have used of all that
/// was in use.
fn last_seen_use(state: &State, slot: &Slot, gpu: &SlotGpu, device: &Device) -> Bytes {
    let was_started = slot.seen && !matches!(slot.state, SlotState::Promised | SlotState::Pending);
    // Of a runner that is not heard of nothing is seen: there the operator's word is all there is.
    if state.runners.get(slot.runner).is_none_or(|row| row.liveness == Liveness::Lost || row.is_forgotten()) {
        return Bytes::ZERO;
    }
    match gpu.observed.filter(|_| slot.state != SlotState::Unknown) {
        Some(bytes) => bytes,
        None if slot.is_stray() => gpu.bytes,
        None if was_started => {
            let others = state.own_use(device, |other| other.id != slot.id).least;
            let used = device.last_used.unwrap_or_default();
            used.saturating_sub(others).saturating_sub(device.ledger.foreign()).min(gpu.bytes)
        }
        None => Bytes::ZERO,
    }
}

/// The event that frees a slot, whoever made it.
pub(crate) fn released(state: &State, slot: &Slot, proof: Proof, note: Option<ReasonText>) -> Event {
    match (slot.is_stray(), state.runners.get(slot.runner)) {
        (true, Some(runner)) => Event::StrayReleased { runner: runner.id.clone(), slot: slot.id, proof, note },
        _ => Event::SlotReleased { slot: slot.id, proof, note },
    }
}
