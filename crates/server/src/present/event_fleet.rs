//! Events of the server, its models, runners and devices, in words.

use berth_core::{Balance, Event};
use berth_domain::{Bytes, DeviceUuid, GpuCount, GpuHealth, MachineId, ModelName, RunnerId};

use super::event::Told;
use crate::views::subject::Subject;

pub(super) fn tell_server(event: &Event) -> Option<Told> {
    let about = |model: &ModelName, text: String| Told { model: Some(model.clone()), text, ..Told::default() };
    let machine = |machine: &MachineId, text: String| Told { machine: Some(machine.clone()), text, ..Told::default() };
    Some(match event {
        Event::Started { cluster, epoch, .. } => {
            let text = format!("the server of cluster {cluster} started, epoch {epoch}");
            Told { text, ..Told::default() }
        }
        Event::HistoryRestored => Told { text: "the state was restored from a backup".to_owned(), ..Told::default() },
        Event::HistoryContinued { epoch, reason, .. } => {
            let why = reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
            let text = format!("the server goes on in epoch {epoch}, above what its agents have obeyed{why}");
            Told { text, ..Told::default() }
        }
        Event::TimersRestarted => {
            let text = "the server was paused: its timers start anew, and nobody is called silent for the pause".into();
            Told { text, ..Told::default() }
        }
        Event::ModelPut { spec, revision } => {
            about(&spec.name, format!("model {} is at revision {revision}", spec.name))
        }
        Event::ModelRetried { model } => about(model, format!("model {model} may start slots again")),
        Event::ModelDeleted { model } => about(model, format!("model {model} was removed")),
        Event::MemoryObserved { model, count, peaks, .. } => {
            about(model, format!("slots of {model} {} use up to {}", on(*count), list(peaks)))
        }
        Event::MemoryJudged { model, count, verdict, claim, peaks } => {
            let text = format!(
                "{model} {} is {}: its slots use up to {}, and {} is charged",
                on(*count),
                verdict.code(),
                list(peaks),
                list(claim),
            );
            about(model, text)
        }
        Event::MemoryCorrected { model, count, bytes, why } => {
            let text = format!("the next slot of {model} {} is charged {}: {}", on(*count), list(bytes), why.code());
            about(model, text)
        }
        Event::HostSized { machine: id, cpu, ram } => machine(id, format!("machine {id} has {cpu} CPU and {ram} RAM")),
        _ => return None,
    })
}

fn on(count: GpuCount) -> String {
    if count.get() == 1 { "on one GPU".to_owned() } else { format!("on {count} GPUs") }
}

fn list(ranks: &[Bytes]) -> String {
    ranks.iter().map(ToString::to_string).collect::<Vec<_>>().join(" + ")
}

pub(super) fn tell_runner(event: &Event) -> Option<Told> {
    let about = |runner: &RunnerId, text: String| Told { runner: Some(runner.clone()), text, ..Told::default() };
    Some(match event {
        Event::RunnerRegistered { runner, machine, incarnation } => Told {
            machine: Some(machine.clone()),
            ..about(runner, format!("runner {runner} of machine {machine} registered as incarnation {incarnation}"))
        },
        Event::RunnerDescribed { runner, traits } => {
            let runtimes: Vec<&str> = traits.runtimes.keys().map(berth_domain::RuntimeName::as_str).collect();
            let runtimes = if runtimes.is_empty() { "no runtime".to_owned() } else { runtimes.join(", ") };
            about(runner, format!("runner {runner} is in pool {} and has {runtimes}", traits.pool))
        }
        Event::RunnerSuspected { runner } => {
            about(runner, format!("runner {runner} is silent: it gets nothing new until it is heard again"))
        }
        Event::RunnerLost { runner } => about(
            runner,
            format!(
                "runner {runner} is lost: its memory stays charged until it is back, or until `berth forget {runner}`"
            ),
        ),
        Event::LossDeferred { runner } => about(
            runner,
            format!(
                "runner {runner} has been silent for long, but is not called lost: most of the fleet is silent too, so \
                 this server may be cut off"
            ),
        ),
        Event::RunnerReturned { runner } => about(runner, format!("runner {runner} is back")),
        Event::RunnerCordoned { runner } => about(runner, format!("runner {runner} takes nothing new")),
        Event::RunnerUncordoned { runner } => about(runner, format!("runner {runner} takes work again")),
        Event::RunnerDraining { runner, .. } => about(runner, format!("runner {runner} finishes what it has")),
        Event::DrainDeadlinePassed { runner } => about(
            runner,
            format!("the deadline of draining runner {runner} has passed: its slots are stopped, leases or not"),
        ),
        Event::RunnerDrained { runner } => about(runner, format!("nothing is left on runner {runner}")),
        Event::HistoryWentBack { runner, shown } => {
            about(runner, format!("runner {runner} has obeyed an answer of {shown}, which this server does not know"))
        }
        Event::RunnerCaughtUp { runner } => {
            about(runner, format!("runner {runner} has reported for the first time since the history went back"))
        }
        Event::ObeyedCodeRefused { runner } => {
            about(runner, format!("runner {runner} says that it obeyed an answer that no server of this cluster gave"))
        }
        Event::ObeyedCodeAccepted { runner } => about(runner, format!("runner {runner} shows no wrong code any more")),
        Event::RunnerBooted { runner, boot } => {
            about(runner, format!("runner {runner} is on boot {boot} of its machine"))
        }
        Event::MachineDisputed { runner, machine } => Told {
            machine: Some(machine.clone()),
            ..about(runner, format!("runner {runner} says that it is on machine {machine}, which is another runner's"))
        },
        Event::MachineJudged { runner, machine, is_same, reason } => {
            let text = match is_same {
                true => format!("runner {runner} is on machine {machine}: {reason}"),
                false => format!("runner {runner} is on another machine with the id {machine}: {reason}"),
            };
            Told { machine: Some(machine.clone()), ..about(runner, text) }
        }
        Event::RunnerMoved { runner, machine } => Told {
            machine: Some(machine.clone()),
            ..about(runner, format!("runner {runner} is on machine {machine} now"))
        },
        Event::RunnerForgotten { runner, reason } => {
            about(runner, format!("runner {runner} was forgotten by an operator: {reason}"))
        }
        _ => return None,
    })
}

