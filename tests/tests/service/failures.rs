//! A workload that failed says why: how its program ended, the classified cause, its last lines, where it ran.
#![expect(clippy::panic, reason = "what these read on the way to a test is there, or the test has failed")]

use std::fs;

use berth_tests::service::{Api, FakeAgent, GIB, Options, RunnerOptions, Server, cli, eventually};
use serde_json::{Value, json};

/// A server that tries twice, a short while apart.
fn server() -> Server {
    Options::default().set(&["scheduler.attempts=2", "scheduler.backoff=50ms"]).start()
}

fn submitted(api: &Api, kind: &str) -> String {
    api.model("chat", json!({ "runtime": "sh", "memory": "10GiB" }));
    api.post("/api/v1/workloads", &json!({ "model": "chat", "kind": kind })).is(201).id()
}

#[track_caller]
fn until(api: &Api, id: &str, state: &str) -> Value {
    eventually(&format!("{id} is {state}: {}", api.workload(id)), || {
        let row = api.workload(id);
        (row["state"] == state).then_some(row)
    })
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}"))
}

/// The attempts of a workload that are over.
fn attempts(row: &Value) -> Vec<Value> {
    row["attempts"].as_array().cloned().unwrap_or_default()
}

#[test]
fn a_failed_lease_says_its_exit_code_its_cause_its_last_lines_its_slot_and_its_runner() {
    let server = server();
    let api = server.api();
    let script = "echo loading; echo \"cannot parse the tokenizer\" >&2; exit 3";
    let _runner = RunnerOptions::new("box", script).start(&api);
    let id = submitted(&api, "lease");
    let row = until(&api, &id, "failed");
    let tried = attempts(&row);
    assert_eq!(tried.len(), 2, "every attempt is told: {row}");
    for (number, attempt) in (1..).zip(&tried) {
        assert_eq!(attempt["attempt"], number, "{row}");
        assert_eq!(attempt["reason"]["code"], "crashed", "{row}");
        assert_eq!(attempt["exit"], json!({ "code": 3 }), "{row}");
        assert_eq!(attempt["runner_id"], "box", "{row}");
        assert_eq!(attempt["last_lines"], json!(["loading", "cannot parse the tokenizer"]), "{row}");
        assert!(text(&attempt["hint"]).contains("berth logs"), "the way out: {row}");
    }
    assert_ne!(tried[0]["slot_id"], tried[1]["slot_id"]);
    assert!(text(&row["reason"]["text"]).contains("exit code 3"), "{row}");

    let shown = cli(&api, &["workloads", &id]).ok();
    for said in ["exit code 3", "crashed", "cannot parse the tokenizer", text(&tried[1]["slot_id"]), "box"] {
        assert!(shown.contains(said), "{said:?} is not in\n{shown}");
    }
    let explained = cli(&api, &["explain", &id]).ok();
    for said in ["attempt 1", "attempt 2", text(&tried[0]["slot_id"]), text(&tried[1]["slot_id"])] {
        assert!(explained.contains(said), "{said:?} is not in\n{explained}");
    }
    assert_eq!(explained.matches("cannot parse the tokenizer").count(), 2, "the lines of each attempt\n{explained}");
    assert_eq!(explained.matches("exit code 3").count(), 3, "now, and of each attempt\n{explained}");
    let explained = api.get(&format!("/api/v1/workloads/{id}/explain")).is(200).body;
    assert_eq!(attempts(&explained), tried, "the same in JSON");
    // A listing tells the same, but for the lines.
    let listed = api.get("/api/v1/workloads").is(200).rows()[0].clone();
    assert_eq!(attempts(&listed)[1]["exit"], json!({ "code": 3 }), "{listed}");
    assert!(attempts(&listed)[1]["last_lines"].is_null(), "{listed}");
}

#[test]
fn a_program_that_a_signal_ended_says_which() {
    let server = server();
    let api = server.api();
    let _runner = RunnerOptions::new("box", "kill -SEGV $$; sleep 5").start(&api);
    let id = submitted(&api, "lease");
    let row = until(&api, &id, "failed");
    assert_eq!(attempts(&row)[0]["exit"], json!({ "signal": 11 }), "{row}");
    assert!(cli(&api, &["workloads", &id]).ok().contains("signal 11 (SIGSEGV)"));
}

#[test]
fn a_job_says_how_it_ended_whether_it_failed_or_not() {
    for (script, state, code) in [("echo done 17 of 17", "succeeded", 0), ("echo done 3 of 17; exit 4", "failed", 4)] {
        let server = server();
        let api = server.api();
        let _runner = RunnerOptions::new("box", script).more("kind = 'job'\n").start(&api);
        let id = submitted(&api, "job");
        let row = until(&api, &id, state);
        let last = attempts(&row).pop().unwrap_or_default();
        assert_eq!((&last["exit"], &last["reason"]["code"]), (&json!({ "code": code }), &json!("job_exited")), "{row}");
        assert_eq!(last["runner_id"], "box", "{row}");
        assert!(text(&last["last_lines"][0]).starts_with("done"), "{row}");
        let shown = cli(&api, &["workloads", &id]).ok();
        for said in [&format!("exited with code {code}"), text(&last["slot_id"]), "box", "of 17"] {
            assert!(shown.contains(said), "{said:?} is not in\n{shown}");
        }
    }
}

