//! How a slot becomes a command.
//!
//! What may be run stands in the agent's own configuration: `[runtime.NAME]` has an argument list with variables, an
//! environment, how to tell that the program is ready, and whether it starts servers, jobs or both. A slot that the
//! server wants names a runtime; [`render`] makes a [`Launch`] of both. It is pure: nothing is started, looked up or
//! read here.
//!
//! | rule | where |
//! | --- | --- |
//! | the program is a fixed text of the operator; no shell reads anything that came over the network | `config` |
//! | each element is rendered on its own: a blank, a quote, a `;` or a `$(...)` stays what it is | `template` |
//! | what begins with a variable cannot become an option; arguments cannot change what the agent decides | `arguments` |
//! | the environment is an allow-list and what Berth sets; the network sets none of it | `environment` |
//! | an engine that takes a share of a GPU is told no more than the claim | `render` |
//!
//! Variables: `{model}`, `{slot}`, `{generation}`, `{bind}` (the address to listen on), `{address}` (where others find
//! it), `{port}`, `{gpu_count}`, `{utilization}`, `{memory_bytes}` and `{memory_mib}` (over all devices),
//! `{cpu_millicores}`, `{ram_bytes}`, `{concurrency}`, `{arg:--ctx-size|-c}` (the value of an option of the slot; what
//! it stands in is left out if the slot does not have it), and, as a whole element, `{args}` (all arguments of the
//! slot). `{{` and `}}` are braces.

mod arguments;
mod builtin;
mod config;
mod environment;
mod render;
mod template;
#[cfg(test)]
mod tests;

pub use config::{ConfigError, Live, Ready, Runtime, RuntimeConfig, Runtimes};
pub(crate) use environment::kind_named;
pub use environment::{SLOT_GENERATION, SLOT_ID, SLOT_KIND, SLOT_RUNNER};
pub use render::{Launch, RenderError, StartRequest, Surroundings, render};
pub use template::TemplateError;
