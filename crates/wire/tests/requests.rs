//! Requests of people and gateways: read strictly, refused by field.
#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

use berth_domain::{Attempt, Bytes, GpuCount, IdempotencyKey, ModelName, ModelRevision, Priority, Span, WorkloadKind};
use berth_wire::body::read;
use berth_wire::{
    BodyError, CompleteRequest, ForgetRequest, HeartbeatRequest, Model, ModelRequest, Role, SubmitRequest,
    TokenRequest, WaitQuery, WorkloadFilter, WorkloadState,
};
use serde::de::DeserializeOwned;

fn name(text: &str) -> ModelName {
    ModelName::new(text).unwrap()
}

/// The field and the words of a body that must be refused as invalid.
fn refused<T: DeserializeOwned + std::fmt::Debug>(text: &str) -> (String, String) {
    match read::<T>(text.as_bytes()) {
        Err(BodyError::Invalid(invalid)) => (invalid.field, invalid.detail),
        other => panic!("{text}: {other:?}"),
    }
}

fn spec_refused(text: &str) -> String {
    let request: ModelRequest = read(text.as_bytes()).unwrap();
    request.into_spec(name("m")).unwrap_err().field
}

#[test]
fn a_submission_has_defaults() {
    let submission = read::<SubmitRequest>(b"{\"model\": \"m\"}").unwrap().into_submission(None).unwrap();
    assert_eq!(submission, berth_domain::Submission::lease(name("m")));
}

#[test]
fn a_job_is_read_whole() {
    let text = r#"{"model": "m", "kind": "job", "priority": -3, "tenant": "t", "queue_timeout": 5000,
        "job": {"args": ["--epochs", "3"], "restart_on_lost": true}}"#;
    let key = IdempotencyKey::new("gateway/1").unwrap();
    let submission = read::<SubmitRequest>(text.as_bytes()).unwrap().into_submission(Some(key.clone())).unwrap();
    assert_eq!(submission.kind, WorkloadKind::Job);
    assert_eq!(submission.priority, Priority::new(-3));
    assert_eq!(submission.queue_timeout, Some(Span::from_secs(5)));
    assert_eq!(submission.job.args.len(), 2);
    assert!(submission.job.restart_on_lost);
    assert_eq!(submission.idempotency_key, Some(key));
}

#[test]
fn a_job_block_on_a_lease_is_refused() {
    for kind in ["", "\"kind\": \"lease\", "] {
        let request: SubmitRequest = read(format!("{{{kind}\"model\": \"m\", \"job\": {{}}}}").as_bytes()).unwrap();
        assert_eq!(request.into_submission(None).unwrap_err().field, "job");
    }
}

#[test]
fn b1_zero_and_negative_times_are_refused_by_field() {
    let request: SubmitRequest = read(b"{\"model\": \"m\", \"ttl\": 0}").unwrap();
    assert_eq!(request.into_submission(None).unwrap_err().field, "ttl");
    assert_eq!(refused::<SubmitRequest>("{\"model\": \"m\", \"ttl\": -1}").0, "ttl");
    assert_eq!(refused::<SubmitRequest>("{\"model\": \"m\", \"ttl\": 1.5}").0, "ttl");
    assert_eq!(refused::<SubmitRequest>("{\"model\": \"m\", \"ttl\": \"soon\"}").0, "ttl");
    assert_eq!(refused::<SubmitRequest>("{\"model\": \"m\", \"priority\": 1e400}").0, "priority");
    assert_eq!(refused::<SubmitRequest>("{\"model\": \"m\", \"priority\": 3000000000}").0, "priority");
}

#[test]
fn b1_models_are_refused_by_field() {
    for (value, field) in [
        ("\"memory\": -1", "memory"),
        ("\"memory\": 0", "memory"),
        ("\"memory\": 1.5", "memory"),
        ("\"memory\": \"99999999EiB\"", "memory"),
        ("\"memory\": 1e400", "memory"),
        ("\"ram\": -1", "ram"),
        ("\"ram\": 1.5", "ram"),
        ("\"ram\": \"99999999EiB\"", "ram"),
        ("\"cpu_millicores\": -1", "cpu_millicores"),
        ("\"concurrency\": -1", "concurrency"),
        ("\"gpu_counts\": [1, -2]", "gpu_counts[1]"),
        ("\"keep_alive\": \"-1s\"", "keep_alive"),
        ("\"labels\": {\"a\": 1}", "labels.a"),
        ("\"args\": [\"a\\u0000b\"]", "args[0]"),
    ] {
        assert_eq!(refused::<ModelRequest>(&format!("{{\"runtime\": \"vllm\", {value}}}")).0, field, "{value}");
    }
}

