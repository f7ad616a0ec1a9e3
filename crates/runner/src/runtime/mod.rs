//! How a slot becomes a command.
//!
//! What may be run stands in the agent's own configuration: `[runtime.NAME]` has an argument list with variables, an
//! environment, a user, how to tell that the program is ready, and whether it starts servers, jobs or both. A slot that the
//! server wants names a runtime; [`render`] makes a [`Launch`] of both. It is pure: nothing is started, looked up or
//! read by it. The values of secrets are read beside it, at each start.
//!
//! | rule | where |
//! | --- | --- |
//! | the program is a fixed text of the operator; no shell reads anything that came over the network | `config` |
//! | each element is rendered on its own: a blank, a quote, a `;` or a `$(...)` stays what it is | `template` |
//! | what begins with a variable cannot become an option; arguments cannot change what the agent decides | `arguments` |
//! | arguments that could harm the machine need the operator's leave, and those of a job more of it | `permission` |
//! | the environment is an allow-list and what Berth sets; the network sets none of it | `environment` |
//! | secrets come from files or the agent's environment, by name, and are not in any argument or record | `secrets` |
//! | slots run as the user that the runtime names, and get no variable of the agent's own | `user`, `environment` |
//! | a slot is ready when its program names the model, not when it merely runs | `questions` |
//! | an engine that takes a share of a GPU is told no more than the claim | `render` |
//!
//! Variables: `{model}`, `{slot}`, `{generation}`, `{bind}` (the address to listen on), `{address}` (where others find
//! it), `{port}`, `{gpu_count}`, `{utilization}`, `{memory_bytes}` and `{memory_mib}` (over all devices),
//! `{cpu_millicores}`, `{ram_bytes}`, `{concurrency}`, `{arg:--ctx-size|-c}` (the value of an option of the slot; what
//! it stands in is left out if the slot does not have it, unless a default follows: `{arg:--ctx-size|-c=512}`), and, as a whole element, `{args}` (all arguments of the
//! slot). `{{` and `}}` are braces.

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
pub use environment::{SLOT_GENERATION, SLOT_ID, SLOT_KIND, SLOT_RUNNER, SLOT_SECRET};
pub use permission::NotPermitted;
pub use questions::{Live, ModelQuestion, Question, Ready};
pub(crate) use render::render_started;
pub use render::{Launch, LaunchContext, RenderError, StartRequest, render};
pub use runtimes::Runtimes;
pub use secrets::{SecretError, SecretSource};
pub use template::TemplateError;
pub use user::{Account, SlotUser, UserId};
