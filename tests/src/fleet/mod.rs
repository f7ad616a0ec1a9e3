//! Machines with GPUs, real agents on them, real processes in slots: everything but the silicon.
//!
//! A [`Machine`] has a driver that is scripted (the real wrapper loads a mock of NVML) and a place for what its agents
//! leave behind. An [`Agent`] is a real `berth runner` on it, which a test kills, pauses, ends and starts again. Slots
//! run `berth-test-engine`: while one of its processes lives, the driver lists it with the memory that it uses.
//!
//! | file | what |
//! | --- | --- |
//! | [`Fleet`] | a server and what a test asks of it: models, leases, ledgers |
//! | [`Machine`] | GPUs, identity, processes |
//! | [`Scene`] | what the driver of a machine shows |
//! | [`Agent`] | one `berth runner` and what becomes of it |
//! | [`diary`] | what engines noted of themselves |
//! | [`Witness`] | looks all the time whether what lives is charged |
//! | [`Relay`] | somebody on the way who hands out old answers again |
//! | [`Wire`] | a network namespace whose two directions can be cut |
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a harness for tests: whatever goes wrong here is a failed test"
)]

mod agent;
pub mod diary;
mod engine;
mod machine;
mod model;
mod processes;
mod relay;
mod scene;
mod server;
mod wire;
mod witness;

pub use agent::{Agent, Plan};
pub use diary::Entry;
pub use engine::engine;
pub use machine::Machine;
pub use model::Model;
pub use processes::Living;
pub use relay::Relay;
pub use scene::{Gpu, Scene};
pub use server::{Charge, Fleet, Running};
pub use wire::Wire;
pub use witness::Witness;
