//! Slots that the server asks the agent to account for.

use std::fs;

use serde_json::json;

use crate::machine::{Machine, Stranger, until};
use crate::server::{Server, asked, run};

#[test]
fn r8_a_slot_that_is_nowhere_is_reported_gone_without_a_trace_until_it_is_acknowledged() {
    let server = Server::start();
    let machine = Machine::started(&server);
    let slot = server.slot(7);
    server.wants(&[asked(&slot, "account")]);
    let row = server.until_told(&slot, "gone");
    assert_eq!(row["reason"], "no_trace", "{row}");
    assert_eq!(row["evidence"], json!({ "tree_gone": true, "driver_clear": true }));
    assert!(row.get("model").is_none(), "no model is made up: {row}");
    server.until_heard();
    assert_eq!(server.heard_of(&slot).unwrap()["state"], "gone", "it is said again and again");
    assert!(server.all_of(&slot).iter().all(|row| row["state"] == "gone"), "{:?}", server.all_of(&slot));
    server.wants(&[]);
    until("it is forgotten", || !machine.record_file(&slot).exists() && server.heard_of(&slot).is_none());
}

#[test]
fn r8_a_slot_that_carries_its_mark_is_adopted_and_not_stopped() {
    let server = Server::start();
    let machine = Machine::started(&server);
    let slot = server.slot(7);
    // Another agent started it, after this one had looked for orphans.
    let mut stranger = Stranger::of(&machine, &slot, 1, "lease");
    server.wants(&[asked(&slot, "account")]);
    let row = server.until_told(&slot, "ready");
    assert_eq!((row["pid"].as_u64(), &row["claims"][0]["uuid"]), (Some(stranger.pid().into()), &json!("GPU-a")));
    server.until_heard();
    assert!(stranger.is_alive(), "to be asked about ends nobody");
    // The server says how it is run: the record has it from now on.
    server.wants(&[run(&slot, "server", "lease", &[])]);
    until("it learns", || server.heard_of(&slot).is_some_and(|row| row["model"] == "some-model"));
    assert!(stranger.is_alive());
    assert_eq!(machine.record_of(&slot).unwrap()["spec"]["runtime"], "server");
    server.wants(&[asked(&slot, "stop")]);
    until("it is asked to end", || !stranger.is_alive());
    let row = server.until_told(&slot, "gone");
    assert!(row.get("reason").is_none(), "as asked: {row}");
}

#[test]
fn r8_while_the_driver_lists_a_pid_that_cannot_be_seen_nothing_is_concluded() {
    let server = Server::start();
    let machine = Machine::started(&server);
    machine.shows("[[gpu.process]]\npid = 4194999\nused = \"1GiB\"");
    for (number, action, reason) in [(7, "account", json!("no_trace")), (8, "stop", json!(null))] {
        let slot = server.slot(number);
        machine.shows("[[gpu.process]]\npid = 4194999\nused = \"1GiB\"");
        server.wants(&[asked(&slot, action)]);
        let row = server.until_told(&slot, "unknown");
        let why = row["detail"].as_str().unwrap();
        assert!(why.contains("4194999") && why.contains("GPU-a"), "{why}");
        server.until_heard();
        assert_eq!(server.heard_of(&slot).unwrap()["state"], "unknown");
        assert!(!machine.record_file(&slot).exists(), "nothing is concluded");
        machine.shows("");
        let row = server.until_told(&slot, "gone");
        assert_eq!(row.get("reason").unwrap_or(&json!(null)), &reason, "{row}");
    }
}

#[test]
fn r8_while_the_driver_lists_a_process_without_a_readable_environment_nothing_is_concluded() {
    let server = Server::start();
    let machine = Machine::started(&server);
    let slot = server.slot(7);
    // As programs do that write over their environment: this one may be of the slot.
    let bare = Stranger::without_environment();
    machine.shows(&format!("[[gpu.process]]\npid = {}\nused = \"1GiB\"", bare.pid()));
    server.wants(&[asked(&slot, "account")]);
    let row = server.until_told(&slot, "unknown");
    let why = row["detail"].as_str().unwrap();
    assert!(why.contains(&bare.pid().to_string()) && why.contains("does not say whose it is"), "{why}");
    // A process with a readable environment without the mark is of no slot.
    let plain = Stranger::of(&machine, &server.slot(8), 1, "lease");
    machine.shows(&format!("[[gpu.process]]\npid = {}\nused = \"1GiB\"", plain.pid()));
    assert_eq!(server.until_told(&slot, "gone")["reason"], "no_trace");
}

#[test]
fn r8_a_driver_that_does_not_answer_proves_nothing() {
    let server = Server::start();
    let machine = Machine::started(&server);
    machine.shows("[[fault]]\nfunction = \"nvmlDeviceGetMemoryInfo_v2\"\ngpu = \"GPU-a\"\nhang = \"until_change\"");
    let slot = server.slot(7);
    server.wants(&[asked(&slot, "account")]);
    let row = server.until_told(&slot, "unknown");
    assert!(row["detail"].as_str().unwrap().contains("the driver does not answer"), "{row}");
    machine.shows("");
    assert_eq!(server.until_told(&slot, "gone")["reason"], "no_trace");
}

#[test]
fn r8_a_recorded_slot_whose_processes_cannot_be_read_is_reported_unknown() {
    let server = Server::start();
    let mut machine = Machine::started(&server);
    let (slot, gate) = (server.slot(7), machine.gate("gate"));
    server.wants(&[run(&slot, "server", "lease", &[&gate, "0"])]);
    let pid = server.until_told(&slot, "ready")["pid"].clone();
    machine.kill();
    // As if the agent had been started in another container.
    machine.rewrite(&slot, |record| record["process"]["pid_namespace"] = json!(1));
    machine.start();
    let row = server.until_told(&slot, "unknown");
    assert!(row["detail"].as_str().unwrap().contains("another pid namespace"), "{row}");
    assert_eq!(row["claims"][0]["uuid"], "GPU-a", "what it holds is still said");
    for action in ["account", "stop"] {
        server.wants(&[asked(&slot, action)]);
        server.until_heard();
        assert_eq!(server.heard_of(&slot).unwrap()["state"], "unknown");
        assert!(machine.carriers(&slot).iter().any(|carrier| *carrier == pid), "nothing is done about it");
    }
}

#[test]
fn what_is_on_record_accounts_for_itself() {
    let server = Server::start();
    let mut machine = Machine::started(&server);
    let (slot, gate) = (server.slot(7), machine.gate("gate"));
    server.wants(&[run(&slot, "server", "lease", &[&gate, "0"])]);
    let pid = server.until_told(&slot, "ready")["pid"].clone();
    server.wants(&[asked(&slot, "account")]);
    server.until_heard();
    let row = server.heard_of(&slot).unwrap();
    assert_eq!((&row["state"], &row["pid"], &row["model"]), (&json!("ready"), &pid, &json!("some-model")));
    // It ends by itself: one report says so, why, and with what evidence.
    machine.open(&gate);
    let row = server.until_told(&slot, "gone");
    assert_eq!((&row["reason"], row.get("exit_code")), (&json!("crashed"), None), "a server does not end by itself");
    assert_eq!(row["evidence"], json!({ "tree_gone": true, "driver_clear": true }));
    machine.kill();
    assert_eq!(machine.record_of(&slot).unwrap()["life"]["gone"]["why"], json!({ "failed": "crashed" }));
    let _ = fs::remove_file(machine.path("agent.log"));
}
