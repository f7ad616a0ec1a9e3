//! The simulated agent.

use std::collections::BTreeMap;

use berth_domain::{
    Bytes, DesiredAction, DesiredSlot, DeviceUuid, Endpoint, Evidence, ReasonText, ReportedMemory, ReportedState,
    RunnerReport, SlotEnd, SlotId, SlotReport, Span, Timestamp,
};

use crate::{Record, SimulatedGpu, SimulatedSlot};

/// How often an agent reports without news.
const REPORT_EVERY: Span = Span::from_secs(10);

/// How a simulated agent gets on with a start or a stop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pace {
    /// A start is ready, and a stop is proven, as soon as it is desired.
    #[default]
    AtOnce,
    /// A slot is starting (with half of its memory) or stopping first, and ready or gone when it is desired again.
    InSteps,
    /// A slot is starting or stopping until the owner of the agent changes its state.
    WhenTold,
}

/// An agent without a machine: its GPUs, processes and memory are numbers.
#[derive(Clone, Debug)]
pub struct SimulatedAgent {
    /// What every report repeats: ids, cluster, incarnation, sequence, pool, labels, runtimes and host. The lists of GPUs
    /// and slots are empty here; [`Self::report`] fills them in.
    pub facts: RunnerReport,
    /// The GPUs that its driver shows.
    pub gpus: Vec<SimulatedGpu>,
    /// The slots that it has, the ended ones included until they are forgotten.
    pub slots: BTreeMap<SlotId, SimulatedSlot>,
    /// How slots come up.
    pub starts: Pace,
    /// How slots end.
    pub stops: Pace,
    /// The share of its claim that a new slot uses, in percent.
    pub uses_percent: u64,
    /// Whether the driver tells which process uses how much.
    pub attributes: bool,
    last_report: Timestamp,
}

impl SimulatedAgent {
    /// Makes an agent whose first report is this registration. Slots that the report lists are not taken over.
    #[must_use]
    pub fn new(mut registration: RunnerReport) -> Self {
        registration.slots.clear();
        Self {
            gpus: std::mem::take(&mut registration.gpus).into_iter().map(SimulatedGpu::from_report).collect(),
            facts: registration,
            slots: BTreeMap::new(),
            starts: Pace::AtOnce,
            stops: Pace::AtOnce,
            uses_percent: 100,
            attributes: true,
            last_report: Timestamp::default(),
        }
    }

    /// Returns whether the server desires a start that the agent has not made.
    #[must_use]
    pub fn is_new(&self, desired: &DesiredSlot) -> bool {
        desired.should_run() && self.slots.get(&desired.id).is_none_or(|slot| slot.generation < desired.generation)
    }

    /// Drives one slot towards what the server desires, by one step. Returns whether that is news for the next report.
    pub fn follow(&mut self, desired: &DesiredSlot) -> bool {
        match (&desired.action, self.slots.get_mut(&desired.id)) {
            (DesiredAction::Run(_), Some(slot)) if slot.generation >= desired.generation => {
                let is_starting = slot.is_on_record() && slot.state == ReportedState::Starting;
                let comes_up = is_starting && self.starts == Pace::InSteps;
                if comes_up {
                    slot.state = ReportedState::Ready;
                    slot.use_percent(self.uses_percent);
                }
                comes_up
            }
            (DesiredAction::Run(_), _) => self.start(desired),
            // Without a record the agent cannot tell, and says so if it is asked.
            (DesiredAction::Account, Some(slot)) if slot.record == Record::Lost => {
                slot.record = Record::Sought;
                true
            }
            (_, Some(slot)) if !slot.is_on_record() || slot.generation > desired.generation => false,
            (DesiredAction::Stop, Some(slot)) if slot.generation == desired.generation => stop(slot, self.stops),
            (DesiredAction::Account, Some(slot)) if slot.generation == desired.generation => false,
            (DesiredAction::Stop, _) => self.put(desired, ReportedState::STOPPED),
            (DesiredAction::Account, _) => {
                self.put(desired, ReportedState::Gone { why: SlotEnd::NoTrace, evidence: Evidence::COMPLETE })
            }
        }
    }

    /// Refuses to start a slot, since the driver shows too little free memory.
    pub fn refuse(&mut self, desired: &DesiredSlot) {
        self.put(desired, ReportedState::Refused);
    }

    /// Changes how slots come up. Those that are starting come up now if slots come up at once from now on.
    pub fn set_starts(&mut self, starts: Pace) {
        if starts == Pace::AtOnce && self.starts != Pace::AtOnce {
            let starting = |slot: &&mut SimulatedSlot| slot.is_on_record() && slot.state == ReportedState::Starting;
            self.slots.values_mut().filter(starting).for_each(|slot| slot.state = ReportedState::Ready);
        }
        self.starts = starts;
    }