#[test]
fn why_an_attempt_failed_is_still_known_after_a_restart_and_its_lines_are_not_in_the_journal() {
    let mut server = server();
    let api = server.api();
    let _runner = RunnerOptions::new("box", "echo the-secret-of-the-prompt; exit 9").start(&api);
    let id = submitted(&api, "lease");
    let before = until(&api, &id, "failed");
    assert!(before.to_string().contains("the-secret-of-the-prompt"), "{before}");
    let options = server.options().listen(&server.address());
    let _ = server.terminate();
    assert!(!server.log().contains("the-secret-of-the-prompt"), "the log of the server is not for what slots write");
    for entry in fs::read_dir(server.data_dir().join("journal")).unwrap() {
        let bytes = fs::read(entry.unwrap().path()).unwrap();
        assert!(!String::from_utf8_lossy(&bytes).contains("the-secret-of-the-prompt"), "it is in the journal");
    }
    server.restart_with(options);
    let after = api.workload(&id);
    let known = |row: &Value| -> Vec<Value> {
        let fields = ["attempt", "slot_id", "runner_id", "began", "ended", "exit", "reason", "hint"];
        attempts(row).iter().map(|attempt| fields.map(|field| attempt[field].clone()).into()).collect()
    };
    assert_eq!(known(&before).len(), 2);
    assert_eq!(known(&after), known(&before), "all but the lines is durable");
    assert!(!after.to_string().contains("the-secret-of-the-prompt"), "the lines were in memory: {after}");
    let explained = cli(&api, &["explain", &id]).ok();
    assert!(explained.contains("exit code 9"), "there is something to explain:\n{explained}");
}

#[test]
fn last_lines_are_few_and_short_and_a_terminal_obeys_none_of_them() {
    let server = server();
    let api = server.api();
    let script = "i=0; while [ $i -lt 300 ]; do echo \"line $i\"; i=$((i+1)); done; \
                  printf 'step 1\\rstep 2\\rstep 3\\n'; printf '\\033[31mred\\007\\000\\377\\n'; \
                  head -c 3000 /dev/zero | tr '\\0' 'x'; echo; exit 1";
    let _runner = RunnerOptions::new("box", script).start(&api);
    let id = submitted(&api, "lease");
    let row = until(&api, &id, "failed");
    let attempt = attempts(&row).pop().unwrap_or_default();
    let lines: Vec<&str> = attempt["last_lines"].as_array().unwrap().iter().map(text).collect();
    assert!(lines.len() <= 20, "{lines:?}");
    assert!(lines.iter().map(|line| line.len()).sum::<usize>() <= 4096, "{lines:?}");
    assert!(lines.contains(&"line 299"), "{lines:?}");
    assert!(lines.contains(&"step 3"), "a line that was written over is shown as it was last: {lines:?}");
    assert!(lines.iter().any(|line| line.starts_with("\\u{1b}[31mred\\u{7}")), "{lines:?}");
    assert!(lines.last().is_some_and(|line| line.starts_with("xxx") && line.len() < 1200), "{lines:?}");
    assert!(!row.to_string().contains("\\u001b"), "{row}");
}

#[test]
fn what_an_agent_says_of_last_lines_is_bounded_and_only_about_its_own_slots() {
    let server = server();
    let api = server.api();
    let mut agent = FakeAgent::new(&api, "box", &[80 * GIB]).registered();
    let mut thief = FakeAgent::new(&api, "thief", &[80 * GIB]).registered();
    api.model("chat", json!({ "memory": "60GiB", "gpu_uuids": [FakeAgent::uuid_of("box", 0)] }));
    let id = api.lease("chat").is(201).id();
    agent.obey_all();
    let slot = text(&api.workload(&id)["slot"]["id"]).to_owned();
    let lines: Vec<String> = (0..5000).map(|number| format!("\u{1b}[2J line {number}")).collect();
    let said = |lines: &[String]| {
        json!({ "id": slot, "generation": 1, "state": "failed", "reason": "crashed", "exit": { "signal": 6 },
                "last_lines": lines })
    };
    let says = |agent: &mut FakeAgent, lines: &[String]| {
        agent.about["slots"] = json!([said(lines)]);
        let _ = agent.report_as_is().is(200);
    };
    says(&mut thief, &["lies".to_owned()]);
    says(&mut agent, &lines);
    let row = api.workload(&id);
    let attempt = attempts(&row).pop().unwrap_or_default();
    assert_eq!(attempt["exit"], json!({ "signal": 6 }), "{row}");
    let kept = attempt["last_lines"].as_array().unwrap();
    assert_eq!(kept.len(), 20, "{row}");
    assert_eq!(kept[19], "\\u{1b}[2J line 4999", "{row}");
    says(&mut thief, &["lies".to_owned()]);
    assert!(!api.workload(&id).to_string().contains("lies"));
}
