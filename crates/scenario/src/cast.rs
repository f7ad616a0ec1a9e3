//! Who plays: the agents and the models of a file, and what the file says of the machines they share.

use std::collections::{BTreeMap, BTreeSet};

use berth_domain::{Bytes, DeviceUuid, MachineId, ModelSpec};
use toml::Spanned;

use crate::agent::Agent;
use crate::format::{GpuText, ModelText, RunnerText};
use crate::memory::Foreign;

/// The agents and models of a file, each with the offset where the file describes it.
#[derive(Debug, Default)]
pub(crate) struct Cast {
    pub(crate) agents: Vec<Agent>,
    pub(crate) agents_at: Vec<usize>,
    pub(crate) models: Vec<ModelSpec>,
    pub(crate) models_at: Vec<usize>,
    /// What others use of each GPU.
    pub(crate) foreign: Foreign,
}

/// What is wrong with the runner or model that is described at an offset.
pub(crate) struct Miscast {
    pub(crate) at: usize,
    /// `runner r1`.
    pub(crate) title: String,
    pub(crate) problem: String,
}

impl Cast {
    pub(crate) fn of(runners: &[Spanned<RunnerText>], models: &[Spanned<ModelText>]) -> Result<Self, Miscast> {
        let mut cast = Self::default();
        let mut machines = Machines::default();
        for runner in runners {
            let at = runner.span().start;
            if runner.get_ref().count == Some(0) {
                let title = format!("runner {}", runner.get_ref().id);
                return Err(Miscast { at, title, problem: "count is at least 1".to_owned() });
            }
            for (name, text) in runner.get_ref().all() {
                let miscast = |problem| Miscast { at, title: format!("runner {name}"), problem };
                let agent = Agent::new(&name, text).map_err(miscast)?;
                machines.add(&agent, &text.gpus.0).map_err(miscast)?;
                cast.agents.push(agent);
                cast.agents_at.push(at);
            }
        }
        let mut names = BTreeSet::new();
        for model in models {
            let at = model.span().start;
            let miscast = |problem| Miscast { at, title: format!("model {}", model.get_ref().name), problem };
            let spec = model.get_ref().spec().map_err(miscast)?;
            if !names.insert(spec.name.clone()) {
                return Err(miscast(format!("two models are named {}", spec.name)));
            }
            cast.models.push(spec);
            cast.models_at.push(at);
        }
        cast.foreign = machines.foreign();
        Ok(cast)
    }
}

/// What the runners of a machine must agree on.
#[derive(Default)]
struct Machines {
    runners: BTreeSet<String>,
    boots: BTreeMap<MachineId, (String, String)>,
    /// What others use of each GPU, and which runner says so.
    stated: BTreeMap<(MachineId, DeviceUuid), (Bytes, String)>,
}

impl Machines {
    fn add(&mut self, agent: &Agent, gpus: &[GpuText]) -> Result<(), String> {
        let facts = &agent.sim.facts;
        let (id, machine) = (facts.runner.to_string(), &facts.machine);
        if !self.runners.insert(id.clone()) {
            return Err(format!("two runners are named {id}"));
        }
        let (boot, first) = self.boots.entry(machine.clone()).or_insert_with(|| (facts.boot.to_string(), id.clone()));
        if *boot != facts.boot.as_str() {
            let other = &facts.boot;
            return Err(format!("machine {machine} has one boot: runner {first} says {boot}, this one {other}"));
        }
        for (gpu, text) in agent.sim.gpus.iter().zip(gpus) {
            let Some(bytes) = text.foreign else { continue };
            let key = (machine.clone(), gpu.uuid.clone());
            let (known, first) = self.stated.entry(key).or_insert_with(|| (bytes, id.clone()));
            if *known != bytes {
                return Err(format!(
                    "what others use of GPU {} on machine {machine} is one amount: runner {first} says foreign = {known}, \
                     this one {bytes}",
                    gpu.uuid
                ));
            }
        }
        Ok(())
    }

    fn foreign(self) -> Foreign {
        self.stated.into_iter().map(|(key, (bytes, _))| (key, bytes)).collect()
    }
}
