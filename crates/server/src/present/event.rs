//! Events in words: each names whom it is about.

use std::fmt;

use berth_core::{Event, ReservedFor, ReservedPlace};
use berth_domain::{DeviceUuid, MachineId, ModelName, RunnerId, SlotId, WorkloadId, WorkloadKind};
use berth_wire as wire;

use super::event_fleet::{over, tell_device, tell_runner, tell_server};
use super::event_kind::kind;
use super::reason::{cause, failure, stop_reason, unknown_reason, wait_reason};
use crate::views::stream::PublishedEvent;
use crate::views::subject::Subject;

/// Whom an event is about, and what it says.
#[derive(Default)]
pub(super) struct Told {
    pub(super) workload: Option<WorkloadId>,
    pub(super) slot: Option<SlotId>,
    pub(super) runner: Option<RunnerId>,
    pub(super) device: Option<DeviceUuid>,
    pub(super) model: Option<ModelName>,
    pub(super) machine: Option<MachineId>,
    pub(super) text: String,
}

/// An event as those who follow hear of it.
#[must_use]
pub fn event(happened: &PublishedEvent) -> wire::StreamEvent {
    let (subject, kind) = (&happened.subject, kind(&happened.event));
    let told = tell(&happened.event, subject);
    wire::StreamEvent {
        revision: happened.revision,
        time: wire::Time(happened.at),
        kind: kind.to_owned(),
        workload_id: told.workload,
        slot_id: told.slot,
        runner_id: told.runner.or_else(|| subject.runner.clone()),
        device_uuid: told.device,
        model: told.model.or_else(|| subject.model.clone()),
        machine_id: told.machine,
        text: told.text,
    }
}

fn tell(event: &Event, subject: &Subject) -> Told {
    tell_server(event)
        .or_else(|| tell_runner(event))
        .or_else(|| tell_device(event, subject))
        .or_else(|| tell_slot(event, subject))
        .or_else(|| tell_workload(event, subject))
        .unwrap_or_default()
}

/// A slot with its model and runner, as far as they are known.
struct SlotName<'a>(&'a SlotId, &'a Subject);

impl fmt::Display for SlotName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(slot, Subject { model, runner, .. }) = self;
        write!(f, "slot {slot}")?;
        model.iter().try_for_each(|model| write!(f, " of {model}"))?;
        runner.iter().try_for_each(|runner| write!(f, " on runner {runner}"))
    }
}

/// A workload with its kind and model, as far as they are known.
struct WorkName<'a>(&'a WorkloadId, &'a Subject);

impl fmt::Display for WorkName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(workload, Subject { model, kind, .. }) = self;
        let kind = match kind {
            Some(WorkloadKind::Lease) => "lease",
            Some(WorkloadKind::Job) => "job",
            None => "workload",
        };
        write!(f, "{kind} {workload}")?;
        model.iter().try_for_each(|model| write!(f, " of {model}"))
    }
}

fn tell_slot(event: &Event, subject: &Subject) -> Option<Told> {
    let about = |slot: &SlotId, text: String| {
        let text = format!("{} {text}", SlotName(slot, subject));
        Told { slot: Some(*slot), text, ..Told::default() }
    };
    let stray = |runner: &RunnerId, slot: &SlotId, text: String| {
        let text = format!("slot {slot} on runner {runner}, which this server did not make, {text}");
        Told { slot: Some(*slot), runner: Some(runner.clone()), text, ..Told::default() }
    };
    Some(match event {
        Event::SlotPlaced(placed) => {
            let how = if placed.promised { "was promised memory that others still release" } else { "was placed" };
            let gpus: Vec<&str> = placed.claims.iter().map(|claim| claim.uuid.as_str()).collect();
            let place = if gpus.is_empty() { String::new() } else { format!(" on {}", gpus.join(", ")) };
            let job = placed.job.map(|job| format!(" for job {job}")).unwrap_or_default();
            let (model, runner) = (&placed.model, &placed.runner);
            Told {
                workload: placed.job,
                slot: Some(placed.slot),
                runner: Some(runner.clone()),
                model: Some(model.clone()),
                device: placed.claims.first().map(|claim| claim.uuid.clone()),
                text: format!("slot {} of {model} on runner {runner} {how}{place}{job}", placed.slot),
                ..Told::default()
            }
        }
        Event::SlotGranted { slot } => about(slot, "may start".into()),
        Event::SlotOvertaken { slot, generation } => {
            about(slot, format!("was started again since, as generation {generation}"))
        }
        Event::ProcessEnded { slot, exit } => about(slot, format!("is over: its program ended by itself, {exit}")),
        Event::SlotSeen { slot } => about(slot, "is on its agent's record".into()),
        Event::SlotReady { slot, endpoint } => {
            let place = endpoint.as_ref().map(|endpoint| format!(" at {endpoint}")).unwrap_or_default();
            about(slot, format!("is ready{place}"))
        }
        Event::SlotDrainBegun { slot } => about(slot, "takes nothing new".into()),
        Event::SlotDrainEnded { slot } => about(slot, "takes leases again".into()),
        Event::SlotStopping { slot, why } => about(slot, format!("is being stopped: {}", stop_reason(*why).text)),
        Event::StopStalled { slot } => {
            about(slot, "takes too long to stop; its memory stays charged until it is proven gone".into())
        }
        Event::SlotFailed { slot, why, .. } => about(slot, format!("failed: {} ({})", failure(*why), why.code())),
        Event::SlotUnknown { slot, why } => {
            let why = unknown_reason(why).text;
            about(slot, format!("may or may not run, and its memory stays charged: {why}"))
        }
        Event::SlotRefused { slot, .. } => {
            about(slot, "was not started: its agent found too little free memory".into())
        }
        Event::SlotReturned { slot, .. } => about(slot, "was never gone".into()),
        Event::SlotRestarted { slot, generation } => {
            about(slot, format!("is started again in its place, generation {generation}"))
        }
        Event::SlotReleased { slot, proof, note } => {
            let note = note.as_ref().map(|note| format!(": {note}")).unwrap_or_default();
            about(slot, format!("is proven gone ({}){note}", proof.code()))
        }
        Event::SlotCharged { slot, uuid, bytes } => {
            let over = subject.overcommitted.map(over).unwrap_or_default();
            let told =
                about(slot, format!("was seen to use {bytes} of {uuid}, above its claim, and is charged for it{over}"));
            Told { device: Some(uuid.clone()), ..told }
        }
        Event::SlotPassedMinRun { slot } => about(slot, "has run long enough to be evicted".into()),
        Event::PromiseKept { slot, .. } => about(slot, "has the memory that it was promised".into()),
        Event::PromiseWithdrawn { slot } => about(slot, "lost the promise of its memory".into()),
        Event::StrayFound { runner, slot, claims, .. } => {
            let claims: Vec<String> = claims.iter().map(|claim| format!("{} on {}", claim.bytes, claim.uuid)).collect();
            let charge =
                if claims.is_empty() { "is known now".to_owned() } else { format!("is charged {}", claims.join(", ")) };
            stray(runner, slot, charge)
        }
        Event::StrayCondemned { runner, slot } => stray(runner, slot, "should be stopped".into()),
        Event::StrayReleased { runner, slot, proof, .. } => {
            stray(runner, slot, format!("is proven gone ({})", proof.code()))
        }
        _ => return None,
    })
}

