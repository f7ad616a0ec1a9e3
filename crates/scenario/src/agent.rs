//! An obedient agent: it runs what it is told to run and proves what it stops.

use std::collections::BTreeMap;

use berth_domain::{
    BootId, Bytes, ClusterId, DesiredSlot, DeviceUuid, Evidence, Generation, GpuHealth, GpuName, HostReport,
    Incarnation, LabelKey, LabelValue, MachineId, Millicores, ModelName, PoolName, ReportedState, RunnerId,
    RuntimeKind, RuntimeName, Sequence, SlotEnd, SlotId, Timestamp,
};

use crate::format::{GpuText, Mode, RunnerText, RuntimesText};

/// A GPU as the agent's driver shows it.
#[derive(Debug, Clone)]
pub(crate) struct Gpu {
    pub(crate) uuid: DeviceUuid,
    pub(crate) index: u16,
    pub(crate) name: GpuName,
    pub(crate) memory: Bytes,
    pub(crate) reserved: Bytes,
    pub(crate) replicas: u16,
    /// A further entry of another size.
    pub(crate) also: Option<Bytes>,
    pub(crate) parent: Option<DeviceUuid>,
    pub(crate) health: GpuHealth,
    pub(crate) listed: bool,
}

/// A slot as the agent has it.
#[derive(Debug, Clone)]
pub(crate) struct AgentSlot {
    pub(crate) generation: Generation,
    pub(crate) model: Option<ModelName>,
    pub(crate) state: ReportedState,
    /// What the agent was told belongs to it.
    pub(crate) claims: BTreeMap<DeviceUuid, Bytes>,
    /// What its processes use.
    pub(crate) uses: BTreeMap<DeviceUuid, Bytes>,
    /// Still on the agent's record.
    pub(crate) mentioned: bool,
    /// It is not on record, the server asks about it, and the agent cannot find it.
    pub(crate) is_sought: bool,
}

impl AgentSlot {
    /// Proven gone or never started: to be told once, and then no more.
    pub(crate) fn is_over(&self) -> bool {
        self.state.is_proof()
    }
}

/// One agent and its part of a machine.
#[derive(Debug, Clone)]
pub(crate) struct Agent {
    pub(crate) id: RunnerId,
    pub(crate) machine: MachineId,
    pub(crate) boot: BootId,
    pub(crate) pool: PoolName,
    pub(crate) labels: BTreeMap<LabelKey, LabelValue>,
    pub(crate) runtimes: BTreeMap<RuntimeName, RuntimeKind>,
    pub(crate) host: HostReport,
    pub(crate) gpus: Vec<Gpu>,
    pub(crate) starts: Mode,
    pub(crate) stops: Mode,
    pub(crate) attributes: bool,
    pub(crate) uses_percent: u64,
    pub(crate) cluster: Option<ClusterId>,
    pub(crate) incarnation: Option<Incarnation>,
    pub(crate) sequence: Sequence,
    pub(crate) silent: bool,
    /// It has something to tell.
    pub(crate) news: bool,
    pub(crate) last_report: Timestamp,
    pub(crate) slots: BTreeMap<SlotId, AgentSlot>,
    /// Slots that were over and acknowledged, with their last generation: a proof may be delivered twice.
    pub(crate) past: BTreeMap<SlotId, Generation>,
}

impl Agent {
    /// The agent of a runner as the file describes it.
    pub(crate) fn new(name: &str, text: &RunnerText) -> Result<Self, String> {
        let words = |error: berth_domain::NameError| error.to_string();
        let usual =
            || RuntimeName::new("vllm").map(|runtime| BTreeMap::from([(runtime, RuntimeKind::Both)])).map_err(words);
        let gpu = |(number, gpu): (usize, &GpuText)| Gpu::new(name, number, gpu);
        Ok(Self {
            id: RunnerText::runner_id(name)?,
            machine: match &text.machine {
                Some(machine) => machine.clone(),
                None => MachineId::new(name).map_err(words)?,
            },
            boot: text.boot.clone(),
            pool: text.pool.clone(),
            labels: text.labels.clone(),
            runtimes: text.runtimes.as_ref().map(RuntimesText::kinds).map_or_else(usual, Ok)?,
            host: HostReport { cpu: Millicores::new(text.cpu_millicores), ram: text.ram },
            gpus: text.gpus.0.iter().enumerate().map(gpu).collect::<Result<_, _>>()?,
            starts: text.starts,
            stops: text.stops,
            attributes: text.attributes,
            uses_percent: text.uses_percent,
            cluster: None,
            incarnation: None,
            sequence: Sequence::default(),
            silent: !text.registered,
            news: false,
            last_report: Timestamp::default(),
            slots: BTreeMap::new(),
            past: BTreeMap::new(),
        })
    }

    /// What is over was acknowledged: it need not be said again.
    pub(crate) fn drop_what_is_over(&mut self) {
        let over: Vec<SlotId> = self.slots.iter().filter(|(_, slot)| slot.is_over()).map(|(id, _)| *id).collect();
        for id in over {
            if let Some(slot) = self.slots.remove(&id) {
                self.past.insert(id, slot.generation);
            }
        }
    }

