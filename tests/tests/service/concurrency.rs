//! Many requests at once, against the real server.
#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use berth_tests::service::{AgentThread, Api, FakeAgent, GIB, Server, at_once, ledgers};
use serde_json::json;

/// How many of these are in each state.
fn count<'a>(states: impl IntoIterator<Item = &'a str>) -> BTreeMap<&'a str, usize> {
    states.into_iter().fold(BTreeMap::new(), |mut counts, state| {
        *counts.entry(state).or_default() += 1;
        counts
    })
}

#[test]
fn c1_of_three_jobs_of_8_at_once_on_20_two_are_placed() {
    let server = Server::start();
    let api = server.api();
    let agent = FakeAgent::new(&api, "box", &[20 * GIB]).registered();
    api.model("eight", json!({ "memory": "8GiB" }));

    let answers = at_once(0..3, |_| api.job("eight").is(201));
    let states = count(answers.iter().map(|answer| answer.body["state"].as_str().unwrap()));
    assert_eq!(states, BTreeMap::from([("assigned", 2), ("queued", 1)]));
    let waits = answers.iter().find(|answer| answer.body["state"] == "queued").unwrap();
    assert_eq!(waits.body["reason"]["code"], "full_now", "full is not an error");

    let ledger = ledgers::checked(&api);
    let device = ledgers::device(&ledger, &agent.uuid(0));
    assert_eq!(device["held_bytes"], 16 * GIB);
    assert_eq!(device["claims"].as_array().unwrap().len(), 2);
}

#[test]
fn c1_of_12_and_10_at_once_on_20_one_is_placed() {
    let server = Server::start();
    let api = server.api();
    let agent = FakeAgent::new(&api, "box", &[20 * GIB]).registered();
    api.model("twelve", json!({ "memory": "12GiB" }));
    api.model("ten", json!({ "memory": "10GiB" }));

    let answers = at_once(["twelve", "ten"], |model| api.job(model).is(201));
    let states = count(answers.iter().map(|answer| answer.body["state"].as_str().unwrap()));
    assert_eq!(states, BTreeMap::from([("assigned", 1), ("queued", 1)]));
    let placed = answers.iter().find(|answer| answer.body["state"] == "assigned").unwrap();
    let bytes = if placed.body["model"] == "twelve" { 12 * GIB } else { 10 * GIB };
    let ledger = ledgers::checked(&api);
    assert_eq!(ledgers::device(&ledger, &agent.uuid(0))["held_bytes"], bytes);
}

#[test]
fn c2_a_hundred_at_once_on_twenty_runners_are_five_on_each() {
    let server = Server::start();
    let api = server.api();
    for number in 0..20 {
        let mut agent = FakeAgent::new(&api, &format!("box-{number:02}"), &[]);
        agent.about["host"] = json!({ "cpu_millicores": 10_000, "ram_bytes": 20_480u64 << 20 });
        let _ = agent.registered();
    }
    api.model("small", json!({ "gpu_counts": [0], "cpu_millicores": 100, "ram": "256MiB" }));

    let answers = at_once(0..100, |_| api.job("small").is(201));
    assert!(answers.iter().all(|answer| answer.body["state"] == "assigned"), "all of them have their place at once");
    let runners = count(answers.iter().map(|answer| answer.body["slot"]["runner_id"].as_str().unwrap()));
    assert_eq!(runners.len(), 20);
    assert!(runners.values().all(|jobs| *jobs == 5), "{runners:?}");

    let ledger = ledgers::checked(&api);
    for host in ledger["hosts"].as_array().unwrap() {
        assert_eq!(host["cpu"]["held_millicores"], 500);
        assert_eq!(host["cpu"]["free_millicores"], 9_500);
        assert_eq!(host["ram"]["held_bytes"], (5 * 256u64) << 20);
    }
}

#[test]
fn c3_a_thousand_at_once_take_the_last_millicore() {
    let server = Server::start();
    let api = server.api();
    let mut agent = FakeAgent::new(&api, "box", &[]);
    agent.about["host"] = json!({ "cpu_millicores": 1000, "ram_bytes": 2000u64 << 20 });
    let _ = agent.registered();
    api.model("tiny", json!({ "gpu_counts": [0], "cpu_millicores": 1, "ram": "1MiB" }));

    let states: Vec<String> = at_once(0..50, |_| {
        let state = |_| api.job("tiny").is(201).body["state"].as_str().unwrap().to_owned();
        (0..20).map(state).collect::<Vec<_>>()
    })
    .concat();
    assert_eq!(count(states.iter().map(String::as_str)), BTreeMap::from([("assigned", 1000)]));

    let host = ledgers::checked(&api)["hosts"][0].clone();
    assert_eq!(host["cpu"]["free_millicores"], 0);
    assert_eq!(host["cpu"]["held_millicores"], 1000);
    assert_eq!(host["ram"]["free_bytes"], 1000u64 << 20);
    assert_eq!(api.job("tiny").is(201).body["reason"]["code"], "host_full", "the next one waits");
}

/// A stream of numbers that is the same in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

