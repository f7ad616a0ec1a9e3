//! Runners, devices, hosts and slots.

use std::collections::BTreeMap;
use std::sync::Arc;

use berth_core::view::{DeviceView, HostView, RunnerView, SlotView};
use berth_core::{Admission, Closed, Exclusion, Liveness, Phase, RunnerTraits};
use berth_domain::{Bytes, DeviceUuid, GpuReport, RunnerId, RunnerReport, RuntimeName, SlotId, SlotReport, Timestamp};
use berth_wire as wire;

use super::reason::{failure, unknown_reason};
use super::{cpu, memory, phase, stop_reason};
use crate::views::LastReport;

/// A slot; `device` finds the devices of its claims.
#[must_use]
pub fn slot(view: &SlotView, device: impl Fn(&DeviceUuid) -> Option<Arc<DeviceView>>) -> wire::Slot {
    let gpus = view.gpus.iter().map(|(uuid, bytes, observed)| {
        let device = device(uuid);
        let claims = device.iter().flat_map(|device| &device.claims);
        let claim = claims.into_iter().find(|claim| claim.slot == view.id).map(|claim| claim.phase);
        let seats = device.iter().flat_map(|device| &device.runners);
        wire::SlotGpu {
            uuid: uuid.clone(),
            index: seats.into_iter().find(|(runner, _)| *runner == view.runner).map(|(_, index)| *index),
            bytes: *bytes,
            phase: phase(claim.unwrap_or(Phase::Held)),
            observed_bytes: *observed,
        }
    });
    let failed = view.failure.map(|why| wire::Reason::new(why.code(), failure(why)));
    wire::Slot {
        id: view.id,
        generation: view.generation,
        model: view.model.clone(),
        model_revision: view.revision,
        runner_id: view.runner.clone(),
        state: view.state,
        since: wire::Time(view.since),
        gpu_allocation: wire::GpuAllocation::new(gpus.collect()),
        endpoint: view.endpoint.clone(),
        active: view.active,
        concurrency: view.concurrency,
        created: wire::Time(view.created),
        idle_since: view.idle_since.map(wire::Time),
        reason: view.unknown.as_ref().map(unknown_reason).or(view.stop_reason.map(stop_reason)).or(failed),
        stalled: view.stalled,
    }
}

/// A device and its ledger; `is_open` says which runners take new work.
#[must_use]
pub fn device(view: &DeviceView, is_open: impl Fn(&RunnerId) -> bool) -> wire::DeviceLedger {
    let (state, balance) = offer(view, is_open);
    wire::DeviceLedger {
        runner_ids: view.runners.iter().map(|(runner, _)| runner.clone()).collect(),
        uuid: view.uuid.clone(),
        index: view.runners.first().map(|(_, index)| *index),
        name: view.name.clone(),
        parent_uuid: view.parent.clone(),
        replicas: view.replicas,
        balance,
        state,
        overcommitted: view.overcommitted,
        sizes_differ: view.sizes_differ,
        attributed: view.attributed,
        claims: view
            .claims
            .iter()
            .map(|claim| wire::DeviceClaim { slot_id: claim.slot, phase: phase(claim.phase), bytes: claim.bytes })
            .collect(),
    }
}

/// Whether a device takes anything new, and its numbers. What nobody can be given is not free.
#[must_use]
pub fn offer(view: &DeviceView, is_open: impl Fn(&RunnerId) -> bool) -> (wire::DeviceState, wire::MemoryBalance) {
    let has_open_runner = view.runners.iter().any(|(runner, _)| is_open(runner));
    let closed = match view.closed {
        Some(why) if !why.keeps_its_offer() => Some(why),
        _ if !has_open_runner => Some(Closed::RunnerClosed),
        closed => closed,
    };
    let state = closed.and_then(|why| wire::DeviceState::of_word(why.code())).unwrap_or(wire::DeviceState::Open);
    let mut balance = memory(view.balance);
    if closed == Some(Closed::RunnerClosed) {
        balance.free_bytes = Bytes::ZERO;
    }
    (state, balance)
}

/// A machine's CPU and RAM.
#[must_use]
pub fn host(view: &HostView) -> wire::HostLedger {
    wire::HostLedger {
        machine_id: view.machine.clone(),
        runner_ids: view.runners.clone(),
        cpu: cpu(view.cpu),
        ram: memory(view.ram),
    }
}

/// A runner as the server holds it, with its slots.
#[must_use]
pub fn runner(view: &RunnerView, slots: Vec<SlotId>) -> wire::Runner {
    let (admission, deadline) = match view.admission {
        Admission::Open => (wire::RunnerAdmission::Open, None),
        Admission::Cordoned => (wire::RunnerAdmission::Cordoned, None),
        Admission::Draining { deadline, .. } => (wire::RunnerAdmission::Draining, deadline),
        Admission::Drained => (wire::RunnerAdmission::Drained, None),
        Admission::Forgotten => (wire::RunnerAdmission::Forgotten, None),
    };
    let traits = view.traits.as_deref();
    wire::Runner {
        id: view.id.clone(),
        machine_id: view.machine.clone(),
        incarnation: view.incarnation,
        state: runner_state(view.liveness),
        admission,
        pool: traits.map_or_else(berth_domain::PoolName::default_pool, |traits| traits.pool.clone()),
        labels: traits.map(|traits| traits.labels.clone()).unwrap_or_default(),
        runtimes: traits.map(|traits| traits.runtimes.keys().cloned().collect()).unwrap_or_default(),
        runtime_kinds: traits.map(|traits| runtime_kinds(&traits.runtimes)).unwrap_or_default(),
        allowed_args: traits.map(|traits| traits.allowed.clone()).unwrap_or_default(),
        engines: traits.map(engines).unwrap_or_default(),
        version: traits.map(|traits| traits.version.to_string()).unwrap_or_default(),
        address: traits.map(|traits| traits.address.to_string()).unwrap_or_default(),
        host: traits.map(|traits| traits.host.into()).unwrap_or_default(),
        reported: view.reported,
        barred: view.barred.map(|why| barred(why, view)),
        last_seen: Some(wire::Time(view.last_seen)),
        gpus: view.devices.clone(),
        disputed: view.disputed.clone(),
        slots,
        deadline: deadline.map(wire::Time),
        desired_revision: view.desired,
    }
}

