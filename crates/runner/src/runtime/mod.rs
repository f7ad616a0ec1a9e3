//! Runtimes: how a slot becomes a command.
//!
//! The agent's own configuration states what may be run: `[runtime.NAME]` has an argument list with variables, an
//! environment, a user, how to tell that the program is ready, and whether it starts servers, jobs or both. A slot of
//! the desired state names a runtime; [`render`] makes a [`Launch`] of both. It is pure: it starts nothing and reads
//! nothing. The values of secrets are read separately, at each start.
//!
//! | rule | where |
//! | --- | --- |
//! | the program is a fixed text of the operator; no shell reads anything that came over the network | `config` |
//! | each element is rendered on its own: a blank, a quote, a `;` or a `$(...)` stays what it is | `template` |
//! | a value that begins with a variable cannot become an option; arguments cannot change what the agent decides | `arguments` |
//! | arguments that could harm the machine must be allowed by the operator, with stricter rules for jobs | `permission` |
//! | the environment is an allow-list and what Berth sets; nothing in it comes from the network | `environment` |
//! | secrets come from files or the agent's environment, by name, and are not in any argument or record | `secrets` |
//! | slots run as the user that the runtime names, and get no variable of the agent's own | `user`, `environment` |
//! | a slot is ready when its program names the model, not when it merely runs | `questions` |
//! | an engine that takes a share of a GPU is given no more than the claim | `render` |
//!
//! Variables: `{model}`, `{slot}`, `{generation}`, `{bind}` (the address to listen on), `{address}` (where clients
//! reach it), `{port}`, `{gpu_count}`, `{utilization}`, `{memory_bytes}` and `{memory_mib}` (over all devices),
//! `{cpu_millicores}`, `{ram_bytes}`, `{concurrency}`, `{arg:--ctx-size|-c}` (the value of an option of the slot; the
//! element is left out if the slot does not have it, unless a default follows: `{arg:--ctx-size|-c=512}`), and, as a
//! whole element, `{args}` (all arguments of the slot). `{{` and `}}` are braces.

mod arguments;
mod builtin;
mod config;
mod environment;
mod permission;
mod questions;
mod render;
mod runtimes;
mod secrets;
mod template;
#[cfg(test)]
mod tests;
mod user;

pub use config::{ConfigError, Runtime, RuntimeConfig, VersionConfig};
pub(crate) use environment::kind_named;
pub(crate) use environment::{SLOT_GENERATION, SLOT_ID, SLOT_KIND, SLOT_RUNNER, SLOT_SECRET};
pub use permission::NotPermitted;
pub use questions::{Live, ModelQuestion, Question, Ready};
pub(crate) use render::render_started;
pub use render::{Launch, LaunchContext, RenderError, StartRequest, render};
pub use runtimes::Runtimes;
pub use secrets::{SecretError, SecretSource};
pub use template::TemplateError;
pub use user::{Account, SlotUser, UserId};
