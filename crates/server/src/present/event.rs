//! Events in words.

use berth_core::{Event, ReservedFor, ReservedPlace};
use berth_domain::{Bytes, DeviceUuid, GpuCount, ModelName, RunnerId, SlotId, WorkloadId};
use berth_wire as wire;

use super::reason::{cause, failure, stop_reason, unknown_reason, wait_reason};
use crate::views::stream::Happened;

/// Whom an event is about, and what it says.
#[derive(Default)]
struct Told {
    workload: Option<WorkloadId>,
    slot: Option<SlotId>,
    runner: Option<RunnerId>,
    device: Option<DeviceUuid>,
    model: Option<ModelName>,
    text: String,
}

/// An event as those who follow hear of it.
#[must_use]
pub fn event(happened: &Happened) -> wire::StreamEvent {
    let (kind, told) = tell(&happened.event);
    wire::StreamEvent {
        revision: happened.revision,
        time: wire::Time(happened.at),
        kind: kind.to_owned(),
        workload_id: told.workload,
        slot_id: told.slot,
        runner_id: told.runner,
        device_uuid: told.device,
        model: told.model,
        text: told.text,
    }
}

fn tell(event: &Event) -> (&'static str, Told) {
    tell_server(event)
        .or_else(|| tell_runner(event))
        .or_else(|| tell_device(event))
        .or_else(|| tell_slot(event))
        .or_else(|| tell_workload(event))
        .unwrap_or(("other", Told::default()))
}

fn tell_server(event: &Event) -> Option<(&'static str, Told)> {
    let about = |model: &ModelName, text: String| Told { model: Some(model.clone()), text, ..Told::default() };
    Some(match event {
        Event::Started { cluster, epoch } => {
            ("started", Told { text: format!("cluster {cluster}, epoch {epoch}"), ..Told::default() })
        }
        Event::ModelPut { spec, revision } => {
            ("model_put", about(&spec.name, format!("model {} is at revision {revision}", spec.name)))
        }
        Event::ModelRetried { model } => {
            ("model_retried", about(model, format!("model {model} may start slots again")))
        }
        Event::ModelDeleted { model } => ("model_deleted", about(model, format!("model {model} was removed"))),
        Event::MemoryObserved { model, count, peaks, .. } => {
            ("memory_observed", about(model, format!("slots of {model} {} use up to {}", on(*count), list(peaks))))
        }
        Event::MemoryJudged { model, count, verdict, claim, peaks } => {
            let text = format!(
                "{model} {} is {}: its slots use up to {}, and {} is charged",
                on(*count),
                verdict.code(),
                list(peaks),
                list(claim),
            );
            ("memory_judged", about(model, text))
        }
        Event::MemoryCorrected { model, count, bytes, why } => {
            let text = format!("the next slot of {model} {} is charged {}: {}", on(*count), list(bytes), why.code());
            ("memory_corrected", about(model, text))
        }
        Event::MachineBooted { machine, boot } => {
            ("machine_booted", Told { text: format!("machine {machine} has boot {boot}"), ..Told::default() })
        }
        Event::HostSized { machine, cpu, ram } => {
            ("host_sized", Told { text: format!("machine {machine} has {cpu} CPU and {ram} RAM"), ..Told::default() })
        }
        _ => return None,
    })
}

fn on(count: GpuCount) -> String {
    if count.get() == 1 { "on one GPU".to_owned() } else { format!("on {count} GPUs") }
}

fn list(ranks: &[Bytes]) -> String {
    ranks.iter().map(ToString::to_string).collect::<Vec<_>>().join(" + ")
}

fn tell_runner(event: &Event) -> Option<(&'static str, Told)> {
    let about = |runner: &RunnerId, text: String| Told { runner: Some(runner.clone()), text, ..Told::default() };
    Some(match event {
        Event::RunnerRegistered { runner, machine, incarnation } => (
            "runner_registered",
            about(runner, format!("runner {runner} of machine {machine} registered as incarnation {incarnation}")),
        ),
        Event::RunnerDescribed { runner, traits } => {
            ("runner_described", about(runner, format!("runner {runner} is in pool {}", traits.pool)))
        }
        Event::RunnerSuspected { runner } => ("runner_suspected", about(runner, format!("runner {runner} is silent"))),
        Event::RunnerLost { runner } => {
            ("runner_lost", about(runner, format!("runner {runner} is lost; its memory stays charged")))
        }
        Event::RunnerReturned { runner } => ("runner_returned", about(runner, format!("runner {runner} is back"))),
        Event::RunnerCordoned { runner } => {
            ("runner_cordoned", about(runner, format!("runner {runner} takes nothing new")))
        }
        Event::RunnerUncordoned { runner } => {
            ("runner_uncordoned", about(runner, format!("runner {runner} takes work again")))
        }
        Event::RunnerDraining { runner, .. } => {
            ("runner_draining", about(runner, format!("runner {runner} finishes what it has")))
        }
        Event::DrainDeadlinePassed { runner } => {
            ("drain_deadline_passed", about(runner, format!("the patience with runner {runner} is over")))
        }
        Event::RunnerDrained { runner } => {
            ("runner_drained", about(runner, format!("nothing is left on runner {runner}")))
        }
        Event::RunnerForgotten { runner, reason } => {
            ("runner_forgotten", about(runner, format!("runner {runner} is no more: {reason}")))
        }
        _ => return None,
    })
}

