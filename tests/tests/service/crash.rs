//! A server that is killed at any moment (S1): nothing that was acknowledged is lost, and nothing is started again.
#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use berth_tests::service::{AgentThread, Api, FakeAgent, GIB, Reply, Server, eventually, ledgers};
use serde_json::{Value, json};

/// What of a row must be the same after a restart: all of it but what is counted from now.
fn kept(row: &Value, volatile: &[&str]) -> Value {
    let mut row = row.clone();
    volatile.iter().for_each(|name| drop(row.as_object_mut().unwrap().remove(*name)));
    row
}

/// Everything that a restart must not change.
fn everything(api: &Api) -> Value {
    let list = |path: &str, volatile: &[&str]| -> Value {
        api.get(path).is(200).rows().iter().map(|row| kept(row, volatile)).collect()
    };
    let ledger = ledgers::checked(api);
    // No device is offered before its first report.
    let devices = ledger["devices"].as_array().unwrap();
    json!({
        "workloads": workloads(api),
        "slots": slots(api),
        "queue": list("/scheduler/queue", &["age_ms", "reason"]),
        // How long loading took is measured by each start of the server anew.
        "models": list("/api/v1/models", &["load_median_ms"]),
        "devices": devices.iter().map(|row| kept(row, &["state"])).collect::<Value>(),
        "hosts": ledger["hosts"],
    })
}

/// Workloads without what is judged anew: before the first report no workload waits for the same reason as before.
fn workloads(api: &Api) -> Value {
    let row = |row: &Value| kept(row, if row["state"] == "queued" { &["revision", "reason"] } else { &["revision"] });
    api.get("/api/v1/workloads").is(200).rows().iter().map(row).collect()
}

/// Slots without what the driver last saw of them: that is telemetry, and not kept.
fn slots(api: &Api) -> Value {
    let mut listed = api.get("/scheduler/slots").is(200).body;
    for gpu in listed.as_array_mut().unwrap().iter_mut().flat_map(|slot| slot["gpu_allocation"]["gpus"].as_array_mut())
    {
        gpu.iter_mut().for_each(|gpu| drop(gpu.as_object_mut().unwrap().remove("observed_bytes")));
    }
    listed
}

fn assert_same(before: &Value, after: &Value) {
    for (part, was) in before.as_object().unwrap() {
        let (was, is) = (was.as_array().unwrap(), after[part].as_array().unwrap());
        assert_eq!(was.len(), is.len(), "{part} after a restart");
        was.iter().zip(is).for_each(|(was, is)| assert_eq!(was, is, "{part} after a restart"));
    }
}

#[test]
fn s1_ledgers_queue_slots_and_workloads_come_back_as_they_were() {
    let mut server = Server::with(&["scheduler.min_run=0s"]);
    let api = server.api();
    let mut agent = FakeAgent::new(&api, "box", &[80 * GIB, 80 * GIB]).registered();
    api.model("busy", json!({ "memory": "60GiB" }));
    api.model("idle", json!({ "memory": "50GiB" }));
    api.model("next", json!({ "memory": "70GiB" }));
    api.model("batch", json!({ "memory": "15GiB" }));
    let busy = api.lease("busy").is(201).id();
    let idle = api.lease("idle").is(201).id();
    agent.obey_all();
    let _ = api.complete(&idle, 1).is(200);
    // An eviction that is not proven yet, a promise on it, a job that starts, one that waits, one that was taken back.
    agent.proves_at_once = false;
    let promised = api.lease("next").is(201).id();
    agent.obey_all();
    agent.starts_at_once = false;
    let starting = api.job("batch").is(201).id();
    agent.obey();
    let queued =
        api.post("/api/v1/workloads", &json!({ "model": "next", "priority": 7, "tenant": "ops" })).is(201).id();
    let cancelled = api.lease("next").is(201).id();
    let _ = api.cancel(&cancelled).is(200);
    let states: Vec<String> = [&busy, &idle, &promised, &starting, &queued, &cancelled].map(|id| api.state(id)).into();
    assert_eq!(states, ["running", "succeeded", "assigned", "assigned", "queued", "cancelled"]);

    let before = everything(&api);
    server.kill();
    server.restart();
    assert_same(&before, &everything(&api));

    // The server repeats to the agent what it knows already: it starts nothing, and its proof still counts.
    let started = agent.started.clone();
    let _ = agent.report().is(200);
    agent.obey_all();
    assert_eq!(agent.started, started, "nothing is started again");
    agent.starts_at_once = true;
    agent.prove();
    agent.obey_all();
    assert_eq!(api.state(&promised), "running");
    assert_eq!(api.state(&busy), "running");
    let _ = api.complete(&busy, 1).is(200);
    let _ = ledgers::checked(&api);
}

