//! The server of a fleet, and what tests ask of it.

use serde_json::{Value, json};

use super::{Agent, Model};
use crate::service::{Api, GIB, Options, Server, eventually, ledgers};

/// A server with short pauses, and its client.
#[derive(Debug)]
pub struct Fleet {
    /// The process.
    pub server: Server,
    /// A client.
    pub api: Api,
}

/// A workload that runs.
#[derive(Clone, Debug)]
pub struct Running {
    /// The workload.
    pub workload: String,
    /// Its slot.
    pub slot: String,
    /// The process of the slot, as the agent says.
    pub pid: Option<u64>,
}

/// What one device is charged, in GiB, rounded up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Charge {
    /// Held.
    pub held: u64,
    /// Being released.
    pub releasing: u64,
    /// Promised.
    pub promised: u64,
    /// Foreign memory.
    pub foreign: u64,
    /// Offered.
    pub free: u64,
}

impl Fleet {
    /// A server.
    #[must_use]
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// A server with these settings beside the usual ones.
    #[must_use]
    pub fn with(settings: &[&str]) -> Self {
        Self::of(Options::default(), settings)
    }

    /// A server that is started in this way, with these settings beside the usual ones.
    #[must_use]
    pub fn of(options: Options, settings: &[&str]) -> Self {
        let usual = ["scheduler.backoff=100ms", "scheduler.backoff_limit=400ms", "scheduler.min_run=0s"];
        let server = options.set(&usual).set(settings).start();
        let api = server.api();
        Self { server, api }
    }

    /// Starts the server again where it was, so that agents find it.
    pub fn restart(&mut self) {
        let options = self.server.options().listen(&self.server.address());
        self.server.restart_with(options);
    }

    /// Adds a model, or changes it.
    pub fn model(&self, model: &Model) {
        model.put(&self.api);
    }

    /// Submits a lease.
    #[track_caller]
    #[must_use]
    pub fn lease(&self, model: &str) -> String {
        self.api.lease(model).is(201).id()
    }

    /// Submits a lease and waits until it runs.
    #[track_caller]
    #[must_use]
    pub fn run(&self, model: &str) -> Running {
        self.running(&self.lease(model))
    }

    /// Waits until a workload runs.
    #[track_caller]
    #[must_use]
    pub fn running(&self, workload: &str) -> Running {
        let row = eventually(&format!("{workload} runs: {}", self.api.workload(workload)), || {
            let row = self.api.workload(workload);
            (row["state"] == "running").then_some(row)
        });
        let slot = text(&row["slot"]["id"]);
        let pid = row["slot"]["pid"].as_u64();
        Running { workload: workload.to_owned(), slot, pid }
    }

    /// Waits until a workload is in this state.
    #[track_caller]
    pub fn until(&self, workload: &str, state: &str) -> Value {
        eventually(&format!("{workload} is {state}: {}", self.api.workload(workload)), || {
            let row = self.api.workload(workload);
            (row["state"] == state).then_some(row)
        })
    }

    /// Ends a lease, at its present attempt.
    #[track_caller]
    pub fn complete(&self, workload: &str) {
        let attempt = ledgers::number(&self.api.workload(workload)["attempt"]);
        let _ = self.api.complete(workload, attempt).is(200);
    }

    /// Ends a lease, and asks for its slot to be stopped.
    #[track_caller]
    pub fn stop(&self, running: &Running) {
        self.complete(&running.workload);
        self.stop_slot(&running.slot);
    }

    /// Asks for a slot to be stopped.
    #[track_caller]
    pub fn stop_slot(&self, slot: &str) {
        let reply = self.api.delete(&format!("/scheduler/slots/{slot}"));
        assert!(reply.status < 300, "{}", reply.text);
    }

    /// A slot as the server has it, or nothing once it is released.
    #[must_use]
    pub fn slot(&self, slot: &str) -> Option<Value> {
        let reply = self.api.get(&format!("/scheduler/slots/{slot}"));
        (reply.status == 200).then_some(reply.body)
    }

    /// The state of a slot; `released` once it is.
    #[must_use]
    pub fn slot_state(&self, slot: &str) -> String {
        self.slot(slot).map_or_else(|| "released".to_owned(), |row| text(&row["state"]))
    }

