//! A compromised runner with a token of its own: whatever it reports, its neighbours do not change by a byte.

#![expect(clippy::unwrap_used, reason = "tests")]

use berth_tests::service::{Api, FakeAgent, GIB, Server};
use serde_json::{Value, json};

/// A server with tokens, and an admin's client.
fn guarded() -> (Server, Api) {
    let server = Server::start();
    let admin = server.api().with_token(&server.api().token("ops", "admin", None));
    (server, admin)
}

/// An agent with a token of its own that grants nothing but its id.
fn agent(server: &Server, admin: &Api, id: &str, gpus: &[u64]) -> FakeAgent {
    let secret = admin.token(id, "runner", Some(id));
    FakeAgent::new(&server.api().with_token(&secret), id, gpus)
}

/// Everything that concerns the runner `victim` and its work, but for when it was last heard.
fn victims_world(admin: &Api) -> Vec<Value> {
    let mut runner = admin.get("/api/v1/runners/victim").is(200).body;
    runner["last_seen"] = Value::Null;
    let mut status = admin.get("/api/v1/runners/victim/status").is(200).body;
    (status["received"], status["age_ms"]) = (Value::Null, Value::Null);
    let ledger = admin.get("/scheduler/ledger").is(200).body;
    let of_victim = |row: &&Value| row["runner_ids"].as_array().unwrap().contains(&json!("victim"));
    let rows = |name: &str| ledger[name].as_array().unwrap().iter().filter(of_victim).cloned().collect::<Vec<_>>();
    let slots = admin.get("/scheduler/slots").is(200).rows().to_vec();
    let slots = slots.into_iter().filter(|slot| slot["runner_id"] == "victim");
    let workloads = admin.get("/api/v1/workloads").is(200).rows().to_vec();
    let parts = [runner, status].into_iter().chain(rows("devices")).chain(rows("hosts"));
    parts.chain(slots).chain(workloads).collect()
}

/// A neighbour with a slot that serves a lease.
fn victim(server: &Server, admin: &Api) -> FakeAgent {
    admin.model("m", json!({ "memory": 60 * GIB, "gpu_counts": [1] }));
    let mut victim = agent(server, admin, "victim", &[80 * GIB]).registered();
    let lease = admin.lease("m").is(201).id();
    victim.obey_all();
    assert_eq!(admin.state(&lease), "running");
    victim
}

fn barred(admin: &Api, id: &str) -> Value {
    admin.get(&format!("/api/v1/runners/{id}")).is(200).body["barred"].clone()
}

#[test]
fn a_reboot_that_another_runner_invents_proves_nothing() {
    let (server, admin) = guarded();
    let mut neighbour = victim(&server, &admin);
    let before = victims_world(&admin);
    let mut evil = agent(&server, &admin, "evil", &[80 * GIB]);
    evil.about["machine_id"] = neighbour.about["machine_id"].clone();
    for boot in ["other-boot", "another-boot"] {
        evil.about["boot_id"] = json!(boot);
        evil.incarnation = None;
        let _ = evil.report().is(200);
        assert_eq!(victims_world(&admin), before, "boot {boot}");
    }
    // Both sides are named, and nothing goes there.
    let why = barred(&admin, "evil");
    assert_eq!(why["code"], "machine_disputed");
    let text = why["text"].as_str().unwrap();
    assert!(text.contains("runner evil") && text.contains("runner victim"), "{text}");
    let waiting = admin.lease("m").is(201).id();
    assert_eq!(admin.state(&waiting), "queued");
    assert_eq!(admin.cancel(&waiting).status, 200);
    // The neighbour is heard as before.
    let _ = neighbour.report().is(200);
    assert_eq!(admin.get("/api/v1/runners/victim").body["state"], "ready");
}

