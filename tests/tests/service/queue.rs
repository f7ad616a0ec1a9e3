//! The queue, reuse, leases and their ends, over HTTP.

use std::time::{Duration, Instant};

use berth_tests::service::{AgentThread, Api, FakeAgent, GIB, Server, at_once, eventually, ledgers};
use serde_json::{Value, json};

/// The slots of a model.
fn slots(api: &Api, model: &str) -> Vec<Value> {
    api.get(&format!("/scheduler/slots?model={model}")).is(200).rows().to_vec()
}

#[test]
fn q1_a_hundred_leases_share_one_slot_of_256() {
    let server = Server::start();
    let api = server.api();
    let mut agent = FakeAgent::new(&api, "box", &[80 * GIB, 80 * GIB]).registered();
    api.model("chat", json!({ "memory": "20GiB", "concurrency": 256 }));

    let ids = at_once(0..100, |_| api.lease("chat").is(201).id());
    agent.obey_all();
    let listed = slots(&api, "chat");
    assert_eq!(listed.len(), 1, "no second replica");
    assert_eq!((&listed[0]["active"], &listed[0]["concurrency"]), (&json!(100), &json!(256)));
    let endpoint = &listed[0]["endpoint"];
    for id in ids {
        let workload = api.workload(&id);
        assert_eq!(workload["state"], "running");
        assert_eq!(&workload["slot"]["endpoint"], endpoint);
    }
}

#[test]
fn q1_with_one_replica_at_most_the_next_lease_waits() {
    let server = Server::start();
    let api = server.api();
    let mut agent = FakeAgent::new(&api, "box", &[80 * GIB; 4]).registered();
    for concurrency in [1, 2, 8] {
        let model = format!("by-{concurrency}");
        api.model(&model, json!({ "memory": "5GiB", "concurrency": concurrency, "max_replicas": 1 }));
        let taken: Vec<String> = (0..concurrency).map(|_| api.lease(&model).is(201).id()).collect();
        let next = api.lease(&model).is(201);
        agent.obey_all();
        assert!(taken.iter().all(|id| api.state(id) == "running"), "{model}");
        assert_eq!(next.body["state"], "queued", "{model}");
        assert_eq!(next.body["reason"]["code"], "replica_limit", "{model}");
        let _ = api.complete(&taken[0], 1).is(200);
        assert_eq!(api.state(&next.id()), "running", "{model}: it gets the place that came free");
    }
}

#[test]
fn q2_what_fits_passes_a_head_that_does_not() {
    let server = Server::start();
    let api = server.api();
    let mut agent = FakeAgent::new(&api, "box", &[80 * GIB]).registered();
    for (name, memory) in [("seventy", "70GiB"), ("head", "30GiB"), ("two", "2GiB")] {
        api.model(name, json!({ "memory": memory }));
    }
    let _ = api.lease("seventy").is(201);
    agent.obey_all();
    assert_eq!(api.lease("head").is(201).body["state"], "queued");
    assert_eq!(api.lease("two").is(201).body["state"], "assigned");
}

#[test]
fn q2_past_the_age_limit_the_head_gets_what_a_popular_model_holds() {
    let server = Server::with(&["scheduler.age_limit=300ms", "scheduler.min_run=0s"]);
    let api = server.api();
    let mut agent = FakeAgent::new(&api, "box", &[80 * GIB]).registered();
    api.model("popular", json!({ "memory": "60GiB", "concurrency": 4 }));
    api.model("head", json!({ "memory": "74GiB" }));
    let first = api.lease("popular").is(201).id();
    agent.obey_all();
    let head = api.lease("head").is(201).id();
    let second = api.lease("popular").is(201).body;
    assert_eq!(second["state"], "running", "before the age limit the popular one goes on");

    let reserved = eventually("a reservation", || {
        let workload = api.workload(&head);
        (workload["reserved_gpus"] == json!([agent.uuid(0)])).then_some(workload)
    });
    assert_eq!(reserved["state"], "queued");
    let late = api.lease("popular").is(201).body;
    assert_eq!(late["state"], "queued", "the popular slot takes no new leases");
    for id in [first.as_str(), second["id"].as_str().unwrap()] {
        let _ = api.complete(id, 1).is(200);
    }
    eventually("the popular slot goes and the head runs", || {
        agent.obey();
        (api.state(&head) == "running").then_some(())
    });
    let _ = ledgers::checked(&api);
}