fn tell_device(event: &Event) -> Option<(&'static str, Told)> {
    let about = |uuid: &DeviceUuid, text: String| Told { device: Some(uuid.clone()), text, ..Told::default() };
    let of =
        |runner: &RunnerId, uuid: &DeviceUuid, text: String| Told { runner: Some(runner.clone()), ..about(uuid, text) };
    Some(match event {
        Event::DeviceDisputed { runner, uuid } => (
            "device_disputed",
            of(runner, uuid, format!("runner {runner} reports {uuid}, which belongs to another machine")),
        ),
        Event::DisputeEnded { runner, uuid } => {
            ("dispute_ended", of(runner, uuid, format!("{uuid} is disputed no more")))
        }
        Event::DeviceAttached { runner, uuid, seat, .. } => {
            ("device_attached", of(runner, uuid, format!("runner {runner} has {uuid} with {}", seat.capacity)))
        }
        Event::DeviceDetached { runner, uuid } => {
            ("device_detached", of(runner, uuid, format!("runner {runner} no longer lists {uuid}")))
        }
        Event::DeviceHealthChanged { runner, uuid, health } => {
            ("device_health_changed", of(runner, uuid, format!("runner {runner} says that {uuid} is {}", word(health))))
        }
        Event::DeviceCordoned { uuid } => ("device_cordoned", about(uuid, format!("{uuid} takes nothing new"))),
        Event::DeviceUncordoned { uuid } => ("device_uncordoned", about(uuid, format!("{uuid} takes work again"))),
        Event::DeviceBackedOff { uuid, .. } => {
            ("device_backed_off", about(uuid, format!("a start on {uuid} was refused; it pauses")))
        }
        Event::DeviceReopened { uuid } => ("device_reopened", about(uuid, format!("the pause of {uuid} is over"))),
        Event::ForeignChanged { uuid, bytes, .. } => {
            ("foreign_changed", about(uuid, format!("{bytes} of {uuid} are in use by others")))
        }
        _ => return None,
    })
}

fn word(health: &berth_domain::GpuHealth) -> &'static str {
    match health {
        berth_domain::GpuHealth::Ok => "well",
        berth_domain::GpuHealth::Lost => "lost",
        berth_domain::GpuHealth::Stale => "stale",
        berth_domain::GpuHealth::Failed => "quarantined",
    }
}