fn engines(traits: &RunnerTraits) -> BTreeMap<RuntimeName, wire::EngineReport> {
    traits.engines.iter().map(|(runtime, found)| (runtime.clone(), found.into())).collect()
}

/// Why a runner takes nothing new, whatever its operator wants.
fn barred(why: Exclusion, view: &RunnerView) -> wire::Reason {
    let text = match why {
        Exclusion::MachineDisputed => return wire::Reason::new(why.code(), disputed(view)),
        Exclusion::HistoryWentBack => "the history of the server went back, and no operator has continued it",
        Exclusion::InvalidCode => {
            "its agent says that it obeyed an answer that no server of this cluster gave: stop the agent, find out why, \
             and remove its obeys.json"
        }
        Exclusion::NeighbourNotReported => {
            "another runner of its machine has not reported since the history of the server went back"
        }
        _ => "it takes nothing new",
    };
    wire::Reason::new(why.code(), text)
}

/// Names both sides of a dispute about a machine, and what an operator can say.
fn disputed(view: &RunnerView) -> String {
    let id = &view.id;
    let owner =
        view.disputes.as_ref().map(|(machine, owner)| format!("machine {machine}, which belongs to runner {owner}"));
    let named = owner.unwrap_or_else(|| "a machine of another runner".to_owned());
    format!(
        "runner {id} says that it is on {named}. If both are on one machine: `berth machines same {id}`; if this is another \
         machine with the same id: `berth machines another {id}`"
    )
}

fn runner_state(liveness: Liveness) -> wire::RunnerState {
    match liveness {
        Liveness::Ready => wire::RunnerState::Ready,
        Liveness::Suspect => wire::RunnerState::Suspect,
        Liveness::Lost => wire::RunnerState::Lost,
    }
}

/// What a runner last reported, with the ledger of each of its physical GPUs beside it.
#[must_use]
pub fn status(
    view: &RunnerView,
    last: &LastReport,
    ledger: impl Fn(&DeviceUuid) -> Option<Arc<DeviceView>>,
    is_open: impl Fn(&RunnerId) -> bool,
    now: Timestamp,
) -> wire::RunnerStatus {
    let report: &RunnerReport = &last.report;
    let mut gpus: Vec<wire::StatusGpu> = Vec::new();
    for gpu in &report.gpus {
        // Replicas are one GPU under several names.
        match gpus.iter_mut().find(|known| known.uuid == gpu.uuid) {
            Some(known) => known.replicas = known.replicas.saturating_add(1),
            None => gpus.push(status_gpu(view, last, gpu, ledger(&gpu.uuid).map(|device| offer(&device, &is_open)))),
        }
    }
    gpus.sort_by_key(|gpu| gpu.index);
    wire::RunnerStatus {
        id: view.id.clone(),
        machine_id: report.machine.clone(),
        boot_id: report.boot.clone(),
        incarnation: view.incarnation,
        sequence: report.sequence,
        received: wire::Time(last.received),
        age_ms: now.since(last.received).millis(),
        state: runner_state(view.liveness),
        version: report.version.to_string(),
        host: report.host.into(),
        gpus,
        links: last.telemetry.links.clone(),
        slots: report.slots.iter().map(|slot| reported_slot(slot, last)).collect(),
    }
}

fn status_gpu(
    view: &RunnerView,
    last: &LastReport,
    gpu: &GpuReport,
    offer: Option<(wire::DeviceState, wire::MemoryBalance)>,
) -> wire::StatusGpu {
    let disputed = view.disputed.contains(&gpu.uuid);
    let offer = offer.filter(|_| !disputed);
    let (busy, telemetry) = last.telemetry.gpus.get(&gpu.uuid).cloned().unwrap_or_default();
    wire::StatusGpu {
        uuid: gpu.uuid.clone(),
        index: gpu.index,
        name: gpu.name.clone(),
        replicas: 1,
        memory_total_bytes: gpu.memory_total,
        memory_used_bytes: gpu.memory_used,
        memory_reserved_bytes: gpu.memory_reserved,
        utilization_percent: busy,
        parent_uuid: gpu.parent.clone(),
        health: gpu.health.into(),
        telemetry,
        ledger: offer.map(|(_, balance)| balance),
        state: offer.map_or(wire::DeviceState::Disputed, |(state, _)| state),
    }
}

/// A slot as its agent said it: the same words go out as came in.
fn reported_slot(slot: &SlotReport, last: &LastReport) -> wire::ReportedSlot {
    wire::ReportedSlot { pid: last.telemetry.pids.get(&slot.id).copied(), ..wire::ReportedSlot::from(slot.clone()) }
}

fn runtime_kinds(
    runtimes: &BTreeMap<RuntimeName, berth_domain::RuntimeKind>,
) -> BTreeMap<RuntimeName, wire::RuntimeKind> {
    runtimes.iter().map(|(name, kind)| (name.clone(), (*kind).into())).collect()
}
