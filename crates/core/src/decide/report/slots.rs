//! What a runner says of its slots: progress, ends, and proof.

use std::collections::BTreeSet;

use berth_domain::{
    Bytes, DeviceUuid, FailureReason, ReasonText, ReportedState, RunnerReport, SlotEnd, SlotReport, SlotState,
    Timestamp, WorkloadEnd,
};

use crate::decide::{memory, retire};
use crate::event::{Event, PlacedClaim};
use crate::reason::{Cause, Closed, Proof, StopReason, UnknownReason};
use crate::state::{Device, Runner, Slot, State};
use crate::table::{ModelKey, RunnerKey};

pub(super) fn hear(
    state: &State,
    key: RunnerKey,
    runner: &Runner,
    report: &RunnerReport,
    now: Timestamp,
) -> Vec<Event> {
    let mut events = Vec::new();
    let mut mentioned = BTreeSet::new();
    // Models whose slots this report starts again: the next one is judged with them in mind.
    let mut restarted = Vec::new();
    for said in &report.slots {
        // The first word about a slot counts; a report that contradicts itself gains nothing by it.
        if !mentioned.insert(said.id) {
            continue;
        }
        match state.slot(said.id).filter(|(_, slot)| slot.runner == key) {
            Some((_, slot)) if slot.generation == said.generation => {
                hear_of(state, slot, said, now, &mut restarted, &mut events);
            }
            Some(_) => {}
            None => hear_of_stray(state, key, runner, report, said, &mut events),
        }
    }
    for slot in runner.slots.iter().filter_map(|slot| state.slots.get(*slot)) {
        if !mentioned.contains(&slot.id) {
            miss(state, slot, now, &mut events);
        }
    }
    events
}

/// Slots whose runner has a later start of them than this server knows: after its history went back, the server may
/// have forgotten that it started them again. The older start was proven gone before.
pub(super) fn follow_generations(state: &State, key: RunnerKey, report: &RunnerReport, now: Timestamp) -> Vec<Event> {
    let mut events = Vec::new();
    if !state.history.has_gap() {
        return events;
    }
    for said in &report.slots {
        let Some((_, slot)) = state.slot(said.id).filter(|(_, slot)| slot.runner == key) else { continue };
        let is_told = !matches!(slot.state, SlotState::Promised | SlotState::Pending);
        if is_told && said.generation > slot.generation {
            retire::give_up(state, slot, Cause::HistoryWentBack, now, &mut events);
            events.push(Event::SlotOvertaken { slot: slot.id, generation: said.generation });
        }
    }
    events
}

fn hear_of(
    state: &State,
    slot: &Slot,
    said: &SlotReport,
    now: Timestamp,
    restarted: &mut Vec<ModelKey>,
    events: &mut Vec<Event>,
) {
    let told = !matches!(slot.state, SlotState::Promised | SlotState::Pending);
    if !told {
        return;
    }
    observe(state, slot, said, events);
    note_exit(slot, said, events);
    match &said.state {
        ReportedState::Starting if slot.state == SlotState::Unknown => {
            events.push(Event::SlotReturned { slot: slot.id, ready: false });
        }
        ReportedState::Starting | ReportedState::Stopping => see(slot, events),
        ReportedState::Ready => ready(slot, said, events),
        ReportedState::Failed(why) => fail(state, slot, *why, now, events),
        ReportedState::Exited { code } => exited(state, slot, *code, now, events),
        ReportedState::Refused => refused(state, slot, now, events),
        ReportedState::Gone { why, evidence } if evidence.is_proof() => {
            gone(state, slot, *why, now, restarted, events);
        }
        // The tree is gone but the driver still lists it, or the other way round: not yet proof.
        ReportedState::Gone { .. } => see(slot, events),
        ReportedState::Unknown { why } => cannot_tell(state, slot, why, now, events),
    }
}

/// How its process ended is noted once, before what follows from its end: what is known of an attempt is put together
/// when the workload leaves the slot.
fn note_exit(slot: &Slot, said: &SlotReport, events: &mut Vec<Event>) {
    let has_ended =
        matches!(said.state, ReportedState::Failed(_) | ReportedState::Exited { .. } | ReportedState::Gone { .. });
    if let Some(exit) = said.exit_status().filter(|_| has_ended && slot.exit.is_none()) {
        events.push(Event::ProcessEnded { slot: slot.id, exit });
    }
}

fn see(slot: &Slot, events: &mut Vec<Event>) {
    if !slot.seen {
        events.push(Event::SlotSeen { slot: slot.id });
    }
}

fn ready(slot: &Slot, said: &SlotReport, events: &mut Vec<Event>) {
    match slot.state {
        SlotState::Starting => events.push(Event::SlotReady { slot: slot.id, endpoint: said.endpoint.clone() }),
        // It answers elsewhere than it did when it was last heard of.
        SlotState::Unknown if said.endpoint.is_some() && said.endpoint != slot.endpoint => {
            events.push(Event::SlotReturned { slot: slot.id, ready: false });
            events.push(Event::SlotReady { slot: slot.id, endpoint: said.endpoint.clone() });
        }
        SlotState::Unknown => events.push(Event::SlotReturned { slot: slot.id, ready: true }),
        _ => see(slot, events),
    }
}

