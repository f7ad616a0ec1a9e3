//! What a file's names stand for.

use std::collections::HashMap;

use berth_core::view::SlotView;
use berth_domain::{RunnerId, SlotId, WorkloadId};

use crate::error::StepError;
use crate::world::World;

/// Who must know of a slot for it to be meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KnownTo {
    Server,
    Agent,
}

/// The names of workloads, and what each of them stands for.
#[derive(Debug)]
pub(crate) struct WorkloadNames<T> {
    taken: HashMap<String, T>,
    /// Of a name that was wanted more than once, the number from which on to look for a free one: all below are taken.
    next: HashMap<String, u32>,
}

impl<T> Default for WorkloadNames<T> {
    fn default() -> Self {
        Self { taken: HashMap::new(), next: HashMap::new() }
    }
}

impl<T> WorkloadNames<T> {
    /// `qwen`, or the first of `qwen#2`, `qwen#3` and so on that is free.
    pub(crate) fn fresh(&mut self, base: &str) -> String {
        if !self.taken.contains_key(base) {
            return base.to_owned();
        }
        let number = self.next.entry(base.to_owned()).or_insert(2);
        loop {
            let name = format!("{base}#{number}");
            if !self.taken.contains_key(&name) {
                return name;
            }
            *number += 1;
        }
    }

    pub(crate) fn take(&mut self, name: String, meaning: T) {
        self.taken.insert(name, meaning);
    }

    pub(crate) fn get(&self, name: &str) -> Option<&T> {
        self.taken.get(name)
    }

    pub(crate) fn contains(&self, name: &str) -> bool {
        self.taken.contains_key(name)
    }

    /// All names, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &String> {
        self.taken.keys()
    }
}

/// `NAME`, `NAME@RUNNER`, `NAME (STATE)`, `NAME@RUNNER (STATE)`.
pub(crate) struct SlotName<'a> {
    pub(crate) name: &'a str,
    pub(crate) runner: Option<&'a str>,
    pub(crate) state: Option<&'a str>,
}

impl<'a> SlotName<'a> {
    pub(crate) fn read(text: &'a str) -> Self {
        let (text, state) = match text.strip_suffix(')').and_then(|text| text.rsplit_once(" (")) {
            Some((text, state)) => (text, Some(state)),
            None => (text, None),
        };
        match text.rsplit_once('@') {
            Some((name, runner)) => Self { name, runner: Some(runner), state },
            None => Self { name: text, runner: None, state },
        }
    }

    fn fits(&self, slot: &SlotView) -> bool {
        self.runner.is_none_or(|runner| slot.runner.as_str() == runner)
            && self.state.is_none_or(|state| slot.state.as_str() == state)
    }
}

impl World {
    /// The place of an agent.
    pub(crate) fn agent(&self, id: &RunnerId) -> Result<usize, StepError> {
        let known = || self.agents.iter().map(|agent| agent.sim.facts.runner.as_str()).collect::<Vec<_>>().join(", ");
        self.agents
            .iter()
            .position(|agent| agent.sim.facts.runner == *id)
            .ok_or_else(|| StepError::meaningless(format!("no runner {id} in this scenario; known: {}", known())))
    }

    /// The workload of a name.
    pub(crate) fn workload(&self, name: &str) -> Result<WorkloadId, StepError> {
        let unknown = || StepError::meaningless(format!("no workload {name} was submitted"));
        self.workloads.get(name).copied().ok_or_else(unknown)
    }

    /// The name of a workload.
    pub(crate) fn name_of(&self, id: WorkloadId) -> String {
        self.names.get(&id).cloned().unwrap_or_else(|| id.to_string())
    }

    /// The slot that a text means: the newest of a workload, the only one of a model, or a stray.
    pub(crate) fn slot(&self, text: &str, known_to: KnownTo) -> Result<SlotId, StepError> {
        let wanted = SlotName::read(text);
        let all = self.state.slots();
        let at_agent = |id: &SlotId| self.agents.iter().any(|agent| agent.sim.slots.contains_key(id));
        let known: Vec<&SlotView> = all
            .iter()
            .filter(|slot| wanted.fits(slot) && (known_to == KnownTo::Server || at_agent(&slot.id)))
            .collect();
        let had = self.workloads.get(wanted.name).and_then(|id| self.slots_of.get(id)).map_or(&[][..], Vec::as_slice);
        let newest = had.iter().rev().find(|id| known.iter().any(|slot| slot.id == **id));
        if let Some(id) = newest.or_else(|| self.strays.get(wanted.name)) {
            return Ok(*id);
        }
        let of_model: Vec<SlotId> = known
            .iter()
            .filter(|slot| slot.model.as_ref().is_some_and(|model| model.as_str() == wanted.name))
            .map(|slot| slot.id)
            .collect();
        // One that is no more can still be talked about.
        let past = had.iter().rev().find(|id| !all.iter().any(|slot| slot.id == **id));
        match (of_model.as_slice(), past) {
            ([one], _) => Ok(*one),
            ([], Some(past)) => Ok(*past),
            ([], None) if known_to == KnownTo::Agent => {
                Err(StepError::otherwise(format!("no agent has a slot of {text}")))
            }
            ([], None) => Err(StepError::otherwise(format!("{text} has no slot"))),
            (many, _) => Err(StepError::meaningless(format!("{text} has {} slots; name a workload", many.len()))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::WorkloadNames;

    #[test]
    fn names_are_numbered_from_2_and_taken_ones_are_passed_over() {
        let mut names = WorkloadNames::default();
        names.take("m#3".to_owned(), ());
        let mut given = Vec::new();
        for _ in 0..4 {
            let name = names.fresh("m");
            assert_eq!(names.fresh("m"), name, "a name that was not taken is free");
            given.push(name.clone());
            names.take(name, ());
        }
        assert_eq!(given, ["m", "m#2", "m#4", "m#5"]);
    }

    /// Looking from the first number on for each of many would cost the square of them.
    #[test]
    fn a_name_is_looked_for_where_the_last_one_was_found() {
        let mut names = WorkloadNames::default();
        for _ in 0..1000 {
            let name = names.fresh("m");
            names.take(name, ());
        }
        assert_eq!(names.next.get("m"), Some(&1000), "the numbers below are not tried again");
    }
}
