//! The runner agent: executes on its machine what the scheduler decides, and proves when memory is free.
//!
//! An agent reads the real GPUs of its machine, reports them, asks which slots it should run, starts and stops
//! processes, and proves when their memory is free again. Its modules:
//!
//! | module | what |
//! | --- | --- |
//! | [`inventory`] | the machine: GPUs through NVML (or simulated), CPU and RAM, machine and boot |
//! | [`runtime`] | how a slot becomes a command: templates of the agent's own configuration |
//! | [`process`] | starting, watching and ending process trees; their ports, health and logs |
//! | [`reconcile`] | a pure step: desired state, observations and the agent's record in, actions out; no I/O, time is an argument |
//! | [`record`] | the record of what was started, on the agent's own disk, written before it is done |
//! | [`membership`] | how the agent joined the fleet: its own token, exchanged for a join token and rotated |
//! | [`agent`] | the I/O shell: observes, asks the server, acts and reports, again and again |
//!
//! Plain data in the types of `berth-domain` passes between them. The crate keeps two rules: nothing that comes over
//! the network is run by a shell, and a driver that does not answer delays only what depends on its answer.

pub mod agent;
mod clock;
mod engine;
pub mod inventory;
pub mod membership;
pub mod process;
pub mod reconcile;
pub mod record;
pub mod runtime;
mod text;
