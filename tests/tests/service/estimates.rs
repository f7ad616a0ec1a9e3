//! Memory from a model's file: estimated once, stored, charged everywhere.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test says so when it fails")]

use std::os::unix::fs::symlink;
use std::path::Path;

use berth_tests::service::{Api, FakeAgent, GIB, Options, Reply, Server, write_gguf, write_gguf_with_heads};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A server that may read one directory.
fn server() -> (Server, TempDir) {
    let models = tempfile::tempdir().unwrap();
    let setting = format!("estimate.model_dirs={}", models.path().display());
    (Options::default().set(&[&setting]).start(), models)
}

fn put(api: &Api, name: &str, model: &Value) -> Reply {
    api.put(&format!("/api/v1/models/{name}"), model)
}

/// What is charged on each GPU with so many of them.
fn charged(model: &Value, gpus: u64) -> &Value {
    let rows = model["charged"].as_array().unwrap();
    rows.iter().find(|row| row["gpu_count"] == gpus).unwrap_or_else(|| panic!("{gpus} GPUs in {model}"))
}

/// What `memory` must say of this file so that one GPU needs exactly 74 GiB: the overhead makes up the difference.
fn of_74(api: &Api, file: &Path) -> Value {
    let made = api.post("/api/v1/estimate", &json!({ "file": file, "overhead": 0, "gpu_counts": [1] })).is(200).body;
    let without = made["counts"][0]["total_bytes"].as_u64().unwrap();
    json!({ "file": file, "overhead": 74 * GIB - without })
}

#[test]
fn p3_an_estimate_of_74_is_charged_where_42_was_said() {
    let (server, models) = server();
    let api = server.api();
    let mut agent = FakeAgent::new(&api, "box", &[80 * GIB, 80 * GIB]).registered();
    let file = write_gguf(models.path(), "large.gguf", 70 * GIB);
    let memory = of_74(&api, &file);
    let model = |memory: Value| json!({ "runtime": "llama-server", "placement": "pack", "gpu_counts": [1], "memory": memory, "args": ["-m", file] });
    let _ = put(&api, "with-a-file", &model(json!("42GiB"))).is(201);
    let now = put(&api, "with-a-file", &model(memory)).is(200).body;
    assert_eq!(now["revision"], 2);
    assert_eq!(charged(&now, 1)["gpu_bytes"], json!([74 * GIB]));
    assert_eq!(charged(&now, 1)["source"], "estimated");
    assert_eq!(now["estimate"]["counts"][0]["gpus"][0]["weights_bytes"], 70 * GIB, "with what it is made of");
    agent.about["runtimes"] = json!(["llama-server", "vllm"]);
    let _ = agent.report().is(200);

    let first = api.lease("with-a-file").is(201).id();
    api.model("twenty", json!({ "memory": "20GiB", "placement": "pack" }));
    let second = api.lease("twenty").is(201).id();
    agent.obey_all();
    let gpu = |id: &str| api.workload(id)["slot"]["gpus"].clone();
    assert_eq!(
        (gpu(&first), gpu(&second)),
        (json!([agent.uuid(0)]), json!([agent.uuid(1)])),
        "with 42 it would have joined"
    );
    let ledger = api.get("/scheduler/ledger").is(200).body;
    let held: Vec<u64> =
        ledger["devices"].as_array().unwrap().iter().map(|d| d["held_bytes"].as_u64().unwrap()).collect();
    assert_eq!(held, [74 * GIB, 20 * GIB]);
    let told = agent.slots.values().find(|slot| slot.claims[0].1 == 74 * GIB);
    assert!(told.is_some(), "the agent hears the same number: {:?}", agent.slots);
}

#[test]
fn p3_a_stated_number_wins_unless_the_model_says_otherwise_and_the_difference_is_shown() {
    let (server, models) = server();
    let api = server.api();
    let mut memory = of_74(&api, &write_gguf(models.path(), "large.gguf", 70 * GIB));
    memory["total"] = json!("42GiB");
    let model = |memory: &Value| json!({ "runtime": "llama-server", "gpu_counts": [1], "memory": memory });
    let stated = put(&api, "m", &model(&memory)).is(201).body;
    let row = charged(&stated, 1);
    assert_eq!((&row["gpu_bytes"], &row["source"]), (&json!([42 * GIB]), &json!("stated")));
    assert_eq!((&row["estimated_bytes"], &row["difference_percent"]), (&json!([74 * GIB]), &json!(76)));
    memory["prefer_estimate"] = json!(true);
    let preferred = put(&api, "m", &model(&memory)).is(200).body;
    assert_eq!(charged(&preferred, 1)["gpu_bytes"], json!([74 * GIB]));
    // What was put comes back, and put again it changes nothing.
    assert_eq!(preferred["memory"]["file"], memory["file"]);
    let again = json!({ "runtime": "llama-server", "gpu_counts": [1], "memory": preferred["memory"], "args": preferred["args"] });
    assert_eq!(put(&api, "m", &again).is(200).body["revision"], preferred["revision"]);
}

