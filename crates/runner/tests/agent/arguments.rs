//! What a lenient server asks for is checked again: arguments that need the operator's leave start nothing without it.

use serde_json::{Value, json};

use crate::machine::Machine;
use crate::server::{Server, run};

/// A slot whose last arguments are a job's.
fn job(slot: &str, runtime: &str, of_model: &[&str], of_job: &[&str]) -> Value {
    let mut row = run(slot, runtime, "job", &[of_model, of_job].concat());
    row["model_args"] = json!(of_model.len());
    row
}

#[track_caller]
fn is_refused(server: &Server, machine: &Machine, wanted: Value, reason: &str, says: &str) {
    let slot = wanted["id"].as_str().unwrap().to_owned();
    server.wants(&[wanted]);
    let row = server.until_told(&slot, "gone");
    assert_eq!(row["reason"], reason, "{row}");
    assert_eq!(row["evidence"], json!({ "tree_gone": true, "driver_clear": true }), "{row}");
    assert!(machine.log().contains(says), "its log says {says}: {}", machine.log());
}

#[test]
fn a_model_entry_that_loads_code_is_not_started() {
    let server = Server::start();
    let machine = Machine::started(&server);
    for (number, args) in [["--trust-remote-code"].as_slice(), &["--tool-parser-plugin", "evil.py"]].iter().enumerate()
    {
        let slot = server.slot(u64::try_from(number).unwrap() + 1);
        let wanted = run(&slot, "vllm", "lease", args);
        is_refused(&server, &machine, wanted, "forbidden_argument", "loads code or runs programs");
        assert!(machine.log().contains(args[0]), "{}", machine.log());
    }
    let wanted = run(&server.slot(9), "vllm", "lease", &["--device-memory-util", "0.99"]);
    is_refused(&server, &machine, wanted, "forbidden_argument", "`allow` of [runtime.vllm]");
}

#[test]
fn a_job_passes_what_the_operator_listed_and_nothing_else() {
    let server = Server::start();
    let machine = Machine::started(&server);
    let gate = machine.gate("gate");
    let fine = job(&server.slot(1), "listed", &[&gate, "0"], &["--quick"]);
    server.wants(&[fine]);
    machine.until_runs_at(&gate);
    machine.open(&gate);
    assert_eq!(server.until_told(&server.slot(1), "gone")["exit_code"], 0);
    let closed = machine.gate("closed");
    let wanted = job(&server.slot(2), "listed", &[&closed, "0"], &["--slow"]);
    is_refused(&server, &machine, wanted, "forbidden_argument", "jobs may not pass --slow");
    let wanted = job(&server.slot(3), "job", &[], &[&closed, "0"]);
    is_refused(&server, &machine, wanted, "forbidden_argument", "jobs may not pass");
    let wanted = job(&server.slot(4), "vllm", &[], &["--max-model-len", "100000"]);
    is_refused(&server, &machine, wanted, "forbidden_argument", "changes how much memory is needed");
    assert_eq!(machine.runs_at(&closed), 0, "nothing was started");
}

#[test]
fn a_job_is_not_started_by_a_runtime_for_servers() {
    let server = Server::start();
    let machine = Machine::started(&server);
    let gate = machine.gate("gate");
    let wanted = run(&server.slot(1), "server", "job", &[&gate, "0"]);
    is_refused(&server, &machine, wanted, "bad_binary", "starts servers, not jobs");
    assert_eq!(machine.runs_at(&gate), 0);
}
