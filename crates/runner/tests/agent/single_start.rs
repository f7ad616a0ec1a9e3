//! The agent starts nothing a second time: neither for an old desired state, nor beside a process with the slot's mark.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;

use crate::machine::{Machine, Stranger, until};
use crate::server::{Server, generation, run};

#[test]
fn n7_a_slot_that_runs_already_is_adopted_and_not_started() {
    for (kind, state) in [("lease", "starting"), ("job", "ready")] {
        let server = Server::start();
        let machine = Machine::started(&server);
        let (slot, gate) = (server.slot(7), machine.gate("gate"));
        let mut stranger = Stranger::of(&machine, &slot, 1, kind);
        server.wants(&[run(&slot, "both", kind, &[&gate, "0"])]);
        let row = server.until_told(&slot, state);
        assert_eq!(row["pid"].as_u64(), Some(stranger.pid().into()));
        server.until_heard();
        assert!(stranger.is_alive());
        assert_eq!(machine.runs_at(&gate), 0, "nothing was started");
        assert_eq!(server.heard_of(&slot).unwrap()["model"], "some-model");
    }
}

#[test]
fn n7_an_older_start_without_a_record_is_ended_before_the_newer_one_starts() {
    let server = Server::start();
    let machine = Machine::started(&server);
    let (slot, gate) = (server.slot(7), machine.gate("gate"));
    let mut stranger = Stranger::of(&machine, &slot, 1, "lease");
    server.wants(&[generation(run(&slot, "server", "lease", &[&gate, "0"]), 2)]);
    until("it has started, and the older one is gone", || {
        let is_alive = stranger.is_alive();
        let runs = machine.runs_at(&gate);
        assert!(runs == 0 || !is_alive, "both run");
        runs == 1
    });
    let row = server.until_told(&slot, "ready");
    assert_eq!(row["generation"], 2);
}

#[test]
fn n7_a_newer_start_is_not_replaced_by_an_older_one() {
    let server = Server::start();
    let machine = Machine::started(&server);
    let (slot, gate) = (server.slot(7), machine.gate("gate"));
    let mut stranger = Stranger::of(&machine, &slot, 3, "lease");
    server.wants(&[generation(run(&slot, "server", "lease", &[&gate, "0"]), 2)]);
    until("it is found", || server.heard_of(&slot).is_some_and(|row| row["generation"] == 3));
    server.until_heard();
    assert!(stranger.is_alive());
    assert_eq!(machine.runs_at(&gate), 0);
}

/// It takes a minute, because a wish lasts that long.
#[test]
fn n7_a_frozen_agent_that_thaws_behind_a_partition_starts_nothing_for_an_old_desired_state() {
    let server = Server::start();
    let mut machine = Machine::started(&server);
    let (first, first_gate) = (server.slot(7), machine.gate("first"));
    let (next, next_gate) = (server.slot(8), machine.gate("next"));
    // The second waits for its turn, since the first never becomes ready.
    server.wants(&[run(&first, "slow", "lease", &[&first_gate, "0"]), run(&next, "job", "job", &[&next_gate, "0"])]);
    machine.until_runs_at(&first_gate);
    server.until_heard();
    server.words().is_silent = true;
    server.until_asked();
    machine.signal(Signal::STOP);
    let frozen = Instant::now();
    while frozen.elapsed() < Duration::from_secs(61) {
        std::thread::sleep(Duration::from_millis(100));
    }
    machine.signal(Signal::CONT);
    until("it says why", || machine.log().contains("not started: the server said 60 s ago"));
    machine.open(&first_gate);
    server.until_told(&first, "gone");
    let before = server.reports();
    until("it goes on reporting", || server.reports() > before + 5);
    assert_eq!((machine.runs_at(&next_gate), machine.record_of(&next)), (0, None), "nothing was started");
    assert_eq!(machine.log().matches("60 s ago").count(), 1, "it says so once");
    assert!(machine.is_running());
    // The server is heard again: the same wish counts, since it is new.
    server.words().is_silent = false;
    machine.until_runs_at(&next_gate);
    machine.open(&next_gate);
    assert_eq!(server.until_told(&next, "gone")["exit_code"], json!(0));
    assert_eq!(machine.runs_at(&next_gate), 1);
}