#[test]
fn a_cache_that_the_engine_refuses_is_refused_when_the_model_is_applied() {
    let (server, models) = server();
    let api = server.api();
    let file = write_gguf_with_heads(models.path(), "m.gguf", 8 * GIB, 80);
    let model = |memory: Value, args: Value| json!({ "runtime": "llama-server", "memory": memory, "args": args });
    for (memory, args) in [
        (json!({ "file": file, "kv_type": "q8_0" }), json!([])),
        (json!({ "file": file, "kv_type": "q4_0/f16" }), json!([])),
        (json!({ "file": file }), json!(["-ctk", "q8_0", "-fa", "on"])),
        (json!({ "file": file }), json!(["--cache-type-v", "q8_0", "--flash-attn", "on"])),
    ] {
        let refused = put(&api, "m", &model(memory, args.clone())).is(422);
        assert_eq!((refused.code(), &refused.body["field"]), ("invalid_field", &json!("memory")), "{args}");
        let why = refused.body["detail"].as_str().unwrap();
        assert!(why.contains("blocks of 32") && why.contains("80") && why.contains("choose f16"), "{why}");
    }
    assert_eq!(api.get("/api/v1/models/m").is(404).code(), "unknown_model");
    let _ = put(&api, "m", &model(json!({ "file": file, "kv_type": "f16" }), json!([]))).is(201);
}

#[test]
fn an_estimate_survives_the_server_and_needs_no_file_then() {
    let (mut server, models) = server();
    let api = server.api();
    let file = write_gguf(models.path(), "m.gguf", 8 * GIB);
    let model = json!({ "runtime": "llama-server", "memory": { "file": file, "context": 4096 } });
    let before = put(&api, "m", &model).is(201).body;
    let counts: Vec<u64> =
        before["charged"].as_array().unwrap().iter().map(|row| row["gpu_count"].as_u64().unwrap()).collect();
    assert_eq!(counts, [1, 2, 4, 8], "estimated for each");
    std::fs::remove_file(&file).unwrap();
    server.kill();
    server.restart();
    assert_eq!(api.get("/api/v1/models/m").is(200).body, before);
    let gone = put(&api, "n", &model).is(422);
    assert_eq!((gone.code(), &gone.body["field"]), ("invalid_field", &json!("memory.file")));
}