#[test]
fn q3_one_key_is_one_workload() {
    let server = Server::start();
    let api = server.api();
    api.model("chat", json!({ "memory": "20GiB" }));
    let submit = |api: &Api, key: &str, body: &Value| {
        api.ask("POST", "/api/v1/workloads").header("Idempotency-Key", key).json(body).send()
    };
    let body = json!({ "model": "chat", "tenant": "acme" });
    let replies = at_once(0..16, |_| submit(&api, "the-same", &body));
    let mut ids: Vec<String> = replies.iter().map(berth_tests::service::Reply::id).collect();
    ids.dedup();
    assert_eq!(ids.len(), 1, "sixteen at once are one");
    assert_eq!(replies.iter().filter(|reply| reply.status == 201).count(), 1);
    assert_eq!(replies.iter().filter(|reply| reply.status == 200).count(), 15);
    assert_eq!(submit(&api, "the-same", &json!({ "model": "chat" })).is(409).code(), "key_reused");
    let other = submit(&api, "another", &body).is(201);
    assert_ne!(other.id(), ids[0]);
    assert_eq!(other.header("location"), Some(format!("/api/v1/workloads/{}", other.id()).as_str()));
    for bad in ["", &"k".repeat(257)] {
        assert_eq!(submit(&api, bad, &body).is(422).body["field"], "Idempotency-Key");
    }

    let admin = api.with_token(&api.token("ops", "admin", None));
    let one = admin.with_token(&admin.token("one", "submitter", None));
    let two = admin.with_token(&admin.token("two", "submitter", None));
    let body = json!({ "model": body["model"] });
    let (first, second) = (submit(&one, "mine", &body).is(201), submit(&two, "mine", &body).is(201));
    assert_ne!(first.id(), second.id(), "a key belongs to whoever used it");
}

#[test]
fn q3_a_b_c_d_and_a_again_are_four_in_order() {
    let server = Server::start();
    let api = server.api();
    api.model("chat", json!({ "memory": "20GiB" }));
    let submit = |key: &str, priority: i64| {
        let body = json!({ "model": "chat", "priority": priority });
        api.ask("POST", "/api/v1/workloads").header("Idempotency-Key", key).json(&body).send()
    };
    let ids: Vec<String> = ["a", "b", "c", "d"].map(|key| submit(key, 0).is(201).id()).into();
    assert_eq!(submit("a", 0).is(200).id(), ids[0]);
    let queue = || {
        let reply = api.get("/scheduler/queue").is(200);
        let row = |row: &Value| (row["position"].as_u64().unwrap(), row["workload_id"].as_str().unwrap().to_owned());
        reply.rows().iter().map(row).collect::<Vec<_>>()
    };
    assert_eq!(queue(), (1..).zip(ids.clone()).collect::<Vec<_>>());
    assert_eq!(api.workload(&ids[2])["position"], 3);
    let urgent = submit("urgent", 5).is(201).id();
    let order: Vec<String> = queue().into_iter().map(|(_, id)| id).collect();
    assert_eq!(order[0], urgent, "priority goes first");
    assert_eq!(order[1..], ids);
    assert_eq!(api.workload(&ids[2])["position"], 4);
    assert_eq!(api.cancel(&ids[0]).is(200).body["state"], "cancelled");
    assert_eq!(api.workload(&ids[2])["position"], 3);
}

