//! The engines that Berth has tables for.

use crate::read::{self, Misread, ParsedOption};
use crate::table::{self, OptionSpec};

/// A program with a table of its options.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Engine {
    /// llama-server, the server of llama.cpp.
    LlamaServer,
    /// vLLM.
    Vllm,
    /// Ollama.
    Ollama,
}

impl Engine {
    /// All engines.
    pub const ALL: [Self; 3] = [Self::LlamaServer, Self::Vllm, Self::Ollama];

    /// Returns the engine behind a runtime: the runtime's name is that of the engine, or begins with it.
    #[must_use]
    pub fn of(runtime: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|engine| runtime.starts_with(engine.name()))
    }

    /// Returns the name of the engine's built-in runtime.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::LlamaServer => "llama-server",
            Self::Vllm => "vllm",
            Self::Ollama => "ollama",
        }
    }

    /// Returns all options of the engine's table.
    pub fn options(self) -> impl Iterator<Item = OptionSpec> {
        table::options(self)
    }

    /// Reads arguments as the engine does.
    ///
    /// An option that is not in the table is read too, with the word behind it as its value unless that word looks like
    /// another option. This function does not decide whether an option may be passed.
    pub fn read<S: AsRef<str>>(self, args: &[S]) -> Result<Vec<ParsedOption<'_>>, Misread> {
        read::read(self, args)
    }

    /// Reads those arguments that the table has, in any spelling that programs of this kind use, and skips the rest. It
    /// is for a custom command that takes this engine's options.
    pub fn recognise<S: AsRef<str>>(self, args: &[S]) -> Vec<ParsedOption<'_>> {
        read::recognise(self, args)
    }
}