    /// What its slots use of a device.
    pub(crate) fn uses(&self, uuid: &DeviceUuid) -> Bytes {
        let used = self.slots.values().filter_map(|slot| slot.uses.get(uuid));
        used.fold(Bytes::ZERO, |sum, bytes| sum.saturating_add(*bytes))
    }

    /// Begins a slot it was told to run.
    pub(crate) fn start(&mut self, told: &DesiredSlot) {
        let claims: BTreeMap<_, _> = told.gpus.iter().map(|gpu| (gpu.uuid.clone(), gpu.memory_bytes)).collect();
        let state = if self.starts == Mode::Auto { ReportedState::Ready } else { ReportedState::Starting };
        let part = |bytes: &Bytes| {
            Bytes::new(bytes.get() / 100 * self.uses_percent + bytes.get() % 100 * self.uses_percent / 100)
        };
        let uses = claims.iter().map(|(uuid, bytes)| (uuid.clone(), part(bytes))).collect();
        self.keep(told, state, claims, uses);
    }

    /// How it starts slots from now on. Those that are starting come up if it starts them by itself.
    pub(crate) fn change_starts(&mut self, starts: Mode) {
        if starts == Mode::Auto && self.starts == Mode::Manual {
            let starting = |slot: &&mut AgentSlot| slot.mentioned && slot.state == ReportedState::Starting;
            self.slots.values_mut().filter(starting).for_each(|slot| slot.state = ReportedState::Ready);
        }
        self.starts = starts;
    }

    /// Says no to a slot for which the driver shows too little memory.
    pub(crate) fn refuse(&mut self, told: &DesiredSlot) {
        self.keep(told, ReportedState::Refused, BTreeMap::new(), BTreeMap::new());
    }

    /// Ends a slot it was told to stop. One that it never had is gone; of one that it
    /// lost the record of it knows nothing.
    pub(crate) fn stop(&mut self, told: &DesiredSlot) {
        let by_itself = self.stops == Mode::Auto;
        let Some(slot) = self.slots.get_mut(&told.id).filter(|slot| slot.mentioned) else {
            if !self.slots.contains_key(&told.id) {
                self.keep(told, ReportedState::STOPPED, BTreeMap::new(), BTreeMap::new());
            }
            return;
        };
        let next = match &slot.state {
            // What it already said of its end stands until a step says more.
            ReportedState::Gone { .. } | ReportedState::Refused => return,
            ReportedState::Stopping if !by_itself => return,
            _ if by_itself => ReportedState::STOPPED,
            ReportedState::Failed(_) | ReportedState::Exited { .. } => return,
            _ => ReportedState::Stopping,
        };
        if by_itself {
            slot.uses.clear();
        }
        slot.state = next;
        self.news = true;
    }

    /// Accounts for a slot that the server asks about: its record says it all; of one that it never had there is no
    /// trace; one that runs on without a record it cannot tell.
    pub(crate) fn account(&mut self, told: &DesiredSlot) {
        match self.slots.get_mut(&told.id) {
            None => {
                let gone = ReportedState::Gone { why: SlotEnd::NoTrace, evidence: Evidence::COMPLETE };
                self.keep(told, gone, BTreeMap::new(), BTreeMap::new());
            }
            Some(slot) if !slot.mentioned && !slot.is_sought => {
                slot.is_sought = true;
                self.news = true;
            }
            Some(_) => {}
        }
    }

    /// Whether a slot it is told to run is new to it.
    pub(crate) fn is_new(&self, told: &DesiredSlot) -> bool {
        told.should_run() && self.slots.get(&told.id).is_none_or(|slot| slot.generation < told.generation)
    }

    fn keep(
        &mut self,
        told: &DesiredSlot,
        state: ReportedState,
        claims: BTreeMap<DeviceUuid, Bytes>,
        uses: BTreeMap<DeviceUuid, Bytes>,
    ) {
        let (generation, model) = (told.generation, told.run_spec().map(|spec| spec.model.clone()));
        let (mentioned, is_sought) = (true, false);
        self.slots.insert(told.id, AgentSlot { generation, model, state, claims, uses, mentioned, is_sought });
        self.news = true;
    }
}

impl Gpu {
    pub(crate) fn new(runner: &str, number: usize, text: &GpuText) -> Result<Self, String> {
        let words = |error: berth_domain::NameError| error.to_string();
        let uuid = || DeviceUuid::new(format!("{runner}/{number}")).map_err(words);
        let name = || GpuName::new("GPU").map_err(words);
        Ok(Self {
            uuid: text.uuid.clone().map_or_else(uuid, Ok)?,
            index: text.index.map_or_else(|| u16::try_from(number).map_err(|error| error.to_string()), Ok)?,
            name: text.name.clone().map_or_else(name, Ok)?,
            memory: text.memory,
            reserved: text.reserved,
            replicas: text.replicas,
            also: None,
            parent: text.parent.clone(),
            health: text.health,
            listed: true,
        })
    }
}