/// Whom a place is kept for, with their name.
fn about_owner(owner: &ReservedFor, subject: &Subject) -> (Told, String) {
    match owner {
        ReservedFor::Workload(workload) => {
            let told = Told { workload: Some(*workload), ..Told::default() };
            (told, WorkName(workload, subject).to_string())
        }
        ReservedFor::Replica(model) => {
            let told = Told { model: Some(model.clone()), ..Told::default() };
            (told, format!("a slot that model {model} must have"))
        }
    }
}

fn tell_reserved(place: &ReservedPlace, subject: &Subject) -> Told {
    let ReservedPlace { runner, devices, cpu, ram, .. } = place;
    let gpus: Vec<&str> = devices.iter().map(DeviceUuid::as_str).collect();
    let mut kept = if gpus.is_empty() { Vec::new() } else { vec![gpus.join(", ")] };
    if cpu.get() > 0 {
        kept.push(format!("{cpu} CPU"));
    }
    if !ram.is_zero() {
        kept.push(format!("{ram} RAM"));
    }
    let backfill = if place.backfill { "; work that can leave in time may use it meanwhile" } else { "" };
    let (told, owner) = about_owner(&place.owner, subject);
    let text = format!("kept free for {owner} on runner {runner}: {}{backfill}", kept.join(", "));
    Told { runner: Some(runner.clone()), device: devices.first().cloned(), text, ..told }
}

fn tell_workload(event: &Event, subject: &Subject) -> Option<Told> {
    let about = |workload: &WorkloadId, text: String| {
        let text = format!("{} {text}", WorkName(workload, subject));
        Told { workload: Some(*workload), text, ..Told::default() }
    };
    Some(match event {
        Event::WorkloadSubmitted { workload, submission, .. } => {
            let named =
                Subject { model: Some(submission.model.clone()), kind: Some(submission.kind), ..Subject::default() };
            let text = format!("{} was submitted", WorkName(workload, &named));
            Told { workload: Some(*workload), model: named.model, text, ..Told::default() }
        }
        Event::WorkloadWaits { workload, why } => {
            about(workload, format!("waits: {}", wait_reason(*why, subject.wants_whole_gpus).text))
        }
        Event::WorkloadAssigned { workload, slot } => {
            let runner = subject.runner.as_ref().map(|runner| format!(" on runner {runner}")).unwrap_or_default();
            Told { slot: Some(*slot), ..about(workload, format!("has slot {slot}{runner}")) }
        }
        Event::WorkloadRequeued { workload, cause: why, .. } => {
            about(workload, format!("goes back to the queue: {}", cause(*why).text))
        }
        Event::WorkloadEligible { workload } => about(workload, "may be tried again: its pause is over".into()),
        Event::WorkloadEnded { workload, end, cause: why } => {
            let end = berth_domain::WorkloadState::Ended(*end);
            about(workload, format!("{end}: {}", cause(*why).text))
        }
        Event::WorkloadForgotten { workload } => about(workload, "is no longer remembered".into()),
        Event::WorkloadUnblocked { workload } => {
            about(workload, "may run twice: the runner of its last start is lost, and it is started again".into())
        }
        Event::Reserved(place) => tell_reserved(place, subject),
        Event::ReservationEnded { owner } => {
            let (told, owner) = about_owner(owner, subject);
            Told { text: format!("nothing is kept free any more for {owner}"), ..told }
        }
        _ => return None,
    })
}
