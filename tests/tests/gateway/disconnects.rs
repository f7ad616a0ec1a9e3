//! GW6: clients that go away, in every phase.

use std::time::Duration;

use berth_tests::gateway::{Behaviour, Stage};
use berth_tests::service::{Raw, at_once, within};

const CHAT: &str = "/v1/chat/completions";

#[test]
fn gw6_whoever_goes_away_in_any_phase_leaves_nothing_behind() {
    let stage = Stage::with(&["gateway.keep_alive=20ms", "gateway.held_per_model=1000"]);
    stage.model("cold", 70);
    stage.model("warm", 10);
    let _ = stage.api.post(CHAT, &Stage::chat("warm", false)).is(200);
    stage.loader.loads_in(Duration::from_millis(300));
    stage.engine.plays(Behaviour::Stream(1_000, Duration::from_millis(5)));
    // Twenty-five at a time, each forty times: while sending, queued, loading, before the first byte, in mid-stream.
    at_once(0..25_u64, |client| {
        for round in 0..40_u64 {
            let number = client * 40 + round;
            let model = if number % 3 == 0 { "cold" } else { "warm" };
            if number % 10 == 9 {
                let mut raw = Raw::connect(&stage.server.address());
                let address = stage.server.address();
                raw.send(format!("POST {CHAT} HTTP/1.1\r\nHost: {address}\r\nContent-Length: 500\r\n\r\n{{\"mod"));
                continue;
            }
            let raw = stage.ask_raw(CHAT, &Stage::chat(model, number % 2 == 0));
            // A number that looks drawn, the same in every run.
            std::thread::sleep(Duration::from_millis(number * 7_919 % 97));
            drop(raw);
        }
    });
    stage.until_nothing_is_left();
}

#[test]
fn a_lease_ends_within_a_second_of_its_client_going_away() {
    let stage = Stage::with(&["gateway.keep_alive=20ms"]);
    stage.model("m", 40);
    let is_over = || {
        let open = |state: &str| stage.api.get(&format!("/api/v1/workloads?state={state}")).is(200).rows().len();
        (open("queued") + open("assigned") + open("running") == 0 && stage.engine.open() == 0).then_some(())
    };
    let running = |state: &str| {
        let rows = || stage.api.get(&format!("/api/v1/workloads?state={state}")).is(200).rows().len();
        within(Duration::from_secs(5), || (rows() == 1).then_some(())).unwrap_or_else(|| panic!("none is {state}"));
    };
    stage.loader.loads_in(Duration::from_secs(600));
    for streams in [false, true] {
        let loading = stage.ask_raw(CHAT, &Stage::chat("m", streams));
        running("assigned");
        drop(loading);
        assert!(within(Duration::from_secs(1), is_over).is_some(), "while it loads");
    }
    stage.loader.loads_in(Duration::ZERO);
    for behaviour in [Behaviour::Whole(Duration::from_secs(60)), Behaviour::Stream(10_000, Duration::from_millis(20))] {
        for streams in [false, true] {
            stage.engine.plays(behaviour.clone());
            let answering = stage.ask_raw(CHAT, &Stage::chat("m", streams));
            running("running");
            within(Duration::from_secs(5), || (stage.engine.open() == 1).then_some(())).unwrap();
            drop(answering);
            assert!(within(Duration::from_secs(1), is_over).is_some(), "{behaviour:?} {streams}");
        }
    }
}
