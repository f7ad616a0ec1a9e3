//! What the tests have in common.
//!
//! The core is tested by random histories. A [`transition`] changes the [`system_under_test`] (the core with simulated
//! agents around it); after each command the [`assertions`] compare it with the slow [`reference`] model.
//!
//! | module | what |
//! | --- | --- |
//! | [`world`] | random machines, runners and models that a history begins with |
//! | [`transition`] | one step of a history: time, gateways, agents, operators |
//! | [`hostile_command`] | commands that no correct client sends |
//! | [`system_under_test`] | the core, its simulated agents, the journal, and the assertions |
//! | [`assertions`] | what must be true after each command |
//! | [`reference`] | slots, workloads, ledgers and placement, computed without any index |
//! | [`service`] | the real server over HTTP, with agents that a test plays |
//! | [`gateway`] | engines that a test scripts, behind the gateway |
//! | [`fleet`] | the real server and real agents with real processes, over a scripted driver |

pub mod agent;
mod agent_transition;
pub mod assertions;
pub mod fleet;
pub mod gateway;
pub mod hostile_command;
pub mod names;
pub mod reference;
pub mod service;
pub mod system_under_test;
pub mod transition;
pub mod world;
