//! Routes, names, the catalogue, and the shapes of errors.

use berth_tests::gateway::Stage;
use berth_tests::service::{GIB, Options};
use serde_json::json;

#[test]
fn every_route_reaches_its_engine_under_the_same_path_and_unknown_fields_stay() {
    let stage = Stage::with(&[]);
    stage.api.model("m", json!({ "runtime": "vllm", "memory": 40 * GIB, "gpu_counts": [1], "concurrency": 8,
        "routes": ["chat/completions", "completions", "embeddings", "responses", "messages", "rerank", "audio/speech", "images/generations"] }));
    let routes = [
        "chat/completions",
        "completions",
        "embeddings",
        "responses",
        "messages",
        "rerank",
        "audio/speech",
        "images/generations",
    ];
    for route in routes {
        let body = r#"{"zzz": [1, 2.50, {"deep": null}],  "model":"m", "n": 1e3}"#;
        let ask = stage.api.ask("POST", &format!("/v1/{route}?beta=true"));
        let _ = ask.bytes("application/json", body.into()).send().is(200);
        let seen = stage.engine.seen().pop().unwrap();
        assert!(seen.head.starts_with(&format!("POST /v1/{route}?beta=true HTTP/1.1")), "{}", seen.head);
        assert_eq!(seen.body, body);
    }
}

#[test]
fn a_route_that_a_model_does_not_serve_is_a_404_that_says_which_it_does() {
    let stage = Stage::with(&[]);
    stage.api.model("m", json!({ "runtime": "vllm", "memory": 40 * GIB, "gpu_counts": [1], "routes": ["embeddings"] }));
    let reply = stage.api.post("/v1/chat/completions", &Stage::chat("m", false)).is(404);
    let error = &reply.body["error"];
    assert_eq!((error["code"].as_str(), error["param"].as_str()), (Some("route_not_served"), Some("model")));
    assert!(error["message"].as_str().unwrap().contains("it serves embeddings"), "{}", reply.text);
    let _ = stage.api.post("/v1/embeddings", &json!({ "model": "m", "input": "x" })).is(200);
    // A runtime is known for what it serves.
    stage.api.model("n", json!({ "runtime": "vllm", "memory": 10 * GIB, "gpu_counts": [1] }));
    let reply = stage.api.post("/v1/images/generations", &json!({ "model": "n", "prompt": "x" })).is(404);
    assert_eq!(reply.body["error"]["code"], "route_not_served");
    assert_eq!(stage.api.get("/v1/nothing").is(404).body["error"]["code"], "unknown_route");
    assert_eq!(stage.api.get("/v1/chat/completions").is(405).body["error"]["code"], "wrong_method");
}

#[test]
fn an_alias_is_another_name_and_the_engine_is_asked_for_the_model() {
    let stage = Stage::with(&[]);
    let mut about = json!({ "runtime": "vllm", "memory": 40 * GIB, "gpu_counts": [1], "concurrency": 8 });
    stage.api.model("org/real", about.clone());
    let _ = stage.api.post("/v1/chat/completions", &Stage::chat("org/real", false)).is(200);
    about["aliases"] = json!(["gpt-4o", "default"]);
    stage.api.model("org/real", about.clone());
    let _ = stage.api.post("/v1/chat/completions", &Stage::chat("gpt-4o", false)).is(200);
    assert_eq!(stage.engine.seen().pop().unwrap().body, Stage::chat("org/real", false).to_string());
    assert_eq!(stage.loader.started().len(), 1, "a new alias starts no new slot");
    assert_eq!(stage.api.get("/v1/models/default").is(200).body["id"], "org/real");
    let taken = stage.api.put("/api/v1/models/gpt-4o", &json!({ "runtime": "vllm", "memory": GIB }));
    assert_eq!(taken.status, 422, "a name belongs to one model: {}", taken.text);
    let list = stage.api.get("/v1/models").is(200).body;
    assert_eq!(list["data"][0]["status"], "loaded", "{list}");
    assert_eq!(list["data"][0]["aliases"], json!(["default", "gpt-4o"]));
}

#[test]
fn a_form_for_transcriptions_is_passed_on_as_it_came() {
    let stage = Stage::with(&[]);
    stage.model("whisper", 10);
    let form = "--xy\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\r\nRIFF\r\n\
                --xy\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nwhisper\r\n--xy--\r\n";
    let ask = stage.api.ask("POST", "/v1/audio/transcriptions");
    let _ = ask.bytes("multipart/form-data; boundary=xy", form.into()).send().is(200);
    assert_eq!(stage.engine.seen().pop().unwrap().body, form);
}

#[test]
fn web_pages_of_named_origins_may_ask_and_others_may_not() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "[gateway]\ncors_origins = [\"https://chat.example.org\"]\n").unwrap();
    let stage = Stage::of(Options::default().config(file.path()), &[]);
    stage.model("m", 40);
    let preflight = |origin: &str| {
        let ask = stage.api.ask("OPTIONS", "/v1/chat/completions").header("origin", origin);
        ask.header("access-control-request-method", "POST").send()
    };
    let allowed = preflight("https://chat.example.org").is(204);
    assert_eq!(allowed.header("access-control-allow-origin"), Some("https://chat.example.org"));
    assert_eq!(preflight("https://evil.example.org").is(403).header("access-control-allow-origin"), None);
}

#[test]
fn a_gateway_that_is_turned_off_is_not_there() {
    let stage = Stage::with(&["gateway.enabled=false"]);
    assert_eq!(stage.api.get("/v1/models").is(404).code(), "unknown_route");
}
