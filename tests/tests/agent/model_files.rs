//! Model files on a runner's disk: its agent reads their headers for the server, below its own list of directories.

use berth_tests::fleet::{Fleet, Machine};
use berth_tests::service::{GIB, write_gguf};
use serde_json::{Value, json};

fn put(fleet: &Fleet, memory: &Value) -> berth_tests::service::Reply {
    let model = json!({ "runtime": "llama-server", "memory": memory, "args": ["-m", "m.gguf"] });
    fleet.api.put("/api/v1/models/m", &model)
}

#[test]
fn a_file_on_a_runners_disk_is_estimated_by_its_agent_and_charged() {
    let models = tempfile::tempdir().unwrap();
    let file = write_gguf(models.path(), "m.gguf", 8 * GIB);
    let fleet = Fleet::start();
    let machine = Machine::new(&[80]);
    let agent = machine.plan(&fleet).set(&format!("model_dirs = [{:?}]", models.path())).start(&fleet);

    let memory = json!({ "file": file, "runner": agent.id(), "context": 4096 });
    let asked = fleet.api.post("/api/v1/estimate", &memory).is(200).body;
    assert_eq!(asked["inputs"]["context"], 4096, "{asked:#}");
    let model = put(&fleet, &memory).is(201).body;
    assert_eq!(model["memory"]["runner"], agent.id(), "it is shown where the file is: {model:#}");
    let args = model["args"].to_string();
    assert!(args.contains("--ctx-size") && args.contains("4096"), "what the arguments left out is added: {args}");

    // The number follows from the file, whichever program reads it.
    let of_one = |body: &Value| body["counts"][0]["gpus"][0]["total_bytes"].clone();
    let local = std::process::Command::new(berth_tests::service::berth())
        .args(["estimate", "--context", "4096", "--output", "json"])
        .arg(&file)
        .output()
        .unwrap();
    let local: Value = serde_json::from_slice(&local.stdout).unwrap();
    assert!(of_one(&asked).as_u64().is_some_and(|bytes| bytes > 8 * GIB), "{asked:#}");
    assert_eq!(of_one(&asked), of_one(&local));
}

#[test]
fn a_file_outside_the_list_and_an_agent_that_does_not_answer_have_different_errors() {
    let (models, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let secret = write_gguf(elsewhere.path(), "secret.gguf", GIB);
    let fleet = Fleet::start();
    let machine = Machine::new(&[80]);
    let agent = machine.plan(&fleet).set(&format!("model_dirs = [{:?}]", models.path())).start(&fleet);

    let outside = put(&fleet, &json!({ "file": secret, "runner": agent.id() })).is(422);
    assert_eq!(outside.body["field"], "memory.file");
    assert!(outside.body["detail"].as_str().unwrap().contains("agent.model_dirs"), "{:#}", outside.body);
    let absent = put(&fleet, &json!({ "file": models.path().join("no.gguf"), "runner": agent.id() })).is(422);
    assert_eq!(absent.body["field"], "memory.file");
    assert_eq!(put(&fleet, &json!({ "file": secret, "runner": "nobody" })).is(404).code(), "unknown_runner");
    agent.pause();
    let silent = put(&fleet, &json!({ "file": secret, "runner": agent.id() }));
    agent.resume();
    assert_eq!(silent.is(504).code(), "runner_silent");
}