pub(super) fn tell_device(event: &Event, subject: &Subject) -> Option<Told> {
    let of =
        |runner: &RunnerId, uuid: &DeviceUuid, text: String| Told { runner: Some(runner.clone()), ..about(uuid, text) };
    let named = |uuid: &DeviceUuid| match &subject.runner {
        Some(runner) => format!("{uuid} of runner {runner}"),
        None => uuid.to_string(),
    };
    Some(match event {
        Event::DeviceDisputed { runner, uuid } => of(
            runner,
            uuid,
            format!(
                "runner {runner} reports {uuid}, which belongs to another machine: it is not used there until an \
                 operator forgets the runner that had it first"
            ),
        ),
        Event::DisputeEnded { runner, uuid } => {
            of(runner, uuid, format!("{uuid} of runner {runner} is disputed no more"))
        }
        Event::DeviceAttached { runner, uuid, name, attachment, .. } => {
            let over = subject.overcommitted.map(over).unwrap_or_default();
            of(runner, uuid, format!("runner {runner} has {uuid} ({name}) with {}{over}", attachment.capacity))
        }
        Event::DeviceDetached { runner, uuid } => of(runner, uuid, format!("runner {runner} no longer lists {uuid}")),
        Event::DeviceHealthChanged { runner, uuid, health } => {
            of(runner, uuid, format!("runner {runner} says that {uuid} {}", word(*health)))
        }
        Event::DeviceCordoned { uuid } => about(uuid, format!("{} takes nothing new", named(uuid))),
        Event::DeviceUncordoned { uuid } => about(uuid, format!("{} takes work again", named(uuid))),
        Event::DeviceBackedOff { uuid, .. } => {
            about(uuid, format!("a start on {} was refused; nothing is started there for a while", named(uuid)))
        }
        Event::DeviceReopened { uuid } => about(uuid, format!("{} takes starts again", named(uuid))),
        Event::ForeignChanged { uuid, bytes, .. } => {
            let over = subject.overcommitted.map(over).unwrap_or_default();
            about(uuid, format!("{bytes} of {} are in use by others{over}", named(uuid)))
        }
        _ => return None,
    })
}

fn about(uuid: &DeviceUuid, text: String) -> Told {
    Told { device: Some(uuid.clone()), text, ..Told::default() }
}

/// That a device is overcommitted, with the numbers that say so.
pub(super) fn over(balance: Balance<Bytes>) -> String {
    let Balance { capacity, held, releasing, promised, foreign, .. } = balance;
    let parts = [("held", held), ("releasing", releasing), ("promised", promised), ("foreign", foreign)];
    let parts = parts.iter().filter(|(_, bytes)| !bytes.is_zero());
    let parts: Vec<String> = parts.map(|(name, bytes)| format!("{name} {bytes}")).collect();
    format!("; it is overcommitted: {} of {capacity}, and it takes nothing new", parts.join(", "))
}

fn word(health: GpuHealth) -> &'static str {
    match health {
        GpuHealth::Ok => "is well",
        GpuHealth::Lost => "is lost: it fell off the bus, or needs a reset",
        GpuHealth::Stale => "is stale: its driver does not answer, and it takes nothing new until it does",
        GpuHealth::Failed => "failed and is quarantined: memory of an ended process could not be won back",
    }
}
