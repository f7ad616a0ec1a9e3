//! What the tests of the core have in common: small worlds, simulated agents, a slow reference model, and checks.

pub mod acts;
pub mod agent;
pub mod brute;
pub mod checks;
mod compare;
mod deeds;
pub mod fleet;
pub mod gateway;
pub mod hostile;
mod judge;
pub mod names;
pub mod reference;
pub mod run;
pub mod service;
pub mod world;