fn fail(state: &State, slot: &Slot, why: FailureReason, now: Timestamp, events: &mut Vec<Event>) {
    if matches!(slot.state, SlotState::Stopping | SlotState::Failed) {
        return see(slot, events);
    }
    retire::give_up_failed(state, slot, why, now, events);
    note_failure(state, slot, why, now, events);
}

fn note_failure(state: &State, slot: &Slot, why: FailureReason, now: Timestamp, events: &mut Vec<Event>) {
    events.push(Event::SlotFailed { slot: slot.id, why, retry_at: state.retry_at(slot, now) });
    if why == FailureReason::OutOfMemory {
        events.extend(memory::raise(state, slot));
    }
}

/// A process that ended by itself, its tree not yet gone: the end of a job, a crash of anything else.
fn exited(state: &State, slot: &Slot, code: i32, now: Timestamp, events: &mut Vec<Event>) {
    let Some(job) = slot.job.and_then(|key| state.workloads.get(key)) else {
        return fail(state, slot, FailureReason::Crashed, now, events);
    };
    if !job.is_ended() {
        let end = if code == 0 { WorkloadEnd::Succeeded } else { WorkloadEnd::Failed };
        events.push(Event::WorkloadEnded { workload: job.id, end, cause: Cause::JobExited(code) });
    }
    match slot.state {
        SlotState::Stopping | SlotState::Failed => see(slot, events),
        _ => events.push(Event::SlotStopping { slot: slot.id, why: StopReason::JobEnded }),
    }
}

/// The agent saw too little memory and started nothing. That is proof, and a reason not to try there at once.
fn refused(state: &State, slot: &Slot, now: Timestamp, events: &mut Vec<Event>) {
    if slot.ready_since.is_some() || slot.state == SlotState::Ready {
        return;
    }
    let failures =
        state.workloads_of(slot).into_iter().filter_map(|key| state.workloads.get(key)).map(|row| row.failures).max();
    let of_model = slot.model.and_then(|key| state.models.get(key)).map_or(0, |model| model.failures);
    let pause = state.settings.backoff.doubled(failures.unwrap_or(of_model), state.settings.backoff_limit);
    retire::settle_proven(state, slot, Cause::StartRefused, now, events);
    events.push(Event::SlotRefused { slot: slot.id, retry_at: state.retry_at(slot, now) });
    events.push(Event::SlotReleased { slot: slot.id, proof: Proof::Refused, note: None });
    for device in slot.gpus.iter().filter_map(|gpu| state.devices.get(gpu.device)) {
        events.push(Event::DeviceBackedOff { uuid: device.uuid.clone(), until: now.after(pause) });
    }
}

/// It is proven gone: its work is settled by how it came to its end, and its memory is free.
fn gone(
    state: &State,
    slot: &Slot,
    end: SlotEnd,
    now: Timestamp,
    restarted: &mut Vec<ModelKey>,
    events: &mut Vec<Event>,
) {
    let is_serving = slot.job.is_none() && !slot.is_job;
    let end = match end {
        // Anything but a job should not end by itself.
        SlotEnd::Exited(_) if is_serving => SlotEnd::Failed(FailureReason::Crashed),
        end => end,
    };
    let running =
        matches!(slot.state, SlotState::Starting | SlotState::Ready | SlotState::Draining | SlotState::Unknown);
    retire::settle_gone(state, slot, end, now, events);
    if let (SlotEnd::Failed(why), true) = (end, running) {
        note_failure(state, slot, why, now, events);
    }
    if belongs_here(state, slot, end, restarted) {
        restarted.extend(slot.model);
        events.push(Event::SlotRestarted { slot: slot.id, generation: slot.generation.next() });
    } else {
        events.push(Event::SlotReleased { slot: slot.id, proof: Proof::Gone, note: None });
    }
}

/// Its agent looked for it and cannot tell whether it exists: it stays charged, and says why.
fn cannot_tell(state: &State, slot: &Slot, why: &ReasonText, now: Timestamp, events: &mut Vec<Event>) {
    let why = UnknownReason::CannotTell(why.clone());
    match slot.state {
        SlotState::Starting | SlotState::Ready | SlotState::Draining => {
            retire::give_up(state, slot, Cause::SlotUnknown, now, events);
            events.push(Event::SlotUnknown { slot: slot.id, why });
        }
        SlotState::Unknown if slot.unknown.as_ref() != Some(&why) => {
            events.push(Event::SlotUnknown { slot: slot.id, why });
        }
        _ => see(slot, events),
    }
}

