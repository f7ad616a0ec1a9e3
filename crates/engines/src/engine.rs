//! The engines that Berth knows.

use crate::read::{self, Misread, Said};
use crate::table::{self, Known};

/// A program whose options are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Engine {
    /// The server of llama.cpp.
    LlamaServer,
    /// vLLM.
    Vllm,
    /// Ollama.
    Ollama,
}

impl Engine {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::LlamaServer, Self::Vllm, Self::Ollama];

    /// The engine behind a runtime: the name of the runtime is that of the engine, or begins with it.
    #[must_use]
    pub fn of(runtime: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|engine| runtime.starts_with(engine.name()))
    }

    /// The name of its built-in runtime.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::LlamaServer => "llama-server",
            Self::Vllm => "vllm",
            Self::Ollama => "ollama",
        }
    }

    /// All options of its table.
    pub fn options(self) -> impl Iterator<Item = Known> {
        table::options(self)
    }

    /// Reads arguments as the engine does.
    ///
    /// An option that is not in the table is read too, with the word behind it as its value unless that looks like
    /// another option: whether it may be passed is not decided here.
    pub fn read<S: AsRef<str>>(self, args: &[S]) -> Result<Vec<Said<'_>>, Misread> {
        read::read(self, args)
    }

    /// Reads of arguments what the table knows, in any spelling that programs of this kind use, and passes over the
    /// rest. It is for a command of an operator's own that speaks the words of this engine.
    pub fn recognise<S: AsRef<str>>(self, args: &[S]) -> Vec<Said<'_>> {
        read::recognise(self, args)
    }
}
