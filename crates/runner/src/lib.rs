//! The runner agent: what the scheduler decides happens on machines, and memory is free only when it is.
//!
//! An agent reads the real GPUs of its machine, reports them, asks which slots it should run, starts and stops
//! processes, and proves when their memory is back. Its rooms:
//!
//! | module | what |
//! | --- | --- |
//! | [`inventory`] | what the machine has: GPUs through NVML (or simulated), CPU and RAM, machine and boot |
//! | [`runtime`] | how a slot becomes a command: templates of the agent's own configuration |
//! | [`process`] | starting, watching and ending process trees; their ports, health and logs |
//! | [`reconcile`] | a pure step: desired, observed and own record in, actions out; no I/O, time is an argument |
//! | [`record`] | what was started, on the agent's own disk, written before it is done |
//! | [`membership`] | how the agent joined the fleet: its own token, exchanged for a join token and rotated |
//! | [`agent`] | the shell: looks, asks the server, acts and reports, again and again |
//!
//! What passes between them is plain data in the words of `berth-domain`. The crate keeps to two rules: nothing that
//! comes over the network is run by a shell, and a driver that does not answer stops nothing but the answer.

pub mod agent;
mod engine;
pub mod inventory;
pub mod membership;
pub mod process;
pub mod reconcile;
pub mod record;
pub mod runtime;