    /// Returns what its slots use of a device.
    #[must_use]
    pub fn uses(&self, uuid: &DeviceUuid) -> Bytes {
        let used = self.slots.values().filter_map(|slot| slot.uses.get(uuid));
        used.fold(Bytes::ZERO, |sum, bytes| sum.saturating_add(*bytes))
    }

    /// Returns its next report. `in_use` says how much of a device is in use by anything: foreign processes, its own slots
    /// and those of other agents of the machine.
    #[must_use]
    pub fn report(&self, in_use: impl Fn(&DeviceUuid) -> Bytes) -> RunnerReport {
        let told = self.slots.iter().filter(|(_, slot)| slot.record != Record::Lost);
        RunnerReport {
            sequence: self.facts.sequence.next(),
            gpus: self.gpus.iter().flat_map(|gpu| gpu.entries(in_use(&gpu.uuid))).collect(),
            slots: told.map(|(id, slot)| self.slot_report(*id, slot)).collect(),
            ..self.facts.clone()
        }
    }

    /// Notes that a report was sent: the next one has the next number.
    pub fn sent_report(&mut self, now: Timestamp) {
        self.facts.sequence = self.facts.sequence.next();
        self.last_report = now;
    }

    /// Returns whether a report is due although there is no news.
    #[must_use]
    pub fn is_report_due(&self, now: Timestamp) -> bool {
        self.last_report.after(REPORT_EVERY) <= now
    }

    /// Forgets the slots whose end is proven, once the server has the report that proves it. Returns them.
    pub fn forget_acknowledged(&mut self) -> BTreeMap<SlotId, SimulatedSlot> {
        let (over, kept) = std::mem::take(&mut self.slots).into_iter().partition(|(_, slot)| slot.state.is_proof());
        self.slots = kept;
        over
    }

    /// Forgets the slots that are over and that the server does not mention any more.
    pub fn forget_undesired(&mut self, desired: &[DesiredSlot]) {
        let is_desired = |id: &SlotId| desired.iter().any(|slot| slot.id == *id);
        self.slots.retain(|id, slot| !slot.is_on_record() || !slot.state.is_over() || is_desired(id));
    }

    fn start(&mut self, desired: &DesiredSlot) -> bool {
        let (state, percent) = match self.starts {
            Pace::AtOnce => (ReportedState::Ready, self.uses_percent),
            Pace::InSteps => (ReportedState::Starting, self.uses_percent / 2),
            Pace::WhenTold => (ReportedState::Starting, self.uses_percent),
        };
        let mut slot = SimulatedSlot::new(desired, state);
        slot.use_percent(percent);
        self.slots.insert(desired.id, slot);
        true
    }

    fn put(&mut self, desired: &DesiredSlot, state: ReportedState) -> bool {
        self.slots.insert(desired.id, SimulatedSlot::new(desired, state));
        true
    }

    fn slot_report(&self, id: SlotId, slot: &SimulatedSlot) -> SlotReport {
        let memory = |uuid: &DeviceUuid| {
            let used = slot.uses.get(uuid).copied().unwrap_or_default();
            ReportedMemory { uuid: uuid.clone(), used, peak: used }
        };
        let is_attributed = self.attributes && !slot.state.is_over() && slot.is_on_record();
        let attributed = slot.claims.iter().filter(|_| is_attributed);
        // Another start is another process, so it answers elsewhere.
        let endpoint = format!("{}:{id}:{}", self.facts.runner, slot.generation.get());
        let is_ready = slot.state == ReportedState::Ready;
        let state = if slot.is_on_record() { slot.state.clone() } else { ReportedState::Unknown { why: no_record() } };
        SlotReport {
            id,
            generation: slot.generation,
            model: slot.model.clone(),
            state,
            exit: None,
            endpoint: is_ready.then(|| Endpoint::new(endpoint).ok()).flatten(),
            claims: slot.claims.clone(),
            memory: attributed.map(|claim| memory(&claim.uuid)).collect(),
        }
    }
}

/// Drives a slot that should stop by one step. Returns whether that is news.
fn stop(slot: &mut SimulatedSlot, stops: Pace) -> bool {
    use ReportedState::{Exited, Failed, Gone, Refused, Stopping};
    match (&slot.state, stops) {
        // What the agent said of the end stands; incomplete evidence is for the owner to complete.
        (Gone { .. } | Refused, _) | (Failed(_) | Exited { .. } | Stopping, Pace::WhenTold) => return false,
        (_, Pace::AtOnce) | (Failed(_) | Exited { .. } | Stopping, Pace::InSteps) => slot.prove_gone(),
        (_, Pace::InSteps | Pace::WhenTold) => slot.state = Stopping,
    }
    true
}

fn no_record() -> ReasonText {
    ReasonText::new("the agent has no record of it").unwrap_or_else(|error| unreachable!("{error}"))
}
