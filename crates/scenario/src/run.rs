//! From a file to a verdict.

use std::path::Path;

use berth_core::{Command, Report};

use crate::cast::Cast;
use crate::error::{Failed, FailedStep, StepError};
use crate::format::values::Word;
use crate::format::{Scenario, StepText, Verb};
use crate::places::{Lines, step_title};
use crate::spelling;
use crate::steps::{Taken, carry_out};
use crate::vocabulary::RefusalCodes;
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
    let lines = Lines::of(text);
    let scenario: Scenario = toml::from_str(text).map_err(|error| malformed(path, lines.unreadable(&error)))?;
    let case = Case { path, lines, id: scenario.id.clone(), title: scenario.title.clone() };
    let steps = scenario.steps.len();
    let decisions = case.play(scenario)?;
    Ok(Passed { id: case.id, title: case.title, steps, decisions })
}

fn malformed(path: &Path, message: String) -> Failed {
    Failed::Malformed { path: path.to_owned(), message }
}

/// A step that was read, and what failures call it.
pub(crate) struct Step {
    place: Place,
    pub(crate) verb: Verb,
    pub(crate) refused: Option<Word<RefusalCodes>>,
}

/// What a failure is about.
#[derive(Debug, Clone)]
struct Place {
    /// Which step, from 1; 0 is what comes before the first.
    step: usize,
    line: usize,
    /// `step 2 (expect)`, `runner r1`.
    title: String,
}

/// A scenario that is being played, for what failures call it.
struct Case<'a> {
    path: &'a Path,
    lines: Lines<'a>,
    id: String,
    title: String,
}

impl Case<'_> {
    fn play(&self, scenario: Scenario) -> Result<Vec<Report>, Failed> {
        let Scenario { settings, runners, models, steps, .. } = scenario;
        let cast = Cast::of(&runners, &models).map_err(|miscast| {
            let place = self.before(miscast.at, miscast.title);
            self.failed(&place, StepError::meaningless(miscast.problem))
        })?;
        let steps = self.read(steps)?;
        spelling::check(&cast.agents, &cast.models, &steps)
            .map_err(|(index, problem)| self.failed(&steps[index].place, StepError::meaningless(problem)))?;
        let gateways_renew = !steps.iter().any(|step| step.verb.speaks_of_renewal());
        let mut world = self.prepare(settings.settings(), cast)?;
        world.gateways_renew = gateways_renew;
        let mut last = self.before(0, "the file".to_owned());
        for step in steps {
            let Step { place, verb, refused } = step;
            take(&mut world, verb, refused.as_ref()).map_err(|error| self.failed(&place, error))?;
            last = place;
        }
        world.check_replay().map_err(|error| self.failed(&last, error))?;
        Ok(world.reports)
    }

    /// The one verb of each step.
    fn read(&self, steps: Vec<toml::Spanned<StepText>>) -> Result<Vec<Step>, Failed> {
        let read = |(number, step): (usize, toml::Spanned<StepText>)| {
            let line = self.lines.number(step.span().start);
            let mut text = step.into_inner();
            let place = Place { step: number, line, title: step_title(number, text.verb_names().into_iter()) };
            let refused = text.refused.take();
            match text.verb() {
                Ok(verb) => Ok(Step { place, verb, refused }),
                Err(problem) => Err(self.failed(&place, StepError::meaningless(problem))),
            }
        };
        (1..).zip(steps).map(read).collect()
    }

    /// Runners register in order, then models are put in order.
    fn prepare(&self, settings: berth_core::Settings, cast: Cast) -> Result<World, Failed> {
        let Cast { agents, agents_at, models, models_at, foreign } = cast;
        let start = self.before(0, "the file".to_owned());
        let mut world = World::new(settings, agents, foreign).map_err(|error| self.failed(&start, error))?;
        for (agent, at) in agents_at.into_iter().enumerate() {
            if !world.agents[agent].silent {
                let place = self.before(at, format!("runner {}", world.agents[agent].sim.facts.runner));
                let registered = world.register(agent).map_err(|refusal| StepError::refused(&refusal));
                registered.map_err(|error| self.failed(&place, error))?;
            }
        }
        for (spec, at) in models.into_iter().zip(models_at) {
            let place = self.before(at, format!("model {}", spec.name));
            let put = world.demand(&Command::PutModel { spec: Box::new(spec) });
            put.map_err(|error| self.failed(&place, error))?;
        }
        world.settle().map_err(|error| self.failed(&start, error))?;
        Ok(world)
    }

    /// A place before the first step.
    fn before(&self, offset: usize, title: String) -> Place {
        Place { step: 0, line: self.lines.number(offset), title }
    }

    fn failed(&self, place: &Place, error: StepError) -> Failed {
        let Place { step, line, title } = place.clone();
        match error {
            StepError::Meaningless(problem) => malformed(self.path, format!("line {line}: {title}: {problem}")),
            StepError::Otherwise { problem, explanation } => {
                let explanation = if explanation.is_empty() { explanation } else { format!("\n{explanation}") };
                let (path, id) = (self.path.to_owned(), self.id.clone());
                let (place, title) = (title, self.title.clone());
                Failed::Step(Box::new(FailedStep { path, id, title, step, line, place, problem, explanation }))
            }
        }
    }
}

fn take(world: &mut World, verb: Verb, refused: Option<&Word<RefusalCodes>>) -> Result<(), StepError> {
    carry_out(world, verb).and_then(|taken| judge(refused.map(Word::as_str), taken))
}

/// A refusal must be expected, and an expected refusal must come.
fn judge(expected: Option<&str>, taken: Taken) -> Result<(), StepError> {
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
