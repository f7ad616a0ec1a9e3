//! Encoding of reports: from what an agent knows to JSON types.

use std::collections::BTreeMap;

use berth_domain::{GpuReport, ReportedState, RunnerReport, RuntimeName, SlotEnd, SlotReport};

use super::taken::NO_TRACE;
use super::{
    GpuTelemetry, ReportRequest, ReportedClaim, ReportedEvidence, ReportedGpu, ReportedMemory, ReportedSlot,
    ReportedSlotState, RuntimeKind,
};

impl From<RunnerReport> for ReportRequest {
    fn from(report: RunnerReport) -> Self {
        Self {
            protocol: Some(crate::PROTOCOL),
            incarnation: report.incarnation,
            cluster_id: report.cluster,
            obeyed: None,
            machine_id: report.machine,
            boot_id: report.boot,
            sequence: report.sequence,
            version: report.version.to_string(),
            address: report.address.to_string(),
            pool: Some(report.pool),
            labels: report.labels,
            runtime_kinds: kinds(&report.runtimes),
            runtimes: report.runtimes.into_keys().collect(),
            allowed_args: report.allowed,
            engines: report.engines.iter().map(|(runtime, found)| (runtime.clone(), found.into())).collect(),
            host: report.host.into(),
            gpus: report.gpus.into_iter().map(ReportedGpu::from).collect(),
            links: Vec::new(),
            slots: report.slots.into_iter().map(ReportedSlot::from).collect(),
        }
    }
}

fn kinds(runtimes: &BTreeMap<RuntimeName, berth_domain::RuntimeKind>) -> BTreeMap<RuntimeName, RuntimeKind> {
    let is_said = |kind: &RuntimeKind| *kind != RuntimeKind::default();
    let said = runtimes.iter().map(|(name, kind)| (name.clone(), RuntimeKind::from(*kind)));
    said.filter(|(_, kind)| is_said(kind)).collect()
}

impl From<GpuReport> for ReportedGpu {
    fn from(gpu: GpuReport) -> Self {
        Self {
            uuid: gpu.uuid.to_string(),
            index: gpu.index,
            name: gpu.name,
            memory_total_bytes: gpu.memory_total,
            memory_used_bytes: gpu.memory_used,
            memory_reserved_bytes: gpu.memory_reserved,
            utilization_percent: None,
            parent_uuid: gpu.parent.map(|uuid| uuid.to_string()),
            health: gpu.health.into(),
            telemetry: GpuTelemetry::default(),
        }
    }
}

impl From<SlotReport> for ReportedSlot {
    fn from(slot: SlotReport) -> Self {
        let (mut exit_code, mut reason, mut detail, mut evidence) = (None, None, None, None);
        let state = match slot.state {
            ReportedState::Starting => ReportedSlotState::Starting,
            ReportedState::Ready => ReportedSlotState::Ready,
            ReportedState::Stopping => ReportedSlotState::Stopping,
            ReportedState::Failed(why) => {
                reason = Some(why.code().to_owned());
                ReportedSlotState::Failed
            }
            ReportedState::Exited { code } => {
                exit_code = Some(code);
                ReportedSlotState::Exited
            }
            ReportedState::Refused => ReportedSlotState::Refused,
            ReportedState::Gone { why, evidence: seen } => {
                match why {
                    SlotEnd::Asked => {}
                    SlotEnd::Failed(why) => reason = Some(why.code().to_owned()),
                    SlotEnd::Exited(code) => exit_code = Some(code),
                    SlotEnd::NoTrace => reason = Some(NO_TRACE.to_owned()),
                }
                evidence = Some(ReportedEvidence { tree_gone: seen.tree_gone, driver_clear: seen.driver_clear });
                ReportedSlotState::Gone
            }
            ReportedState::Unknown { why } => {
                detail = Some(why.to_string());
                ReportedSlotState::Unknown
            }
        };
        let claim =
            |claim: berth_domain::ReportedClaim| ReportedClaim { uuid: claim.uuid.to_string(), bytes: claim.bytes };
        let memory = |memory: berth_domain::ReportedMemory| ReportedMemory {
            uuid: memory.uuid.to_string(),
            used_bytes: memory.used,
            peak_bytes: memory.peak,
        };
        Self {
            id: slot.id,
            generation: slot.generation,
            model: slot.model,
            state,
            endpoint: slot.endpoint,
            pid: None,
            claims: slot.claims.into_iter().map(claim).collect(),
            memory: slot.memory.into_iter().map(memory).collect(),
            exit_code,
            exit: slot.exit.map(Into::into),
            reason,
            detail,
            last_lines: Vec::new(),
            evidence,
        }
    }
}