    /// Waits until a slot is in this state.
    #[track_caller]
    pub fn until_slot(&self, slot: &str, state: &str) {
        eventually(&format!("slot {slot} is {state}: {:?}", self.slot(slot)), || {
            (self.slot_state(slot) == state).then_some(())
        });
    }

    /// All slots.
    #[must_use]
    pub fn slots(&self) -> Vec<Value> {
        self.api.get("/scheduler/slots").is(200).rows().to_vec()
    }

    /// The ledger of a device. Every ledger of a device is checked on the way.
    #[track_caller]
    #[must_use]
    pub fn device(&self, uuid: &str) -> Value {
        let ledger = self.api.get("/scheduler/ledger").is(200).body;
        for device in ledger["devices"].as_array().expect("devices") {
            // Where reality broke the lines the device says so; everywhere else they hold.
            if device["overcommitted"] != true {
                ledgers::check(&json!({ "devices": [device], "hosts": [] }));
            }
        }
        ledgers::device(&ledger, uuid).clone()
    }

    /// What a device is charged.
    #[track_caller]
    #[must_use]
    pub fn charge(&self, uuid: &str) -> Charge {
        Charge::of(&self.device(uuid))
    }

    /// Waits until a device is charged as a test says.
    #[track_caller]
    pub fn until_charge(&self, uuid: &str, what: &str, is_so: impl Fn(Charge) -> bool) -> Charge {
        let mut last = Charge::default();
        let found = crate::service::within(crate::service::PATIENCE, || {
            last = self.charge(uuid);
            is_so(last).then_some(last)
        });
        found.unwrap_or_else(|| panic!("{what}: {last:?}"))
    }

    /// Waits until a device is in this state.
    #[track_caller]
    pub fn until_device(&self, uuid: &str, state: &str) {
        eventually(&format!("{uuid} is {state}"), || (self.device(uuid)["state"] == state).then_some(()));
    }

    /// What an agent last said of a slot.
    #[must_use]
    pub fn reported(&self, agent: &Agent, slot: &str) -> Option<Value> {
        let status = self.api.get(&format!("/api/v1/runners/{}/status", agent.id()));
        status.body["slots"].as_array()?.iter().find(|row| row["id"] == slot).cloned()
    }

    /// What an agent last said of a GPU.
    #[must_use]
    pub fn reported_gpu(&self, agent: &Agent, uuid: &str) -> Option<Value> {
        let status = self.api.get(&format!("/api/v1/runners/{}/status", agent.id()));
        status.body["gpus"].as_array()?.iter().find(|row| row["uuid"] == uuid).cloned()
    }

    /// Waits until the server has taken in two more reports of an agent, begun after this call.
    #[track_caller]
    pub fn until_heard_again(&self, agent: &Agent) {
        let sequence = || {
            let status = self.api.get(&format!("/api/v1/runners/{}/status", agent.id()));
            status.body["sequence"].as_u64()
        };
        let before = eventually("a report", sequence);
        eventually("two more reports", || (sequence()? > before + 1).then_some(()));
    }

    /// The state of a runner.
    #[must_use]
    pub fn runner_state(&self, agent: &Agent) -> String {
        text(&self.api.get(&format!("/api/v1/runners/{}", agent.id())).is(200).body["state"])
    }

    /// Asks an operator's question or order of a runner.
    #[track_caller]
    pub fn order(&self, agent: &Agent, order: &str) {
        let reply = self.api.post(&format!("/api/v1/runners/{}/{order}", agent.id()), &json!({}));
        assert!(reply.status < 300, "{}", reply.text);
    }
}

impl Charge {
    fn of(device: &Value) -> Self {
        let gib = |name: &str| ledgers::number(&device[format!("{name}_bytes")]).div_ceil(GIB);
        Self {
            held: gib("held"),
            releasing: gib("releasing"),
            promised: gib("promised"),
            foreign: gib("foreign"),
            free: gib("free"),
        }
    }

    /// Held and releasing: what processes may use now.
    #[must_use]
    pub fn used(self) -> u64 {
        self.held + self.releasing
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}")).to_owned()
}
