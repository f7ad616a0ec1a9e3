//! Listings: whole or in pages, filtered, with the revision on every answer; and the page that describes them.
#![expect(clippy::unwrap_used, reason = "tests")]

use berth_tests::service::{Api, FakeAgent, GIB, Server};
use serde_json::{Value, json};

/// The address of the next page.
fn next(reply: &berth_tests::service::Reply) -> Option<String> {
    let link = reply.header("link")?;
    let (address, relation) = link.split_once(';').unwrap();
    assert_eq!(relation.trim(), "rel=\"next\"");
    Some(address.trim_start_matches('<').trim_end_matches('>').to_owned())
}

/// All rows, page by page, and how many pages there were.
fn walk(api: &Api, path: &str) -> (Vec<Value>, usize) {
    let (mut rows, mut pages, mut at) = (Vec::new(), 0, Some(path.to_owned()));
    while let Some(path) = at.take() {
        let reply = api.get(&path).is(200);
        rows.extend(reply.rows().to_vec());
        pages += 1;
        assert!(pages < 100, "{path}: no end");
        at = next(&reply);
    }
    (rows, pages)
}

/// Seven runners, and seven models with four leases each: one runs, three wait.
fn bit_of_everything(api: &Api) {
    let runner = |number| {
        let mut agent = FakeAgent::new(api, "box", &[80 * GIB]);
        agent.id = format!("box%2F{number}");
        agent.about["machine_id"] = json!(format!("machine-{number}"));
        agent.about["gpus"][0]["uuid"] = json!(format!("GPU-{number}"));
        agent.registered()
    };
    let agents: Vec<FakeAgent> = (0..7).map(runner).collect();
    for turn in 0..4 {
        for number in 0..7 {
            let (model, tenant) = (format!("org/model {number}"), if number % 2 == 0 { "even" } else { "odd" });
            if turn == 0 {
                api.model(&model, json!({ "memory": "50GiB" }));
            }
            let _ = api.post("/api/v1/workloads", &json!({ "model": model, "tenant": tenant })).is(201);
        }
    }
    agents.into_iter().for_each(|mut agent| agent.obey_all());
}

#[test]
fn page_by_page_is_the_whole_listing() {
    let server = Server::start();
    let api = server.api();
    bit_of_everything(&api);
    let without_age = |rows: Vec<Value>| -> Vec<Value> {
        let strip = |mut row: Value| {
            let _ = row.as_object_mut().unwrap().remove("age_ms");
            row
        };
        rows.into_iter().map(strip).collect()
    };
    for (path, rows) in [
        ("/api/v1/workloads", 28),
        ("/api/v1/models", 7),
        ("/api/v1/runners", 7),
        ("/scheduler/slots", 7),
        ("/scheduler/queue", 21),
        ("/scheduler/decisions?after=0", 28),
    ] {
        let whole = api.get(path).is(200);
        assert!(whole.rows().len() >= rows, "{path}: {}", whole.rows().len());
        assert!(next(&whole).is_none(), "{path}: whole unless a limit is given");
        let more = if path.contains('?') { '&' } else { '?' };
        for limit in [1, 3, whole.rows().len() - 1, whole.rows().len()] {
            let (paged, pages) = walk(&api, &format!("{path}{more}limit={limit}"));
            assert_eq!(pages, whole.rows().len().div_ceil(limit), "{path} by {limit}");
            assert_eq!(without_age(paged), without_age(whole.rows().to_vec()), "{path} by {limit}");
        }
    }
    let newest = api.get("/scheduler/decisions?limit=2").is(200);
    let all = api.get("/scheduler/decisions").is(200);
    assert_eq!(newest.rows(), &all.rows()[all.rows().len() - 2..]);
}

#[test]
fn a_walk_goes_on_though_the_row_it_stood_on_is_gone() {
    let server = Server::start();
    let api = server.api();
    (0..6).for_each(|number| api.model(&format!("m{number}"), json!({ "memory": "1GiB" })));
    let first = api.get("/api/v1/models?limit=3").is(200);
    let _ = api.delete("/api/v1/models/m2").is(204);
    let rest = api.get(&next(&first).unwrap()).is(200);
    let names: Vec<&str> = rest.rows().iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["m3", "m4", "m5"]);
    assert!(next(&rest).is_none());

    let ids: Vec<String> = (0..6).map(|_| api.lease("m0").is(201).id()).collect();
    let first = api.get("/scheduler/queue?limit=3").is(200);
    let _ = api.cancel(&ids[2]).is(200);
    let rest = api.get(&next(&first).unwrap());
    assert!(!rest.text.contains(&ids[0]), "nobody begins anew without saying so: {}", rest.text);
}