#[test]
fn arguments_are_completed_re_estimated_or_refused() {
    let (server, models) = server();
    let api = server.api();
    let file = write_gguf(models.path(), "m.gguf", 8 * GIB);
    let model = |memory: Value, args: Value| json!({ "runtime": "llama-server", "gpu_counts": [1], "memory": memory, "args": args });
    let completed =
        put(&api, "a", &model(json!({ "file": file, "context": 4096 }), json!(["-m", "m.gguf"]))).is(201).body;
    assert_eq!(
        completed["args"],
        json!(["-m", "m.gguf", "--ctx-size", "4096", "--parallel", "1", "--flash-attn", "on"])
    );
    let named = put(&api, "e", &model(json!({ "file": file, "context": 4096 }), json!([]))).is(201).body;
    let words: Vec<&str> = named["args"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert_eq!(words[words.len() - 2..], ["--model", file.to_str().unwrap()], "the file that was estimated is loaded");
    let kv = |model: &Value| model["estimate"]["counts"][0]["gpus"][0]["kv_bytes"].as_u64().unwrap();
    let said =
        put(&api, "b", &model(json!({ "file": file }), json!(["-c", "8192", "-np", "2", "-ctk", "q8_0"]))).is(201).body;
    assert_eq!(said["estimate"]["inputs"]["kv_type"], "q8_0/f16");
    assert_eq!(said["estimate"]["inputs"]["context"], 4096, "of each of two sequences");
    assert!(kv(&said) > kv(&completed), "estimated for what the arguments say");
    for args in [json!(["-c", "8192"]), json!(["-np", "2"]), json!(["-ctv", "q8_0"]), json!(["--lora", "x"])] {
        let memory = json!({ "file": file, "context": 4096, "parallel": 1, "kv_type": "f16" });
        let refused = put(&api, "c", &model(memory, args.clone())).is(422);
        assert_eq!(
            (refused.code(), &refused.body["field"]),
            ("invalid_field", &json!("args")),
            "{args}: {}",
            refused.text
        );
    }
    let _ = api.get("/api/v1/models/c").is(404);
    let vllm = json!({ "runtime": "vllm", "memory": { "file": file } });
    assert_eq!(put(&api, "d", &vllm).is(422).body["field"], "memory.file", "not the program that was estimated");
}

#[test]
fn a_folder_is_estimated_for_the_counts_that_divide_its_heads() {
    let (server, models) = server();
    let api = server.api();
    let folder = models.path().join("six-heads");
    std::fs::create_dir(&folder).unwrap();
    let config = json!({
        "model_type": "llama", "num_hidden_layers": 2, "hidden_size": 768, "num_attention_heads": 6,
        "num_key_value_heads": 6, "intermediate_size": 3072, "vocab_size": 1000, "max_position_embeddings": 4096,
        "torch_dtype": "bfloat16",
    });
    std::fs::write(folder.join("config.json"), config.to_string()).unwrap();
    let header = json!({ "w": { "dtype": "BF16", "shape": [768, 768], "data_offsets": [0, 1_179_648] } }).to_string();
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.resize(bytes.len() + 1_179_648, 0);
    std::fs::write(folder.join("model.safetensors"), bytes).unwrap();
    let made = put(&api, "m", &json!({ "runtime": "vllm", "memory": { "file": folder } })).is(201).body;
    let counts: Vec<u64> =
        made["charged"].as_array().unwrap().iter().map(|row| row["gpu_count"].as_u64().unwrap()).collect();
    assert_eq!(counts, [1, 2, 3, 6]);
    let four =
        put(&api, "n", &json!({ "runtime": "vllm", "gpu_counts": [2, 4], "memory": { "file": folder } })).is(422);
    assert_eq!(four.body["field"], "gpu_counts", "{}", four.text);
}

#[test]
fn files_elsewhere_are_not_read_whatever_leads_there() {
    let (server, models) = server();
    let api = server.api();
    let elsewhere = tempfile::tempdir().unwrap();
    let secret = write_gguf(elsewhere.path(), "secret.gguf", GIB);
    let inside = models.path().join("link.gguf");
    symlink(&secret, &inside).unwrap();
    symlink(elsewhere.path(), models.path().join("folder")).unwrap();
    let ask = |path: &Path| api.post("/api/v1/estimate", &json!({ "file": path })).is(422);
    for path in [secret.clone(), inside, models.path().join("folder/secret.gguf"), models.path().join("folder")] {
        let refused = ask(&path);
        assert_eq!(refused.body["field"], "file", "{}", refused.text);
        assert!(refused.text.contains("outside") || refused.text.contains("model_dirs"), "{}", refused.text);
    }
    let nothing = ask(Path::new("/no/such/file.gguf"));
    let hint = |reply: &Reply| {
        reply.body["detail"].as_str().unwrap().replace("/no/such/file.gguf", "*").replace(secret.to_str().unwrap(), "*")
    };
    assert_eq!(hint(&nothing), hint(&ask(&secret)), "nobody learns what is there");
    let climbing = api.post("/api/v1/estimate", &json!({ "file": models.path().join("../x.gguf") })).is(422);
    assert_eq!(climbing.body["field"], "file");
    // A process that opens a pipe would wait.
    make_pipe(&models.path().join("pipe.gguf"));
    assert!(ask(&models.path().join("pipe.gguf")).text.contains("no file"));
    let linked_within = models.path().join("again.gguf");
    symlink(write_gguf(models.path(), "real.gguf", GIB), &linked_within).unwrap();
    let _ = api.post("/api/v1/estimate", &json!({ "file": linked_within })).is(200);
}

fn make_pipe(path: &Path) {
    let made = std::process::Command::new("mkfifo").arg(path).status().unwrap();
    assert!(made.success());
}

#[test]
fn a_server_without_directories_says_which_setting_to_change() {
    let server = Server::start();
    let api = server.api();
    let model = json!({ "runtime": "llama-server", "memory": { "file": "/models/m.gguf" } });
    for reply in [put(&api, "m", &model), api.post("/api/v1/estimate", &json!({ "file": "/models/m.gguf" }))] {
        let refused = reply.is(422);
        assert!(refused.text.contains("estimate.model_dirs"), "{}", refused.text);
    }
    let remote = json!({ "runtime": "llama-server", "memory": { "file": "/models/m.gguf", "runner": "box" } });
    assert_eq!(put(&api, "m", &remote).is(404).code(), "unknown_runner");
}

#[test]
fn an_invalid_model_is_refused_with_the_name_of_its_field() {
    let (server, models) = server();
    let api = server.api();
    let text = models.path().join("notes.txt");
    std::fs::write(&text, "not a model at all, but long enough to be read").unwrap();
    let refused = put(&api, "m", &json!({ "runtime": "llama-server", "memory": { "file": text } })).is(422);
    assert_eq!(refused.body["field"], "memory.file");
    let file = write_gguf(models.path(), "m.gguf", GIB);
    for (memory, field) in [
        (json!({ "file": file, "context": 0 }), "memory"),
        (json!({ "file": file, "kv_type": "f17" }), "memory.kv_type"),
        (json!({ "file": file, "contxt": 1 }), "memory"),
        (json!({ "context": 4096 }), "memory"),
    ] {
        let refused = put(&api, "m", &json!({ "runtime": "llama-server", "memory": memory })).is(422);
        assert!(refused.body["field"].as_str().unwrap().starts_with(field), "{}", refused.text);
    }
    let _ = api.get("/api/v1/models/m").is(404);
}