#[test]
fn a_neighbours_gpu_is_neither_shrunk_nor_filled_nor_lost_by_a_strangers_word() {
    let (server, admin) = guarded();
    let neighbour = victim(&server, &admin);
    let before = victims_world(&admin);
    for own_machine in [false, true] {
        let id = if own_machine { "evil-elsewhere" } else { "evil-here" };
        let mut evil = agent(&server, &admin, id, &[80 * GIB]);
        if !own_machine {
            evil.about["machine_id"] = neighbour.about["machine_id"].clone();
        }
        let gpu = |change: Value| {
            let mut gpu = neighbour.about["gpus"][0].clone();
            change.as_object().unwrap().iter().for_each(|(name, value)| gpu[name] = value.clone());
            gpu
        };
        let lies = [
            json!({ "memory_total_bytes": 1 }),
            json!({ "memory_used_bytes": 80 * GIB }),
            json!({ "health": "lost" }),
            json!({ "uuid": "GPU-child", "parent_uuid": neighbour.uuid(0) }),
        ];
        for lie in lies {
            evil.about["gpus"] = json!([gpu(lie.clone())]);
            let _ = evil.report().is(200);
            assert_eq!(victims_world(&admin), before, "{id}: {lie}");
        }
    }
}

#[test]
fn an_operator_says_whether_runners_share_a_machine() {
    let (server, admin) = guarded();
    admin.model("small", json!({ "memory": 10 * GIB, "gpu_counts": [1] }));
    let mut first = agent(&server, &admin, "first", &[80 * GIB]).registered();
    let machine = first.about["machine_id"].clone();
    let mut clones: Vec<FakeAgent> = ["clone-1", "clone-2", "roommate"]
        .map(|id| {
            let mut clone = agent(&server, &admin, id, &[80 * GIB]);
            clone.about["machine_id"] = machine.clone();
            if id == "roommate" {
                clone.about["gpus"] = first.about["gpus"].clone();
            }
            let _ = clone.report().is(200);
            assert_eq!(barred(&admin, id)["code"], "machine_disputed");
            clone
        })
        .into();
    let judge = |body: Value| admin.post("/api/v1/machines/judge", &body);
    let unknown = judge(json!({ "runners": ["nobody"], "same": true, "reason": "r" }));
    assert_eq!((unknown.status, unknown.code()), (404, "unknown_runner"));

    // Two containers on one machine, and machines that were cloned from one image.
    let _ = judge(json!({ "runners": ["roommate"], "same": true, "reason": "two containers" })).is(204);
    let _ = judge(json!({ "all_disputed": true, "same": false, "reason": "cloned image" })).is(204);
    for clone in &mut clones {
        let _ = clone.report().is(200);
        assert!(barred(&admin, &clone.id).is_null(), "{}", barred(&admin, &clone.id));
    }
    let ledger = admin.get("/scheduler/ledger").is(200).body;
    let device = |uuid: &str| ledger["devices"].as_array().unwrap().iter().find(|row| row["uuid"] == uuid).unwrap();
    assert_eq!(device(&first.uuid(0))["runner_ids"], json!(["first", "roommate"]), "one GPU, one ledger");
    assert_eq!(ledger["hosts"].as_array().unwrap().len(), 3, "{}", ledger["hosts"]);
    // Each of the four takes work now.
    let leases: Vec<String> = (0..4).map(|_| admin.lease("small").is(201).id()).collect();
    first.obey_all();
    clones.iter_mut().for_each(FakeAgent::obey_all);
    assert!(leases.iter().all(|lease| admin.state(lease) == "running"));
    // What was decided outlives a report, a registration and a restart of the server.
    for clone in &mut clones {
        clone.incarnation = None;
        let _ = clone.report().is(200);
        assert!(barred(&admin, &clone.id).is_null());
    }
}