/// What the server acknowledged to gateways, and what they asked for without hearing the answer.
#[derive(Default)]
struct Acknowledgements {
    /// Acknowledged, and how it ended if that was acknowledged too.
    workloads: BTreeMap<String, Option<&'static str>>,
    /// Ends that were asked for when the server fell: they may have happened.
    in_doubt: BTreeMap<String, &'static str>,
    /// Submissions that were not answered, by their keys: they may be there.
    unanswered: Vec<(String, Value)>,
}

fn submit(api: &Api, key: &str, body: &Value) -> Result<Reply, ureq::Error> {
    api.ask("POST", "/api/v1/workloads?wait=100ms").header("Idempotency-Key", key).json(body).try_send()
}

/// Submits, completes and takes back until the server falls.
fn write_until_the_server_is_killed(
    api: &Api,
    acknowledgements: &Mutex<Acknowledgements>,
    acknowledged: &AtomicUsize,
    round: usize,
    number: usize,
) {
    let model = if number.is_multiple_of(2) { "chat" } else { "batch" };
    let kind = if model == "chat" { "lease" } else { "job" };
    for turn in number.. {
        let (key, body) = (format!("{round}/{number}/{turn}"), json!({ "model": model, "kind": kind }));
        let Ok(reply) = submit(api, &key, &body) else {
            acknowledgements.lock().unwrap().unanswered.push((key, body));
            return;
        };
        let reply = reply.is(201);
        let (id, attempt) = (reply.id(), reply.body["attempt"].clone());
        acknowledgements.lock().unwrap().workloads.insert(id.clone(), None);
        acknowledged.fetch_add(1, Ordering::Relaxed);
        if turn % 5 == 0 {
            continue;
        }
        let runs = reply.body["state"] == "running";
        let (end, ask) = match runs {
            true => {
                let ask = api.ask("POST", &format!("/api/v1/workloads/{id}/complete"));
                ("succeeded", ask.json(&json!({ "attempt": attempt })))
            }
            false => ("cancelled", api.ask("DELETE", &format!("/api/v1/workloads/{id}"))),
        };
        match ask.try_send() {
            Ok(reply) if reply.status == 200 => {
                acknowledgements.lock().unwrap().workloads.insert(id, Some(end));
                acknowledged.fetch_add(1, Ordering::Relaxed);
            }
            Ok(reply) => panic!("{end}: {}", reply.text),
            Err(_) => {
                acknowledgements.lock().unwrap().in_doubt.insert(id, end);
                return;
            }
        }
    }
}

fn check_acknowledged(api: &Api, acknowledgements: &Acknowledgements) {
    let listed = api.get("/api/v1/workloads").is(200);
    let found: BTreeMap<&str, &str> =
        listed.rows().iter().map(|row| (row["id"].as_str().unwrap(), row["state"].as_str().unwrap())).collect();
    for (id, end) in &acknowledgements.workloads {
        let state = found.get(id.as_str()).unwrap_or_else(|| panic!("{id} was acknowledged and is lost"));
        let open = matches!(*state, "queued" | "assigned" | "running");
        match (end, acknowledgements.in_doubt.get(id)) {
            (Some(end), _) => assert_eq!(state, end, "{id}"),
            (None, Some(end)) => assert!(open || state == end, "{id} is {state}"),
            (None, None) => assert!(open, "{id} is {state}, and nobody asked for that"),
        }
    }
}

fn generations(api: &Api) -> BTreeMap<String, Value> {
    let row = |row: &Value| (row["id"].as_str().unwrap().to_owned(), row["generation"].clone());
    api.get("/scheduler/slots").is(200).rows().iter().map(row).collect()
}

