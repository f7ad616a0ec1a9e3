//! The arguments of a program that concern its memory.

use std::collections::BTreeMap;

use berth_engines::{Engine, Meaning};

use super::{LaunchError, Program};
use crate::inputs::Profile;

/// Options that an estimate must know of although their table row has another meaning: a draft model takes memory, and
/// may be code.
const DRAFTS: [&str; 3] = ["--speculative-config", "--spec-method", "--spec-model"];

/// The values of options, by the option's name in the table of the engine. The last value of a repeated option counts,
/// as in the programs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct GivenOptions(BTreeMap<String, GivenOption>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct GivenOption {
    /// The option as it was written, in full.
    name: String,
    value: String,
    /// Whether the option changes how much memory a GPU gives.
    is_memory: bool,
}

impl GivenOptions {
    /// Reads arguments as the program does. For a program without a table, the options of the estimate's profile are
    /// read, in any spelling.
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
            said.insert(key, GivenOption { value: word.values.join(" "), name: word.name, is_memory });
        }
        Ok(Self(said))
    }

    /// Returns the value of an option, if it was given.
    pub(super) fn get(&self, option: &str) -> Option<&str> {
        self.0.get(option).map(|word| word.value.as_str())
    }

    /// Returns the name by which an option was last given, if it was.
    pub(super) fn spelled(&self, option: &str) -> Option<&str> {
        self.0.get(option).map(|word| word.name.as_str())
    }

    /// Returns all options that change the memory and are not in `covered`, with their values.
    pub(super) fn not_covered<'a>(&'a self, covered: &'a [&str]) -> impl Iterator<Item = (&'a str, &'a str)> {
        let words = self.0.iter().filter(|(key, word)| word.is_memory && !covered.contains(&key.as_str()));
        words.map(|(key, word)| (key.as_str(), word.value.as_str()))
    }
}

/// Returns the engine whose options a profile uses.
pub(super) const fn profile_engine(profile: Profile) -> Engine {
    match profile {
        Profile::LlamaCpp | Profile::Conservative => Engine::LlamaServer,
        Profile::Vllm => Engine::Vllm,
    }
}
