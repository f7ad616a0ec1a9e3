//! GW8: slots that break.

use std::time::Duration;

use berth_tests::gateway::{Behaviour, PlayedEngine, Stage};
use berth_tests::service::eventually;

const CHAT: &str = "/v1/chat/completions";

#[test]
fn gw8_a_slot_that_dies_before_the_first_byte_is_replaced_once() {
    let stage = Stage::with(&["gateway.failover=10s"]);
    stage.model("m", 40);
    let _ = stage.api.post(CHAT, &Stage::chat("m", false)).is(200);
    for behaviour in [Behaviour::Dies, Behaviour::DiesAfterHead] {
        let before = stage.loader.started().len();
        stage.engine.plays_once(behaviour);
        let asked = stage.engine.seen().len();
        let reply = std::thread::scope(|scope| {
            let asking = scope.spawn(|| stage.api.post(CHAT, &Stage::chat("m", false)));
            // The agent sees its process end a moment after the connection broke.
            eventually("the slot is asked", || (stage.engine.seen().len() > asked).then_some(()));
            stage.loader.kill_all();
            asking.join().unwrap().is(200)
        });
        assert_eq!(reply.text, PlayedEngine::whole());
        assert_eq!(stage.loader.started().len(), before + 1, "in another slot");
    }
    stage.until_nothing_is_left();
}

#[test]
fn gw8_a_slot_that_the_server_sees_nothing_wrong_with_is_asked_once_more_and_not_twice() {
    let stage = Stage::with(&["gateway.failover=100ms"]);
    stage.model("m", 40);
    stage.engine.plays_once(Behaviour::Dies);
    let _ = stage.api.post(CHAT, &Stage::chat("m", false)).is(200);
    stage.engine.plays(Behaviour::Dies);
    let before = stage.engine.seen().len();
    let reply = stage.api.post(CHAT, &Stage::chat("m", false)).is(502);
    assert_eq!(reply.body["error"]["code"], "slot_failed", "{}", reply.text);
    assert_eq!(stage.engine.seen().len(), before + 2, "one retry");
    stage.until_nothing_is_left();
}

#[test]
fn gw8_after_the_first_byte_the_stream_ends_with_one_error_event_and_repeats_nothing() {
    let stage = Stage::with(&[]);
    stage.model("m", 40);
    stage.engine.plays(Behaviour::BreaksAfter(3));
    let text = stage.ask_raw(CHAT, &Stage::chat("m", true)).read_to_end();
    for number in 0..3 {
        assert_eq!(text.matches(&format!("\"w{number} \"")).count(), 1, "{text}");
    }
    assert!(!text.contains("w3"), "half an event is not passed on: {text}");
    assert_eq!(text.matches("data: {\"error\":").count(), 1, "{text}");
    assert!(text.contains("slot_failed") && text.ends_with("0\r\n\r\n"), "{text}");
    assert_eq!(stage.engine.seen().len(), 1, "no retry");
    stage.until_nothing_is_left();
}

#[test]
fn a_lease_is_renewed_for_as_long_as_its_stream_lasts() {
    let stage = Stage::with(&["gateway.lease_ttl=300ms"]);
    stage.model("m", 40);
    stage.engine.plays(Behaviour::Stream(10, Duration::from_millis(150)));
    let text = stage.ask_raw(CHAT, &Stage::chat("m", true)).read_to_end();
    assert!(text.contains("\"w9 \"") && text.contains("[DONE]"), "{text}");
    let workloads = stage.api.get("/api/v1/workloads").is(200);
    let states: Vec<_> = workloads.rows().iter().map(|row| row["state"].clone()).collect();
    assert!(states.iter().all(|state| state == "succeeded" || state == "running"), "none expired: {states:?}");
    stage.until_nothing_is_left();
}