#[test]
fn filters_filter_and_their_pages_too() {
    let server = Server::start();
    let api = server.api();
    bit_of_everything(&api);
    let count = |path: &str| api.get(path).is(200).rows().len();
    assert_eq!(count("/api/v1/workloads?state=running"), 7);
    assert_eq!(count("/api/v1/workloads?state=queued"), 21);
    assert_eq!(count("/api/v1/workloads?tenant=even"), 16);
    assert_eq!(count("/api/v1/workloads?tenant=odd&state=running"), 3);
    assert_eq!(count("/api/v1/workloads?model=org/model%203"), 4);
    assert_eq!(count("/api/v1/workloads?model=org%2Fmodel+3&state=queued"), 3);
    assert_eq!(count("/api/v1/workloads?kind=job"), 0);
    assert_eq!(count("/scheduler/slots?runner_id=box/2"), 1);
    assert_eq!(count("/scheduler/slots?state=ready"), 7);
    assert_eq!(count("/scheduler/slots?state=stopping"), 0);
    assert_eq!(count("/scheduler/slots?model=org/model%203"), 1);
    assert_eq!(count("/scheduler/decisions?model=org/model%203"), 4);
    assert_eq!(count("/scheduler/decisions?runner_id=box/2"), 1);
    let (rows, pages) = walk(&api, "/api/v1/workloads?model=org/model%203&limit=1");
    assert_eq!((rows.len(), pages), (4, 4));
    assert!(rows.iter().all(|row| row["model"] == "org/model 3"), "a link keeps the filter");
    let demand = api.get("/scheduler/demand").is(200);
    assert_eq!(demand.rows().iter().map(|row| row["waiting"].as_u64().unwrap()).sum::<u64>(), 21);
    assert_eq!(demand.rows()[0]["needs"][0], json!({ "gpu_count": 1, "gpu_bytes": [50 * GIB] }));
}

#[test]
fn every_answer_carries_the_revision() {
    let server = Server::start();
    let api = server.api();
    let revision =
        |reply: &berth_tests::service::Reply| reply.header("berth-revision").unwrap().parse::<u64>().unwrap();
    let before = revision(&api.get("/healthz").is(200));
    api.model("chat", json!({ "memory": "20GiB" }));
    let submitted = api.lease("chat").is(201);
    assert!(revision(&submitted) > before);
    assert!(revision(&submitted) >= submitted.body["revision"].as_u64().unwrap());
    let after = revision(&submitted);
    let answers = [
        api.get("/healthz").is(200),
        api.get("/metrics").is(200),
        api.get("/openapi.json").is(200),
        api.get("/docs/").is(200),
        api.get("/api/v1/workloads").is(200),
        api.get("/api/v1/workloads/none").is(422),
        api.get("/nothing").is(404),
        api.ask("PATCH", "/api/v1/workloads").send().is(405),
        api.ask("POST", "/api/v1/workloads").bytes("text/plain", Vec::new()).send().is(415),
        api.ask("GET", "/healthz").header("Host", "evil.example").send().is(403),
    ];
    for answer in answers {
        assert_eq!(revision(&answer), after);
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
    }
    let ledger = api.get("/scheduler/ledger").is(200);
    assert_eq!(ledger.body["revision"], after);
}

#[test]
fn metrics_are_one_text_with_one_end() {
    let server = Server::start();
    let api = server.api();
    let mut agent = FakeAgent::new(&api, "box", &[80 * GIB]).registered();
    api.model("chat", json!({ "memory": "20GiB" }));
    let _ = api.lease("chat").is(201);
    agent.obey_all();
    let reply = api.get("/metrics").is(200);
    assert!(reply.header("content-type").unwrap().starts_with("application/openmetrics-text"));
    assert!(reply.text.ends_with("# EOF\n") && reply.text.matches("# EOF").count() == 1);
    for line in [
        r#"berth_workloads{state="running"} 1"#,
        r#"berth_slots{state="ready"} 1"#,
        r#"berth_runners{state="ready"} 1"#,
        &format!(r#"berth_device_memory_bytes{{uuid="GPU-box-0",part="held"}} {}"#, 20 * GIB),
        "berth_read_only 0",
    ] {
        assert!(reply.text.lines().any(|found| found == line), "no {line} in\n{}", reply.text);
    }
    let mut types: Vec<&str> = reply.text.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
    let all = types.len();
    types.sort_unstable();
    types.dedup();
    assert_eq!(types.len(), all, "each family once");
}

#[test]
fn the_page_of_the_api_needs_nothing_from_elsewhere() {
    let server = Server::start();
    let api = server.api();
    assert_eq!(api.get("/").status, 307);
    let page = api.get("/docs/").is(200);
    assert!(page.header("content-type").unwrap().starts_with("text/html"));
    let referred: Vec<&str> = ["src=\"", "href=\""]
        .iter()
        .flat_map(|mark| page.text.split(mark).skip(1).map(|rest| rest.split('"').next().unwrap()))
        .collect();
    assert!(referred.len() >= 4, "{referred:?}");
    for place in &referred {
        assert!(!place.contains("//"), "{place} is elsewhere");
        let part = api.get(&format!("/docs/{}", place.trim_start_matches("./"))).is(200);
        assert!(!part.text.is_empty());
    }
    let script = api.get("/docs/swagger-initializer.js").is(200).text;
    let elsewhere: Vec<&str> =
        script.lines().filter(|line| line.contains("http://") || line.contains("https://")).collect();
    assert!(elsewhere.is_empty(), "{elsewhere:?}");
    // Unless told not to, the page asks a validator on the internet about the description it shows.
    let silent =
        script.lines().any(|line| line.contains("validatorUrl") && (line.contains("none") || line.contains("null")));
    assert!(silent, "{script}");
}
