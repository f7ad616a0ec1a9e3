//! A real model: llama.cpp's own server on the CPU, as a slot, asked for a completion, evicted, and proven gone.

use std::path::{Path, PathBuf};
use std::process::Command;

use berth_tests::fleet::{Fleet, Machine, Model};
use berth_tests::service::eventually;
use serde_json::{Value, json};

fn tests() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// A Python with llama.cpp in it. Installed once; `tests/run` has done so before.
fn python() -> String {
    let made = Command::new(tests().join("python")).args(["xllamacpp", "gguf", "numpy"]).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    format!("{}/python", String::from_utf8(made.stdout).unwrap().trim())
}

fn write_tiny_model(python: &str, file: &Path) {
    let done = Command::new(python).arg(tests().join("llama/tiny_gguf.py")).arg(file).status().unwrap();
    assert!(done.success());
}

fn complete_chat(endpoint: &str) -> Value {
    let body = json!({ "messages": [{ "role": "user", "content": "hello" }], "max_tokens": 8 }).to_string();
    let url = format!("{endpoint}/v1/chat/completions");
    let asked = ["-sSf", "--max-time", "60", "-H", "content-type: application/json", "-d", &body, &url];
    let answer = Command::new("curl").args(asked).output().unwrap();
    serde_json::from_slice(&answer.stdout).unwrap_or_else(|_| panic!("{answer:?}"))
}

#[test]
fn a_real_llama_cpp_server_answers_as_a_slot_is_evicted_and_proven_gone() {
    let python = python();
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
    fleet.model(&tiny.args(&["--model", file.to_str().unwrap()]).with("min_run", json!("0s")));
    let lease = fleet.lease("tiny");
    // It starts a real program: longer than other slots.
    let row = eventually("llama.cpp serves", || {
        let row = fleet.api.workload(&lease);
        (row["state"] == "running").then_some(row)
    });
    let answer = complete_chat(row["slot"]["endpoint"].as_str().unwrap());
    assert_eq!(answer["object"], "chat.completion", "{answer:#}");
    assert_eq!(answer["usage"]["completion_tokens"], 8, "{answer:#}");
    let running = fleet.running(&lease);
    let charged = fleet.device(&machine.uuid(0))["held_bytes"].as_u64().unwrap();
    assert!(charged > 0 && charged < 2 << 30, "what was estimated is what is charged: {charged}");
    let pids: Vec<u32> = machine.living_of(&running.slot).iter().map(|process| process.pid).collect();
    assert!(!pids.is_empty());

    // Another model needs the whole GPU: llama.cpp is idle, goes, and only then does the other start.
    fleet.complete(&lease);
    fleet.model(&Model::new("whole", 79).with("exclusive", json!(true)));
    let whole = fleet.run("whole");
    assert!(machine.living_of(&running.slot).is_empty(), "the evicted one is gone");
    assert!(pids.iter().all(|pid| !Path::new(&format!("/proc/{pid}")).exists()), "{pids:?}");
    assert_eq!(machine.living_of(&whole.slot).len(), 1);
    assert!(fleet.slot(&running.slot).is_none_or(|slot| slot["state"] == "released"));
}
