//! The service around the core: a durable HTTP API that gateways, agents and people use.
//!
//! It promises to lose nothing that it has acknowledged, and to show nothing that it could still lose. It decides
//! nothing: whatever changes the state is a command, and the core says what comes of it.
//!
//! ```text
//! HTTP body -> wire type -> Command -> writer: engine (decide, apply) -> journal (durable) -> views -> answer
//! ```
//!
//! | module | purpose |
//! | --- | --- |
//! | [`http`] | routes, the layers around handlers, bodies, problems |
//! | [`writer`] | the one thread that owns the state |
//! | [`engine`] | the step itself, apart from threads, sockets, files and clocks |
//! | [`views`] | what is published: rows, waiters, decisions, events, numbers |
//! | [`present`] | what the core shows, as what the API says |
//! | [`requests`] | what agents are asked for beside their slots |
//! | [`trust`] | tokens, rates, the audit log |
//! | [`compact`] | snapshots, made beside the writer |
//! | [`backup`] | backups, taken while the server serves, and restored |
//! | [`decision_log`] | the log of decisions and events, written by a thread of its own |
//! | [`estimator`] | estimates from model files, read beside everything else |
//! | [`serve`] | sockets, TLS, limits, shutdown |
//! | [`StandaloneGateway`] | the gateway as a process of its own |
//! | [`config`] | what an operator may choose |
//! | [`reload`] | what of it may change while the server runs |
//! | [`limits`] | the limits that are in force |

pub mod backup;
mod clock;
pub mod compact;
pub mod config;
pub mod decision_log;
pub mod engine;
pub mod estimator;
pub mod http;
pub mod limits;
pub mod logging;
pub mod present;
pub mod reload;
pub mod requests;
mod run;
pub mod serve;
mod severity;
mod standalone_gateway;
pub mod tls;
pub mod trust;
pub mod views;
pub mod writer;

pub use run::{RunError, Server, options, runtime};
pub use standalone_gateway::StandaloneGateway;
