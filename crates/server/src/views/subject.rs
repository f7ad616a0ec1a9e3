//! Whom an event is about: the names that the event itself does not carry.
//!
//! An event has ids, since it is kept for ever and names may change. Whoever reads it wants to know which model, and on
//! which runner. That is looked up when the event is published: later the slot or the workload may be gone.

use std::collections::HashMap;

use berth_core::view::{SlotView, WorkloadView};
use berth_core::{Balance, Event, ReservedFor, SlotRef, State};
use berth_domain::{Bytes, DeviceUuid, ModelName, Owner, RunnerId, SlotId, WorkloadId, WorkloadKind};

use super::Views;
use crate::trust::Caller;

/// The names behind the ids of an event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subject {
    /// The model of its slot or workload.
    pub model: Option<ModelName>,
    /// The runner of its slot or device.
    pub runner: Option<RunnerId>,
    /// What kind of workload it is about.
    pub kind: Option<WorkloadKind>,
    /// The model wants GPUs to itself.
    pub wants_whole_gpus: bool,
    /// Whose workload it is about, if it is about one.
    pub workload_of: Option<Option<Owner>>,
    /// The numbers of its device, if the event left the device overcommitted.
    pub overcommitted: Option<Balance<Bytes>>,
}

impl Subject {
    /// Whether a caller may hear of it: others' workloads are not everybody's business.
    #[must_use]
    pub fn is_visible_to(&self, caller: &Caller) -> bool {
        self.workload_of.as_ref().is_none_or(|owner| caller.may_see(owner.as_ref()))
    }
}

/// Slots and workloads that a batch removed, as they last were, and slots that it placed.
#[derive(Debug, Default)]
pub(super) struct BatchNames {
    slots: HashMap<SlotId, (Option<ModelName>, RunnerId)>,
    workloads: HashMap<WorkloadId, (ModelName, WorkloadKind, Option<Owner>)>,
}

impl BatchNames {
    /// Notes a slot that is no more.
    pub(super) fn slot_removed(&mut self, view: &SlotView) {
        self.slots.insert(view.id, (view.model.clone(), view.runner.clone()));
    }

    /// Notes a workload that is no more.
    pub(super) fn workload_removed(&mut self, view: &WorkloadView) {
        self.workloads.insert(view.id, (view.model.clone(), view.kind, view.owner.clone()));
    }
}

/// What an event names by an id.
#[derive(Default)]
struct Ids<'a> {
    slot: Option<SlotId>,
    workload: Option<WorkloadId>,
    device: Option<&'a DeviceUuid>,
}

/// The ids of an event whose names must be looked up; what it names itself is left out.
fn ids(event: &Event) -> Ids<'_> {
    let slot = |slot: &SlotId| Ids { slot: Some(*slot), ..Ids::default() };
    let workload = |workload: &WorkloadId| Ids { workload: Some(*workload), ..Ids::default() };
    let device = |device| Ids { device: Some(device), ..Ids::default() };
    match event {
        Event::SlotGranted { slot: id }
        | Event::SlotSeen { slot: id }
        | Event::SlotReady { slot: id, .. }
        | Event::SlotDrainBegun { slot: id }
        | Event::SlotDrainEnded { slot: id }
        | Event::SlotStopping { slot: id, .. }
        | Event::StopStalled { slot: id }
        | Event::SlotFailed { slot: id, .. }
        | Event::SlotUnknown { slot: id, .. }
        | Event::SlotReturned { slot: id, .. }
        | Event::SlotRestarted { slot: id, .. }
        | Event::SlotReleased { slot: id, .. }
        | Event::SlotRefused { slot: id, .. }
        | Event::SlotPassedMinRun { slot: id }
        | Event::PromiseKept { slot: id, .. }
        | Event::PromiseWithdrawn { slot: id } => slot(id),
        Event::SlotCharged { slot: id, uuid, .. } => Ids { device: Some(uuid), ..slot(id) },
        Event::WorkloadAssigned { workload: id, slot } => Ids { slot: Some(*slot), ..workload(id) },
        Event::WorkloadSubmitted { workload: id, .. }
        | Event::WorkloadWaits { workload: id, .. }
        | Event::WorkloadRequeued { workload: id, .. }
        | Event::WorkloadEligible { workload: id }
        | Event::WorkloadUnblocked { workload: id }
        | Event::WorkloadEnded { workload: id, .. }
        | Event::WorkloadForgotten { workload: id } => workload(id),
        Event::Reserved(place) => match &place.owner {
            ReservedFor::Workload(id) => workload(id),
            ReservedFor::Replica(_) => Ids::default(),
        },
        Event::ReservationEnded { owner: ReservedFor::Workload(id) } => workload(id),
        Event::DeviceAttached { uuid, .. }
        | Event::DeviceCordoned { uuid }
        | Event::DeviceUncordoned { uuid }
        | Event::DeviceBackedOff { uuid, .. }
        | Event::DeviceReopened { uuid }
        | Event::ForeignChanged { uuid, .. } => device(uuid),
        _ => Ids::default(),
    }
}

impl Views {
    /// Whom an event is about. The batch that it belongs to is published.
    pub(super) fn subject(&self, event: &Event, batch: &mut BatchNames, state: &State) -> Subject {
        if let Event::SlotPlaced(placed) = event {
            batch.slots.insert(placed.slot, (Some(placed.model.clone()), placed.runner.clone()));
        }
        let Ids { slot, workload, device } = ids(event);
        let mut subject = Subject::default();
        if let Some(id) = slot {
            (subject.model, subject.runner) = self.slot_names(id, batch);
        }
        if let Some(id) = workload {
            self.workload_names(id, batch, &mut subject);
        }
        if let Some(uuid) = device {
            subject.runner = subject.runner.or_else(|| state.runner_of_device(uuid));
            subject.overcommitted = state.overcommitted(uuid);
        }
        subject
    }

    fn slot_names(&self, id: SlotId, batch: &BatchNames) -> (Option<ModelName>, Option<RunnerId>) {
        if let Some(view) = self.slots.get(&SlotRef { id, stray_on: None }) {
            return (view.model.clone(), Some(view.runner.clone()));
        }
        match batch.slots.get(&id) {
            Some((model, runner)) => (model.clone(), Some(runner.clone())),
            None => (None, None),
        }
    }

    fn workload_names(&self, id: WorkloadId, batch: &BatchNames, subject: &mut Subject) {
        if let Some(row) = self.workloads.get(&id) {
            subject.model = Some(row.view.model.clone());
            subject.kind = Some(row.view.kind);
            subject.wants_whole_gpus = row.view.wants_whole_gpus;
            subject.workload_of = Some(row.view.owner.clone());
        } else if let Some((model, kind, owner)) = batch.workloads.get(&id) {
            (subject.model, subject.kind) = (Some(model.clone()), Some(*kind));
            subject.workload_of = Some(owner.clone());
        } else {
            // Nobody knows any more whose it was, so it is shown to those who may see everything.
            subject.workload_of = Some(None);
        }
    }
}
