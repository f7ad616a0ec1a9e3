//! GW12: bodies, names and slots that mean no good.

use std::time::Duration;

use berth_tests::gateway::{Behaviour, PlayedEngine, Stage};
use berth_tests::service::at_once;
use serde_json::json;

const CHAT: &str = "/v1/chat/completions";

#[test]
fn gw12_a_huge_body_is_refused_before_it_is_read() {
    let stage = Stage::with(&["gateway.body=64KiB"]);
    stage.model("m", 40);
    let mut raw = berth_tests::service::Raw::connect(&stage.server.address());
    let address = stage.server.address();
    let _ = raw.send(format!("POST {CHAT} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: 99999999\r\n\r\n{{"));
    let text = raw.read_some();
    assert!(text.starts_with("HTTP/1.1 413"), "{text}");
    let long = json!({ "model": "m", "messages": [], "padding": "a".repeat(70_000) });
    let reply = stage.api.post(CHAT, &long).is(413);
    assert_eq!(reply.body["error"]["code"], "body_too_large");
    let fits = json!({ "model": "m", "messages": [], "padding": "a".repeat(60_000) });
    let _ = stage.api.post(CHAT, &fits).is(200);
    assert_eq!(stage.engine.seen().last().unwrap().body, fits.to_string(), "it is passed on as it came");
}

#[test]
fn gw12_slots_that_speak_no_sense_are_bad_gateways_and_are_never_obeyed() {
    let stage = Stage::with(&["gateway.failover=50ms", "gateway.silence=2s"]);
    stage.model("m", 40);
    let elsewhere = PlayedEngine::start();
    let redirect = format!("HTTP/1.1 302 Found\r\nLocation: {}/\r\nContent-Length: 0\r\n\r\n", elsewhere.url());
    let cases = [
        (Behaviour::Says(redirect.into_bytes()), "slot_redirects"),
        (Behaviour::Says(b"SSH-2.0-OpenSSH\r\n\0\xff\xfe".to_vec()), "slot_failed"),
        (Behaviour::EndlessHeaders, "slot_failed"),
        // It takes far longer than silence to send its head.
        (Behaviour::Dribbles(Duration::from_millis(500)), "slot_failed"),
    ];
    for (behaviour, code) in cases {
        stage.engine.plays(behaviour.clone());
        let reply = stage.api.post(CHAT, &Stage::chat("m", false)).is(502);
        assert_eq!(reply.body["error"]["code"], code, "{behaviour:?}: {}", reply.text);
        assert_eq!(reply.header("location"), None);
    }
    assert!(elsewhere.seen().is_empty(), "a redirect is not followed");
    // One that stops in the middle of a whole answer is seen to.
    stage.engine.plays(Behaviour::Says(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf".to_vec()));
    let text = stage.ask_raw(CHAT, &Stage::chat("m", false)).read_to_end();
    assert!(text.ends_with("half") && text.to_lowercase().contains("content-length: 100"), "{text}");
    // And one that is slow but does send is passed on.
    stage.engine.plays(Behaviour::Dribbles(Duration::from_millis(2)));
    let reply = stage.api.post(CHAT, &Stage::chat("m", false)).is(200);
    assert_eq!(reply.text, PlayedEngine::whole());
    stage.until_nothing_is_left();
}

#[test]
fn gw12_odd_names_are_models_that_are_not_there() {
    let stage = Stage::with(&[]);
    stage.model("org/m-1.5:q4", 40);
    for name in ["", "..", "a/../b", "a\nb", "\u{202e}x", "'; drop table", "%2e%2e", &"x".repeat(5_000)] {
        let reply = stage.api.post(CHAT, &Stage::chat(name, false)).is(404);
        assert_eq!(reply.body["error"]["code"], "model_not_found", "{name:?}");
        assert!(reply.text.len() < 1_000, "it is not echoed at length");
    }
    let _ = stage.api.post(CHAT, &Stage::chat("org/m-1.5:q4", false)).is(200);
    assert_eq!(stage.api.get("/v1/models/org/m-1.5:q4").is(200).body["id"], "org/m-1.5:q4");
    assert_eq!(stage.api.get("/v1/models/org%2Fm-1.5:q4").is(200).body["id"], "org/m-1.5:q4");
    let _ = stage.api.get("/v1/models/..%2F..%2Fapi").is(404);
    for body in ["", "{", "[]", "null", r#"{"model":"org/m-1.5:q4","model":"x"}"#] {
        let reply = stage.api.ask("POST", CHAT).bytes("application/json", body.into()).send();
        assert_eq!((reply.status, reply.body["error"]["code"].as_str()), (400, Some("invalid_request")), "{body}");
    }
}

#[test]
fn gw12_two_callers_with_one_idempotency_key_get_an_answer_each() {
    let stage = Stage::with(&[]);
    stage.model("m", 40);
    stage.engine.plays(Behaviour::Whole(Duration::from_millis(200)));
    let replies = at_once(0..2, |_| {
        let ask = stage.api.ask("POST", CHAT).header("idempotency-key", "same");
        ask.json(&Stage::chat("m", false)).send()
    });
    let workloads: Vec<_> = replies.iter().map(|reply| reply.header("berth-workload").unwrap()).collect();
    assert!(replies.iter().all(|reply| reply.status == 200) && workloads[0] != workloads[1], "{workloads:?}");
    assert_eq!(stage.engine.seen().len(), 2);
    stage.until_nothing_is_left();
}
