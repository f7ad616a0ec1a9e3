//! The tables of options, and the meaning of their columns.

mod llama_server;
mod ollama;
mod vllm;

use std::fmt;

use crate::Engine;

/// What an option does to the machine that the engine runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Meaning {
    /// Changes answers, logs or speed, and nothing that belongs to others.
    Harmless,
    /// Says which files the model is made of.
    Model,
    /// Changes how much memory is needed.
    Memory,
    /// Says which devices, which share of them, how many processes or how many machines.
    Placement,
    /// Listens, connects or admits clients elsewhere than Berth says.
    Network,
    /// Reads or writes files that are not the model's.
    Files,
    /// Carries a secret, which the catalogue, listings and the process table would show.
    Secret,
    /// Loads code or runs programs.
    Code,
    /// Makes the program do something else than serve the model under its name.
    Unusable,
}

impl Meaning {
    /// All meanings.
    pub const ALL: [Self; 9] = [
        Self::Harmless,
        Self::Model,
        Self::Memory,
        Self::Placement,
        Self::Network,
        Self::Files,
        Self::Secret,
        Self::Code,
        Self::Unusable,
    ];

    /// Returns whether an option with this meaning changes how much memory a slot needs.
    #[must_use]
    pub const fn changes_claim(self) -> bool {
        matches!(self, Self::Model | Self::Memory | Self::Placement)
    }
}

impl fmt::Display for Meaning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Harmless => "is harmless",
            Self::Model => "says which model is loaded",
            Self::Memory => "changes how much memory is needed",
            Self::Placement => "says which GPUs it uses, or how much of them, which Berth decides",
            Self::Network => "says where it listens, connects or whom it admits",
            Self::Files => "reads or writes files beside the model's",
            Self::Secret => "carries a secret, which listings would show",
            Self::Code => "loads code or runs programs",
            Self::Unusable => "makes the engine do something else than serve this model under its name",
        })
    }
}

/// How many values follow an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// No value.
    Nothing,
    /// No value; the same name with `--no-` in front turns the switch off.
    Switch,
    /// One value.
    One,
    /// Two values.
    Two,
    /// One value or none.
    Maybe,
    /// One value or more.
    Several,
}

/// Options with the same meaning and the same values. In each row, the first name is the canonical one.
pub(crate) struct Group {
    means: Meaning,
    takes: Takes,
    rows: &'static [&'static str],
}

/// An option of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionSpec {
    /// What the option does to the machine.
    pub means: Meaning,
    /// How many values follow it.
    pub takes: Takes,
    row: &'static str,
}

impl OptionSpec {
    /// Returns the canonical name: the first of the row.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.row.split(' ').next().unwrap_or(self.row)
    }

    /// Returns all names that the table spells out.
    pub fn names(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.row.split(' ')
    }

    /// Returns whether this is one of the option's names, including those that turn it off.
    #[must_use]
    pub fn has_name(&self, name: &str) -> bool {
        let turned_off = name.strip_prefix("--no-").filter(|_| self.takes == Takes::Switch);
        self.names().any(|known| known == name || turned_off.is_some_and(|off| known.strip_prefix("--") == Some(off)))
    }
}

/// Returns all options of an engine.
pub(crate) fn options(engine: Engine) -> impl Iterator<Item = OptionSpec> {
    let groups: &[Group] = match engine {
        Engine::LlamaServer => llama_server::OPTIONS,
        Engine::Vllm => vllm::OPTIONS,
        Engine::Ollama => ollama::OPTIONS,
    };
    groups
        .iter()
        .flat_map(|group| group.rows.iter().map(|row| OptionSpec { means: group.means, takes: group.takes, row }))
}

/// Returns the option of exactly this name.
pub(crate) fn named(engine: Engine, name: &str) -> Option<OptionSpec> {
    options(engine).find(|option| option.has_name(name))
}