#[test]
fn s1_killed_in_a_storm_of_writers_nothing_acknowledged_is_lost() {
    const ROUNDS: usize = 10;
    const WRITERS: usize = 12;
    let mut server = Server::with(&["scheduler.min_run=0s", "journal.segment=1MiB", "journal.snapshot_after=1MiB"]);
    let api = server.api();
    let runner = |number| FakeAgent::new(&api, &format!("box-{number}"), &[80 * GIB; 4]).registered();
    let agents = AgentThread::all((0..4).map(runner).collect::<Vec<_>>());
    api.model("chat", json!({ "memory": "14.685GiB", "concurrency": 4 }));
    api.model("batch", json!({ "memory": "20GiB" }));
    let acknowledgements = Mutex::new(Acknowledgements::default());
    let mut before = BTreeMap::new();

    for round in 1..=ROUNDS {
        let acknowledged = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for number in 0..WRITERS {
                let (api, acknowledgements, acknowledged) = (&api, &acknowledgements, &acknowledged);
                scope.spawn(move || {
                    write_until_the_server_is_killed(api, acknowledgements, acknowledged, round, number);
                });
            }
            eventually("some writes", || (acknowledged.load(Ordering::Relaxed) > 37 * round).then_some(()));
            before.append(&mut generations(&api));
            server.kill();
        });
        server.restart();
        let _ = ledgers::checked(&api);
        let mut acknowledgements = acknowledgements.lock().unwrap();
        check_acknowledged(&api, &acknowledgements);
        // A gateway without an answer asks again with the same key, and has one workload for it.
        for (key, body) in std::mem::take(&mut acknowledgements.unanswered) {
            let reply = submit(&api, &key, &body).unwrap();
            assert!(matches!(reply.status, 200 | 201), "{}", reply.text);
            acknowledgements.workloads.insert(reply.id(), None);
        }
        // Room for the next round.
        let Acknowledgements { workloads, in_doubt, .. } = &mut *acknowledgements;
        for (id, end) in workloads.iter_mut().filter(|(id, end)| end.is_none() && !in_doubt.contains_key(*id)) {
            assert_eq!(api.cancel(id).is(200).body["state"], "cancelled");
            *end = Some("cancelled");
        }
        assert_eq!(
            api.get("/api/v1/workloads").is(200).rows().len(),
            acknowledgements.workloads.len(),
            "each submission once"
        );
        drop(acknowledgements);
        for (slot, generation) in generations(&api) {
            assert!(before.get(&slot).is_none_or(|was| *was == generation), "slot {slot} was started again");
        }
    }

    let acknowledgements = acknowledgements.into_inner().unwrap();
    assert!(acknowledgements.workloads.len() > 200, "{} workloads", acknowledgements.workloads.len());
    let agents: Vec<FakeAgent> = agents.into_iter().map(AgentThread::stop).collect();
    let mut started = BTreeSet::new();
    for agent in agents {
        for (slot, generation) in &agent.started {
            assert!(started.insert(slot.clone()), "slot {slot} was started twice, as generation {generation} last");
        }
    }
    assert!(!started.is_empty());
    let _ = ledgers::checked(&api);
}

#[test]
fn n16_after_a_restart_nothing_is_placed_before_the_first_report_and_no_lease_expires_at_once() {
    let mut server = Server::start();
    let api = server.api();
    let mut agent = FakeAgent::new(&api, "box", &[80 * GIB, 80 * GIB]).registered();
    api.model("chat", json!({ "memory": "60GiB" }));
    let running = api.post("/api/v1/workloads", &json!({ "model": "chat", "ttl": "3s" })).is(201).id();
    agent.obey_all();
    server.kill();
    std::thread::sleep(std::time::Duration::from_millis(3500));
    server.restart();
    assert_eq!(api.state(&running), "running", "the server was away, not the gateway");
    let early = api.lease("chat").is(201);
    assert_eq!((&early.body["state"], &early.body["reason"]["code"]), (&json!("queued"), &json!("runners_not_ready")));
    assert_eq!(api.get("/api/v1/runners/box").is(200).body["reported"], false);
    let _ = agent.report().is(200);
    assert_eq!(api.state(&early.id()), "assigned");
}
