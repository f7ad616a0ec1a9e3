//! The agent ignores processes of other users that carry a copied mark.

use crate::machine::{Machine, Stranger};
use crate::server::{Server, asked, run};

/// A user that is neither the agent's nor any runtime's.
const ANOTHER: u32 = 1;

/// Only root can start a process of another user, so the tests have nothing to show without root.
fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[test]
fn a_mark_that_another_user_copied_is_not_adopted_when_the_agent_starts() {
    if !is_root() {
        return;
    }
    let server = Server::start();
    let mut machine = Machine::started(&server);
    let slot = server.slot(7);
    let mut stranger = Stranger::of_user(ANOTHER, &machine, &slot, 1, "lease");
    machine.kill();
    machine.start();
    server.wants(&[asked(&slot, "account")]);
    let row = server.until_told(&slot, "gone");
    assert_eq!(row["pid"], serde_json::Value::Null, "{row}");
    assert!(stranger.is_alive(), "{}", machine.log());
    assert!(!machine.log().contains("found running, but not on record"), "{}", machine.log());
}

#[test]
fn a_mark_that_another_user_copied_keeps_no_slot_from_starting_or_ending() {
    if !is_root() {
        return;
    }
    let server = Server::start();
    let machine = Machine::started(&server);
    let (slot, gate) = (server.slot(7), machine.gate("gate"));
    let mut before = Stranger::of_user(ANOTHER, &machine, &slot, 1, "lease");
    server.wants(&[run(&slot, "server", "lease", &[&gate, "0"])]);
    machine.until_runs_at(&gate);
    // All that another user can know of a slot: its ids, which are no secrets.
    let mut beside = Stranger::of_user(ANOTHER, &machine, &slot, 1, "lease");
    server.until_told(&slot, "ready");
    server.wants(&[asked(&slot, "stop")]);
    server.until_told(&slot, "gone");
    server.until_heard();
    assert!(before.is_alive() && beside.is_alive(), "{}", machine.log());
}

#[test]
fn a_process_of_the_agents_own_user_needs_the_secret_of_a_slot_on_record() {
    let server = Server::start();
    let machine = Machine::started(&server);
    let (slot, gate) = (server.slot(7), machine.gate("gate"));
    server.wants(&[run(&slot, "server", "lease", &[&gate, "0"])]);
    machine.until_runs_at(&gate);
    server.until_told(&slot, "ready");
    let mut stranger = Stranger::of(&machine, &slot, 1, "lease");
    server.wants(&[asked(&slot, "stop")]);
    server.until_told(&slot, "gone");
    assert!(stranger.is_alive(), "it was taken for a process of the slot");
}
