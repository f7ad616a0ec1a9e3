//! Callers' keys: tokens of submitters, in either header, and never shown to a slot.

use berth_tests::gateway::Stage;
use berth_tests::service::Options;
use serde_json::json;

#[test]
fn a_submitters_token_is_a_key_in_either_header_and_a_slot_never_sees_it() {
    let server = Options::default().making_a_token().set(&["scheduler.min_run=0s"]).start();
    let admin = std::fs::read_to_string(server.data_dir().join("admin.token")).unwrap();
    let api = server.api().with_token(admin.trim());
    let token = |role: &str, more: serde_json::Value| {
        let mut body = json!({ "name": format!("a-{role}"), "role": role });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        api.token_with(&body)
    };
    let runner = token("runner", json!({ "runner_id": "r1" }));
    let (submitter, viewer) = (token("submitter", json!({})), token("viewer", json!({})));
    let open = server.api();
    let stage = Stage::on(server, open.with_token(&runner));
    api.model("m", json!({ "runtime": "vllm", "memory": 1 << 30, "gpu_counts": [1], "concurrency": 8 }));
    let ask = |header: &str, value: &str, path: &str| {
        open.ask("POST", path).header(header, value).json(&Stage::chat("m", false)).send()
    };
    let chat = "/v1/chat/completions";
    let reply = ask("authorization", &format!("Bearer {submitter}"), chat).is(200);
    let workload = reply.header("berth-workload").unwrap();
    let seen = open.with_token(&submitter).get(&format!("/api/v1/workloads/{workload}/explain")).is(200);
    assert_eq!(seen.body["workload_id"], workload, "its explanation is theirs to read");
    let _ = ask("x-api-key", &submitter, "/v1/messages").is(200);
    for seen in stage.engine.seen() {
        assert!(!seen.head.contains("berth_") && !seen.head.to_lowercase().contains("authorization"), "{}", seen.head);
    }
    let reply = ask("authorization", "Bearer berth_wrong", chat).is(401);
    assert_eq!(
        (&reply.body["error"]["type"], &reply.body["error"]["code"]),
        (&json!("authentication_error"), &json!("unauthenticated"))
    );
    let reply = ask("x-api-key", "berth_wrong", "/v1/messages").is(401);
    assert_eq!((&reply.body["type"], &reply.body["error"]["type"]), (&json!("error"), &json!("authentication_error")));
    let reply = ask("authorization", &format!("Bearer {viewer}"), chat).is(403);
    assert_eq!(reply.body["error"]["type"], "permission_error", "{}", reply.text);
    let _ = open.get("/v1/models").is(401);
    assert_eq!(open.with_token(&viewer).get("/v1/models").is(200).body["data"][0]["id"], "m");
}
