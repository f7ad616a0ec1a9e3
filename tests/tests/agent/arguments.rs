//! Arguments that the agent sets: a model or a job that states one is told which, and what to do.

use berth_tests::fleet::{Fleet, Machine, Model};
use berth_tests::service::eventually;
use serde_json::{Value, json};

/// What was written about the start of a slot that never came to be.
fn log_of(fleet: &Fleet, agent: &str, workload: &str) -> String {
    let decisions = fleet.api.get(&format!("/scheduler/decisions?workload_id={workload}")).is(200).body;
    let slot = decisions.as_array().unwrap().iter().find_map(|row| row["slot_id"].as_str()).unwrap().to_owned();
    eventually("its log can be read", || {
        let reply = fleet.api.get(&format!("/scheduler/slots/{slot}/logs?runner_id={agent}"));
        (reply.status == 200 && !reply.text.is_empty()).then_some(reply.text)
    })
}

fn assert_forbidden(ended: &Value) {
    assert_eq!(ended["reason"]["code"], "forbidden_argument", "{ended}");
    let text = ended["reason"]["text"].as_str().unwrap();
    assert!(text.contains("argument") && text.contains("`args`"), "it says what to do: {text}");
}

#[test]
fn a_model_that_states_its_port_is_told_so() {
    for args in [&["--port", "8080"][..], &["--port=8080"], &["--por", "8080"]] {
        let fleet = Fleet::with(&["scheduler.attempts=1"]);
        let machine = Machine::new(&[80]);
        let agent = machine.agent(&fleet);
        fleet.model(&Model::new("bad", 20).args(args));
        let lease = fleet.lease("bad");
        assert_forbidden(&fleet.until(&lease, "failed"));
        let log = log_of(&fleet, agent.id(), &lease);
        assert!(log.contains(args[0]), "its log names the argument: {log}");
        assert!(agent.log().contains(args[0]), "so does the agent's: {}", agent.log());
        assert_eq!(machine.diary().len(), 0, "nothing was started");
        fleet.until_charge(&machine.uuid(0), "its memory is free", |charge| charge.used() == 0);
    }
}

#[test]
fn a_job_that_states_what_is_reserved_is_told_so() {
    let fleet = Fleet::with(&["scheduler.attempts=1"]);
    let machine = Machine::new(&[80]);
    let agent = machine.plan(&fleet).start(&fleet);
    fleet.model(&Model::new("train", 20).with("runtime", json!("job")));
    for arg in ["--port=1", "--memory=1"] {
        let submit = json!({ "model": "train", "kind": "job", "job": { "args": [arg] } });
        let job = fleet.api.post("/api/v1/workloads", &submit).is(201).id();
        assert_forbidden(&fleet.until(&job, "failed"));
        assert!(log_of(&fleet, agent.id(), &job).contains(arg));
    }
}

#[test]
fn an_argument_that_the_runtime_cannot_pass_on_is_told_so() {
    let fleet = Fleet::with(&["scheduler.attempts=1"]);
    let machine = Machine::new(&[80]);
    let agent = machine.plan(&fleet).runtime("fixed", &["/bin/true"]).start(&fleet);
    fleet.model(&Model::new("bad", 20).with("runtime", json!("fixed")).args(&["--surprise"]));
    let lease = fleet.lease("bad");
    assert_forbidden(&fleet.until(&lease, "failed"));
    assert!(log_of(&fleet, agent.id(), &lease).contains("--surprise"));
}