#[test]
fn runners_that_share_a_machine_reboot_each_for_itself_and_the_worst_health_closes_a_gpu() {
    let (server, admin) = guarded();
    let neighbour = victim(&server, &admin);
    let mut roommate = agent(&server, &admin, "roommate", &[80 * GIB]);
    roommate.about["machine_id"] = neighbour.about["machine_id"].clone();
    roommate.about["gpus"] = neighbour.about["gpus"].clone();
    roommate.about["gpus"][0]["memory_used_bytes"] = json!(60 * GIB);
    let _ = roommate.report().is(200);
    let word = json!({ "runners": ["roommate"], "same": true, "reason": "two containers" });
    let _ = admin.post("/api/v1/machines/judge", &word).is(204);
    let _ = roommate.report().is(200);

    let slots = || admin.get("/scheduler/slots").is(200).rows().to_vec();
    let (before, workloads) = (slots(), admin.get("/api/v1/workloads").is(200).body);
    roommate.about["boot_id"] = json!("a-new-boot");
    roommate.incarnation = None;
    let _ = roommate.report().is(200);
    assert_eq!((slots(), admin.get("/api/v1/workloads").is(200).body), (before.clone(), workloads.clone()));
    roommate.about["gpus"][0]["health"] = json!("lost");
    let _ = roommate.report().is(200);
    assert_eq!(slots(), before, "only a slot's own runner can make it fail");
    assert_eq!(admin.get("/api/v1/workloads").is(200).body, workloads);
    let ledger = admin.get("/scheduler/ledger").is(200).body;
    assert_eq!(ledger["devices"][0]["state"], "lost", "nothing new goes there");
}

#[test]
fn a_gpu_that_was_named_before_its_owner_came_is_given_back() {
    let (server, admin) = guarded();
    let mut evil = agent(&server, &admin, "evil", &[80 * GIB]);
    evil.about["gpus"][0]["uuid"] = json!(FakeAgent::uuid_of("owner", 0));
    let _ = evil.report().is(200);
    let mut owner = agent(&server, &admin, "owner", &[80 * GIB]).registered();
    let disputed = admin.get("/api/v1/runners/owner").is(200).body["disputed"].clone();
    assert_eq!(disputed, json!([owner.uuid(0)]), "it is seen");
    // The squatter is put out; its owner has the GPU with its next report.
    let _ = admin.ask("DELETE", "/api/v1/runners/evil").json(&json!({ "reason": "it squats" })).send().is(204);
    let _ = owner.report().is(200);
    let shown = admin.get("/api/v1/runners/owner").is(200).body;
    assert_eq!((&shown["gpus"], &shown["disputed"]), (&json!([owner.uuid(0)]), &json!([])));
}

#[test]
fn a_report_that_is_too_large_is_refused_and_strays_are_bounded() {
    let (server, admin) = guarded();
    let mut evil = agent(&server, &admin, "evil", &vec![GIB; 129]);
    let refused = evil.report();
    assert_eq!((refused.status, refused.code()), (422, "report_too_large"));
    assert!(refused.text.contains("129") && refused.text.contains("128"), "{}", refused.text);
    let mut evil = agent(&server, &admin, "evil-too", &[80 * GIB]).registered();
    let slot =
        |number: usize| json!({ "id": uuid::Uuid::from_u128(number as u128 + 1), "generation": 1, "state": "ready" });
    let slots = |range: std::ops::Range<usize>| range.map(slot).collect::<Vec<_>>();
    evil.about["slots"] = json!(slots(0..500));
    let _ = evil.report_as_is().is(200);
    evil.about["slots"] = json!(slots(500..600));
    let refused = evil.report_as_is();
    assert_eq!((refused.status, refused.code()), (422, "report_too_large"), "it invents more and more of them");
    evil.about["slots"] = json!(slots(500..512));
    let _ = evil.report_as_is().is(200);
}