#[test]
fn b1_what_only_fails_as_a_whole_names_its_field_too() {
    for (value, field) in [
        ("\"concurrency\": 0", "concurrency"),
        ("\"min_replicas\": 3, \"max_replicas\": 2", "max_replicas"),
        ("\"max_replicas\": 0", "max_replicas"),
        ("\"gpu_counts\": [0, 1]", "gpu_counts"),
        ("\"gpu_counts\": [65]", "gpu_counts"),
        ("\"memory\": {\"per_gpu\": {\"1\": 5}}, \"gpu_counts\": [2]", "gpu_counts"),
        ("\"memory\": {\"per_gpu\": {\"65\": 5}}", "memory.per_gpu"),
        ("\"name\": \"other\"", "name"),
    ] {
        assert_eq!(spec_refused(&format!("{{\"runtime\": \"vllm\", {value}}}")), field, "{value}");
    }
}

#[test]
fn b2_a_typo_is_not_ignored() {
    assert_eq!(refused::<SubmitRequest>("{\"model\": \"m\", \"prioritty\": 1}").0, "prioritty");
    assert_eq!(refused::<SubmitRequest>("{\"model\": \"m\", \"kind\": \"job\", \"job\": {\"arg\": []}}").0, "job.arg");
    assert_eq!(refused::<ModelRequest>("{\"runtime\": \"vllm\", \"memroy\": 1}").0, "memroy");
    assert_eq!(refused::<HeartbeatRequest>("{\"attempt\": 1, \"x\": 1}").0, "x");
    assert_eq!(refused::<ForgetRequest>("{\"reason\": \"sold\", \"x\": 1}").0, "x");
    assert_eq!(refused::<TokenRequest>("{\"name\": \"a\", \"role\": \"admin\", \"x\": 1}").0, "x");
    assert_eq!(refused::<SubmitRequest>("{}").0, "model", "a missing field is named");
}

#[test]
fn b2_names_are_names() {
    let good = read::<SubmitRequest>(b"{\"model\": \"Qwen/Qwen2.5-VL-7B-Instruct\"}").unwrap();
    assert_eq!(good.model.as_str(), "Qwen/Qwen2.5-VL-7B-Instruct");
    for bad in ["", "..", "a/../b", "a\\u0000b", "a\\nb", &"x".repeat(10_000)] {
        assert_eq!(refused::<SubmitRequest>(&format!("{{\"model\": \"{bad}\"}}")).0, "model", "{bad}");
    }
}

#[test]
fn b1_what_is_no_json_is_malformed() {
    let deep = format!("{{\"model\": {}", "[".repeat(100_000));
    for text in ["", "{", "{\"model\": \"m\"} x", "nonsense", &deep] {
        let said = read::<SubmitRequest>(text.as_bytes());
        // What is deep inside a field of another type is refused as soon as its type is wrong.
        assert!(matches!(said, Err(BodyError::Malformed(_) | BodyError::Invalid(_))), "{said:?}");
    }
    assert!(matches!(read::<serde_json::Value>("[".repeat(100_000).as_bytes()), Err(BodyError::Malformed(_))));
    assert!(matches!(read::<SubmitRequest>(b"{\"model\": \"m\""), Err(BodyError::Malformed(_))));
}

#[test]
fn what_came_out_can_be_put_back_in() {
    let text = r#"{"runtime": "vllm", "memory": {"per_gpu": {"1": "74GiB", "2": ["44GiB", "40GiB"]}},
        "concurrency": 4, "keep_alive": "1h 30m", "min_run": 1500, "min_replicas": 1, "max_replicas": 3, "pinned": true,
        "placement": "pack", "pool": "big", "labels": {"zone": "eu-1"}, "gpu_names": ["H100"], "gpu_uuids": ["GPU-a"],
        "cpu_millicores": 4000, "ram": "16GiB", "args": ["--x", ""], "gpu_counts": [1, 2]}"#;
    let spec = read::<ModelRequest>(text.as_bytes()).unwrap().into_spec(name("a/b")).unwrap();
    let out = Model::of(&spec, ModelRevision::new(7));
    let shown = serde_json::to_string(&out).unwrap();
    let back: Model = serde_json::from_str(&shown).unwrap();
    assert_eq!(back, out);
    let again = serde_json::to_string(&back.request()).unwrap();
    let again = read::<ModelRequest>(again.as_bytes()).unwrap().into_spec(name("a/b")).unwrap();
    assert_eq!(again, spec);
}

