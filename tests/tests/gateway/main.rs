//! The gateway through real sockets: cases GW1 to GW8 and GW12, and what else it promises.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod clients;
mod cold;
mod disconnects;
mod hostile;
mod keys;
mod retry;
mod routes;
mod standalone;