/// Whether a slot that fell is started again in its place: its model is pinned or must have it, and it was not asked
/// to go. Its memory is kept, and its generation tells the new start from the old.
fn belongs_here(state: &State, slot: &Slot, end: SlotEnd, restarted: &[ModelKey]) -> bool {
    let Some(model) = slot.model.and_then(|key| state.models.get(key)) else { return false };
    let fell = match slot.state {
        SlotState::Failed | SlotState::Ready => true,
        SlotState::Starting => matches!(end, SlotEnd::Failed(_)),
        _ => false,
    };
    let current = !model.deleted && model.revision == slot.revision && !slot.is_job;
    let with_it = restarted.iter().filter(|other| Some(**other) == slot.model).count();
    let others = model.live - u32::from(slot.live && model.live > 0) + u32::try_from(with_it).unwrap_or(u32::MAX);
    let allowed = model.spec.replicas.max.is_none_or(|max| others < max);
    let wanted = allowed && (model.spec.replicas.pinned || others < model.spec.replicas.min);
    // It keeps its claim, so what is kept free there for others does not concern it.
    let is_open = |device: &Device| matches!(device.closed(), None | Some(Closed::Reserved));
    let devices_open = slot.gpus.iter().filter_map(|gpu| state.devices.get(gpu.device)).all(is_open);
    let runner_open = state.runners.get(slot.runner).is_some_and(Runner::is_open);
    // One that is known to need more goes where it gets it.
    let enough = model.is_enough(slot);
    fell && current && wanted && enough && devices_open && runner_open && slot.restarts < state.settings.attempts
}

/// Absence is no proof: an agent that lost its record reports nothing. It is asked to account for the slot. One that
/// failed is told to stop already, which its agent must prove.
fn miss(state: &State, slot: &Slot, now: Timestamp, events: &mut Vec<Event>) {
    let known_to_agent = slot.seen && !slot.is_stray();
    if !known_to_agent || !matches!(slot.state, SlotState::Starting | SlotState::Ready | SlotState::Draining) {
        return;
    }
    retire::give_up(state, slot, Cause::SlotUnknown, now, events);
    events.push(Event::SlotUnknown { slot: slot.id, why: UnknownReason::NotMentioned });
}

/// What the driver saw the slot use, or that it cannot tell. Above its claim, it is charged what was seen.
fn observe(state: &State, slot: &Slot, said: &SlotReport, events: &mut Vec<Event>) {
    if said.state.is_over() {
        return;
    }
    for gpu in &slot.gpus {
        let Some(device) = state.devices.get(gpu.device) else { continue };
        let seen = said.memory.iter().find(|memory| memory.uuid == device.uuid);
        let (used, peak) = (seen.map(|memory| memory.used), seen.map_or(Bytes::ZERO, |memory| memory.peak));
        let (slot, uuid) = (slot.id, device.uuid.clone());
        if gpu.observed != used || gpu.peak < peak {
            events.push(Event::SlotObserved { slot, uuid: uuid.clone(), used, peak });
        }
        if let Some(bytes) = used.filter(|used| *used > gpu.bytes) {
            events.push(Event::SlotCharged { slot, uuid, bytes });
        }
    }
}

/// A slot that the server did not make, or that belongs on another runner: charged, told to stop, freed on proof. One
/// of another cluster is charged and left alone.
fn hear_of_stray(
    state: &State,
    key: RunnerKey,
    runner: &Runner,
    report: &RunnerReport,
    said: &SlotReport,
    events: &mut Vec<Event>,
) {
    match (state.stray(key, said.id), said.state.is_proof()) {
        (Some((_, stray)), true) if stray.generation == said.generation => {
            events.push(Event::StrayReleased {
                runner: runner.id.clone(),
                slot: said.id,
                proof: Proof::Gone,
                note: None,
            });
        }
        (None, false) => {
            let claims = stray_claims(state, key, said);
            let stop = report.cluster.is_none_or(|cluster| Some(cluster) == state.cluster);
            let (runner, slot, generation) = (runner.id.clone(), said.id, said.generation);
            events.push(Event::StrayFound { runner, slot, generation, claims, stop });
        }
        _ => {}
    }
}

/// The larger of what the agent believes and what the driver saw, on devices that the runner has.
fn stray_claims(state: &State, key: RunnerKey, said: &SlotReport) -> Vec<PlacedClaim> {
    let mut claims: Vec<PlacedClaim> = Vec::new();
    let believed = said.claims.iter().map(|claim| (&claim.uuid, claim.bytes));
    let seen = said.memory.iter().map(|memory| (&memory.uuid, memory.used));
    let here =
        |uuid: &DeviceUuid| state.devices.find(uuid).is_some_and(|(_, device)| device.attachment_on(key).is_some());
    for (uuid, bytes) in believed.chain(seen).filter(|(uuid, bytes)| here(uuid) && *bytes > Bytes::ZERO) {
        match claims.iter_mut().find(|claim| claim.uuid == *uuid) {
            Some(claim) => claim.bytes = claim.bytes.max(bytes),
            None => claims.push(PlacedClaim { uuid: uuid.clone(), bytes, exclusive: false }),
        }
    }
    claims
}