#[test]
fn a_neighbours_slot_is_neither_ended_nor_moved_nor_given_words_by_another_runner() {
    let (server, admin) = guarded();
    let neighbour = victim(&server, &admin);
    let before = victims_world(&admin);
    let (id, held) = neighbour.slots.first_key_value().unwrap();
    let mut evil = agent(&server, &admin, "evil", &[80 * GIB]).registered();
    let claims = json!([{ "uuid": neighbour.uuid(0), "bytes": 1 }, { "uuid": evil.uuid(0), "bytes": GIB }]);
    for state in ["starting", "ready", "stopping", "failed", "exited", "refused", "gone", "unknown"] {
        for generation in [held.generation, held.generation + 1] {
            evil.about["slots"] = json!([{
                "id": id, "generation": generation, "state": state, "model": "m", "claims": claims, "memory": claims
                    .as_array().unwrap().iter().map(|claim| json!({ "uuid": claim["uuid"], "used_bytes": 70 * GIB }))
                    .collect::<Vec<_>>(),
                "endpoint": "http://127.0.0.1:4711", "exit_code": 0, "reason": "out_of_memory",
                "last_lines": ["forged"], "evidence": { "tree_gone": true, "driver_clear": true },
            }]);
            let _ = evil.report_as_is().is(200);
            assert_eq!(victims_world(&admin), before, "{state}, generation {generation}");
        }
    }
    let workloads = admin.get("/api/v1/workloads").is(200);
    let lease = workloads.rows()[0]["id"].as_str().unwrap();
    for path in [format!("/api/v1/workloads/{lease}"), format!("/api/v1/workloads/{lease}/explain")] {
        assert!(!admin.get(&path).is(200).text.contains("forged"), "{path}");
    }
}

#[test]
fn a_runner_that_names_too_many_runtimes_is_refused() {
    let (server, admin) = guarded();
    let mut evil = agent(&server, &admin, "evil", &[80 * GIB]).registered();
    evil.about["runtimes"] = json!((0..129).map(|number| format!("r{number}")).collect::<Vec<_>>());
    let refused = evil.report();
    assert_eq!((refused.status, refused.code()), (422, "implausible_report"), "{}", refused.text);
}

/// An agent whose token has this grant.
fn agent_with(server: &Server, admin: &Api, id: &str, grant: &Value) -> FakeAgent {
    let secret = admin.token_with(&json!({ "name": id, "role": "runner", "runner_id": id, "grant": grant }));
    FakeAgent::new(&server.api().with_token(&secret), id, &[80 * GIB])
}

#[test]
fn a_runner_is_in_the_pool_and_has_the_labels_that_its_token_grants_and_no_others() {
    let (server, admin) = guarded();
    admin.model("secret", json!({ "memory": 10 * GIB, "gpu_counts": [1], "pool": "confidential" }));
    admin.model("eu", json!({ "memory": 10 * GIB, "gpu_counts": [1], "labels": { "zone": "eu" } }));
    let waiting = [admin.lease("secret").is(201).id(), admin.lease("eu").is(201).id()];
    let mut evil = agent(&server, &admin, "evil", &[80 * GIB]).registered();
    for (field, lie) in [("pool", json!("confidential")), ("labels", json!({ "zone": "eu" }))] {
        let before = evil.about.clone();
        evil.about[field] = lie;
        for incarnation in [evil.incarnation, None] {
            evil.incarnation = incarnation;
            let refused = evil.report();
            assert_eq!((refused.status, refused.code()), (403, "outside_grant"), "{}", refused.text);
        }
        evil.about = before;
        evil.incarnation = None;
        let _ = evil.report().is(200);
    }
    assert!(waiting.iter().all(|id| admin.state(id) == "queued"));
    let shown = admin.get("/api/v1/runners/evil").is(200).body;
    assert_eq!((&shown["pool"], &shown["labels"]), (&json!("default"), &json!({})));

    // An honest agent says nothing, and is what its token says; or says just that.
    let grant = json!({ "pool": "confidential", "labels": { "zone": "eu", "tier": "gold" } });
    let mut honest = agent_with(&server, &admin, "honest", &grant).registered();
    for about in [json!({ "pool": "confidential" }), json!({ "labels": { "zone": "eu" } })] {
        about.as_object().unwrap().iter().for_each(|(name, value)| honest.about[name] = value.clone());
        let _ = honest.report().is(200);
        let shown = admin.get("/api/v1/runners/honest").is(200).body;
        assert_eq!((&shown["pool"], &shown["labels"]["tier"]), (&json!("confidential"), &json!("gold")));
    }
    honest.obey_all();
    assert_eq!(admin.state(&waiting[0]), "running");
}

