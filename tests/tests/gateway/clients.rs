//! Real peers: the `openai` and `anthropic` packages in front of the gateway, a real llama.cpp behind it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use berth_tests::fleet::{Fleet, Machine, Model};
use berth_tests::gateway::{Behaviour, Stage};
use serde_json::{Value, json};

fn tests() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// A Python with these packages. Installed once; `tests/run` has done so before.
fn python(packages: &[&str]) -> String {
    let made = Command::new(tests().join("python")).args(packages).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    format!("{}/python", String::from_utf8(made.stdout).unwrap().trim())
}

/// What a client library makes of a gateway's answer.
fn client(base: &str, model: &str, what: &str) -> Value {
    let python = python(&["openai", "anthropic"]);
    let asked = Command::new(python).arg(tests().join("gateway/clients.py")).args([base, model, "none", what]).output();
    let asked = asked.unwrap();
    serde_json::from_slice(&asked.stdout)
        .unwrap_or_else(|_| panic!("{what}: {}", String::from_utf8_lossy(&asked.stderr)))
}

#[test]
fn gw2_the_openai_package_reads_a_stream_that_began_with_comments() {
    let stage = Stage::with(&["gateway.keep_alive=100ms"]);
    stage.model("m", 40);
    stage.loader.loads_in(Duration::from_millis(800));
    stage.engine.plays(Behaviour::Stream(5, Duration::from_millis(1)));
    let read = client(&stage.api.base(), "m", "stream");
    assert_eq!(read, json!({ "text": "w0 w1 w2 w3 w4 ", "pieces": 5 }));
    assert_eq!(client(&stage.api.base(), "m", "models"), json!({ "ids": ["m"], "status": "loaded" }));
    stage.until_nothing_is_left();
}

#[test]
fn gw3_the_openai_package_raises_its_errors() {
    let stage = Stage::with(&["gateway.keep_alive=50ms", "scheduler.attempts=2", "scheduler.backoff=300ms"]);
    stage.model("m", 40);
    let missing = client(&stage.api.base(), "nobody", "chat");
    assert_eq!((&missing["error"], &missing["code"]), (&json!("NotFoundError"), &json!("model_not_found")));
    let missing = client(&stage.api.base(), "nobody", "message");
    assert_eq!(missing["error"], "NotFoundError", "{missing}");
    stage.loader.fails();
    let before = client(&stage.api.base(), "m", "chat");
    assert_eq!((&before["error"], &before["status"]), (&json!("InternalServerError"), &json!(503)), "{before}");
    let after = client(&stage.api.base(), "m", "stream");
    assert_eq!((&after["error"], &after["code"]), (&json!("APIError"), &json!("load_failed")), "{after}");
    let after = client(&stage.api.base(), "m", "message_stream");
    assert!(after["error"].is_string(), "{after}");
}

fn write_tiny_model(python: &str, file: &Path) {
    let done = Command::new(python).arg(tests().join("llama/tiny_gguf.py")).arg(file).status().unwrap();
    assert!(done.success());
}

#[test]
fn a_real_llama_cpp_server_answers_the_real_client_libraries() {
    let python = python(&["xllamacpp", "gguf", "numpy"]);
    let models = tempfile::tempdir().unwrap();
    let file = models.path().join("tiny.gguf");
    write_tiny_model(&python, &file);
    let fleet = Fleet::start();
    let machine = Machine::new(&[80]);
    let script = tests().join("llama/llama_server.py").display().to_string();
    let command = [
        &python,
        &script,
        "--host",
        "{bind}",
        "--port",
        "{port}",
        "--alias",
        "{model}",
        "--n-gpu-layers",
        "0",
        "{args}",
    ];
    let agent = machine
        .plan(&fleet)
        .set(&format!("model_dirs = [{:?}]", models.path()))
        .runtime("llama-server", &command)
        .start(&fleet);
    let memory = json!({ "file": file, "runner": agent.id(), "context": 512 });
    let tiny = Model::new("tiny", 0).with("runtime", json!("llama-server")).with("memory", memory);
    // No argument names the file: that the memory is estimated from it is enough.
    fleet.model(&tiny.with("aliases", json!(["gpt-tiny"])).with("concurrency", json!(2)));
    let base = fleet.api.base();
    let answer = client(&base, "tiny", "chat");
    assert_eq!(answer["object"], "chat.completion", "{answer}");
    let streamed = client(&base, "gpt-tiny", "stream");
    assert!(streamed["pieces"].as_u64().unwrap() >= 2, "{streamed}");
    assert!(client(&base, "tiny", "completion")["text"].is_string());
    assert_eq!(client(&base, "tiny", "models")["status"], "loaded");
}
