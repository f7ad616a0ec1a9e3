//! A gateway between a client and a slot that a test plays: a real server, an agent whose slots take as long to load as a
//! test says, and an engine that answers, or misbehaves, as a test says.
#![expect(clippy::unwrap_used, reason = "a harness for tests: whatever goes wrong here is a failed test")]

mod engine;
mod loader;

pub use engine::{Behaviour, PlayedEngine};
pub use loader::Loader;

use serde_json::{Value, json};

use crate::service::{Api, FakeAgent, GIB, Options, Raw, Server, eventually};

/// A server with a gateway, one runner with one GPU of 80 GiB, and one engine behind all of its slots.
#[derive(Debug)]
pub struct Stage {
    /// The server.
    pub server: Server,
    /// A client of it.
    pub api: Api,
    /// What loads slots.
    pub loader: Loader,
    /// What answers in them.
    pub engine: PlayedEngine,
}

impl Stage {
    /// With these settings.
    #[must_use]
    pub fn with(settings: &[&str]) -> Self {
        Self::of(Options::default(), settings)
    }

    /// On a server that is started in this way.
    #[must_use]
    pub fn of(options: Options, settings: &[&str]) -> Self {
        let usual = ["scheduler.backoff=50ms", "scheduler.backoff_limit=100ms", "scheduler.min_run=0s"];
        let server = options.set(&usual).set(settings).start();
        let api = server.api();
        Self::on(server, api)
    }

    /// On a server that runs, with the token that this client has.
    #[must_use]
    pub fn on(server: Server, api: Api) -> Self {
        let engine = PlayedEngine::start();
        let mut agent = FakeAgent::new(&api, "r1", &[80 * GIB]);
        agent.endpoint = Some(engine.url());
        let loader = Loader::start(agent.registered());
        Self { server, api, loader, engine }
    }

    /// A model of so many GiB whose slots serve many at once.
    pub fn model(&self, name: &str, gib: u64) {
        self.api.model(name, json!({ "runtime": "vllm", "memory": gib * GIB, "gpu_counts": [1], "concurrency": 256 }));
    }

    /// The body of a conversation.
    #[must_use]
    pub fn chat(model: &str, streams: bool) -> Value {
        json!({ "model": model, "messages": [{ "role": "user", "content": "hello" }], "stream": streams })
    }

    /// Asks, and reads everything that comes until the connection is closed, as it comes.
    #[must_use]
    pub fn ask_raw(&self, path: &str, body: &Value) -> Raw {
        Self::ask_raw_at(&self.server.address(), path, body)
    }

    /// The same of a gateway elsewhere.
    #[must_use]
    pub fn ask_raw_at(address: &str, path: &str, body: &Value) -> Raw {
        let body = body.to_string();
        let mut raw = Raw::connect(address);
        let sent = raw.send(format!(
            "POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n{body}",
            body.len()
        ));
        assert!(sent, "the gateway takes a request");
        raw
    }

    /// Waits until the gateway has left nothing behind: no workload that has not ended, and no connection to a slot.
    pub fn until_nothing_is_left(&self) {
        eventually("every lease has ended", || {
            let open = |state: &str| self.api.get(&format!("/api/v1/workloads?state={state}")).is(200).rows().len();
            (open("queued") + open("assigned") + open("running") == 0).then_some(())
        });
        eventually("no slot is in use", || {
            let slots = self.api.get("/scheduler/slots").is(200);
            slots.rows().iter().all(|slot| slot["active"] == 0).then_some(())
        });
        eventually(&format!("no connection to the engine is left of {}", self.engine.open()), || {
            (self.engine.open() == 0).then_some(())
        });
    }
}
