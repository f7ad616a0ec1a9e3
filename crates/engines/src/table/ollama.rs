//! Options by which a model entry states what `ollama serve` reads from its environment.
//!
//! The program itself takes no options. These names are Berth's, and the agent's template turns each into a variable.

use super::Group;
use super::Meaning::Memory;
use super::Takes::One;

pub(super) const OPTIONS: &[Group] = &[Group {
    means: Memory,
    takes: One,
    rows: &["--num-ctx --context-length", "--kv-cache-type", "--flash-attention"],
}];
