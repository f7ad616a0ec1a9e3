//! The other end of the runner protocol: an agent without a machine, over HTTP.
//!
//! It writes its JSON by hand and shares no code with `berth_sim` or `berth_wire`, so that a test of the API does not
//! depend on the types under test, and can send what no correct agent sends.
//!
//! It does what an agent does (registers, reports, polls, starts and stops what it is told, proves what is gone), but
//! its GPUs and processes are only numbers, and a test may have it do each step when it likes.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{Api, GIB, Reply};

/// One slot as the agent holds it.
#[derive(Clone, Debug, PartialEq)]
pub struct Held {
    /// Which start of it.
    pub generation: u64,
    /// What the agent reports of it: `starting`, `ready`, `stopping`, `exited`, `gone` ...
    pub state: String,
    /// Its GPUs and what it was given of each.
    pub claims: Vec<(String, u64)>,
    /// How its process ended.
    pub exit_code: Option<i64>,
    /// Why it failed.
    pub reason: Option<String>,
    /// How much of its claim it uses.
    pub uses_percent: u64,
}

/// An agent that a test plays.
#[derive(Clone, Debug)]
pub struct FakeAgent {
    /// The server.
    pub api: Api,
    /// The runner's id.
    pub id: String,
    /// What it says of itself, beside slots, numbers and GPUs' use.
    pub about: Value,
    /// Its number, once registered.
    pub incarnation: Option<u64>,
    /// The slots that it has.
    pub slots: BTreeMap<String, Held>,
    /// Every start that it made: slot and generation.
    pub started: Vec<(String, u64)>,
    /// Slots become ready as soon as they are started.
    pub starts_at_once: bool,
    /// Slots that should stop are gone, with proof, at once.
    pub proves_at_once: bool,
    /// How much of its claim a slot uses that starts from now on.
    pub uses_percent: u64,
    /// Where ready slots answer; nowhere, unless a test says so.
    pub endpoint: Option<String>,
    sequence: u64,
    epoch: Option<u64>,
    seen: Option<u64>,
}

impl FakeAgent {
    /// An agent that has not registered yet, with these GPUs (in bytes), on a machine of its own.
    #[must_use]
    pub fn new(api: &Api, id: &str, gpus: &[u64]) -> Self {
        let gpu = |(index, bytes): (usize, &u64)| json!({ "uuid": Self::uuid_of(id, index), "index": index, "name": "NVIDIA H100", "memory_total_bytes": bytes });
        let about = json!({
            "machine_id": format!("machine-of-{id}"),
            "boot_id": format!("boot-1-of-{id}"),
            "version": "test",
            "address": "127.0.0.1",
            "runtimes": ["vllm"],
            "host": { "cpu_millicores": 64_000, "ram_bytes": 512 * GIB },
            "gpus": gpus.iter().enumerate().map(gpu).collect::<Vec<_>>(),
        });
        Self {
            api: api.clone(),
            id: id.to_owned(),
            about,
            incarnation: None,
            slots: BTreeMap::new(),
            started: Vec::new(),
            starts_at_once: true,
            proves_at_once: true,
            uses_percent: 100,
            endpoint: None,
            sequence: 0,
            epoch: None,
            seen: None,
        }
    }

    /// Registers and returns it.
    #[track_caller]
    #[must_use]
    pub fn registered(mut self) -> Self {
        let _ = self.report().is(200);
        self
    }

    /// The UUID of a GPU of a runner.
    #[must_use]
    pub fn uuid_of(id: &str, index: usize) -> String {
        format!("GPU-{id}-{index}")
    }

    /// The UUID of one of its GPUs.
    #[must_use]
    pub fn uuid(&self, index: usize) -> String {
        Self::uuid_of(&self.id, index)
    }

    /// Reports (and registers, the first time). What it said is gone is forgotten once the server has heard it.
    pub fn report(&mut self) -> Reply {
        let id = self.id.clone();
        self.try_report().unwrap_or_else(|error| panic!("{id}: no answer to a report: {error}"))
    }

