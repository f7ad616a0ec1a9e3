//! Reporting to the server: the machine, and each slot as it is.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use berth_domain::{
    Bytes, DeviceUuid, Endpoint, FailureReason, GpuHealth, GpuReport, PoolName, ReportedClaim, ReportedMemory,
    ReportedState, RunnerReport, Sequence, SlotEnd, SlotId, SlotReport,
};
use berth_wire as wire;
use berth_wire::ReportRequest;

use super::config::AgentSettings;
use super::last_lines::add_last_lines;
use super::link::ServerLink;
use super::live::LiveSlot;
use super::programs::Programs;
use super::secrets::SlotSecrets;
use super::slots::Slots;
use crate::inventory::{Closeness, ComputeMode, GpuLink, GpuSeen, Inventory};
use crate::reconcile::{Doubt, LocalState, SlotRecord};
use crate::text::reason_text;

/// A change of memory use that is reported before the next report is due.
const REPORTED_USE_STEP: Bytes = Bytes::mib(256);
/// The shortest interval between such reports.
const USE_REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// What the last report said.
#[derive(Debug, Default)]
pub(super) struct LastReport {
    at: Option<Instant>,
    gpus: Vec<ReportedGpuUse>,
}

#[derive(Debug, PartialEq, Eq)]
struct ReportedGpuUse {
    uuid: DeviceUuid,
    health: GpuHealth,
    total: Bytes,
    used: Bytes,
}

impl LastReport {
    fn now(inventory: &Inventory) -> Self {
        let one = |gpu: &GpuSeen| ReportedGpuUse {
            uuid: gpu.uuid.clone(),
            health: gpu.health,
            total: gpu.memory.total,
            used: gpu.memory.used,
        };
        Self { at: Some(Instant::now()), gpus: inventory.gpus.iter().map(one).collect() }
    }

    /// Returns whether a report is due though no slot has changed: a GPU is another one, or its use has changed, or the
    /// last report is old.
    fn is_old(&self, new: &Self, report_every: Duration) -> bool {
        let silent = self.at.map(|at| at.elapsed());
        let is_other = |(old, new): (&ReportedGpuUse, &ReportedGpuUse)| {
            (&old.uuid, old.health, old.total) != (&new.uuid, new.health, new.total)
        };
        let is_used_otherwise = |(old, new): (&ReportedGpuUse, &ReportedGpuUse)| {
            old.used.max(new.used).saturating_sub(old.used.min(new.used)) >= REPORTED_USE_STEP
        };
        let pairs = || self.gpus.iter().zip(&new.gpus);
        silent.is_none_or(|silent| silent >= report_every)
            || self.gpus.len() != new.gpus.len()
            || pairs().any(is_other)
            || (silent >= Some(USE_REPORT_INTERVAL) && pairs().any(is_used_otherwise))
    }
}

/// Reports to the server: at once when something changed, otherwise after a while. One report is under way at a time.
pub(super) struct Reporter {
    settings: Arc<AgentSettings>,
    pub(super) link: ServerLink,
    last_report: LastReport,
}

impl Reporter {
    pub(super) fn new(settings: Arc<AgentSettings>, link: ServerLink) -> Self {
        Self { settings, link, last_report: LastReport::default() }
    }

    /// Returns whether a report should be sent now.
    pub(super) fn is_due(&self, inventory: Option<&Inventory>, has_news: bool) -> bool {
        let report_every = Duration::from_millis(self.settings.report_every.millis());
        let inventory = inventory.filter(|_| !self.link.is_sending());
        inventory.is_some_and(|seen| has_news || self.last_report.is_old(&LastReport::now(seen), report_every))
    }

    /// Sends a report if one is due. An agent without a cluster binding asks for the server's cluster instead.
    pub(super) fn report_if_due(
        &mut self,
        slots: &mut Slots,
        programs: &Programs,
        secrets: &SlotSecrets,
        inventory: Option<&Inventory>,
    ) {
        let Some(inventory) = inventory.filter(|seen| self.is_due(Some(seen), slots.has_news)) else { return };
        if slots.store.binding().is_none() {
            return self.link.ask_for_cluster();
        }
        slots.has_news = false;
        self.last_report = LastReport::now(inventory);
        let mut report = report_of(&self.settings, slots, programs, inventory);
        add_last_lines(&mut report.slots, slots, || secrets.redactor(&programs.runtimes));
        self.link.report(report);
    }
}

fn report_of(settings: &AgentSettings, slots: &Slots, programs: &Programs, inventory: &Inventory) -> ReportRequest {
    let doubts = slots.doubts().iter().map(|(id, doubt)| doubt_report(*id, doubt));
    // The server means the generation that is in doubt, not an older one that is on record.
    let records = slots.records().values().filter(|record| !slots.doubts().contains_key(&record.id));
    let reported = doubts.chain(records.map(|record| slot_report(record, slots.live.get(&record.id))));
    let offered = programs.offered();
    let report = RunnerReport {
        runner: settings.id.clone(),
        incarnation: None,
        cluster: None,
        obeyed: None,
        shares_machine: true,
        sequence: Sequence::default(),
        machine: inventory.host.machine.clone(),
        boot: inventory.host.boot.clone(),
        version: reason_text(env!("CARGO_PKG_VERSION")),
        address: reason_text(settings.address.as_deref().unwrap_or_default()),
        pool: settings.pool.clone().unwrap_or_else(PoolName::default_pool),
        labels: settings.labels.clone(),
        allowed: programs.runtimes.allowed(&offered),
        engines: programs.engines.report(),
        runtimes: offered,
        host: inventory.host.report(),
        gpus: inventory.gpus.iter().map(|gpu| gpu_report(slots.records(), gpu)).collect(),
        slots: reported.collect(),
    };
    let mut request = ReportRequest::from(report);
    // An agent without a configured pool leaves it to its token.
    request.pool = settings.pool.clone();
    for (said, gpu) in request.gpus.iter_mut().zip(&inventory.gpus) {
        said.utilization_percent = gpu.telemetry.utilization_percent;
        said.telemetry = telemetry(gpu);
    }
    for slot in &mut request.slots {
        let process = slots.records().get(&slot.id).and_then(|record| record.process.as_ref());
        slot.pid = process.map(|process| process.pid);
    }
    request.links = inventory.links.iter().map(link).collect();
    request
}

