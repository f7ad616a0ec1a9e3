//! Machines with GPUs, real agents on them, real processes in slots: everything but the silicon.
//!
//! A [`Machine`] has a scripted driver (the real wrapper loads a mock of NVML) and a directory for its agents. An [`Agent`] is a real `berth runner` on it, which a test kills, pauses, ends and starts again. Slots
//! run `berth-test-engine`: while one of its processes lives, the driver lists it with the memory that it uses.
//!
//! | file | what |
//! | --- | --- |
//! | [`Fleet`] | a server and what a test asks of it: models, leases, ledgers |
//! | [`Machine`] | GPUs, identity, processes |
//! | [`DriverScript`] | what the driver of a machine shows |
//! | [`Agent`] | one `berth runner` process |
//! | [`diary`] | when engines were started and when they first served |
//! | [`LedgerWatch`] | checks all the time that living processes are charged |
//! | [`Relay`] | a proxy that can send old answers again |
//! | [`NetworkNamespace`] | a namespace whose link to the host can be cut, in each direction |
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a harness for tests: whatever goes wrong here is a failed test"
)]

mod agent;
pub mod diary;
mod driver_script;
mod engine;
mod ledger_watch;
mod machine;
mod model;
mod network_namespace;
mod processes;
mod relay;
mod server;

pub use agent::{Agent, Plan};
pub use diary::Entry;
pub use driver_script::{DriverScript, Gpu};
pub use engine::engine;
pub use ledger_watch::LedgerWatch;
pub use machine::Machine;
pub use model::Model;
pub use network_namespace::NetworkNamespace;
pub use processes::Living;
pub use relay::Relay;
pub use server::{Charge, Fleet, Running};