/// The endpoint that the server tells of a lease on a slot whose agent reports this.
fn endpoint(admin: &Api, agent: &mut FakeAgent, reported: &str) -> Result<String, (u16, String)> {
    let lease = admin.lease("m").is(201).id();
    agent.obey_all();
    let mut body = agent.report_body();
    for slot in body["slots"].as_array_mut().unwrap() {
        slot["state"] = json!("ready");
        slot["endpoint"] = json!(reported);
    }
    body["sequence"] = json!(1_000_000);
    let taken = agent.api.put(&format!("/api/v1/runners/{}/report", agent.id), &body);
    if taken.status != 200 {
        return Err((taken.status, taken.code().to_owned()));
    }
    let told = admin.workload(&lease)["slot"]["endpoint"].as_str().unwrap().to_owned();
    let slot = admin.get("/scheduler/slots").is(200).rows()[0]["endpoint"].as_str().unwrap().to_owned();
    assert_eq!(told, slot);
    Ok(told)
}

#[test]
fn an_endpoint_is_at_the_granted_or_observed_address_whatever_the_agent_says() {
    let lies = [
        "http://169.254.169.254:80/latest/meta-data",
        "https://user:pw@evil.example:4711/x?y#z",
        "http://127.0.0.1@169.254.169.254:4711",
        "ftp://[::ffff:169.254.169.254]:4711",
    ];
    let grants = [
        (json!({}), "127.0.0.1"),
        (json!({ "address": "gpu-7.internal" }), "gpu-7.internal"),
        (json!({ "address": "127.0.0.0/8" }), "127.0.0.1"),
        (json!({ "address": "fd00::7" }), "[fd00::7]"),
    ];
    for (grant, host) in grants {
        for lie in lies {
            let (server, admin) = guarded();
            admin.model("m", json!({ "memory": 60 * GIB, "gpu_counts": [1] }));
            let mut evil = agent_with(&server, &admin, "evil", &grant);
            evil.about.as_object_mut().unwrap().remove("address");
            evil.starts_at_once = false;
            let _ = evil.report().is(200);
            let port = if lie.contains("4711") { 4711 } else { 80 };
            match endpoint(&admin, &mut evil, lie) {
                Ok(told) => assert_eq!(told, format!("http://{host}:{port}"), "{lie}"),
                Err(refused) => assert_eq!(refused, (422, "invalid_field".to_owned()), "{lie}"),
            }
        }
    }
}

#[test]
fn an_address_that_is_not_granted_is_refused() {
    let (server, admin) = guarded();
    let cases = [
        (json!({}), "169.254.169.254", false),
        (json!({}), "metadata.internal", false),
        (json!({}), "127.0.0.1", true),
        (json!({ "address": "10.7.0.0/16" }), "10.7.3.1", true),
        (json!({ "address": "10.7.0.0/16" }), "10.8.3.1", false),
        (json!({ "address": "10.7.0.0/16" }), "", false),
        (json!({ "address": "gpu-7.internal" }), "gpu-7.internal", true),
        (json!({ "address": "gpu-7.internal" }), "gpu-8.internal", false),
    ];
    for (number, (grant, said, is_taken)) in cases.into_iter().enumerate() {
        let mut agent = agent_with(&server, &admin, &format!("runner-{number}"), &grant);
        agent.about["address"] = json!(said);
        let reply = agent.report();
        if is_taken {
            assert_eq!(reply.status, 200, "{grant} {said:?}: {}", reply.text);
            assert_eq!(admin.get(&format!("/api/v1/runners/{}", agent.id)).body["address"], said);
        } else {
            assert_eq!((reply.status, reply.code()), (403, "outside_grant"), "{grant} {said:?}");
        }
    }
}

#[test]
fn a_token_may_grant_a_machine_and_then_its_runner_shares_it_and_is_on_no_other() {
    let (server, admin) = guarded();
    let neighbour = victim(&server, &admin);
    let machine = neighbour.about["machine_id"].clone();
    let mut roommate = agent_with(&server, &admin, "roommate", &json!({ "machine_id": machine }));
    let refused = roommate.report();
    assert_eq!((refused.status, refused.code()), (403, "outside_grant"), "it is on another machine");
    roommate.about["machine_id"] = machine;
    roommate.about["gpus"] = neighbour.about["gpus"].clone();
    roommate.about["gpus"][0]["memory_used_bytes"] = json!(60 * GIB);
    let _ = roommate.report().is(200);
    assert!(barred(&admin, "roommate").is_null());
    let ledger = admin.get("/scheduler/ledger").is(200).body;
    assert_eq!(ledger["devices"][0]["runner_ids"], json!(["victim", "roommate"]), "one GPU, one ledger");
}