/// Describes a GPU. A device whose slot was given up counts as failed, whatever the driver says of it.
fn gpu_report(records: &BTreeMap<SlotId, SlotRecord>, gpu: &GpuSeen) -> GpuReport {
    let given_up = records.values().filter(|record| record.state == LocalState::GivenUp);
    let is_out_of_order = given_up.flat_map(|record| &record.gpus).any(|claim| claim.uuid == gpu.uuid);
    let report = gpu.report();
    let health = if is_out_of_order && report.health == GpuHealth::Ok { GpuHealth::Failed } else { report.health };
    GpuReport { health, ..report }
}

fn telemetry(gpu: &GpuSeen) -> wire::GpuTelemetry {
    let seen = &gpu.telemetry;
    wire::GpuTelemetry {
        temperature_celsius: seen.temperature_celsius,
        power_milliwatts: seen.power_milliwatts,
        compute_mode: seen.compute_mode.map(|mode| match mode {
            ComputeMode::Shared => wire::ComputeMode::Shared,
            ComputeMode::Exclusive => wire::ComputeMode::Exclusive,
            ComputeMode::Prohibited => wire::ComputeMode::Prohibited,
        }),
        ecc_corrected: seen.ecc.map(|ecc| ecc.corrected),
        ecc_uncorrected: seen.ecc.map(|ecc| ecc.uncorrected),
        last_xid: seen.last_xid,
        pci_bus_id: seen.pci_bus_id.clone(),
        numa_node: seen.numa_node,
        trouble: gpu.trouble.clone(),
    }
}

fn link(link: &GpuLink) -> wire::GpuLink {
    wire::GpuLink {
        between: [link.between.0.to_string(), link.between.1.to_string()],
        closeness: match link.closeness {
            Closeness::Board => wire::Closeness::Board,
            Closeness::Switch => wire::Closeness::Switch,
            Closeness::Switches => wire::Closeness::Switches,
            Closeness::HostBridge => wire::Closeness::HostBridge,
            Closeness::Node => wire::Closeness::Node,
            Closeness::System => wire::Closeness::System,
        },
        nvlinks: link.nvlinks,
        nvlink: link.nvlink,
    }
}

fn doubt_report(id: SlotId, doubt: &Doubt) -> SlotReport {
    SlotReport {
        id,
        generation: doubt.generation,
        model: None,
        state: ReportedState::Unknown { why: reason_text(&doubt.why) },
        exit: None,
        endpoint: None,
        claims: Vec::new(),
        memory: Vec::new(),
    }
}

fn slot_report(record: &SlotRecord, live: Option<&LiveSlot>) -> SlotReport {
    let endpoint: Option<Endpoint> =
        live.and_then(|live| live.launch.as_ref()).and_then(|launch| launch.endpoint.clone());
    let memory = live.map(|live| {
        live.memory.iter().map(|(uuid, row)| ReportedMemory { uuid: uuid.clone(), used: row.now, peak: row.peak })
    });
    // A slot that is over was proven gone. Any other is unknown while its processes are.
    let unknown = live.and_then(|live| live.unknown.as_deref()).filter(|_| !record.is_over());
    SlotReport {
        id: record.id,
        generation: record.generation,
        model: record.spec.as_ref().map(|spec| spec.model.clone()),
        state: unknown.map_or_else(|| state_of(&record.state), |why| ReportedState::Unknown { why: reason_text(why) }),
        exit: record.exit,
        endpoint: endpoint.filter(|_| matches!(record.state, LocalState::Started { ready: true, .. })),
        claims: record
            .gpus
            .iter()
            .map(|gpu| ReportedClaim { uuid: gpu.uuid.clone(), bytes: gpu.memory_bytes })
            .collect(),
        memory: memory.into_iter().flatten().collect(),
    }
}

fn state_of(state: &LocalState) -> ReportedState {
    let ending = |why: SlotEnd| match why {
        SlotEnd::Asked | SlotEnd::NoTrace => ReportedState::Stopping,
        SlotEnd::Failed(why) => ReportedState::Failed(why),
        SlotEnd::Exited(code) => ReportedState::Exited { code },
    };
    match state {
        LocalState::Planned | LocalState::Started { ready: false, .. } => ReportedState::Starting,
        LocalState::Started { ready: true, .. } => ReportedState::Ready,
        LocalState::Ending { why, .. } | LocalState::TreeGone { why, .. } => ending(*why),
        LocalState::Gone { why, evidence } => ReportedState::Gone { why: *why, evidence: *evidence },
        LocalState::Refused => ReportedState::Refused,
        LocalState::GivenUp => ReportedState::Failed(FailureReason::Unkillable),
    }
}
