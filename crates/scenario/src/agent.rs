//! The agents of a scenario: simulated agents, made of what the file says.

use std::collections::BTreeMap;

use berth_domain::{
    DeviceUuid, Generation, GpuName, HostReport, MachineId, Millicores, NameError, ReasonText, RunnerReport,
    RuntimeKind, RuntimeName, Sequence, SlotId,
};
use berth_sim::{Pace, SimulatedAgent, SimulatedGpu};

use crate::format::{GpuText, Mode, RunnerText, RuntimesText};

/// One agent and its part of a machine.
#[derive(Debug, Clone)]
pub(crate) struct Agent {
    pub(crate) sim: SimulatedAgent,
    /// The server hears nothing of it, and it nothing of the server.
    pub(crate) silent: bool,
    /// It has something to tell.
    pub(crate) news: bool,
    /// Slots that were over and acknowledged, with their last generation: a proof may be delivered twice.
    pub(crate) past: BTreeMap<SlotId, Generation>,
}

impl Agent {
    /// The agent of a runner as the file describes it.
    pub(crate) fn new(name: &str, text: &RunnerText) -> Result<Self, String> {
        let words = |error: NameError| error.to_string();
        let usual =
            || RuntimeName::new("vllm").map(|runtime| BTreeMap::from([(runtime, RuntimeKind::Both)])).map_err(words);
        let nothing = || ReasonText::new("").map_err(words);
        let facts = RunnerReport {
            runner: RunnerText::runner_id(name)?,
            incarnation: None,
            cluster: None,
            obeyed: None,
            shares_machine: true,
            sequence: Sequence::default(),
            machine: match &text.machine {
                Some(machine) => machine.clone(),
                None => MachineId::new(name).map_err(words)?,
            },
            boot: text.boot.clone(),
            version: nothing()?,
            address: nothing()?,
            pool: text.pool.clone(),
            labels: text.labels.clone(),
            runtimes: text.runtimes.as_ref().map(RuntimesText::kinds).map_or_else(usual, Ok)?,
            allowed: BTreeMap::new(),
            engines: BTreeMap::new(),
            host: HostReport { cpu: Millicores::new(text.cpu_millicores), ram: text.ram },
            gpus: Vec::new(),
            slots: Vec::new(),
        };
        let gpus = text.gpus.0.iter().enumerate().map(|(number, text)| gpu(name, number, text));
        let mut sim = SimulatedAgent::new(facts);
        sim.gpus = gpus.collect::<Result<_, _>>()?;
        sim.starts = pace(text.starts);
        sim.stops = pace(text.stops);
        sim.attributes = text.attributes;
        sim.uses_percent = text.uses_percent;
        Ok(Self { sim, silent: !text.registered, news: false, past: BTreeMap::new() })
    }
}

/// How a simulated agent gets on in a mode of the file.
pub(crate) fn pace(mode: Mode) -> Pace {
    match mode {
        Mode::Auto => Pace::AtOnce,
        Mode::Manual => Pace::WhenTold,
    }
}

/// The GPU that the file describes at this place of a runner's list.
pub(crate) fn gpu(runner: &str, number: usize, text: &GpuText) -> Result<SimulatedGpu, String> {
    let words = |error: NameError| error.to_string();
    let uuid = || DeviceUuid::new(format!("{runner}/{number}")).map_err(words);
    let name = || GpuName::new("GPU").map_err(words);
    Ok(SimulatedGpu {
        uuid: text.uuid.clone().map_or_else(uuid, Ok)?,
        index: text.index.map_or_else(|| u16::try_from(number).map_err(|error| error.to_string()), Ok)?,
        name: text.name.clone().map_or_else(name, Ok)?,
        memory: text.memory,
        reserved: text.reserved,
        replicas: text.replicas,
        contradicting_entry: None,
        parent: text.parent.clone(),
        health: text.health,
        listed: true,
    })
}
