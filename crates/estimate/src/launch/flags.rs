//! What the arguments of a program say of its memory.

use std::collections::BTreeMap;

use berth_engines::{Engine, Meaning};

use super::{LaunchError, Program};
use crate::inputs::Profile;

/// Options of which an estimate must know although they mean something else in the first place: a draft model takes
/// memory, and may be code.
const DRAFTS: [&str; 3] = ["--speculative-config", "--spec-method", "--spec-model"];

/// What was said with each option, by its name in the table of the engine. What is said twice counts as it was said last,
/// as the programs have it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Said(BTreeMap<String, Word>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Word {
    /// The option as it was said, in full.
    name: String,
    value: String,
    /// Whether it changes how much memory a GPU gives.
    is_memory: bool,
}

impl Said {
    /// Reads arguments as the program does. Of a program that nobody knows, the words of the estimate's profile are read,
    /// in any spelling.
    pub(super) fn read<S: AsRef<str>>(program: Program, profile: Profile, args: &[S]) -> Result<Self, LaunchError> {
        let words = match program.engine() {
            Some(engine) => engine.read(args)?,
            None => profile_engine(profile).recognise(args),
        };
        let mut said = BTreeMap::new();
        for word in words {
            let key = word.canonical().to_owned();
            let changes = word.means().is_some_and(|means| matches!(means, Meaning::Memory | Meaning::Placement));
            let is_memory = changes || DRAFTS.contains(&key.as_str());
            said.insert(key, Word { value: word.values.join(" "), name: word.name, is_memory });
        }
        Ok(Self(said))
    }

    /// What was said, if anything.
    pub(super) fn get(&self, option: &str) -> Option<&str> {
        self.0.get(option).map(|word| word.value.as_str())
    }

    /// The name by which an option was said last, if it was.
    pub(super) fn spelled(&self, option: &str) -> Option<&str> {
        self.0.get(option).map(|word| word.name.as_str())
    }

    /// Every option that changes the memory and is not one of these, with its value.
    pub(super) fn not_covered<'a>(&'a self, covered: &'a [&str]) -> impl Iterator<Item = (&'a str, &'a str)> {
        let words = self.0.iter().filter(|(key, word)| word.is_memory && !covered.contains(&key.as_str()));
        words.map(|(key, word)| (key.as_str(), word.value.as_str()))
    }
}

/// The engine in whose words a profile speaks.
pub(super) const fn profile_engine(profile: Profile) -> Engine {
    match profile {
        Profile::LlamaCpp | Profile::Conservative => Engine::LlamaServer,
        Profile::Vllm => Engine::Vllm,
    }
}
