//! Making an event true. It cannot fail: whatever could be refused was refused when it was decided.
//!
//! An event that names something unknown changes nothing. One that would cross a line of a ledger (which `decide`
//! never emits) is charged all the same and counted as a fault, so that the ledger shows what it was told.

mod attempts;
mod catalogue;
mod fleet;
mod history;
mod machines;
mod reservations;
mod slots;
mod work;

use berth_domain::Timestamp;

use crate::event::Event;
use crate::state::State;

/// Makes `event`, which happened at `at`, true.
pub fn apply(state: &mut State, event: &Event, at: Timestamp) {
    apply_event(state, event, at);
    state.refresh_index();
}

/// Makes events true that were decided together. The index is brought up to date once, after all of them: one report may
/// touch every device of a runner.
pub(crate) fn apply_all(state: &mut State, events: &[Event], at: Timestamp) {
    for event in events {
        apply_event(state, event, at);
    }
    state.refresh_index();
}

/// Makes `event` true once more, on a state that is being put together again. Nothing can be planned on it before
/// [`State::finish_replay`]: what plans are made from is made once, not after each event.
pub fn replay(state: &mut State, event: &Event, at: Timestamp) {
    apply_event(state, event, at);
    state.index.touch_all();
}

fn apply_event(state: &mut State, event: &Event, at: Timestamp) {
    state.now = state.now.max(at);
    if event.is_durable() {
        state.revision = state.revision.next();
    }
    dispatch(state, event, at);
}