#[test]
fn what_a_model_costs_is_shown_for_each_count() {
    let charged = |text: &str| {
        let spec = read::<ModelRequest>(text.as_bytes()).unwrap().into_spec(name("m")).unwrap();
        let rows = Model::of(&spec, ModelRevision::new(1)).charged;
        rows.into_iter().map(|row| (row.gpu_count.get(), row.by, row.gpu_bytes)).collect::<Vec<_>>()
    };
    let bytes = |list: &[u64]| Some(list.iter().map(|bytes| Bytes::new(*bytes)).collect::<Vec<_>>());
    assert_eq!(
        charged(r#"{"runtime": "v", "memory": 5, "gpu_counts": [1, 2]}"#),
        [(1, "bytes".to_owned(), bytes(&[5])), (2, "bytes".to_owned(), bytes(&[3, 3]))]
    );
    assert_eq!(charged(r#"{"runtime": "v", "memory": {"fraction": 0.5}}"#), [(1, "fraction".to_owned(), None)]);
    assert_eq!(charged(r#"{"runtime": "v", "exclusive": true}"#), [(1, "whole".to_owned(), None)]);
    assert_eq!(charged(r#"{"runtime": "v", "gpu_counts": [2]}"#), [(2, "unknown".to_owned(), None)]);
    assert_eq!(charged(r#"{"runtime": "v", "gpu_counts": [0]}"#), [(0, "bytes".to_owned(), bytes(&[]))]);
}

#[test]
fn unknown_memory_is_taken_and_stays_unknown() {
    let spec = read::<ModelRequest>(b"{\"runtime\": \"vllm\"}").unwrap().into_spec(name("m")).unwrap();
    assert_eq!(spec.memory.charged(), None);
    assert_eq!(spec.memory_on(GpuCount::new(1)), None);
}

#[test]
fn queries_are_text_and_are_read_as_what_they_mean() {
    let wait: WaitQuery = serde_urlencoded::from_str("wait=30s&after=17").unwrap();
    assert_eq!(wait.wait.map(|span| span.0), Some(Span::from_secs(30)));
    assert_eq!(wait.after.map(|revision| revision.get()), Some(17));
    let millis: WaitQuery = serde_urlencoded::from_str("wait=1500").unwrap();
    assert_eq!(millis.wait.map(|span| span.0), Some(Span::from_millis(1500)));
    assert_eq!(serde_urlencoded::to_string(wait).unwrap(), "wait=30s&after=17");
    let text = "state=succeeded&model=a%2Fb&limit=10&after=01932c07-3a5b-7cc2-b7d1-58a1f7f4a921";
    let filter: WorkloadFilter = serde_urlencoded::from_str(text).unwrap();
    assert_eq!(filter.state, Some(WorkloadState::Succeeded));
    assert_eq!(filter.model, Some(name("a/b")));
    assert_eq!(serde_urlencoded::to_string(&filter).unwrap(), text);
    for bad in ["waitt=30s", "wait=soon", "after=-1", "after=x"] {
        assert!(serde_urlencoded::from_str::<WaitQuery>(bad).is_err(), "{bad}");
    }
    assert!(serde_urlencoded::from_str::<WorkloadFilter>("limit=0").is_err());
}

#[test]
fn a_completion_succeeds_unless_it_says_otherwise() {
    let done: CompleteRequest = read(b"{\"attempt\": 2}").unwrap();
    assert_eq!(done, CompleteRequest { attempt: Attempt::new(2), succeeded: true });
    assert!(!read::<CompleteRequest>(b"{\"attempt\": 2, \"succeeded\": false}").unwrap().succeeded);
    assert_eq!(refused::<CompleteRequest>("{\"succeeded\": true}").0, "attempt");
}

#[test]
fn a_runners_token_names_its_runner_and_others_none() {
    let token = |text: &str| read::<TokenRequest>(text.as_bytes()).unwrap();
    let runner = token(r#"{"name": "r", "role": "runner", "runner_id": "gpu-box-1"}"#);
    assert_eq!(runner.role, Role::Runner);
    assert_eq!(runner.validate(), Ok(()));
    for bad in [r#"{"name": "r", "role": "runner"}"#, r#"{"name": "r", "role": "admin", "runner_id": "x"}"#] {
        assert_eq!(token(bad).validate().unwrap_err().field, "runner_id");
    }
    for bad in ["", " a", "a\\nb", &"x".repeat(129)] {
        let text = format!("{{\"name\": \"{bad}\", \"role\": \"admin\"}}");
        assert_eq!(refused::<TokenRequest>(&text).0, "name");
    }
}
