//! A slot of a simulated agent.

use std::collections::BTreeMap;

use berth_domain::{
    Bytes, DesiredSlot, DeviceUuid, Evidence, Generation, ModelName, ReportedClaim, ReportedState, SlotEnd,
};

/// Whether the agent has a slot on its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// The agent knows the slot and reports it.
    Kept,
    /// The agent lost its record: the process runs on, and no report mentions it.
    Lost,
    /// The record is lost, and the server asked about the slot: the agent reports that it cannot tell.
    Sought,
}

/// A slot as a simulated agent has it.
#[derive(Clone, Debug)]
pub struct SimulatedSlot {
    /// The start of the slot that this is.
    pub generation: Generation,
    /// The model that it serves.
    pub model: Option<ModelName>,
    /// The state that the agent reports.
    pub state: ReportedState,
    /// The memory that belongs to it, in rank order.
    pub claims: Vec<ReportedClaim>,
    /// The memory that its processes really use.
    pub uses: BTreeMap<DeviceUuid, Bytes>,
    /// Whether the agent has it on record.
    pub record: Record,
}

impl SimulatedSlot {
    /// Makes a slot that is as the server desires it, in this state, and uses no memory yet.
    pub(crate) fn new(desired: &DesiredSlot, state: ReportedState) -> Self {
        let claim = |gpu: &berth_domain::DesiredGpu| ReportedClaim { uuid: gpu.uuid.clone(), bytes: gpu.memory_bytes };
        Self {
            generation: desired.generation,
            model: desired.run_spec().map(|spec| spec.model.clone()),
            claims: if state.is_over() { Vec::new() } else { desired.gpus.iter().map(claim).collect() },
            state,
            uses: BTreeMap::new(),
            record: Record::Kept,
        }
    }

    /// Returns whether the agent reports what it knows of the slot.
    #[must_use]
    pub fn is_on_record(&self) -> bool {
        self.record == Record::Kept
    }

    /// Lets its processes use this share of its claims.
    pub fn use_percent(&mut self, percent: u64) {
        // Divided first, so that no product of bytes overflows.
        let part = |bytes: u64| Bytes::new(bytes / 100 * percent + bytes % 100 * percent / 100);
        self.uses = self.claims.iter().map(|claim| (claim.uuid.clone(), part(claim.bytes.get()))).collect();
    }

    /// Ends it with proof: its processes are gone, and so is their memory. A failure or an exit code stays its reason.
    pub fn prove_gone(&mut self) {
        let why = match &self.state {
            ReportedState::Failed(why) => SlotEnd::Failed(*why),
            ReportedState::Exited { code } => SlotEnd::Exited(*code),
            ReportedState::Gone { why, .. } => *why,
            _ => SlotEnd::Asked,
        };
        self.state = ReportedState::Gone { why, evidence: Evidence::COMPLETE };
        self.uses.clear();
    }
}
