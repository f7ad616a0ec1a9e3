//! From a file to a verdict.

use std::path::Path;

use berth_core::{Command, Report};
use berth_domain::ModelSpec;

use crate::agent::Agent;
use crate::error::{Failed, FailedStep, StepError};
use crate::format::{ModelText, RunnerText, Scenario, StepText};
use crate::steps::carry_out;
use crate::world::World;

/// A scenario that passed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Passed {
    /// Its id.
    pub id: String,
    /// What it is about.
    pub title: String,
    /// How many steps it has.
    pub steps: usize,
    /// Every decision that was made, with why.
    pub decisions: Vec<Report>,
}

/// Runs the scenario of a file.
pub fn run_file(path: impl AsRef<Path>) -> Result<Passed, Failed> {
    let path = path.as_ref();
    let text = std::fs::read_to_string(path).map_err(|source| Failed::Unreadable { path: path.to_owned(), source })?;
    run_text(path, &text)
}

/// Runs a scenario; `path` is what a failure calls it.
pub fn run_text(path: impl AsRef<Path>, text: &str) -> Result<Passed, Failed> {
    let path = path.as_ref();
    let scenario: Scenario = toml::from_str(text).map_err(|error| malformed(path, error.to_string()))?;
    let case = Case { path, text, id: scenario.id.clone(), title: scenario.title.clone() };
    let steps = scenario.steps.len();
    let decisions = case.play(scenario)?;
    Ok(Passed { id: case.id, title: case.title, steps, decisions })
}

fn malformed(path: &Path, message: String) -> Failed {
    Failed::Malformed { path: path.to_owned(), message }
}

/// A scenario that is being played, for what failures call it.
struct Case<'a> {
    path: &'a Path,
    text: &'a str,
    id: String,
    title: String,
}

impl Case<'_> {
    fn play(&self, scenario: Scenario) -> Result<Vec<Report>, Failed> {
        let Scenario { settings, runners, models, steps, .. } = scenario;
        let (agents, specs) = cast(&runners, &models).map_err(|message| malformed(self.path, message))?;
        let before = |error| self.failed(0, 1, error);
        let mut world = World::new(settings.settings(), agents).map_err(before)?;
        world.gateways_renew = !steps.iter().any(|step| step.get_ref().speaks_of_renewal());
        prepare(&mut world, specs).map_err(before)?;
        for (number, step) in (1..).zip(&steps) {
            let line = self.line_of(step.span().start);
            let done = take(&mut world, step.get_ref()).and_then(|()| world.check());
            done.map_err(|error| self.failed(number, line, error))?;
        }
        world.check_replay().map_err(|error| self.failed(steps.len(), self.text.lines().count(), error))?;
        Ok(world.reports)
    }

    fn failed(&self, step: usize, line: usize, error: StepError) -> Failed {
        match error {
            StepError::Meaningless(problem) => malformed(self.path, format!("line {line}: step {step}: {problem}")),
            StepError::Otherwise { problem, explanation } => {
                let explanation = if explanation.is_empty() { explanation } else { format!("\n{explanation}") };
                let (path, id, title) = (self.path.to_owned(), self.id.clone(), self.title.clone());
                Failed::Step(Box::new(FailedStep { path, id, title, step, line, problem, explanation }))
            }
        }
    }

    fn line_of(&self, offset: usize) -> usize {
        self.text.get(..offset).unwrap_or(self.text).matches('\n').count() + 1
    }
}

/// Who plays: the agents, and the models as the core takes them.
fn cast(runners: &[RunnerText], models: &[ModelText]) -> Result<(Vec<Agent>, Vec<ModelSpec>), String> {
    let agents = runners.iter().flat_map(RunnerText::all).map(|(name, text)| Agent::new(&name, text));
    let agents: Vec<Agent> = agents.collect::<Result<_, _>>()?;
    let specs: Vec<ModelSpec> = models.iter().map(ModelText::spec).collect::<Result<_, _>>()?;
    if let Some(twice) = duplicate(agents.iter().map(|agent| agent.id.as_str())) {
        return Err(format!("two runners are named {twice}"));
    }
    match duplicate(specs.iter().map(|spec| spec.name.as_str())) {
        Some(twice) => Err(format!("two models are named {twice}")),
        None => Ok((agents, specs)),
    }
}

fn take(world: &mut World, step: &StepText) -> Result<(), StepError> {
    let verb = step.verb().map_err(StepError::Meaningless)?;
    carry_out(world, verb).and_then(|taken| judge(step.refused.as_deref(), taken))
}

/// Runners register in order, then models are put in order.
fn prepare(world: &mut World, models: Vec<ModelSpec>) -> Result<(), StepError> {
    for place in 0..world.agents.len() {
        if !world.agents[place].silent {
            world.register(place).map_err(|refusal| StepError::otherwise(refusal.to_string()))?;
        }
    }
    for spec in models {
        world.demand(&Command::PutModel { spec: Box::new(spec) })?;
    }
    world.settle()
}

/// A refusal must be expected, and an expected refusal must come.
fn judge(expected: Option<&str>, taken: crate::steps::Taken) -> Result<(), StepError> {
    match (expected, taken) {
        (None, Ok(())) => Ok(()),
        (Some(code), Err(refusal)) if refusal.code() == code => Ok(()),
        (Some(code), Ok(())) => Err(StepError::otherwise(format!("expected to be refused as {code}, was taken"))),
        (None, Err(refusal)) => {
            Err(StepError::otherwise(format!("expected to be taken, was refused ({}): {refusal}", refusal.code())))
        }
        (Some(code), Err(refusal)) => Err(StepError::otherwise(format!(
            "expected to be refused as {code}, was refused as {}: {refusal}",
            refusal.code()
        ))),
    }
}

fn duplicate<'a>(names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let mut seen = std::collections::BTreeSet::new();
    names.into_iter().find(|name| !seen.insert(*name))
}
