//! The real engines end to end: the real server, a real agent, the built-in templates, and llama-server, vLLM and Ollama
//! themselves, on the CPU, with tiny models. Every engine goes through the same [`stages`].
//!
//! `tests/engines` installs the engines, makes the models and runs these tests. They are ignored otherwise, because an
//! engine takes minutes to install. What they are told by their environment:
//!
//! | variable | what |
//! | --- | --- |
//! | `BERTH_REAL_LLAMA_SERVER`, `BERTH_REAL_VLLM`, `BERTH_REAL_OLLAMA` | the program of an engine |
//! | `BERTH_REAL_MODELS` | a directory with `tiny.gguf`, the folders `first` and `second`, and Ollama's store `ollama` |
#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod bench;
mod stages;
mod trees;

use std::path::PathBuf;
use std::time::Duration;

use bench::{Bench, RealEngine};

fn told(variable: &str) -> PathBuf {
    std::env::var_os(variable).unwrap_or_else(|| panic!("{variable} is not set: tests/engines runs this test")).into()
}

#[test]
#[ignore = "tests/engines installs llama-server and runs this"]
fn llama_server() {
    let models = told("BERTH_REAL_MODELS");
    let file = models.join("tiny.gguf").display().to_string();
    stages::play(Bench::set(RealEngine {
        name: "llama-server",
        program: told("BERTH_REAL_LLAMA_SERVER"),
        models,
        gpus: 1,
        args: vec!["--model".to_owned(), file, "--ctx-size".to_owned(), "512".to_owned()],
        env: &[],
        processes_while_loading: 1,
        patience: Duration::from_secs(60),
    }));
}

#[test]
#[ignore = "tests/engines installs vLLM and runs this"]
fn vllm() {
    stages::play(Bench::set(vllm_on(1)));
}

/// Two ranks: a worker for each, below a process that is not the one that was started.
#[test]
#[ignore = "tests/engines installs vLLM and runs this"]
fn vllm_on_two_gpus() {
    stages::play(Bench::set(vllm_on(2)));
}

fn vllm_on(gpus: usize) -> RealEngine {
    RealEngine {
        name: "vllm",
        program: told("BERTH_REAL_VLLM"),
        models: told("BERTH_REAL_MODELS"),
        gpus,
        args: ["--max-model-len", "512", "--enforce-eager"].map(str::to_owned).to_vec(),
        // The machine's memory stands in for that of a GPU. Without a bound vLLM would take the model's share of it.
        env: &[("VLLM_CPU_KVCACHE_SPACE", "1"), ("VLLM_CPU_OMP_THREADS_BIND", "nobind"), ("HF_HUB_OFFLINE", "1")],
        processes_while_loading: 2,
        patience: Duration::from_secs(600),
    }
}

#[test]
#[ignore = "tests/engines builds Ollama and runs this"]
fn ollama() {
    stages::play(Bench::set(RealEngine {
        name: "ollama",
        program: told("BERTH_REAL_OLLAMA"),
        models: told("BERTH_REAL_MODELS"),
        gpus: 1,
        args: ["--num-ctx", "512"].map(str::to_owned).to_vec(),
        env: &[],
        processes_while_loading: 1,
        patience: Duration::from_secs(60),
    }));
}