#[test]
fn an_estimate_of_a_runner_is_numbers_and_no_arguments() {
    use berth_domain::estimate::{
        Answer, CacheType, DeviceEstimate, Estimate, Inputs, LayerSpan, ModelSummary, Parts, Profile,
    };
    use berth_domain::{Bytes, GpuCount};

    let (server, admin) = guarded();
    let mut evil = agent(&server, &admin, "evil", &[80 * GIB]);
    evil.about["runtimes"] = json!(["llama-server"]);
    let _ = evil.report().is(200);
    let one = GpuCount::new(1);
    let layers = LayerSpan { first: 0, count: 2, output: true };
    let parts = Parts { weights: Bytes::gib(4), ..Parts::default() };
    let honest = Estimate {
        model: ModelSummary {
            architecture: "llama".to_owned(),
            name: None,
            layers: 2,
            trained_context: 8192,
            weights: Bytes::gib(4),
            files: 1,
        },
        inputs: Inputs {
            profile: Profile::LlamaCpp,
            context: 4096,
            parallel: 1,
            cache_type_k: CacheType::F16,
            cache_type_v: CacheType::F16,
            flash_attention: true,
            batch: 512,
            unified_cache: false,
            gpu_counts: [one].into(),
            overhead: Bytes::ZERO,
            projector: false,
        },
        counts: [(one, vec![DeviceEstimate { layers, parts }])].into(),
        host: Bytes::ZERO,
        notes: Vec::new(),
    };
    let answer = |estimate: &Estimate| serde_json::to_value(Answer::Found(Box::new(estimate.clone()))).unwrap();
    let mut with_arguments = answer(&honest);
    with_arguments["found"]["missing"] = json!(["--mcp-servers-json", "{}"]);
    let as_before = json!({ "found": { "estimate": with_arguments["found"], "missing": ["--tools", "all"] } });
    let other = |change: fn(&mut Estimate)| {
        let mut estimate = honest.clone();
        change(&mut estimate);
        answer(&estimate)
    };
    let cases = [
        (with_arguments, Ok(())),
        (as_before, Err("bad_answer")),
        (other(|estimate| estimate.inputs.context = 1), Err("bad_answer")),
        (other(|estimate| estimate.model.architecture = "a\u{1b}[2J".into()), Err("bad_answer")),
        (other(|estimate| estimate.counts.values_mut().for_each(|ranks| ranks.push(ranks[0]))), Err("bad_answer")),
    ];
    for (number, (sent, expected)) in cases.into_iter().enumerate() {
        let name = format!("model-{number}");
        let model = json!({
            "runtime": "llama-server", "gpu_counts": [1], "args": ["--model", "/models/a.gguf"],
            "memory": { "file": "/models/a.gguf", "runner": "evil", "context": 4096 },
        });
        let (reply, ()) = std::thread::scope(|scope| {
            let put = scope.spawn(|| admin.put(&format!("/api/v1/models/{name}"), &model));
            let asked = berth_tests::service::eventually("a request for an estimate", || {
                evil.forget_what_was_desired();
                evil.desired("1s").is(200).body["requests"].as_array().and_then(|rows| rows.first().cloned())
            });
            let path = format!("/api/v1/runners/evil/requests/{}", asked["id"].as_str().unwrap());
            let _ = evil.api.post(&path, &sent).is(204);
            (put.join().unwrap(), ())
        });
        match expected {
            Ok(()) => {
                let text = reply.is(201).body["args"].to_string();
                assert!(text.contains("--ctx-size") && !text.contains("mcp"), "{text}");
            }
            Err(code) => assert_eq!((reply.status, reply.code()), (502, code), "{}", reply.text),
        }
    }
}
