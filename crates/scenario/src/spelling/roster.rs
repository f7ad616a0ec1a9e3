//! The names of a file.

use std::collections::{BTreeMap, BTreeSet};

use berth_domain::{GpuCount, ModelSpec};

use super::Checked;
use crate::agent::Agent;
use crate::format::values::Word;
use crate::format::{Submit, Verb};
use crate::names::{SlotName, WorkloadNames};
use crate::run::Step;
use crate::vocabulary::SlotStates;

/// How many known names are told to those who misspelt one.
const MOST_TOLD: usize = 20;

/// The names that a file may use: those of runners, machines, devices and models from its beginning, those of workloads
/// and strays from the step on that makes them.
pub(crate) struct Roster {
    runners: BTreeSet<String>,
    machines: BTreeSet<String>,
    devices: BTreeSet<String>,
    /// With the GPU counts that each may have in any of its revisions.
    models: BTreeMap<String, BTreeSet<GpuCount>>,
    workloads: WorkloadNames<()>,
    strays: BTreeSet<String>,
}

impl Roster {
    pub(crate) fn new(agents: &[Agent], models: &[ModelSpec], steps: &[Step]) -> Self {
        let mut roster = Self {
            runners: agents.iter().map(|agent| agent.sim.facts.runner.to_string()).collect(),
            machines: agents.iter().map(|agent| agent.sim.facts.machine.to_string()).collect(),
            devices: BTreeSet::new(),
            models: BTreeMap::new(),
            workloads: WorkloadNames::default(),
            strays: BTreeSet::new(),
        };
        for gpu in agents.iter().flat_map(|agent| &agent.sim.gpus) {
            roster.devices.extend([&gpu.uuid].into_iter().chain(&gpu.parent).map(ToString::to_string));
        }
        models.iter().for_each(|spec| roster.add_model(spec));
        for step in steps {
            match &step.verb {
                // A model that is not valid is refused when its step is taken.
                Verb::PutModel(model) => model.spec().iter().for_each(|spec| roster.add_model(spec)),
                Verb::Report(report) => {
                    let new = report.gpus.iter().filter(|(_, gpu)| gpu.memory.is_some());
                    roster.devices.extend(new.map(|(uuid, _)| uuid.to_string()));
                }
                _ => {}
            }
        }
        roster
    }

    fn add_model(&mut self, spec: &ModelSpec) {
        self.models.entry(spec.name.to_string()).or_default().extend(spec.allowed_counts());
    }

    /// Takes the names of a submission. The last of one that must be refused gets none.
    pub(crate) fn submit(&mut self, submit: &Submit, is_refused: bool) {
        let named = submit.count.unwrap_or(1).saturating_sub(u32::from(is_refused));
        for _ in 0..named {
            let name = self.workloads.fresh(&submit.base_name());
            self.workloads.take(name, ());
        }
    }

    pub(crate) fn add_stray(&mut self, name: &str) {
        self.strays.insert(name.to_owned());
    }

    pub(crate) fn runner(&self, name: &str) -> Checked {
        in_file("runner", name, &self.runners)
    }

    pub(crate) fn machine(&self, name: &str) -> Checked {
        in_file("machine", name, &self.machines)
    }

    pub(crate) fn device(&self, name: &str) -> Checked {
        in_file("GPU", name, &self.devices)
    }

    pub(crate) fn model(&self, name: &str) -> Checked {
        match self.models.contains_key(name) {
            true => Ok(()),
            false => Err(format!("no model {name} in this file; known: {}", told(self.models.keys()))),
        }
    }

    /// A GPU count that a model may have.
    pub(crate) fn gpu_count(&self, model: &str, text: &str) -> Checked {
        let count = read_gpu_count(text)?;
        match self.models.get(model).filter(|counts| !counts.contains(&count)) {
            None => Ok(()),
            Some(counts) => {
                let known: Vec<String> = counts.iter().map(ToString::to_string).collect();
                Err(format!("model {model} is never on {count} GPUs; known: {}", told(known.iter())))
            }
        }
    }

    pub(crate) fn workload(&self, name: &str) -> Checked {
        match self.workloads.contains(name) {
            true => Ok(()),
            false => Err(format!("no workload {name} was submitted before this; known: {}", self.known_workloads())),
        }
    }

    fn known_workloads(&self) -> String {
        let known: BTreeSet<&String> = self.workloads.iter().collect();
        told(known.iter().copied())
    }

    /// A slot, by the name of its workload, its model or a stray, with a runner and a state or without.
    pub(crate) fn slot(&self, text: &str) -> Checked {
        let SlotName { name, runner, state } = SlotName::read(text);
        runner.iter().try_for_each(|runner| self.runner(runner))?;
        state.iter().try_for_each(|state| Word::<SlotStates>::new(state).map(|_| ()))?;
        if self.workloads.contains(name) || self.models.contains_key(name) || self.strays.contains(name) {
            return Ok(());
        }
        let others = told(self.models.keys().chain(&self.strays));
        Err(format!(
            "a slot is named by its workload, its model or a stray, and none is named {name}; known workloads: {}; \
             known models and strays: {others}",
            self.known_workloads()
        ))
    }
}

/// A number of GPUs, where it is a key.
pub(crate) fn read_gpu_count(text: &str) -> Result<GpuCount, String> {
    text.parse().map(GpuCount::new).map_err(|_| format!("{text:?} is not a number of GPUs"))
}

fn in_file(what: &str, name: &str, known: &BTreeSet<String>) -> Checked {
    match known.contains(name) {
        true => Ok(()),
        false => Err(format!("no {what} {name} in this file; known: {}", told(known.iter()))),
    }
}

/// The first of the known names, and how many more there are.
fn told<'a>(names: impl Iterator<Item = &'a String> + Clone) -> String {
    let more = names.clone().skip(MOST_TOLD).count();
    let first: Vec<&str> = names.take(MOST_TOLD).map(String::as_str).collect();
    match (first.is_empty(), more) {
        (true, _) => "none".to_owned(),
        (false, 0) => first.join(", "),
        (false, more) => format!("{} and {more} more", first.join(", ")),
    }
}
