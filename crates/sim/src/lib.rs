//! A simulated runner agent: it takes what the server desires and gives the reports that a real agent would send.
//!
//! Scenarios, property tests and benchmarks share this one agent, so that they agree on what an agent is. It does no I/O,
//! has no clock and no randomness: its owner passes the desired slots, the memory in use on each GPU and the time, and
//! sends the reports wherever it likes (to the core, through a simulated network, over HTTP).
//!
//! ```text
//! desired slots ──> SimulatedAgent::follow ──> slots (state, memory) ──> SimulatedAgent::report ──> RunnerReport
//! ```
//!
//! What the agent promises:
//!
//! - It follows a desired slot as a real agent does: one start for each generation, proof of each end, and nothing done
//!   about a slot that the server does not mention.
//! - It decides nothing by chance. A test that wants a failure changes the public fields: the state of a slot, its memory,
//!   its record, the GPUs that the driver lists.
//! - It knows nothing of the scheduler: the crate depends on the domain's types and on nothing else.
//!
//! The scenario language is a part of the `berth` program, and so is this agent. A simulator of whole fleets belongs behind
//! a feature or in a program of its own.

mod agent;
mod gpu;
mod slot;

pub use agent::{Pace, SimulatedAgent};
pub use gpu::SimulatedGpu;
pub use slot::{Record, SimulatedSlot};
