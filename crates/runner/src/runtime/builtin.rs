//! Runtimes that need no configuration. What an operator configures replaces that part of a built-in runtime. The
//! arguments that each of them takes are in the tables of `berth-engines`.

use berth_domain::{RuntimeKind, Span};

use super::config::RuntimeConfig;
use super::questions::{Live, Ready};

/// Returns the built-in runtime of this name.
pub(super) fn builtin(name: &str) -> Option<RuntimeConfig> {
    match name {
        "vllm" => Some(vllm()),
        "ollama" => Some(ollama()),
        "llama-server" => Some(llama_server()),
        _ => None,
    }
}

/// The names of the built-in runtimes.
pub(super) const NAMES: [&str; 3] = ["llama-server", "ollama", "vllm"];

/// Variables that are passed to all programs, if the agent has them.
pub(super) const ENV_PASS: [&str; 11] =
    ["PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "TMPDIR", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT_FILE"];

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|&text| text.to_owned()).collect()
}

/// Returns a server that is ready when it is healthy and names the model: each of the three is healthy without one,
/// too.
fn server(command: &[&str], health: &str, model_path: &str) -> RuntimeConfig {
    RuntimeConfig {
        command: Some(texts(command)),
        ready: Some(Ready::at(health).naming_the_model_at(model_path)),
        live: Some(Live::at(health)),
        endpoint: Some("http://{address}:{port}".to_owned()),
        kind: Some(RuntimeKind::Server),
        ..RuntimeConfig::default()
    }
}

/// Returns the runtime of vLLM, which takes the share of each GPU that it is given, weights and cache together.
fn vllm() -> RuntimeConfig {
    let command = [
        "vllm",
        "serve",
        "{model}",
        "--host",
        "{bind}",
        "--port",
        "{port}",
        "--gpu-memory-utilization",
        "{utilization}",
        "--tensor-parallel-size",
        "{gpu_count}",
        "{args}",
    ];
    RuntimeConfig {
        env_pass: texts(&["HF_HOME", "HF_TOKEN", "HF_HUB_OFFLINE", "HF_ENDPOINT", "VLLM_CACHE_ROOT"]),
        stop_grace: Some(Span::from_secs(30)),
        ..server(&command, "/health", "/v1/models")
    }
}

/// Returns the runtime of Ollama, which is configured through its environment, so arguments of a model are looked up
/// one by one. Its context is that of one sequence, where llama.cpp's `--ctx-size` is that of all: hence other option
/// names. A model stays loaded until the slot ends: Berth decides when memory is freed, not a timer of Ollama. Flash
/// attention is on unless the model says otherwise, because a quantised cache is ignored without it.
fn ollama() -> RuntimeConfig {
    let env = [
        ("OLLAMA_HOST", "{bind}:{port}"),
        ("OLLAMA_KEEP_ALIVE", "-1"),
        ("OLLAMA_MAX_LOADED_MODELS", "1"),
        ("OLLAMA_NUM_PARALLEL", "{concurrency}"),
        ("OLLAMA_CONTEXT_LENGTH", "{arg:--num-ctx|--context-length}"),
        ("OLLAMA_KV_CACHE_TYPE", "{arg:--kv-cache-type}"),
        ("OLLAMA_FLASH_ATTENTION", "{arg:--flash-attention=1}"),
    ];
    let base = server(&["ollama", "serve"], "/api/version", "/v1/models/{model}");
    // Ollama loads a model at the first request, so that it is ready within seconds or lacks the model.
    let ready = base.ready.clone().map(|ready| Ready { deadline: Span::from_secs(60), ..ready });
    RuntimeConfig {
        ready,
        env: env.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
        env_pass: texts(&["OLLAMA_MODELS"]),
        ..base
    }
}

/// Returns the runtime of llama-server. The model's arguments name its weights (`--model` or `-hf`). The last value of
/// an option counts: arguments of an estimate replace the defaults before them.
fn llama_server() -> RuntimeConfig {
    let command = [
        "llama-server",
        "--host",
        "{bind}",
        "--port",
        "{port}",
        "--alias",
        "{model}",
        "--parallel",
        "{concurrency}",
        "--n-gpu-layers",
        "999",
        "{args}",
    ];
    RuntimeConfig { env_pass: texts(&["LLAMA_CACHE", "HF_TOKEN"]), ..server(&command, "/health", "/v1/models") }
}
