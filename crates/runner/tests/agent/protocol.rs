//! A server and an agent that do not speak the same protocol do nothing to each other.

use serde_json::json;

use crate::machine::{Machine, until};
use crate::server::{Server, asked, run};

/// A slot that runs, and an agent that would end it and start another if it listened.
fn with_a_slot(server: &Server) -> (Machine, String, String) {
    let machine = Machine::started(server);
    let (slot, gate) = (server.slot(7), machine.gate("gate"));
    server.wants(&[run(&slot, "server", "lease", &[&gate, "0"])]);
    machine.until_runs_at(&gate);
    server.until_told(&slot, "ready");
    (machine, slot, gate)
}

/// The agent lives and its slot lives, although the server wants it to end and another one to start.
#[track_caller]
fn is_unmoved(machine: &mut Machine, slot: &str) {
    assert!(machine.is_running());
    assert!(!machine.carriers(slot).is_empty(), "it was ended");
    assert_eq!(machine.runs_at(&machine.gate("other")), 0, "another was started");
}

/// Wants the slot to end and another to start.
fn wants_the_opposite(server: &Server, machine: &Machine, slot: &str) {
    let other = machine.gate("other");
    server.wants(&[asked(slot, "stop"), run(&server.slot(8), "server", "lease", &[&other, "0"])]);
}

/// The server speaks the agent's protocol again: everything is done.
#[track_caller]
fn obeys(server: &Server, machine: &Machine, slot: &str) {
    server.until_told(slot, "gone");
    machine.until_runs_at(&machine.gate("other"));
}

#[test]
fn every_report_says_its_protocol_and_what_runtimes_are_for() {
    let server = Server::start();
    let _machine = Machine::started(&server);
    let report = server.last_report().unwrap();
    assert_eq!(report["protocol"], 2);
    assert_eq!(report["runtimes"], json!(["both", "job", "listed", "server", "slow", "vllm"]));
    // What is not listed is for both.
    let kinds = json!({ "job": "job", "listed": "job", "server": "server", "slow": "server" });
    assert_eq!(report["runtime_kinds"], kinds);
    assert_eq!(report["allowed_args"], json!({ "listed": ["--quick"] }), "what each runtime allows");
}

#[test]
fn n8_an_agent_tells_nothing_to_a_server_that_speaks_another_protocol() {
    let server = Server::start();
    server.words().protocols[0] = 3;
    let mut machine = Machine::new(&server);
    machine.start();
    until("it says so", || {
        machine.log().contains("the server speaks protocol 3 and this agent protocol 2: upgrade this agent")
    });
    assert!(machine.log().contains("ERROR"), "{}", machine.log());
    assert_eq!(server.reports(), 0);
    server.words().protocols[0] = 2;
    until("it asks again, and reports", || server.reports() > 0);
    assert!(machine.is_running());
}

#[test]
fn n8_what_a_server_of_another_protocol_desires_is_not_done() {
    for (which, theirs, words) in [
        (1, 1, "the server speaks protocol 1 and this agent protocol 2: upgrade the server"),
        (2, 3, "the server speaks protocol 3 and this agent protocol 2: upgrade this agent"),
    ] {
        let server = Server::start();
        let (mut machine, slot, _) = with_a_slot(&server);
        server.words().protocols[which] = theirs;
        // A new start of the agent hears it from the first.
        machine.kill();
        wants_the_opposite(&server, &machine, &slot);
        machine.start();
        until("it says so", || machine.log().contains(words));
        let before = server.reports();
        until("it tries again and again", || server.reports() > before + 2);
        is_unmoved(&mut machine, &slot);
        assert_eq!(server.last_report().unwrap()["incarnation"], 1, "it does not register again and again");
        assert_eq!(machine.log().matches(words).count(), 1, "and does not say so all the time");
        server.words().protocols[which] = 2;
        obeys(&server, &machine, &slot);
    }
}

#[test]
fn n8_a_server_that_changes_its_protocol_under_a_running_agent_is_not_obeyed() {
    let server = Server::start();
    let (mut machine, slot, _) = with_a_slot(&server);
    server.words().protocols[2] = 3;
    wants_the_opposite(&server, &machine, &slot);
    until("it says so", || machine.log().contains("upgrade this agent"));
    is_unmoved(&mut machine, &slot);
    server.words().protocols[2] = 2;
    obeys(&server, &machine, &slot);
}

#[test]
fn n8_an_agent_that_is_refused_for_its_protocol_stays_and_tries_again() {
    let server = Server::start();
    let (mut machine, slot, _) = with_a_slot(&server);
    server.words().refuses = Some((409, "protocol_mismatch"));
    until("it says so", || machine.log().contains("which speaks protocol 2"));
    wants_the_opposite(&server, &machine, &slot);
    assert!(machine.log().contains("the server speaks protocol 9"), "what the server said: {}", machine.log());
    is_unmoved(&mut machine, &slot);
    server.words().refuses = None;
    obeys(&server, &machine, &slot);
}

#[test]
fn n8_a_desired_state_that_cannot_be_read_ends_nothing() {
    let server = Server::start();
    let (mut machine, slot, gate) = with_a_slot(&server);
    // A word of a later version, beside one that it knows.
    let other = machine.gate("other");
    let start = run(&server.slot(8), "server", "lease", &[&other, "0"]);
    server.wants(&[asked(&slot, "stop"), start, asked(&server.slot(9), "dance")]);
    let before = server.words().polls();
    until("it asks again and again", || server.words().polls() > before + 3);
    is_unmoved(&mut machine, &slot);
    server.wants(&[run(&slot, "server", "lease", &[&gate, "0"])]);
    server.until_heard();
    assert_eq!(server.heard_of(&slot).unwrap()["state"], "ready");
    wants_the_opposite(&server, &machine, &slot);
    obeys(&server, &machine, &slot);
}