    /// Reports; an error if there is no answer.
    pub fn try_report(&mut self) -> Result<Reply, ureq::Error> {
        self.sequence += 1;
        let body = self.report_body();
        let reply = self.api.ask("PUT", &format!("/api/v1/runners/{}/report", self.id)).json(&body).try_send()?;
        if reply.status == 200 {
            self.incarnation = reply.body["incarnation"].as_u64();
            self.slots.retain(|_, held| held.state != "gone");
        }
        Ok(reply)
    }

    /// What it would report now.
    #[must_use]
    pub fn report_body(&self) -> Value {
        let mut body = self.about.clone();
        body["sequence"] = json!(self.sequence);
        if let Some(incarnation) = self.incarnation {
            body["incarnation"] = json!(incarnation);
        }
        for gpu in body["gpus"].as_array_mut().into_iter().flatten() {
            // A replica is a name: the driver counts what is used on the GPU behind it.
            let uuid = gpu["uuid"].as_str().and_then(|uuid| uuid.split("::").next()).unwrap_or_default().to_owned();
            let own: u64 = self.slots.values().map(|held| held.uses(&uuid)).sum();
            gpu["memory_used_bytes"] = json!(gpu["memory_used_bytes"].as_u64().unwrap_or_default() + own);
        }
        body["slots"] = self.slots.iter().map(|(id, held)| held.reported(id, &self.id)).collect();
        if let Some(endpoint) = &self.endpoint {
            for slot in body["slots"].as_array_mut().into_iter().flatten().filter(|slot| slot["state"] == "ready") {
                slot["endpoint"] = json!(endpoint);
            }
        }
        body
    }

    /// Reports with the slots that a test wrote down in what it says of itself.
    pub fn report_as_is(&mut self) -> Reply {
        self.sequence += 1;
        let body = Value::Object({
            let mut body = self.report_body().as_object().cloned().unwrap_or_default();
            body.insert("slots".to_owned(), self.about["slots"].clone());
            body
        });
        self.api.ask("PUT", &format!("/api/v1/runners/{}/report", self.id)).json(&body).send()
    }

    /// Asks what it should run, and waits for news for so long.
    pub fn desired(&mut self, wait: &str) -> Reply {
        let id = self.id.clone();
        self.try_desired(wait).unwrap_or_else(|error| panic!("{id}: no answer to a poll: {error}"))
    }

    /// Asks what it should run; an error if there is no answer.
    pub fn try_desired(&mut self, wait: &str) -> Result<Reply, ureq::Error> {
        let incarnation = self.incarnation.expect("a registered agent");
        let mut path = format!("/api/v1/runners/{}/desired?incarnation={incarnation}&wait={wait}", self.id);
        if let (Some(epoch), Some(seen)) = (self.epoch, self.seen) {
            path += &format!("&epoch={epoch}&after={seen}");
        }
        let reply = self.api.ask("GET", &path).try_send()?;
        if reply.status == 200 {
            self.epoch = reply.body["epoch"].as_u64();
            self.seen = reply.body["revision"].as_u64();
        }
        Ok(reply)
    }

    /// The start of the server that it last heard of.
    #[must_use]
    pub fn epoch(&self) -> Option<u64> {
        self.epoch
    }

    /// The next poll is answered at once, whether there is news or not.
    pub fn forget_what_was_desired(&mut self) {
        self.seen = None;
    }

    /// One round: polls, does as it is told, and reports if that changed anything.
    #[track_caller]
    pub fn obey(&mut self) {
        self.forget_what_was_desired();
        let desired = self.desired("0s").is(200);
        if self.follow(&desired.body) {
            let _ = self.report().is(200);
        }
    }

    /// Obeys until nothing is left to do: what is started makes room for the next start on the same GPU.
    #[track_caller]
    pub fn obey_all(&mut self) {
        loop {
            self.forget_what_was_desired();
            let desired = self.desired("0s").is(200);
            if !self.follow(&desired.body) {
                return;
            }
            let _ = self.report().is(200);
        }
    }