fn dispatch(state: &mut State, event: &Event, at: Timestamp) {
    match event {
        Event::Started { cluster, epoch, tag } => state.on_started(*cluster, *epoch, *tag, at),
        Event::HistoryRestored => state.on_history_restored(at),
        Event::HistoryWentBack { shown, .. } => state.on_history_went_back(*shown),
        Event::HistoryContinued { epoch, revision, .. } => state.on_history_continued(*epoch, *revision, at),
        Event::RunnerCaughtUp { runner } => state.on_caught_up(runner),
        Event::ObeyedCodeRefused { runner } => state.on_obeyed_code(runner, true),
        Event::ObeyedCodeAccepted { runner } => state.on_obeyed_code(runner, false),
        Event::TimersRestarted => state.on_timers_restarted(at),

        Event::ModelPut { spec, revision } => state.on_model_put(spec, *revision),
        Event::ModelDeleted { model } => state.on_model_deleted(model),
        Event::ModelRetried { model } => state.on_model_retried(model),
        Event::MemoryObserved { model, count, peaks, settled } => {
            state.on_watched(model, *count, |row| (row.peaks, row.settled) = (peaks.clone(), *settled));
        }
        Event::MemoryJudged { model, count, verdict, .. } => {
            state.on_watched(model, *count, |row| row.verdict = *verdict);
        }
        Event::MemoryCorrected { model, count, bytes, why } => state.on_memory_corrected(model, *count, bytes, *why),

        Event::RunnerBooted { runner, boot } => state.on_booted(runner, boot),
        Event::MachineDisputed { runner, machine } => state.on_machine_disputed(runner, machine),
        Event::MachineJudged { runner, machine, is_same, .. } => state.on_machine_judged(runner, machine, *is_same),
        Event::RunnerMoved { runner, machine } => state.on_moved(runner, machine),
        Event::HostSized { machine, cpu, ram } => state.on_host_sized(machine, *cpu, *ram),
        Event::RunnerRegistered { runner, machine, incarnation } => {
            state.on_registered(runner, machine, *incarnation, at);
        }
        Event::RunnerDescribed { runner, traits } => state.on_described(runner, traits),
        Event::RunnerSeen { runner, sequence } => state.on_seen(runner, *sequence, at),
        Event::RunnerSuspected { runner } => state.on_liveness(runner, crate::state::Liveness::Suspect),
        Event::RunnerLost { runner } => state.on_liveness(runner, crate::state::Liveness::Lost),
        Event::RunnerReturned { runner } => state.on_liveness(runner, crate::state::Liveness::Ready),
        Event::LossDeferred { runner } => state.on_loss_deferred(runner, at),
        Event::RunnerCordoned { runner } => state.on_admission(runner, crate::state::Admission::Cordoned),
        Event::RunnerUncordoned { runner } => state.on_admission(runner, crate::state::Admission::Open),
        Event::RunnerDraining { runner, deadline } => {
            state.on_admission(runner, crate::state::Admission::Draining { deadline: *deadline, overdue: false });
        }
        Event::DrainDeadlinePassed { runner } => {
            state.on_admission(runner, crate::state::Admission::Draining { deadline: None, overdue: true });
        }
        Event::RunnerDrained { runner } => state.on_admission(runner, crate::state::Admission::Drained),
        Event::RunnerForgotten { runner, .. } => state.on_forgotten(runner),

        Event::DeviceDisputed { runner, uuid } => state.on_disputed(runner, uuid, true),
        Event::DisputeEnded { runner, uuid } => state.on_disputed(runner, uuid, false),
        Event::DeviceAttached { runner, uuid, name, parent, attachment } => {
            state.on_attached(runner, uuid, name, parent.as_ref(), attachment);
        }
        Event::DeviceDetached { runner, uuid } => state.on_detached(runner, uuid),
        Event::DeviceHealthChanged { runner, uuid, health } => state.on_health(runner, uuid, *health),
        Event::DeviceSampled { uuid, used } => state.on_sampled(uuid, *used),
        Event::DeviceCordoned { uuid } => state.on_device_cordoned(uuid, true),
        Event::DeviceUncordoned { uuid } => state.on_device_cordoned(uuid, false),
        Event::DeviceBackedOff { uuid, until } => state.on_device_backoff(uuid, Some(*until)),
        Event::DeviceReopened { uuid } => state.on_device_backoff(uuid, None),
        Event::ForeignChanged { uuid, bytes, attributed, left_behind } => {
            state.on_foreign(uuid, *bytes, *attributed, *left_behind);
        }
        Event::ForeignSampled { uuid, bytes } => state.on_foreign_sampled(uuid, *bytes),

        Event::SlotPlaced(placed) => state.on_placed(placed, at),
        Event::SlotGranted { slot } => state.on_granted(*slot, at),
        Event::SlotSeen { slot } => state.on_slot(*slot, |row| row.seen = true),
        Event::SlotReady { slot, endpoint } => state.on_ready(*slot, endpoint.as_ref(), at),
        Event::SlotDrainBegun { slot } => state.on_slot_state(*slot, berth_domain::SlotState::Draining, at),
        Event::SlotDrainEnded { slot } => state.on_slot_state(*slot, berth_domain::SlotState::Ready, at),
        Event::SlotStopping { slot, why } => state.on_stopping(*slot, *why, at),
        Event::StopStalled { slot } => state.on_stalled(*slot),
        Event::ProcessEnded { slot, exit } => state.on_slot(*slot, |row| row.exit = Some(*exit)),
        Event::SlotFailed { slot, why, retry_at } => state.on_failed(*slot, *why, *retry_at, at),
        Event::SlotUnknown { slot, why } => state.on_unknown(*slot, why, at),
        Event::SlotReturned { slot, ready } => state.on_returned(*slot, *ready, at),
        Event::SlotRestarted { slot, generation } => state.on_restarted(*slot, *generation, at),
        Event::SlotOvertaken { slot, generation } => state.on_overtaken(*slot, *generation, at),
        Event::SlotRefused { slot, retry_at } => state.on_refused(*slot, *retry_at),
        Event::SlotReleased { slot, proof, .. } => state.on_released(*slot, Some(*proof)),
        Event::SlotCharged { slot, uuid, bytes } => state.on_charged(*slot, uuid, *bytes),
        Event::SlotObserved { slot, uuid, used, peak } => state.on_observed(*slot, uuid, *used, *peak),
        Event::SlotPassedMinRun { slot } => state.on_slot(*slot, |row| row.is_past_min_run = true),
        Event::PromiseKept { slot, granted } => state.on_promise_kept(*slot, *granted, at),
        Event::PromiseWithdrawn { slot } => state.on_released(*slot, None),
        Event::StrayFound { runner, slot, generation, claims, stop } => {
            state.on_stray_found(runner, *slot, *generation, claims, *stop, at);
        }
        Event::StrayCondemned { runner, slot } => state.on_stray_condemned(runner, *slot, at),
        Event::StrayReleased { runner, slot, proof, .. } => state.on_stray_released(runner, *slot, *proof),

        Event::WorkloadSubmitted { workload, submission, waits } => {
            state.on_submitted(*workload, submission, *waits, at);
        }
        Event::WorkloadWaits { workload, why } => state.on_workload(*workload, |row| row.waits = Some(*why)),
        Event::WorkloadAssigned { workload, slot } => state.on_assigned(*workload, *slot, at),
        Event::WorkloadRequeued { workload, cause, not_before, failures, after, may_run_twice } => {
            let requeued = work::Requeued {
                cause: *cause,
                not_before: *not_before,
                failures: *failures,
                after: *after,
                may_run_twice: *may_run_twice,
            };
            state.on_requeued(*workload, requeued, at);
        }
        Event::WorkloadEligible { workload } => state.on_eligible(*workload),
        Event::WorkloadUnblocked { workload } => state.on_unblocked(*workload),
        Event::LeaseRenewed { workload } => state.on_renewed(*workload, at),
        Event::WorkloadEnded { workload, end, cause } => state.on_ended(*workload, *end, *cause, at),
        Event::WorkloadForgotten { workload } => state.on_workload_forgotten(*workload),
        Event::Reserved(place) => state.on_reserved(place, at),
        Event::ReservationEnded { owner } => state.on_reservation_ended(owner),
        Event::ReservationsDue => state.on_reservations_due(at),
    }
}