#[test]
fn q3_a_full_queue_is_429_with_a_time_to_try_again() {
    let server = Server::with(&["scheduler.queue_limit=3"]);
    let api = server.api();
    let mut agent = FakeAgent::new(&api, "box", &[80 * GIB]).registered();
    api.model("whole", json!({ "memory": "80GiB" }));
    api.model("small", json!({ "gpu_counts": [0], "cpu_millicores": 1 }));
    let running = api.lease("whole").is(201).id();
    agent.obey_all();
    let waiting: Vec<String> = (0..3).map(|_| api.lease("whole").is(201).id()).collect();
    let refused = api.lease("whole").is(429);
    assert_eq!(refused.code(), "queue_full");
    assert!(refused.header("retry-after").unwrap().parse::<u64>().unwrap() >= 1);
    assert_eq!(api.get("/scheduler/queue").is(200).rows().len(), 3, "a refusal is not remembered");
    assert_eq!(api.lease("small").is(201).body["state"], "assigned", "what need not wait is taken");
    let _ = api.complete(&running, 1).is(200);
    assert_eq!(api.state(&waiting[0]), "running");
    assert_eq!(api.lease("whole").is(201).body["position"], 3);
}

#[test]
fn q4_a_cancelled_lease_ends_once_and_returns_its_concurrency_once_in_each_state() {
    let server = Server::start();
    let api = server.api();
    let mut agent = FakeAgent::new(&api, "box", &[80 * GIB]).registered();
    agent.starts_at_once = false;
    api.model("chat", json!({ "memory": "60GiB", "concurrency": 3 }));
    api.model("other", json!({ "memory": "60GiB" }));
    let keeper = api.lease("chat").is(201).id();
    let assigned = api.lease("chat").is(201).id();
    agent.obey();
    assert_eq!(api.state(&assigned), "assigned");
    let queued = api.lease("other").is(201).id();
    let active = || slots(&api, "chat")[0]["active"].clone();

    assert_eq!(api.cancel(&queued).is(200).body["state"], "cancelled");
    assert_eq!(api.cancel(&assigned).is(200).body["state"], "cancelled");
    assert_eq!(active(), 1);
    agent.starts_at_once = true;
    agent.obey();
    let running = api.lease("chat").is(201).body;
    assert_eq!((&running["state"], active()), (&json!("running"), json!(2)));
    let running = running["id"].as_str().unwrap();
    for _ in 0..3 {
        assert_eq!(api.cancel(running).is(200).body["state"], "cancelled", "saying it again is the same");
        assert_eq!(active(), 1);
    }
    for id in [&queued, &assigned, running] {
        assert_eq!(api.complete(id, 1).is(409).code(), "workload_ended", "an end never changes");
        assert_eq!(api.workload(id)["reason"]["code"], "cancelled");
    }
    assert_eq!(api.complete(&keeper, 1).is(200).body["state"], "succeeded");
    assert_eq!(api.cancel(&keeper).is(409).code(), "workload_ended");
    assert_eq!(active(), 0);
    assert_eq!(api.cancel("01932c07-3a5b-7cc2-b7d1-58a1f7f4a921").is(404).code(), "unknown_workload");
}

#[test]
fn q4_fifty_times_ten_starts_and_finishes_leave_nothing_active() {
    let server = Server::start();
    let api = server.api();
    let agent = AgentThread::start(FakeAgent::new(&api, "box", &[80 * GIB]).registered());
    api.model("chat", json!({ "memory": "20GiB", "concurrency": 64 }));
    at_once(0..50, |_| {
        for _ in 0..10 {
            let lease = api.post("/api/v1/workloads?wait=20s", &json!({ "model": "chat" })).is(201);
            assert_eq!(lease.body["state"], "running", "{}", lease.text);
            assert_eq!(api.complete(&lease.id(), 1).is(200).body["state"], "succeeded");
        }
    });
    let listed = slots(&api, "chat");
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0]["active"], 0);
    assert!(listed[0]["idle_since"].is_string());
    assert_eq!(api.get("/api/v1/workloads?state=succeeded").is(200).rows().len(), 500);
    assert_eq!(agent.stop().started.len(), 1);
}