/// One gateway of the storm: it holds a handful of workloads at a time, and ends the oldest when its hands are full.
struct Gateway<'a> {
    api: &'a Api,
    dice: Dice,
    hands: VecDeque<String>,
    /// What became of each workload, as the server acknowledged it.
    told: BTreeMap<String, &'static str>,
}

impl Gateway<'_> {
    const MODELS: [&'static str; 5] = ["chat", "small", "large", "huge", "batch"];

    fn submit(&mut self) {
        let model = Self::MODELS[usize::try_from(self.dice.roll(5)).unwrap()];
        let kind = if model == "batch" { "job" } else { "lease" };
        let body = json!({ "model": model, "kind": kind, "priority": self.dice.roll(3) });
        let id = self.api.post("/api/v1/workloads", &body).is(201).id();
        self.told.insert(id.clone(), "open");
        self.hands.push_back(id);
    }

    /// Completes the oldest if it runs, else takes it back. A few are forgotten and stay as they are.
    fn end_oldest(&mut self) {
        let Some(id) = self.hands.pop_front() else { return };
        if self.dice.roll(40) == 0 {
            return;
        }
        let workload = self.api.workload(&id);
        let runs = workload["state"] == "running";
        let reply = match runs {
            true => self.api.complete(&id, workload["attempt"].as_u64().unwrap()),
            false => self.api.cancel(&id),
        };
        match (runs, reply.status) {
            (true, 200) => drop(self.told.insert(id, "succeeded")),
            (false, 200) => drop(self.told.insert(id, "cancelled")),
            other => panic!("{other:?}: {}", reply.text),
        }
    }
}

/// It storms until this is dropped, however that comes about.
struct Storm<'a>(&'a AtomicBool);

impl Drop for Storm<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// 64 gateways submit 5 120 workloads, look at each, and complete it or take it back: 10 000 changes.
#[test]
fn c4_a_storm_leaves_every_ledger_the_fold_of_its_claims() {
    const GATEWAYS: u64 = 64;
    const EACH: usize = 80;
    // Idle slots may go at once, so that the storm evicts, promises and proves too. Decisions are not logged: the
    // machine is busy enough.
    let server = Server::with(&["scheduler.min_run=0s", "log.filter=warn,berth::serve=info"]);
    let api = server.api();
    let runner = |number| FakeAgent::new(&api, &format!("box-{number:02}"), &[80 * GIB; 8]).registered();
    let agents = AgentThread::all((0..20).map(runner).collect::<Vec<_>>());
    api.model("chat", json!({ "memory": "14.685GiB", "concurrency": 4 }));
    api.model("small", json!({ "memory": "39GiB" }));
    api.model("large", json!({ "memory": "74.49GiB" }));
    api.model("huge", json!({ "memory": "140GiB" }));
    api.model("batch", json!({ "memory": "20GiB" }));

    let storms = AtomicBool::new(true);
    let (told, looks) = std::thread::scope(|scope| {
        let looks = scope.spawn(|| {
            let mut looks = 0;
            while storms.load(Ordering::Relaxed) {
                let _ = ledgers::checked(&api);
                looks += 1;
                std::thread::sleep(Duration::from_millis(50));
            }
            looks
        });
        let storm = Storm(&storms);
        let told = at_once(1..=GATEWAYS, |number| {
            let dice = Dice(number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
            let mut gateway = Gateway { api: &api, dice, hands: VecDeque::new(), told: BTreeMap::new() };
            for _ in 0..EACH {
                gateway.submit();
                if gateway.hands.len() > 6 {
                    gateway.end_oldest();
                }
            }
            while !gateway.hands.is_empty() {
                gateway.end_oldest();
            }
            gateway.told
        });
        drop(storm);
        (told, looks.join().unwrap())
    });
    assert!(looks > 10, "the ledgers were looked at {looks} times");

    let told: BTreeMap<String, &str> = told.into_iter().flatten().collect();
    assert_eq!(told.len(), usize::try_from(GATEWAYS).unwrap() * EACH, "every submission is a workload of its own");
    let listed = api.get("/api/v1/workloads").is(200);
    let found: BTreeMap<&str, &str> =
        listed.rows().iter().map(|row| (row["id"].as_str().unwrap(), row["state"].as_str().unwrap())).collect();
    assert_eq!(found.len(), told.len());
    for (id, end) in &told {
        let state = found[id.as_str()];
        let right = if *end == "open" { matches!(state, "queued" | "assigned" | "running") } else { state == *end };
        assert!(right, "{id} was acknowledged as {end} and is {state}");
    }
    let counted = count(told.values().copied());
    assert!(counted["succeeded"] > 500 && counted["cancelled"] > 100, "both ends were common: {counted:?}");

    let agents: Vec<FakeAgent> = agents.into_iter().map(AgentThread::stop).collect();
    let mut starts: Vec<_> = agents.iter().flat_map(|agent| &agent.started).collect();
    let all = starts.len();
    starts.sort();
    starts.dedup();
    assert_eq!(starts.len(), all, "nothing was started twice");
    let _ = ledgers::checked(&api);
    assert_eq!(api.get("/readyz").is(200).body["ready"], true);
}
