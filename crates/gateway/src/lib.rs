//! An OpenAI-compatible gateway over leases: one URL, many models, few GPUs.
//!
//! A caller asks `POST /v1/chat/completions` for a model of the catalogue. The gateway takes a lease on that model,
//! waits until a slot serves it, passes the request on to the slot's engine, and streams the answer back. It promises:
//!
//! - **A lease ends when its answer does.** The [`Lease`](lease::Lease) is owned by the future that waits, and then by
//!   the body of the answer. When either is dropped, for whatever reason, the end of the lease is queued; one supervised
//!   task ends and renews leases ([`keeper`]). No task belongs to a single request, so none can be left behind. The
//!   lease's time to live is the backstop for a gateway that dies.
//! - **Bytes pass through.** Whatever the engine answers is passed on frame by frame, and a frame is asked of the engine
//!   only when the client takes one. Events of a stream are passed on whole, so that a stream that breaks ends with one
//!   error event and not with half an event.
//! - **No output is repeated.** A slot that fails before the first byte of its answer is replaced once. After the first
//!   byte the stream ends with one error event.
//! - **A caller who waits is told the truth.** A streaming request gets comment lines while its model loads. A request
//!   that is not held any longer is told how long loading took before, and why it waits, with the id of its workload.
//! - **Callers' keys stay here.** Only headers that are named in [`slot`] are passed on to engines.
//! - **Slots are not trusted.** Redirects are not followed, headers are bounded, silence ends.
//!
//! The gateway decides nothing about memory. It uses the rules of the public lease API through [`LeaseSource`], which has
//! two implementations: the server's own, inside its process, and [`RemoteLeases`], over HTTP, for a gateway that is a
//! process of its own and keeps no state.
//!
//! ```text
//! request ─> asked (model, stream?) ─> obtain: lease ─> hold ─> slot ─> answer ─> client
//!                                        │                                │
//!                                        └── dropped at any point ────────┴──> keeper ends the lease
//! ```
//!
//! | module | purpose |
//! | --- | --- |
//! | [`router`] | the routes, and what happens to one request |
//! | [`asked`] | the model's name in a body, JSON or multipart |
//! | [`served_routes`] | which routes a runtime is known for |
//! | [`source`] | where leases come from |
//! | [`lease`], [`keeper`] | one lease, and the task that renews and ends all of them |
//! | [`held`] | how many requests may wait |
//! | [`obtain`] | from a request to the first byte of an answer |
//! | [`slot`] | asking an engine |
//! | [`answer`], [`events`] | the body of an answer |
//! | [`models`] | the catalogue, with what is loaded |
//! | [`trouble`] | errors, in OpenAI's and Anthropic's shapes |
//! | [`cors`] | which web pages may ask |
//! | [`remote`] | leases over HTTP |

mod answer;
mod asked;
mod config;
mod cors;
mod events;
mod held;
mod keeper;
mod lease;
mod models;
mod obtain;
mod remote;
mod router;
mod served_routes;
mod slot;
mod source;
mod trouble;

pub use config::GatewayConfig;
pub use remote::{Key, RemoteLeases};
pub use router::{Gateway, Groups, finish};
pub use source::{Catalogue, LeaseSource, ServedModel, Ticket};
pub use trouble::{Shape, Trouble};