fn tell_slot(event: &Event) -> Option<(&'static str, Told)> {
    let about = |slot: &SlotId, text: String| Told { slot: Some(*slot), text, ..Told::default() };
    let stray =
        |runner: &RunnerId, slot: &SlotId, text: String| Told { runner: Some(runner.clone()), ..about(slot, text) };
    Some(match event {
        Event::SlotPlaced(placed) => {
            let how = if placed.promised { "promised" } else { "placed" };
            let told = Told {
                workload: placed.job,
                runner: Some(placed.runner.clone()),
                model: Some(placed.model.clone()),
                device: placed.claims.first().map(|claim| claim.uuid.clone()),
                ..about(&placed.slot, format!("slot of {} {how} on runner {}", placed.model, placed.runner))
            };
            ("slot_placed", told)
        }
        Event::SlotGranted { slot } => ("slot_granted", about(slot, "it may start".into())),
        Event::SlotSeen { slot } => ("slot_seen", about(slot, "its agent has it on record".into())),
        Event::SlotReady { slot, endpoint } => {
            let place = endpoint.as_ref().map(|endpoint| format!(" at {endpoint}")).unwrap_or_default();
            ("slot_ready", about(slot, format!("it serves{place}")))
        }
        Event::SlotDrainBegun { slot } => ("slot_drain_begun", about(slot, "it takes nothing new".into())),
        Event::SlotDrainEnded { slot } => ("slot_drain_ended", about(slot, "it takes leases again".into())),
        Event::SlotStopping { slot, why } => {
            ("slot_stopping", about(slot, format!("it is being stopped: {}", stop_reason(*why).text)))
        }
        Event::StopStalled { slot } => {
            ("stop_stalled", about(slot, "its stop takes too long; its memory stays charged".into()))
        }
        Event::SlotFailed { slot, why, .. } => ("slot_failed", about(slot, format!("it failed: {}", failure(*why)))),
        Event::SlotUnknown { slot, why } => {
            let why = unknown_reason(why).text;
            ("slot_unknown", about(slot, format!("nobody knows whether it runs; its memory stays charged: {why}")))
        }
        Event::SlotRefused { slot, .. } => {
            ("slot_refused", about(slot, "its agent found too little free memory and started nothing".into()))
        }
        Event::SlotReturned { slot, .. } => ("slot_returned", about(slot, "it was never gone".into())),
        Event::SlotRestarted { slot, generation } => {
            ("slot_restarted", about(slot, format!("it is started again in its place, generation {generation}")))
        }
        Event::SlotReleased { slot, proof, note } => {
            let note = note.as_ref().map(|note| format!(": {note}")).unwrap_or_default();
            ("slot_released", about(slot, format!("it is proven gone ({}){note}", proof.code())))
        }
        Event::SlotCharged { slot, uuid, bytes } => {
            let told = Told {
                device: Some(uuid.clone()),
                ..about(slot, format!("it was seen to use {bytes} of {uuid}, above its claim"))
            };
            ("slot_charged", told)
        }
        Event::SlotRipened { slot } => ("slot_ripened", about(slot, "it has run long enough to be evicted".into())),
        Event::PromiseKept { slot, .. } => {
            ("promise_kept", about(slot, "what it waited for is free, and its own".into()))
        }
        Event::PromiseWithdrawn { slot } => {
            ("promise_withdrawn", about(slot, "the promise of its memory was taken back".into()))
        }
        Event::StrayFound { runner, slot, .. } => (
            "stray_found",
            stray(runner, slot, format!("runner {runner} has a slot that this server did not make; it is charged")),
        ),
        Event::StrayCondemned { runner, slot } => {
            ("stray_condemned", stray(runner, slot, "it should be stopped".into()))
        }
        Event::StrayReleased { runner, slot, proof, .. } => {
            ("stray_released", stray(runner, slot, format!("it is proven gone ({})", proof.code())))
        }
        _ => return None,
    })
}

fn about_owner(owner: &ReservedFor) -> Told {
    match owner {
        ReservedFor::Workload(workload) => Told { workload: Some(*workload), ..Told::default() },
        ReservedFor::Replica(model) => Told { model: Some(model.clone()), ..Told::default() },
    }
}

fn tell_reserved(place: &ReservedPlace) -> Told {
    let ReservedPlace { runner, devices, cpu, ram, .. } = place;
    let mut kept = vec![format!("{} GPUs", devices.len())];
    if cpu.get() > 0 {
        kept.push(format!("{cpu} CPU"));
    }
    if !ram.is_zero() {
        kept.push(format!("{ram} RAM"));
    }
    let backfill = if place.backfill { "; work that can leave in time may use them meanwhile" } else { "" };
    let text = format!("{} of runner {runner} are kept free for it{backfill}", kept.join(", "));
    Told { runner: Some(runner.clone()), device: devices.first().cloned(), text, ..about_owner(&place.owner) }
}

fn tell_workload(event: &Event) -> Option<(&'static str, Told)> {
    let about = |workload: &WorkloadId, text: String| Told { workload: Some(*workload), text, ..Told::default() };
    Some(match event {
        Event::WorkloadSubmitted { workload, submission, .. } => {
            let told = Told {
                model: Some(submission.model.clone()),
                ..about(workload, format!("it asks for {}", submission.model))
            };
            ("workload_submitted", told)
        }
        Event::WorkloadWaits { workload, why } => {
            ("workload_waits", about(workload, format!("it waits: {}", wait_reason(*why).text)))
        }
        Event::WorkloadAssigned { workload, slot } => {
            ("workload_assigned", Told { slot: Some(*slot), ..about(workload, "it has a slot".into()) })
        }
        Event::WorkloadRequeued { workload, cause: why, .. } => {
            ("workload_requeued", about(workload, format!("it goes back to the queue: {}", cause(*why).text)))
        }
        Event::WorkloadEligible { workload } => ("workload_eligible", about(workload, "its pause is over".into())),
        Event::WorkloadEnded { workload, end, cause: why } => {
            let end = berth_domain::WorkloadState::Ended(*end);
            ("workload_ended", about(workload, format!("it {end}: {}", cause(*why).text)))
        }
        Event::WorkloadForgotten { workload } => {
            ("workload_forgotten", about(workload, "it is no longer remembered".into()))
        }
        Event::WorkloadUnblocked { workload } => {
            ("workload_unblocked", about(workload, "the runner of its last start is lost: both may run".into()))
        }
        Event::Reserved(place) => ("reserved", tell_reserved(place)),
        Event::ReservationEnded { owner } => {
            let told = Told { text: "nothing is kept free for it any more".into(), ..about_owner(owner) };
            ("reservation_ended", told)
        }
        _ => return None,
    })
}
