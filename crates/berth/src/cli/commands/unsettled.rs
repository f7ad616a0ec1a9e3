//! What is said of a workload that does not run yet when the wait for it is over.

use berth_client::routes;
use berth_domain::SlotState;
use berth_wire::{Workload, WorkloadSlot, WorkloadState};

use super::super::session::Session;

/// Says where the workload is, by its own state and by that of its slot.
pub(super) async fn note(session: &Session, workload: &Workload) {
    let id = workload.id;
    let text = match (workload.state, &workload.slot) {
        (WorkloadState::Assigned, Some(slot)) => {
            // A slot that is gone by now has no state: then less is said.
            let state = session.client.ask(&routes::slot(slot.id)).await.ok().map(|answer| answer.body.state);
            format!("it does not run yet: {}", assigned(slot, state))
        }
        (WorkloadState::Assigned, None) => "it does not run yet: it is about to get a slot".to_owned(),
        _ => queued(workload),
    };
    session.note(&format!("{text}; `berth explain {id}` says more, `berth cancel {id}` takes it back"));
}

fn queued(workload: &Workload) -> String {
    let place = workload.position.map(|position| format!(", at position {position}")).unwrap_or_default();
    let why = workload.reason.as_ref().map(|reason| format!(": {}", reason.text)).unwrap_or_default();
    format!("it stays queued{place}{why}")
}

fn assigned(slot: &WorkloadSlot, state: Option<SlotState>) -> String {
    let what = match state {
        Some(SlotState::Promised) => "waits for memory that others still release",
        Some(SlotState::Pending) => "waits for its turn to start on its GPUs",
        Some(SlotState::Starting) => "is starting",
        Some(SlotState::Ready) => "is ready",
        Some(SlotState::Draining) => "takes nothing new",
        Some(SlotState::Stopping) => "is being stopped",
        Some(SlotState::Failed) => "failed",
        Some(SlotState::Unknown) => "may or may not run",
        None => "is not ready",
    };
    format!("its slot {} on runner {} {what}", slot.id, slot.runner_id)
}
