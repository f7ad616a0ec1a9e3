//! The typed HTTP client of Berth, for the agent and the command line.
//!
//! What it promises:
//!
//! - **One method for each route.** [`routes`] has the whole API on one screen; the methods of [`Client`] send them.
//!   Names with `/` are percent-encoded. Listings come with the revision that they are of.
//! - **Errors say what to do.** [`ClientError`] tells a server that is not there from one that said no, from something
//!   that is not Berth at all.
//! - **Nothing is done twice.** Only what may be repeated is sent again when a connection breaks: reading, putting the
//!   same thing in the same place, and submissions under an idempotency key.
//! - **A wait is waited for.** A long poll may take as long as it asked for, and then as long as any request. The
//!   [`EventStream`] resumes by itself where it broke off.
//! - **The token stays secret.** It is no part of any error or `Debug` text, and it is sent to the one server that was
//!   named: redirects are not followed, and proxies are not used. It is not sent over plain http beyond this machine,
//!   unless the caller allows that by name. Where a CA is given, no other is trusted.
//!
//! How data passes through: a [`Route`] (method, path, query, body) is sent; the answer's text becomes a type of
//! `berth-wire`, and both are handed back ([`Answer`]). The crate keeps no state but its connections.

mod builder;
mod chat;
mod client;
mod error;
mod events;
mod methods;
mod route;
pub mod routes;
mod sse;
mod transport;
mod upload;

pub use builder::{ClientBuilder, ClientCertificateFiles, install_crypto_provider};
pub use chat::ChatStream;
pub use client::{Answer, Client, TextStream};
pub use error::ClientError;
pub use events::{EventStream, Received};
pub use route::Route;
pub use upload::Upload;
