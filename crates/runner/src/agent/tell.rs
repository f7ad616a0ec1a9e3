//! What the server is told: the machine, and each slot as it is.

use std::collections::BTreeMap;
use std::time::Duration;

use berth_domain::{
    Endpoint, Evidence, FailureReason, ReasonText, ReportedClaim, ReportedMemory, ReportedState, RunnerReport,
    Sequence, SlotId, SlotReport,
};
use berth_wire::ReportRequest;

use super::live::Live;
use super::{Agent, AgentError};
use crate::inventory::Inventory;
use crate::reconcile::{End, Kept, Life};

impl Agent {
    /// Reports if there is something to say, or if it was silent for long.
    pub(super) fn speak(&mut self, inventory: Option<&Inventory>) -> Result<(), AgentError> {
        let Some(inventory) = inventory else { return Ok(()) };
        let fresh = self.gpus_changed(inventory);
        let silent = self
            .last_report
            .is_none_or(|at| at.elapsed() >= Duration::from_millis(self.settings.report_every.millis()));
        if self.link.is_reporting() || !(self.news || fresh || silent) {
            return Ok(());
        }
        self.news = false;
        self.last_report = Some(std::time::Instant::now());
        let told = self.record.kept().values().filter(|kept| tells_why(&kept.life)).map(|kept| kept.slot.id).collect();
        let report = self.report(inventory);
        self.link.report(report, told);
        Ok(())
    }

    /// Whether the GPUs are other than the server last heard, beyond what telemetry does by itself.
    fn gpus_changed(&mut self, inventory: &Inventory) -> bool {
        let now: Vec<_> = inventory.gpus.iter().map(|gpu| (gpu.uuid.clone(), gpu.health, gpu.memory.total)).collect();
        let changed = self.last_gpus != now;
        self.last_gpus = now;
        changed
    }

    fn report(&self, inventory: &Inventory) -> ReportRequest {
        let words = |text: &str| ReasonText::new(text).unwrap_or_else(|_| unreachable!("checked when it was read"));
        let slots = self.record.kept().values().map(|kept| slot_report(kept, self.live.get(&kept.slot.id)));
        let report = RunnerReport {
            runner: self.settings.id.clone(),
            incarnation: None,
            cluster: None,
            sequence: Sequence::default(),
            machine: inventory.host.machine.clone(),
            boot: inventory.host.boot.clone(),
            version: words(env!("CARGO_PKG_VERSION")),
            address: words(&self.settings.address),
            pool: self.settings.pool.clone(),
            labels: self.settings.labels.clone(),
            runtimes: self.settings.offered(&self.runtimes),
            host: inventory.host.report(),
            gpus: inventory.gpus.iter().map(crate::inventory::GpuSeen::report).collect(),
            slots: slots.collect(),
        };
        let mut request = ReportRequest::from(report);
        let busy: BTreeMap<&str, Option<u32>> =
            inventory.gpus.iter().map(|gpu| (gpu.uuid.as_str(), gpu.telemetry.utilization_percent)).collect();
        for gpu in &mut request.gpus {
            gpu.utilization_percent = busy.get(gpu.uuid.as_str()).copied().flatten();
        }
        request
    }

    /// Notes which slots the server has heard the end of.
    pub(super) fn note_told(&mut self, told: &[SlotId]) -> Result<(), AgentError> {
        for id in told {
            let Some(kept) = self.record.kept().get(id).cloned() else { continue };
            if let Life::Gone { why, told_why: false } = kept.life {
                self.record.put(Kept { life: Life::Gone { why, told_why: true }, slot: kept.slot })?;
                self.news = true;
            }
        }
        Ok(())
    }
}

/// Whether a report tells the server why a slot came to its end.
fn tells_why(life: &Life) -> bool {
    matches!(life, Life::Gone { told_why: false, .. })
}

fn slot_report(kept: &Kept, live: Option<&Live>) -> SlotReport {
    let slot = &kept.slot;
    let endpoint: Option<Endpoint> =
        live.and_then(|live| live.launch.as_ref()).and_then(|launch| launch.endpoint.clone());
    let memory = live.map(|live| {
        live.used.iter().map(|(uuid, used)| ReportedMemory {
            uuid: uuid.clone(),
            used: *used,
            peak: live.peak.get(uuid).copied().unwrap_or(*used),
        })
    });
    SlotReport {
        id: slot.id,
        generation: slot.generation,
        model: Some(slot.model.clone()),
        state: state_of(&kept.life),
        endpoint: endpoint.filter(|_| matches!(kept.life, Life::Started { ready: true, .. })),
        claims: slot.gpus.iter().map(|gpu| ReportedClaim { uuid: gpu.uuid.clone(), bytes: gpu.memory_bytes }).collect(),
        memory: memory.into_iter().flatten().collect(),
    }
}

fn state_of(life: &Life) -> ReportedState {
    let ending = |why: End| match why {
        End::Asked => ReportedState::Stopping,
        End::Failed(why) => ReportedState::Failed(why),
        End::Exited(code) => ReportedState::Exited { code },
    };
    match life {
        Life::Planned | Life::Started { ready: false, .. } => ReportedState::Starting,
        Life::Started { ready: true, .. } => ReportedState::Ready,
        Life::Ending { why, .. } | Life::TreeGone { why, .. } | Life::Gone { why, told_why: false } => ending(*why),
        Life::Gone { told_why: true, .. } => ReportedState::Gone(Evidence::COMPLETE),
        Life::Refused => ReportedState::Refused,
        Life::GivenUp => ReportedState::Failed(FailureReason::Unkillable),
    }
}
