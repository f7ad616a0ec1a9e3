//! Bad input (B1, B2) is refused with the name of the field that is wrong.

use std::time::Duration;

use berth_tests::service::{Api, FakeAgent, GIB, Raw, Reply, Server};
use serde_json::{Value, json};

/// Sends a body as it is.
fn put(api: &Api, path: &str, body: &str) -> Reply {
    api.ask("PUT", path).bytes("application/json", body.as_bytes().to_vec()).send()
}

fn post(api: &Api, path: &str, body: &str) -> Reply {
    api.ask("POST", path).bytes("application/json", body.as_bytes().to_vec()).send()
}

#[test]
fn b1_an_invalid_number_is_422_with_the_name_of_its_field() {
    let server = Server::start();
    let api = server.api();
    let bad = [
        ("memory", "-1"),
        ("memory", "0"),
        ("memory", "1.5"),
        ("memory", "1e400"),
        ("memory", "-1e400"),
        ("memory", "18446744073709551616"),
        ("memory", r#""99999999EiB""#),
        ("memory", r#""NaN""#),
        ("memory", r#""-5GiB""#),
        ("memory", r#""0GiB""#),
        ("memory", r#""lots""#),
        ("memory", r#""""#),
        ("memory", "true"),
        ("memory", "[]"),
        ("memory", r#"{"total": -1}"#),
        ("memory", r#"{"fraction": 1.5}"#),
        ("memory", r#"{"fraction": 0}"#),
        ("memory", r#"{"per_gpu": {"0": "1GiB"}}"#),
        ("memory", r#"{"per_gpu": {"2": ["1GiB"]}}"#),
        ("memory", r#"{"total": "1GiB", "fraction": 0.5}"#),
        ("ram", "-1"),
        ("ram", "1.5"),
        ("ram", r#""99999999EiB""#),
        ("cpu_millicores", "-1"),
        ("cpu_millicores", "0.5"),
        ("concurrency", "0"),
        ("concurrency", "-1"),
        ("concurrency", "4294967296"),
        ("gpu_counts", "[-1]"),
        ("gpu_counts", "[1.5]"),
        ("keep_alive", r#""-1s""#),
        ("keep_alive", "1.5"),
        ("max_replicas", "-1"),
    ];
    for (field, value) in bad {
        let reply = put(&api, "/api/v1/models/m", &format!(r#"{{"runtime": "vllm", "{field}": {value}}}"#));
        assert_eq!(reply.status, 422, "{field}: {value}: {}", reply.text);
        let named = reply.body["field"].as_str().unwrap_or_default();
        assert!(named.starts_with(field), "{field}: {value} is said of {named:?}: {}", reply.text);
        assert_eq!(reply.header("content-type"), Some("application/problem+json"));
    }
    assert_eq!(api.get("/api/v1/models").is(200).rows().len(), 0, "a refused model is none");

    let good = put(&api, "/api/v1/models/m", r#"{"runtime": "vllm", "memory": "74.49GiB"}"#).is(201);
    // 74.49 GiB, rounded up to a byte.
    assert_eq!(good.body["memory"], json!({ "total": (7449 * GIB).div_ceil(100) }));
    for (field, value) in
        [("priority", "1.5"), ("priority", "1e400"), ("ttl", "-1"), ("ttl", "0"), ("queue_timeout", r#""soon""#)]
    {
        let reply = post(&api, "/api/v1/workloads", &format!(r#"{{"model": "m", "{field}": {value}}}"#));
        assert_eq!((reply.status, reply.body["field"].as_str()), (422, Some(field)), "{value}: {}", reply.text);
    }
    let report =
        r#"{"machine_id": "a", "boot_id": "b", "gpus": [{"uuid": "GPU-1", "name": "x", "memory_total_bytes": -1}]}"#;
    let reply = put(&api, "/api/v1/runners/box/report", report).is(422);
    assert_eq!(reply.body["field"], "gpus[0].memory_total_bytes");
}

#[test]
fn b1_malformed_json_is_400_and_another_content_type_is_415() {
    let server = Server::start();
    let api = server.api();
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let deep_field = format!(r#"{{"model": {}"m"{}}}"#, r#"{"a":"#.repeat(10_000), "}".repeat(10_000));
    for body in ["", "{", r#"{"model":"#, r#"{"model": "m"} {}"#, "{'model': 'm'}", r#"{"model": NaN}"#, "\u{feff}{}"] {
        let reply = post(&api, "/api/v1/workloads", body);
        assert_eq!((reply.status, reply.code()), (400, "malformed_json"), "{:.40}: {}", body, reply.text);
    }
    for body in [&deep, &deep_field] {
        let reply = post(&api, "/api/v1/workloads", body);
        assert!(matches!(reply.status, 400 | 422), "{}", reply.text);
    }
    let bytes =
        api.ask("POST", "/api/v1/workloads").bytes("application/json", b"{\"model\": \"\xff\xfe\"}".to_vec()).send();
    assert!(matches!(bytes.status, 400 | 422), "{}", bytes.text);
    for body in
        ["null", "[]", "1", r#""m""#, r#"{"model": null}"#, r#"{"model": 7}"#, "{}", r#"{"model": "m", "model": "n"}"#]
    {
        assert_eq!(post(&api, "/api/v1/workloads", body).status, 422, "{body}");
    }
    for media_type in
        ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/jsonp", ""]
    {
        let reply = api.ask("POST", "/api/v1/workloads").bytes(media_type, b"{\"model\": \"m\"}".to_vec()).send();
        assert_eq!((reply.status, reply.code()), (415, "unsupported_media_type"), "{media_type:?}");
    }
    let with_charset = api.ask("POST", "/api/v1/workloads").bytes("application/json; charset=utf-8", b"{}".to_vec());
    assert_eq!(with_charset.send().body["field"], "model");
    let none = api.ask("POST", "/api/v1/workloads").send();
    assert_eq!(none.status, 415, "{}", none.text);
}

#[test]
fn b1_a_body_over_the_limit_is_413() {
    let server = Server::with(&["limits.body=64KiB", "limits.report=128KiB"]);
    let api = server.api();
    let sized = |bytes: usize| format!(r#"{{"model": "{}"}}"#, "m".repeat(bytes - 13));
    assert_eq!(post(&api, "/api/v1/workloads", &sized(64 << 10)).status, 422, "up to the limit it is read");
    let request = |method: &str, path: &str, extra: &str| {
        format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n{extra}\r\n\r\n"
        )
    };
    for (method, path, limit) in
        [("POST", "/api/v1/workloads", 64 << 10), ("PUT", "/api/v1/runners/box/report", 128 << 10)]
    {
        let body = sized(limit + 1);
        let mut stated = Raw::connect(&server.address());
        stated.send(request(method, path, &format!("Content-Length: {}", body.len())) + &body);
        let answer = stated.read_to_end();
        assert!(answer.starts_with("HTTP/1.1 413") && answer.contains("body_too_large"), "{path}: {answer}");
        let mut chunked = Raw::connect(&server.address());
        chunked.send(request(method, path, "Transfer-Encoding: chunked"));
        chunked.send(format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len()));
        let answer = chunked.read_to_end();
        assert!(answer.starts_with("HTTP/1.1 413"), "{path}: {answer}");
    }
    let _ = api.get("/healthz").is(200);
}

#[test]
fn b2_an_unknown_field_of_a_gateway_is_422_and_of_an_agent_is_ignored() {
    let server = Server::start();
    let api = server.api();
    api.model("m", json!({ "memory": "1GiB" }));
    let typos: &[(&str, &str, Value, &str)] = &[
        ("POST", "/api/v1/workloads", json!({ "model": "m", "priorty": 1 }), "priorty"),
        ("POST", "/api/v1/workloads", json!({ "model": "m", "kind": "job", "job": { "arg": [] } }), "job"),
        ("POST", "/api/v1/workloads", json!({ "model": "m", "kind": "jobb" }), "kind"),
        ("POST", "/api/v1/workloads", json!({ "model": "m", "job": {} }), "job"),
        ("PUT", "/api/v1/models/m", json!({ "runtime": "vllm", "max_replica": 1 }), "max_replica"),
        ("PUT", "/api/v1/models/m", json!({ "runtime": "vllm", "memory": { "totl": 1 } }), "memory"),
        ("PUT", "/api/v1/models/m", json!({ "runtime": "vllm", "name": "n" }), "name"),
        ("POST", "/api/v1/tokens", json!({ "name": "x", "role": "admin", "runner": "y" }), "runner"),
        ("POST", "/api/v1/tokens", json!({ "name": "x", "role": "root" }), "role"),
        ("PUT", "/api/v1/log-level", json!({ "level": "debug" }), "level"),
        ("PUT", "/api/v1/log-level", json!({ "filter": "berth=loud" }), "filter"),
        ("DELETE", "/api/v1/runners/box", json!({ "reason": "", "why": 1 }), "why"),
    ];
    for (method, path, body, field) in typos {
        let reply = api.ask(method, path).json(body).send();
        assert_eq!(reply.status, 422, "{method} {path} {body}: {}", reply.text);
        assert!(reply.body["field"].as_str().unwrap().starts_with(field), "{body}: {}", reply.text);
    }
    for (path, field) in [
        ("/api/v1/workloads?stat=queued", "stat"),
        ("/api/v1/workloads?state=quued", "state"),
        ("/api/v1/workloads?limit=0", "limit"),
        ("/scheduler/slots?runner=box", "runner"),
        ("/scheduler/decisions?workload=1", "workload"),
        ("/scheduler/events?after=x", "after"),
    ] {
        let reply = api.get(path).is(422);
        assert_eq!(reply.body["field"], field, "{path}: {}", reply.text);
    }
    assert_eq!(api.get("/api/v1/workloads/not-an-id").is(422).body["field"], "id");

    let mut agent = FakeAgent::new(&api, "box", &[80 * GIB]);
    agent.about["temperature"] = json!({ "celsius": 41 });
    agent.about["gpus"][0]["power_watts"] = json!(700);
    let mut agent = agent.registered();
    assert_eq!(api.lease("m").is(201).body["state"], "assigned");
    agent.about["gpus"][0]["health"] = json!("glowing");
    let _ = agent.report().is(200);
    let ledger = api.get("/scheduler/ledger").is(200).body;
    assert_eq!(ledger["devices"][0]["state"], "stale", "a word that nobody knows is no good news");
}

#[test]
fn b2_a_client_refused_before_its_body_came_gets_the_answer_and_keeps_the_connection() {
    let server = Server::start();
    let mut raw = Raw::connect(&server.address());
    let head =
        "PUT /api/v1/runners/a%2F..%2Fb/report HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
    assert!(raw.send(format!("{head}content-length: 2\r\n\r\n")));
    // Long enough for the server to know by the path alone that it says no.
    std::thread::sleep(Duration::from_millis(200));
    assert!(raw.send("{}"));
    assert!(raw.send("GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"));
    let answers = raw.read_to_end();
    assert!(answers.starts_with("HTTP/1.1 422"), "{answers}");
    assert!(answers.contains("HTTP/1.1 200 OK"), "{answers}");
}

#[test]
fn b2_a_name_may_have_slashes_but_is_never_a_path() {
    let server = Server::start();
    let api = server.api();
    let name = "Qwen/Qwen2.5-VL-7B-Instruct";
    let _ = FakeAgent::new(&api, "box", &[80 * GIB]).registered();
    let model = json!({ "runtime": "vllm", "memory": "39GiB", "name": name });
    assert_eq!(api.put("/api/v1/models/Qwen%2FQwen2.5-VL-7B-Instruct", &model).is(201).body["name"], name);
    assert_eq!(api.get("/api/v1/models/Qwen%2fQwen2.5-VL-7B-Instruct").is(200).body["name"], name);
    assert_eq!(
        api.ask("POST", "/api/v1/models/Qwen%2FQwen2.5-VL-7B-Instruct/fit").send().is(200).body["outcome"],
        "placed"
    );
    let id = api.lease(name).is(201).id();
    assert_eq!(api.get("/api/v1/workloads?model=Qwen/Qwen2.5-VL-7B-Instruct").is(200).rows()[0]["id"], id.as_str());
    assert_eq!(api.get("/api/v1/models/Qwen/Qwen2.5-VL-7B-Instruct").status, 404, "not two parts of a path");

    let long = "x".repeat(10_000);
    let bad =
        ["..", ".", "%00", "a%00b", "a%0Ab", "a%0Db", "%20", "..%2F..%2Fetc%2Fpasswd", "a%2F..%2Fb", "%FF", &long];
    for name in bad {
        let reply = api.put(&format!("/api/v1/models/{name}"), &json!({ "runtime": "vllm" }));
        assert_eq!(reply.status, 422, "{name:.40}: {}", reply.text);
        let mut agent = FakeAgent::new(&api, "x", &[]);
        agent.id = name.to_owned();
        let reply = agent.report();
        assert_eq!(reply.status, 422, "runner {name:.40}: {}", reply.text);
    }
    for name in ["", "..", "a\u{0}b", "a\nb", "a/../b", &long] {
        let reply = api.lease(name);
        assert_eq!((reply.status, reply.body["field"].as_str()), (422, Some("model")), "{name:.40}: {}", reply.text);
    }
    assert_eq!(api.get("/api/v1/models").is(200).rows().len(), 1);
    assert_eq!(api.get("/api/v1/runners").is(200).rows().len(), 1);
}
