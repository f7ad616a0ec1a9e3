//! The stream of events: in order, without gap or repeat, and honest about what is no longer kept.
#![expect(clippy::unwrap_used, reason = "tests")]

use berth_tests::service::{Api, FakeAgent, GIB, Server, StreamedEvent, at_once};
use serde_json::json;

fn follow(api: &Api, after: u64) -> berth_tests::service::Events {
    api.ask("GET", &format!("/scheduler/events?after={after}")).stream()
}

fn resume(api: &Api, last: u64) -> berth_tests::service::Events {
    api.ask("GET", "/scheduler/events").header("Last-Event-ID", &last.to_string()).stream()
}

fn revision(api: &Api) -> u64 {
    api.get("/healthz").header("berth-revision").unwrap().parse().unwrap()
}

/// Makes something happen.
fn bustle(api: &Api) {
    at_once(0..8, |_| {
        for _ in 0..10 {
            let id = api.lease("chat").is(201).id();
            let _ = api.cancel(&id).is(200);
        }
    });
}

#[test]
fn events_come_in_order_and_a_follower_goes_on_where_it_was() {
    let server = Server::start();
    let api = server.api();
    let _agent = FakeAgent::new(&api, "box", &[80 * GIB]).registered();
    api.model("chat", json!({ "memory": "20GiB" }));
    let mut live = follow(&api, 0);
    bustle(&api);
    let last = revision(&api);
    let mut seen: Vec<StreamedEvent> = live.by_ref().take_while(|event| event.id < last).collect();
    let ids: Vec<u64> = seen.iter().map(|event| event.id).collect();
    assert_eq!(ids, (1..last).collect::<Vec<_>>(), "each revision once, in order");
    assert_eq!((seen[0].kind.as_str(), seen[0].data["type"].as_str()), ("started", Some("started")));
    assert!(seen.iter().all(|event| event.data["revision"] == event.id && event.data["text"].is_string()));
    let kinds = ["runner_registered", "model_put", "workload_submitted", "workload_ended"];
    for kind in kinds {
        assert!(seen.iter().any(|event| event.kind == kind), "no {kind}");
    }
    drop(live);

    // Cut off again and again, it misses nothing and hears nothing twice.
    let mut pieces = Vec::new();
    let mut at = 0;
    while at < last {
        let piece: Vec<StreamedEvent> = resume(&api, at).take(57.min(usize::try_from(last - at).unwrap())).collect();
        at = piece.last().unwrap().id;
        pieces.extend(piece);
    }
    seen.push(pieces.last().unwrap().clone());
    assert_eq!(pieces, seen);
}

#[test]
fn without_a_beginning_it_begins_now() {
    let server = Server::start();
    let api = server.api();
    api.model("chat", json!({ "memory": "20GiB" }));
    let before = revision(&api);
    let mut live = api.ask("GET", "/api/v1/scheduler/events").stream();
    let id = api.lease("chat").is(201).id();
    let first = live.next().unwrap();
    assert_eq!(first.id, before + 1);
    assert_eq!((first.kind.as_str(), first.data["workload_id"].as_str()), ("workload_submitted", Some(id.as_str())));
    let _ = api.ask("GET", "/scheduler/events").header("Last-Event-ID", "soon").send().is(422);
}

#[test]
fn what_is_no_longer_kept_is_a_reset_and_then_it_goes_on() {
    let server = Server::with(&["history.events=10"]);
    let api = server.api();
    api.model("chat", json!({ "memory": "20GiB" }));
    bustle(&api);
    let last = revision(&api);
    let mut late = resume(&api, 1);
    let reset = late.next().unwrap();
    assert_eq!((reset.kind.as_str(), reset.id), ("reset", last));
    assert_eq!(reset.data["revision"], last);
    let id = api.lease("chat").is(201).id();
    let next = late.next().unwrap();
    assert_eq!((next.id, next.data["workload_id"].as_str()), (last + 1, Some(id.as_str())));
    let kept = resume(&api, last - 5).next().unwrap();
    assert_eq!(kept.id, last - 4, "what is kept is not reset");
    let ahead = resume(&api, last + 1_000_000).next().unwrap();
    assert_eq!(ahead.kind, "reset", "whoever is ahead followed another server");
}

#[test]
fn after_a_restart_a_follower_hears_the_rest_or_that_it_must_look_anew() {
    let mut server = Server::start();
    let api = server.api();
    api.model("chat", json!({ "memory": "20GiB" }));
    bustle(&api);
    let last = revision(&api);
    server.kill();
    server.restart();
    let next = resume(&api, last).next().unwrap();
    assert_eq!((next.id, next.kind.as_str()), (last + 1, "started"), "it had heard everything");
    let old = resume(&api, 3).next().unwrap();
    assert_eq!((old.kind.as_str(), old.id), ("reset", revision(&api)));
}