    /// Starts and stops what it is told. Whether that changed anything.
    pub fn follow(&mut self, desired: &Value) -> bool {
        let before = self.slots.clone();
        for slot in desired["slots"].as_array().into_iter().flatten() {
            let (id, generation) = (text(&slot["id"]), slot["generation"].as_u64().expect("a generation"));
            let held = self.slots.get(&id).filter(|held| held.generation == generation);
            match (slot["action"].as_str(), held) {
                (Some("run"), None) => self.start(id, generation, slot),
                (Some("run"), Some(_)) => {}
                (Some("stop"), Some(_)) => self.stop(&id),
                // Never started, or proven gone already: that is what it says, again.
                (Some("stop" | "account"), None) => self.note(id, generation, "gone", slot),
                // What it has it reports anyway.
                (Some("account"), Some(_)) => {}
                (action, _) => panic!("an agent knows no {action:?}"),
            }
        }
        if self.starts_at_once {
            self.slots.values_mut().filter(|held| held.state == "starting").for_each(|held| held.turn("ready"));
        }
        before != self.slots
    }

    fn start(&mut self, id: String, generation: u64, slot: &Value) {
        self.started.push((id.clone(), generation));
        self.note(id, generation, "starting", slot);
    }

    fn note(&mut self, id: String, generation: u64, state: &str, slot: &Value) {
        let claim = |gpu: &Value| (text(&gpu["uuid"]), gpu["memory_bytes"].as_u64().expect("bytes"));
        let claims = slot["gpus"].as_array().into_iter().flatten().map(claim).collect();
        self.slots.insert(
            id,
            Held {
                generation,
                state: state.to_owned(),
                claims,
                exit_code: None,
                reason: None,
                uses_percent: self.uses_percent,
            },
        );
    }

    fn stop(&mut self, id: &str) {
        let to = if self.proves_at_once { "gone" } else { "stopping" };
        if let Some(held) = self.slots.get_mut(id) {
            held.turn(to);
        }
    }

    /// Says from now on that a slot is in this state.
    #[track_caller]
    pub fn say(&mut self, slot: &str, state: &str) {
        self.slots.get_mut(slot).unwrap_or_else(|| panic!("no slot {slot}")).turn(state);
    }

    /// The process of a slot ended by itself.
    #[track_caller]
    pub fn exits(&mut self, slot: &str, code: i64) {
        let held = self.slots.get_mut(slot).unwrap_or_else(|| panic!("no slot {slot}"));
        held.exit_code = Some(code);
        held.turn("exited");
    }

    /// Proves that everything that is being stopped is gone, and reports it.
    #[track_caller]
    pub fn prove(&mut self) {
        self.slots.values_mut().filter(|held| held.state == "stopping").for_each(|held| held.turn("gone"));
        let _ = self.report().is(200);
    }
}

impl Held {
    fn turn(&mut self, state: &str) {
        state.clone_into(&mut self.state);
    }

    fn uses(&self, uuid: &str) -> u64 {
        if self.state == "gone" {
            return 0;
        }
        let claimed: u64 = self.claims.iter().filter(|(on, _)| on == uuid).map(|(_, bytes)| bytes).sum();
        if self.uses_percent == 100 { claimed } else { claimed / 100 * self.uses_percent }
    }

    fn reported(&self, id: &str, runner: &str) -> Value {
        let memory: Vec<Value> =
            self.claims.iter().map(|(uuid, _)| json!({ "uuid": uuid, "used_bytes": self.uses(uuid) })).collect();
        let claims: Vec<Value> =
            self.claims.iter().map(|(uuid, bytes)| json!({ "uuid": uuid, "bytes": bytes })).collect();
        let mut slot = json!({
            "id": id, "generation": self.generation, "state": self.state, "claims": claims, "memory": memory,
        });
        match self.state.as_str() {
            "ready" => slot["endpoint"] = json!(format!("http://127.0.0.1:9/{runner}/{id}")),
            "gone" => slot["evidence"] = json!({ "tree_gone": true, "driver_clear": true }),
            "failed" => slot["reason"] = json!(self.reason),
            "exited" => slot["exit_code"] = json!(self.exit_code.unwrap_or_default()),
            _ => {}
        }
        slot
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}")).to_owned()
}