#[test]
fn q5_a_lease_whose_gateway_disappears_expires_and_is_counted_once() {
    let server = Server::start();
    let api = server.api();
    let mut agent = FakeAgent::new(&api, "box", &[80 * GIB]).registered();
    api.model("chat", json!({ "memory": "20GiB", "concurrency": 2 }));
    let keeper = api.lease("chat").is(201).id();
    agent.obey_all();
    let gone = api.post("/api/v1/workloads", &json!({ "model": "chat", "ttl": "400ms" })).is(201).id();
    assert_eq!(slots(&api, "chat")[0]["active"], 2);
    let expired = api.get(&format!("/api/v1/workloads/{gone}?wait=10s&after={}", api.workload(&gone)["revision"]));
    assert_eq!(expired.is(200).body["state"], "expired");
    assert_eq!(api.workload(&gone)["reason"]["code"], "lease_expired");
    assert_eq!(slots(&api, "chat")[0]["active"], 1, "its place came back");
    assert_eq!(api.complete(&gone, 1).is(409).code(), "workload_ended", "a late completion is none");
    let beat = api.post(&format!("/api/v1/workloads/{gone}/heartbeat"), &json!({ "attempt": 1 }));
    assert_eq!(beat.is(409).code(), "workload_ended");
    assert_eq!(slots(&api, "chat")[0]["active"], 1);

    assert_eq!(api.complete(&keeper, 2).is(409).code(), "stale_attempt");
    let first = api.complete(&keeper, 1).is(200);
    let again = api.complete(&keeper, 1).is(200);
    assert_eq!(first.body, again.body, "a repeated completion gets its first answer");
    let otherwise = json!({ "attempt": 1, "succeeded": false });
    assert_eq!(api.post(&format!("/api/v1/workloads/{keeper}/complete"), &otherwise).is(409).code(), "workload_ended");
    assert_eq!(slots(&api, "chat")[0]["active"], 0);
}

#[test]
fn q5_heartbeats_keep_a_lease_alive() {
    let server = Server::start();
    let api = server.api();
    let mut agent = FakeAgent::new(&api, "box", &[80 * GIB]).registered();
    api.model("chat", json!({ "memory": "20GiB" }));
    let id = api.post("/api/v1/workloads", &json!({ "model": "chat", "ttl": "2s" })).is(201).id();
    agent.obey_all();
    let beat = |attempt| api.post(&format!("/api/v1/workloads/{id}/heartbeat"), &json!({ "attempt": attempt }));
    assert_eq!(beat(7).is(409).code(), "stale_attempt");
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(4) {
        assert_eq!(beat(1).is(200).body["state"], "running");
        std::thread::sleep(Duration::from_millis(100));
    }
    eventually("without them it expires", || (api.state(&id) == "expired").then_some(()));
}

#[test]
fn q6_full_is_not_failed() {
    let server = Server::start();
    let api = server.api();
    let mut agent = FakeAgent::new(&api, "box", &[80 * GIB, 80 * GIB]).registered();
    api.model("big", json!({ "memory": "74.49GiB" }));
    let busy: Vec<String> = (0..2).map(|_| api.lease("big").is(201).id()).collect();
    agent.obey_all();
    let waits = api.lease("big").is(201);
    assert_eq!((&waits.body["state"], &waits.body["reason"]["code"]), (&json!("queued"), &json!("full_now")));
    let impatient = json!({ "model": "big", "queue_timeout": "200ms" });
    let impatient = api.post("/api/v1/workloads?wait=10s", &impatient).is(201);
    assert_eq!(impatient.body["state"], "expired", "unless it says how long it waits");
    assert_eq!(impatient.body["reason"]["code"], "queue_timeout");
    assert_eq!(api.state(&waits.id()), "queued");
    let _ = api.complete(&busy[0], 1).is(200);
    assert_eq!(api.state(&waits.id()), "running");
}
