//! Starts that fail (N9), each with its reason. Memory is free on proof, and there is an end to trying.

use std::time::Duration;

use berth_tests::fleet::{Fleet, Machine, Model};
use berth_tests::service::{eventually, within};
use serde_json::{Value, json};

/// Submits a lease on a model that cannot start, and returns what became of it.
fn fails(fleet: &Fleet, machine: &Machine, model: &Model) -> Value {
    fleet.model(model);
    let ended = fleet.until(&fleet.lease(model.name()), "failed");
    let uuid = machine.uuid(0);
    fleet.until_charge(&uuid, "its memory is free", |charge| charge.used() == 0 && charge.free == 80);
    assert!(machine.living().is_empty(), "its memory is free on proof");
    ended
}

/// Two attempts, a short while apart.
fn fleet() -> Fleet {
    Fleet::with(&["scheduler.attempts=2", "scheduler.backoff=200ms"])
}

#[track_caller]
fn tried_twice(machine: &Machine) {
    let starts: Vec<u64> = machine.diary().iter().filter(|e| e.what == "start").map(|e| e.at).collect();
    assert_eq!(starts.len(), 2, "as often as is allowed");
    assert!(starts[1] - starts[0] >= 200, "not at once: {starts:?}");
}

#[test]
fn n9_a_program_that_cannot_be_run_fails_with_bad_binary() {
    let fleet = fleet();
    let machine = Machine::new(&[80]);
    let _agent = machine.agent(&fleet);
    let ended = fails(&fleet, &machine, &Model::new("bad", 20).with("runtime", json!("broken")));
    assert_eq!(ended["attempt"], 2, "{ended}");
    assert_eq!(ended["reason"]["code"], "bad_binary", "{ended}");
    assert!(last_line(&ended).contains("no-program"), "it names the program: {ended}");
    assert!(ended["attempts"][1]["exit"].is_null(), "a program that never ran did not exit: {ended}");
}

/// The last line that the last attempt wrote.
fn last_line(ended: &Value) -> String {
    let lines = ended["attempts"].as_array().and_then(|attempts| attempts.last()?["last_lines"].as_array());
    lines.and_then(|lines| lines.last()?.as_str()).unwrap_or_default().to_owned()
}

#[test]
fn n9_an_argument_that_only_the_agent_may_state_starts_nothing() {
    let fleet = fleet();
    let machine = Machine::new(&[80]);
    let agent = machine.agent(&fleet);
    let ended = fails(&fleet, &machine, &Model::new("bad", 20).args(&["--port", "1"]));
    assert!(last_line(&ended).starts_with("berth: not started: the argument --port"), "{ended}");
    assert!(agent.log().contains("not started"), "the agent's own log says it, too");
    assert!(machine.diary().is_empty(), "nothing was started");
}

#[test]
fn n9_an_engine_that_runs_out_of_memory_fails_with_out_of_memory() {
    let fleet = fleet();
    let machine = Machine::new(&[80]);
    let _agent = machine.agent(&fleet);
    let last_words = ["--say", "torch.OutOfMemoryError: CUDA out of memory.", "--exit", "1"];
    let ended = fails(&fleet, &machine, &Model::new("bad", 20).args(&last_words));
    assert_eq!(ended["reason"]["code"], "out_of_memory", "{ended}");
    tried_twice(&machine);
}

#[test]
fn n9_a_port_in_use_fails_with_port_taken() {
    let fleet = fleet();
    let machine = Machine::new(&[80]);
    let _agent = machine.agent(&fleet);
    let last_words = ["--say", "OSError: [Errno 98] Address already in use", "--exit", "1"];
    let ended = fails(&fleet, &machine, &Model::new("bad", 20).args(&last_words));
    assert_eq!(ended["reason"]["code"], "port_taken", "{ended}");
    tried_twice(&machine);
}

#[test]
fn n9_an_engine_that_never_gets_healthy_fails_with_never_ready() {
    for how in ["--never-ready", "--hang"] {
        let fleet = fleet();
        let machine = Machine::new(&[80]);
        let _agent = machine.agent(&fleet);
        let ended = fails(&fleet, &machine, &Model::new("bad", 20).args(&[how]));
        assert_eq!(ended["reason"]["code"], "never_ready", "{ended}");
        tried_twice(&machine);
    }
}

#[test]
fn n9_what_fails_on_one_machine_is_tried_on_another() {
    let fleet = Fleet::with(&["scheduler.attempts=5", "scheduler.backoff=500ms"]);
    let (bad, good) = (Machine::new(&[80]), Machine::new(&[40]));
    let _bad = bad.agent(&fleet);
    // On the first machine it finds less than it needs, as the engine itself sees it.
    fleet.model(&Model::new("chat", 20).args(&["--say", "out of memory", "--exit", "1"]));
    let chat = fleet.lease("chat");
    eventually("it failed there", || (fleet.api.workload(&chat)["attempt"].as_u64()? >= 2).then_some(()));
    let _good = good.agent(&fleet);
    eventually("it is tried elsewhere", || (!good.diary().is_empty()).then_some(()));
    fleet.until(&chat, "failed");
    let starts = bad.diary().len() + good.diary().len();
    assert_eq!(starts, 5, "so often in all");
}

#[test]
fn n9_an_engine_that_flaps_is_started_again_with_pauses_and_then_no_more() {
    let fleet = Fleet::with(&["scheduler.attempts=3", "scheduler.backoff=100ms"]);
    let machine = Machine::new(&[80]);
    let _agent = machine.agent(&fleet);
    fleet.model(&Model::new("chat", 20).args(&["--flap", "300"]));
    let chat = fleet.lease("chat");
    let ended = fleet.until(&chat, "failed");
    assert_eq!(ended["reason"]["code"], "crashed", "{ended}");
    assert_eq!(machine.diary().iter().filter(|entry| entry.what == "start").count(), 3);
    assert!(machine.living().is_empty());
    // It stays so.
    assert!(within(Duration::from_millis(700), || (machine.diary().len() > 6).then_some(())).is_none());
    fleet.until_charge(&machine.uuid(0), "its memory is free", |charge| charge.used() == 0);
}

#[test]
fn n9_an_engine_that_stops_answering_is_ended() {
    let fleet = Fleet::start();
    let machine = Machine::new(&[80]);
    let _agent = machine.plan(&fleet).watching().start(&fleet);
    fleet.model(&Model::new("chat", 20));
    let chat = fleet.run("chat");
    // It lives, holds its memory, and answers no request.
    let stopped = machine.living_of(&chat.slot)[0].pid;
    machine.pause(stopped);
    eventually("its slot is ended", || machine.living_of(&chat.slot).is_empty().then_some(()));
    fleet.until_slot(&chat.slot, "released");
    let again = fleet.running(&chat.workload);
    assert_ne!(again.slot, chat.slot);
}
