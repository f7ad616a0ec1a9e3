//! What models and jobs may pass to engines: refused by the server, with a code and a sentence that says what to do.

#![expect(clippy::unwrap_used, reason = "tests")]

use berth_tests::service::{Api, FakeAgent, Reply, Server};
use serde_json::{Value, json};

const GIB: u64 = 1 << 30;

/// A server with one runner whose runtimes are for both kinds of work, and allow what is said.
fn with_runner(allowed: &Value) -> (Server, Api, FakeAgent) {
    let server = Server::start();
    let api = server.api();
    let agent = register(&api, "box", allowed);
    (server, api, agent)
}

fn register(api: &Api, id: &str, allowed: &Value) -> FakeAgent {
    let mut agent = FakeAgent::new(api, id, &[80 * GIB]);
    agent.about["runtimes"] = json!(["llama-server", "ollama", "train", "vllm"]);
    agent.about["allowed_args"] = allowed.clone();
    agent.registered()
}

fn put(api: &Api, runtime: &str, args: &Value) -> Reply {
    let body = json!({ "runtime": runtime, "memory": "10GiB", "args": args });
    api.ask("PUT", "/api/v1/models/m").json(&body).send()
}

fn submit(api: &Api, args: &Value) -> Reply {
    api.post("/api/v1/workloads", &json!({ "model": "m", "kind": "job", "job": { "args": args } }))
}

#[track_caller]
fn is_refused(reply: &Reply, field: &str, says: &[&str]) {
    assert_eq!((reply.status, reply.code()), (422, "forbidden_argument"), "{}", reply.text);
    assert_eq!(reply.body["field"], field, "{}", reply.text);
    let detail = reply.body["detail"].as_str().unwrap();
    for word in says {
        assert!(detail.contains(word), "it says {word}: {detail}");
    }
}

#[test]
fn a_model_that_loads_code_is_refused_until_the_runner_allows_it() {
    let (_server, api, _agent) = with_runner(&json!({}));
    let todo = ["loads code", "runner box does not allow it", "`allow` of [runtime.vllm]"];
    is_refused(&put(&api, "vllm", &json!(["--trust-remote-code"])), "args", &todo);
    is_refused(&put(&api, "vllm", &json!(["--trust_remote"])), "args", &todo);
    for (runtime, args) in [
        ("llama-server", json!(["-m", "m.gguf", "--mcp-servers-json", "{}"])),
        ("llama-server", json!(["-m", "m.gguf", "--tools", "all"])),
        ("vllm", json!(["--device-memory-utilization", "0.9"])),
        ("vllm", json!(["-sc.model", "x"])),
        ("vllm", json!(["--no-such-option", "1"])),
        ("ollama", json!(["--ctx-size", "10"])),
    ] {
        is_refused(&put(&api, runtime, &args), "args", &[args[args.as_array().unwrap().len() - 2].as_str().unwrap()]);
    }
    // Spellings that the engine does not take.
    is_refused(&put(&api, "llama-server", &json!(["-m", "m", "--ctx-size=1024"])), "args", &["--ctx-size and 1024"]);
    is_refused(&put(&api, "llama-server", &json!(["-m", "m", "-fa"])), "args", &["-fa wants a value"]);
    let _ = api.get("/api/v1/models/m").is(404);

    let (_server, api, _agent) = with_runner(&json!({ "vllm": ["--trust-remote-code"] }));
    let _ = put(&api, "vllm", &json!(["--trust-remote-code", "--max-model-len", "8k"])).is(201);
    // Another runner that the model could run on does not.
    let _other = register(&api, "other", &json!({}));
    let again = put(&api, "vllm", &json!(["--trust-remote-code"]));
    is_refused(&again, "args", &["runner other does not allow it"]);
    // A command without a table takes whatever an admin says.
    let _ = put(&api, "train", &json!(["--anything", "at", "all"])).is(200);
}

#[test]
fn a_job_passes_what_the_runner_allows_and_changes_no_memory() {
    let (_server, api, _agent) =
        with_runner(&json!({ "train": ["--epochs"], "vllm": ["--max-model-len", "--middleware"] }));
    let _ = put(&api, "train", &json!(["--data", "set"])).is(201);
    let _ = submit(&api, &json!(["--epochs", "3"])).is(201);
    for args in [json!(["--evil"]), json!(["--epochs", "3", "script.sh"]), json!(["--epochs", "--evil"])] {
        is_refused(&submit(&api, &args), "job.args", &["`allow` of [runtime.train]", "`job.args`"]);
    }
    let _ = put(&api, "vllm", &json!(["--max-model-len", "1024"])).is(200);
    let _ = submit(&api, &json!(["--seed", "3"])).is(201);
    let _ = submit(&api, &json!(["--middleware", "x"])).is(201);
    is_refused(&submit(&api, &json!(["--trust-remote-code"])), "job.args", &["loads code"]);
    for args in [json!(["--max-model-len", "65536"]), json!(["--max-model=65536"]), json!(["--max_model_len", "64k"])] {
        is_refused(&submit(&api, &args), "job.args", &["what its model was charged for", "`args`"]);
    }
}

#[test]
fn a_model_that_its_engine_could_not_start_is_refused() {
    let (_server, api, _agent) = with_runner(&json!({}));
    let unfit = |runtime: &str, args: Value, counts: Value, says: &str| {
        let body = json!({ "runtime": runtime, "memory": { "total": "10GiB" }, "args": args, "gpu_counts": counts });
        let reply = api.ask("PUT", "/api/v1/models/m").json(&body).send().is(422);
        assert_eq!(reply.code(), "unfit_model", "{}", reply.text);
        assert!(reply.body["detail"].as_str().unwrap().contains(says), "{}", reply.text);
    };
    unfit("llama-server", json!(["-c", "10"]), json!([1]), "--model FILE");
    unfit("llama-server", json!(["-m", "m", "-ts", "1,1"]), json!([16]), "at most 15 GPUs");
    unfit("ollama", json!(["--kv-cache-type", "q8_0", "--flash-attention", "0"]), json!([1]), "flash attention");
    unfit("ollama", json!(["--num-ctx", "many"]), json!([1]), "number of tokens");
}

#[test]
fn lists_of_allowed_arguments_are_shown_and_bounded() {
    let (_server, api, _agent) = with_runner(&json!({ "train": ["--epochs"] }));
    assert_eq!(api.get("/api/v1/runners/box").is(200).body["allowed_args"], json!({ "train": ["--epochs"] }));
    let mut agent = FakeAgent::new(&api, "greedy", &[GIB]);
    for list in
        [(0..200).map(|number| format!("--x{number}")).collect::<Vec<_>>(), vec![format!("--{}", "x".repeat(200))]]
    {
        agent.about["allowed_args"] = json!({ "train": list });
        let mut report = agent.about.clone();
        report["protocol"] = json!(2);
        let reply = api.ask("PUT", "/api/v1/runners/greedy/report").json(&report).send().is(422);
        assert_eq!(reply.body["field"], "allowed_args.train", "{}", reply.text);
    }
}
