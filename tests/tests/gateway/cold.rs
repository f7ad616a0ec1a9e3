//! Models that are not loaded: GW1 to GW5.

use std::time::{Duration, Instant};

use berth_tests::gateway::{Behaviour, Stage};
use berth_tests::service::{at_once, eventually};

const CHAT: &str = "/v1/chat/completions";

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Comment lines in what came over the wire: each is a chunk of its own.
fn comments(text: &str) -> usize {
    text.matches("\r\n:\n\n\r\n").count()
}

#[test]
fn gw1_fifty_requests_for_a_cold_model_start_one_slot_and_all_are_answered() {
    let stage = Stage::with(&[]);
    stage.model("m", 40);
    stage.loader.loads_in(millis(500));
    let replies = at_once(0..50, |_| stage.api.post(CHAT, &Stage::chat("m", false)));
    for reply in replies {
        assert_eq!((reply.status, reply.text.as_str()), (200, berth_tests::gateway::PlayedEngine::whole()));
        assert_eq!(reply.header("set-cookie"), None, "a slot sets no cookies here");
        let workload = reply.header("berth-workload").unwrap().to_owned();
        assert_eq!(stage.api.workload(&workload)["model"], "m");
    }
    assert_eq!(stage.loader.started().len(), 1, "one slot for all of them");
    stage.until_nothing_is_left();
    let model = stage.api.get("/v1/models/m").is(200).body;
    let median = model["load_median_ms"].as_u64().unwrap();
    assert!((400..5_000).contains(&median) && model["status"] == "loaded", "{model}");
}

#[test]
fn gw2_a_stream_that_waits_gets_comment_lines_and_then_every_event() {
    let stage = Stage::with(&["gateway.keep_alive=100ms"]);
    stage.model("m", 40);
    stage.loader.loads_in(millis(900));
    stage.engine.plays(Behaviour::Stream(5, millis(1)));
    let asked = Instant::now();
    let mut raw = stage.ask_raw(CHAT, &Stage::chat("m", true));
    let first = raw.read_some();
    assert!(asked.elapsed() < millis(600), "the first byte came after {:?}", asked.elapsed());
    assert!(first.starts_with("HTTP/1.1 200") && first.contains("text/event-stream"), "{first}");
    assert!(first.to_lowercase().contains("berth-workload: "), "{first}");
    let text = first + &raw.read_to_end();
    assert!(comments(&text) >= 3, "{text}");
    assert_eq!(text.matches("data: {").count(), 5, "{text}");
    assert!(text.contains("data: [DONE]") && !text.contains("id: ") && text.ends_with("0\r\n\r\n"), "{text}");
    stage.until_nothing_is_left();
}

#[test]
fn gw3_a_load_that_fails_is_a_503_before_the_first_byte_and_one_error_event_after_it() {
    let stage = Stage::with(&["gateway.keep_alive=50ms", "scheduler.attempts=2", "scheduler.backoff=300ms"]);
    stage.model("m", 40);
    stage.loader.fails();
    let reply = stage.api.post(CHAT, &Stage::chat("m", false)).is(503);
    let error = &reply.body["error"];
    assert!(error["code"] == "load_failed" && error["type"] == "server_error", "{}", reply.text);
    assert!(error["message"].as_str().unwrap().contains("it failed"), "it says why: {}", reply.text);
    assert!(error["workload"].is_string() && reply.header("berth-workload").is_some(), "{}", reply.text);
    let text = stage.ask_raw(CHAT, &Stage::chat("m", true)).read_to_end();
    assert!(text.starts_with("HTTP/1.1 200") && comments(&text) >= 1, "{text}");
    assert_eq!(text.matches("data: ").count(), 1, "exactly one event: {text}");
    assert!(
        text.contains("data: {\"error\":") && text.contains("load_failed") && text.ends_with("0\r\n\r\n"),
        "{text}"
    );
    let text = stage.ask_raw("/v1/messages", &Stage::chat("m", true)).read_to_end();
    assert!(text.contains("event: error\ndata: {") && text.contains("\"type\":\"error\""), "Anthropic's shape: {text}");
    stage.until_nothing_is_left();
}

#[test]
fn gw4_a_request_that_is_not_held_any_longer_is_told_when_to_come_back_and_the_load_goes_on() {
    let stage = Stage::with(&["gateway.hold=300ms"]);
    stage.model("m", 40);
    stage.loader.loads_in(millis(1_500));
    let reply = stage.api.post(CHAT, &Stage::chat("m", false)).is(503);
    assert_eq!(reply.body["error"]["code"], "model_loading", "{}", reply.text);
    assert!(reply.body["error"]["message"].as_str().unwrap().contains("starts since"), "{}", reply.text);
    let retry: u64 = reply.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=120).contains(&retry), "{retry}");
    let workload = reply.header("berth-workload").unwrap().to_owned();
    eventually("its workload was withdrawn", || (stage.api.workload(&workload)["state"] == "cancelled").then_some(()));
    eventually("the load goes on", || (stage.api.get("/v1/models/m").body["status"] == "loaded").then_some(()));
    let _ = stage.api.post(CHAT, &Stage::chat("m", false)).is(200);
    assert_eq!(stage.loader.started().len(), 1, "the retry found the slot that the first request had started");
    // The next wait is told what was measured.
    stage.model("n", 79);
    let reply = stage.api.post(CHAT, &Stage::chat("n", false)).is(503);
    assert!(reply.header("retry-after").is_some(), "{}", reply.text);
}

#[test]
fn gw5_one_more_than_may_be_held_is_refused_at_once_and_another_model_does_not_notice() {
    let stage = Stage::with(&["gateway.held_per_model=100"]);
    stage.model("warm", 10);
    stage.model("cold", 40);
    let _ = stage.api.post(CHAT, &Stage::chat("warm", false)).is(200);
    let warm = |api: &berth_tests::service::Api| {
        let mut times: Vec<Duration> = (0..100)
            .map(|_| {
                let asked = Instant::now();
                let _ = api.post(CHAT, &Stage::chat("warm", false)).is(200);
                asked.elapsed()
            })
            .collect();
        times.sort_unstable();
        times[98]
    };
    let before = warm(&stage.api);
    stage.loader.loads_in(Duration::from_secs(600));
    let held: Vec<_> = (0..100).map(|_| stage.ask_raw(CHAT, &Stage::chat("cold", false))).collect();
    eventually("100 are held", || {
        (stage.api.get("/v1/models/cold").body["waiting"] == 100
            || stage.api.get("/api/v1/workloads?model=cold").rows().len() == 100)
            .then_some(())
    });
    let mut times: Vec<Duration> = (0..21)
        .map(|_| {
            let asked = Instant::now();
            let reply = stage.api.post(CHAT, &Stage::chat("cold", false)).is(429);
            assert_eq!(reply.body["error"]["code"], "too_many_held");
            assert!(reply.header("retry-after").is_some());
            asked.elapsed()
        })
        .collect();
    times.sort_unstable();
    assert!(times[10] < millis(10), "429 takes {:?}", times[10]);
    let after = warm(&stage.api);
    assert!(after < before * 3 + millis(20), "the warm model's p99 went from {before:?} to {after:?}");
    drop(held);
    stage.until_nothing_is_left();
}
