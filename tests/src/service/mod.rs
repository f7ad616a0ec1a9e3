//! The other end of the service: a real server process, a client that hides nothing, and an agent that obeys.
//!
//! Everything here talks to the binary over HTTP, signals and files, as gateways, agents and operators do. It uses no
//! code of the server: what these tests see is what curl sees.
//!
//! | file | what |
//! | --- | --- |
//! | `binary` | where the `berth` program is |
//! | [`Server`] | one process on one data directory: started, killed, terminated, started again |
//! | [`Api`] | a client: status, headers and JSON, whatever they are |
//! | [`cli`] | the command line, as a person uses it |
//! | [`Http2`] | HTTP/2 frame by frame |
//! | [`connect_tls`] | the same, encrypted |
//! | [`Raw`] | a connection without a client: bytes as a test likes them |
//! | [`FakeAgent`] | the other end of the runner protocol, scripted by a test |
//! | [`Runner`] | a real agent, whose slots run a shell script |
//! | [`AgentThread`] | such an agent on a thread of its own |
//! | `gguf` | model files without weights |
//! | [`ledgers`] | what must be true of every ledger that the server shows |
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a harness for tests: whatever goes wrong here is a failed test"
)]

mod agent;
mod agent_thread;
mod api;
mod binary;
mod cli;
mod gguf;
mod http2;
pub mod ledgers;
mod raw;
mod runner;
mod server;
mod sse;
mod tls;

use std::time::{Duration, Instant};

pub use agent::{FakeAgent, Held};
pub use agent_thread::AgentThread;
pub use api::{Api, Ask, Reply};
pub use binary::berth;
pub use cli::{Printed, cli};
pub use gguf::{write_gguf, write_gguf_with_heads};
pub use http2::{Frame, Http2};
pub use raw::Raw;
pub use runner::{Runner, RunnerOptions};
pub use server::{Options, Refused, Server};
pub use sse::{Events, StreamedEvent};
pub use tls::{CertificateFiles, connect_tls};

/// How long a test waits for something that must happen.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// One GiB in bytes.
pub const GIB: u64 = 1 << 30;

/// Looks until there is an answer. Fails, naming what was waited for, when patience is over.
pub fn eventually<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    within(PATIENCE, look).unwrap_or_else(|| panic!("not within {PATIENCE:?}: {what}"))
}

/// Looks until there is an answer or the time is over.
pub fn within<T>(time: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + time;
    loop {
        if let Some(answer) = look() {
            return Some(answer);
        }
        if Instant::now() >= deadline {
            return None;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Does the same with each item at once, on a thread each, and returns the answers in order.
pub fn at_once<I: Send, T: Send>(items: impl IntoIterator<Item = I>, each: impl Fn(I) -> T + Sync) -> Vec<T> {
    let items: Vec<I> = items.into_iter().collect();
    let gate = std::sync::Barrier::new(items.len());
    std::thread::scope(|scope| {
        let run = |item| {
            let (gate, each) = (&gate, &each);
            scope.spawn(move || {
                gate.wait();
                each(item)
            })
        };
        let threads: Vec<_> = items.into_iter().map(run).collect();
        threads.into_iter().map(|thread| thread.join().expect("a thread of the test failed")).collect()
    })
}
