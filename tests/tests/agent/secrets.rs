//! Secrets for models come from the agent's machine, reach the slot, and are in nothing that another user or client can see.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use berth_tests::fleet::{Agent, Fleet, Machine, Model, Plan};
use berth_tests::service::eventually;
use serde_json::json;

const FROM_FILE: &str = "hf_S3cretOfTheFile0123456789";
const FROM_ENVIRONMENT: &str = "key-S3cretOfTheEnvironment";
/// What both have in common, and nothing else of these tests.
const PART: &str = "S3cretOf";

/// An agent whose runtime `probe` has two secrets, and says everything that it can about them.
fn plan(fleet: &Fleet, machine: &Machine, file: &Path, script: &str) -> Plan {
    let exported = format!("export SLOTS_KEY={FROM_ENVIRONMENT}; exec \"$@\"");
    let script = script.replace('{', "{{").replace('}', "}}");
    let secrets = format!("secrets = {{ HF_TOKEN = {{ file = {file:?} }}, API_KEY = {{ env = \"SLOTS_KEY\" }} }}");
    let plan = machine.plan(fleet).through(&["sh", "-c", &exported, "sh"]);
    plan.runtime("probe", &["sh", "-c", &script]).runtime_line(&secrets)
}

fn write(file: &Path, text: &str) {
    fs::write(file, text).unwrap();
    fs::set_permissions(file, PermissionsExt::from_mode(0o600)).unwrap();
}

/// Every file below a directory, as text.
fn files(directory: &Path) -> Vec<(String, String)> {
    let mut texts = Vec::new();
    let mut directories = vec![directory.to_owned()];
    while let Some(directory) = directories.pop() {
        for path in fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()) {
            match path.is_dir() {
                true => directories.push(path),
                false => {
                    let bytes = fs::read(&path).unwrap_or_default();
                    texts.push((path.display().to_string(), String::from_utf8_lossy(&bytes).into_owned()));
                }
            }
        }
    }
    texts
}

/// The argument lists of all processes of this machine.
fn argument_lists() -> Vec<(String, String)> {
    let processes = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path().join("cmdline"));
    let read = |path: std::path::PathBuf| {
        let text = fs::read(&path).ok()?;
        Some((path.display().to_string(), String::from_utf8_lossy(&text).into_owned()))
    };
    processes.filter_map(read).collect()
}

/// Everything that is visible outside of the slot: answers of the API, logs, records, argument lists.
fn everything(fleet: &Fleet, agent: &Agent, slot: &str, workloads: &[&str]) -> Vec<(String, String)> {
    let mut paths: Vec<String> = ["models", "runners", "workloads", "scheduler/slots", "scheduler/decisions"]
        .iter()
        .chain(&["scheduler/queue", "scheduler/ledger", "scheduler/demand"])
        .map(|path| format!("/api/v1/{path}"))
        .collect();
    paths.extend(["/metrics".to_owned(), format!("/api/v1/runners/{}/status", agent.id())]);
    paths.extend(["", "/logs"].map(|more| format!("/api/v1/scheduler/slots/{slot}{more}")));
    for id in workloads {
        paths.extend(
            ["", "/explain", "/logs", "/logs?tail_bytes=24"].map(|more| format!("/api/v1/workloads/{id}{more}")),
        );
    }
    let mut all: Vec<(String, String)> =
        paths.into_iter().map(|path| (path.clone(), fleet.api.get(&path).is(200).text)).collect();
    all.push(("the agent's log".to_owned(), agent.log()));
    all.push(("the server's log".to_owned(), fleet.server.log()));
    all.extend(files(fleet.server.data_dir()));
    // What the slot itself wrote is in its own log, which is closed to other users.
    all.extend(files(&agent.data_dir()).into_iter().filter(|(path, _)| !path.ends_with(".log")));
    all.extend(argument_lists());
    all
}

#[test]
fn a_secret_reaches_the_slot_and_is_in_no_answer_log_record_or_argument() {
    let fleet = Fleet::with(&["scheduler.attempts=1", "log.filter=trace"]);
    let machine = Machine::new(&[80]);
    let file = machine.directory().join("hf.token");
    write(&file, &format!("{FROM_FILE}\n"));
    // The first slot stays, the second one dies and leaves its last words.
    let marker = machine.directory().join("second");
    let script = format!(
        "printf '%s' \"$HF_TOKEN\" | sha256sum; echo \"loading with $HF_TOKEN and $API_KEY\"; echo DONE\n\
         if [ -e {marker} ]; then echo \"401 for $HF_TOKEN\"; exit 3; fi; touch {marker}; exec sleep 1000",
        marker = marker.display()
    );
    let agent = plan(&fleet, &machine, &file, &script).start(&fleet);
    fleet.model(&Model::new("chat", 1).with("runtime", json!("probe")));
    let chat = fleet.run("chat");
    let log = agent.data_dir().join("logs").join(&chat.slot).join("1.log");
    let said = eventually("it spoke", || fs::read_to_string(&log).ok().filter(|text| text.contains("DONE")));
    assert!(said.contains(&format!("loading with {FROM_FILE} and {FROM_ENVIRONMENT}")), "it has both: {said}");

    fleet.model(&Model::new("dies", 1).with("runtime", json!("probe")));
    let dies = fleet.lease("dies");
    let dead = fleet.until(&dies, "failed");
    assert!(dead.to_string().contains("401 for [redacted]"), "{dead}");
    let shown = fleet.api.get(&format!("/api/v1/scheduler/slots/{}/logs", chat.slot)).is(200).text;
    assert!(shown.contains("loading with [redacted] and [redacted]\n"), "{shown}");
    let all = everything(&fleet, &agent, &chat.slot, &[&chat.workload, &dies]);
    assert!(all.len() > 30);
    for (place, text) in all {
        assert!(!text.contains(PART), "{place}: {text}");
    }
    assert!(!agent.log().contains("open to other users"), "{}", agent.log());
}

#[test]
fn a_secret_is_taken_out_of_logs_by_the_next_agent_too_and_a_changed_one_counts_at_the_next_start() {
    let fleet = Fleet::start();
    let machine = Machine::new(&[80]);
    let file = machine.directory().join("hf.token");
    write(&file, FROM_FILE);
    let script = "echo \"loading with $HF_TOKEN\"; echo DONE; exec sleep 1000";
    let mut agent = plan(&fleet, &machine, &file, script).start(&fleet);
    fleet.model(&Model::new("chat", 1).with("runtime", json!("probe")));
    let chat = fleet.run("chat");
    let shown = |slot: &str| {
        let path = format!("/api/v1/scheduler/slots/{slot}/logs");
        eventually("it spoke", || Some(fleet.api.get(&path).is(200).text).filter(|text| text.contains("DONE")))
    };
    assert_eq!(shown(&chat.slot), "loading with [redacted]\nDONE\n");
    agent.kill();
    agent.restart();
    agent.is_heard(&fleet);
    fleet.until_heard_again(&agent);
    assert_eq!(shown(&chat.slot), "loading with [redacted]\nDONE\n");

    fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).unwrap();
    write(&file, "hf_S3cretOfTomorrow9876543210");
    fleet.model(&Model::new("next", 1).with("runtime", json!("probe")));
    let next = fleet.run("next");
    assert_eq!(shown(&next.slot), "loading with [redacted]\nDONE\n");
    let log = agent.data_dir().join("logs").join(&next.slot).join("1.log");
    assert!(fs::read_to_string(log).unwrap().contains("hf_S3cretOfTomorrow9876543210"));
}

#[test]
fn a_slot_without_its_secret_is_not_started_and_says_which_file_is_missing() {
    let fleet = Fleet::with(&["scheduler.attempts=1"]);
    let machine = Machine::new(&[80]);
    let file = machine.directory().join("missing.token");
    let agent = plan(&fleet, &machine, &file, "exec sleep 1000").start(&fleet);
    fleet.model(&Model::new("chat", 1).with("runtime", json!("probe")));
    let id = fleet.lease("chat");
    let row = fleet.until(&id, "failed").to_string();
    assert!(row.contains("the secret HF_TOKEN cannot be read from") && row.contains("missing.token"), "{row}");
    assert!(machine.living().is_empty());
    assert!(agent.log().contains("missing.token"), "{}", agent.log());
}

#[test]
fn a_secret_file_that_is_world_readable_is_warned_about() {
    let fleet = Fleet::start();
    let machine = Machine::new(&[80]);
    let file = machine.directory().join("hf.token");
    fs::write(&file, FROM_FILE).unwrap();
    fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).unwrap();
    let agent = plan(&fleet, &machine, &file, "exec sleep 1000").start(&fleet);
    let log = agent.log();
    assert!(log.lines().any(|line| line.contains("WARN") && line.contains("hf.token")), "{log}");
    assert!(!log.contains(PART), "{log}");
}

#[test]
fn a_configuration_with_a_secret_in_plain_sight_or_from_nowhere_is_refused() {
    let fleet = Fleet::start();
    let machine = Machine::new(&[80]);
    for (line, words) in [
        ("secrets = { HF_TOKEN = { file = \"relative\" } }", "absolute path"),
        ("secrets = { HF_TOKEN = { env = \"BERTH_TOKEN\" } }", "BERTH_TOKEN"),
        ("secrets = { CUDA_VISIBLE_DEVICES = { env = \"X\" } }", "CUDA_VISIBLE_DEVICES"),
        ("secrets = { HF_TOKEN = \"hf_S3cretOf\" }", "secrets"),
    ] {
        let plan = machine.plan(&fleet).runtime("probe", &["sleep", "1000"]).runtime_line(line);
        let mut agent = plan.launch();
        assert!(!agent.ended().success(), "{line}");
        assert!(agent.log().contains(words), "{line}: {}", agent.log());
    }
    let command = ["engine", "--api-key", FROM_ENVIRONMENT];
    let mut agent = machine.plan(&fleet).id("inline").runtime("probe", &command).launch();
    assert!(!agent.ended().success());
    let log = agent.log();
    assert!(log.contains("runtime.probe.command") && log.contains("--api-key"), "{log}");
    assert!(!log.lines().any(|line| line.contains("carries a secret") && line.contains(PART)), "{log}");
}

#[test]
fn arguments_that_carry_a_secret_are_refused_without_being_repeated() {
    let fleet = Fleet::start();
    for args in [
        json!(["--api-key", FROM_ENVIRONMENT]),
        json!([format!("--api-key={FROM_ENVIRONMENT}")]),
        json!(["--hf-token", FROM_FILE]),
        json!(["--loader", format!("{{\"api_key\": \"{FROM_ENVIRONMENT}\"}}")]),
        json!([FROM_FILE]),
        json!([format!("https://user:{FROM_ENVIRONMENT}@models.example/x")]),
    ] {
        let model = json!({ "runtime": "vllm", "memory": "1GiB", "args": args });
        let refused = fleet.api.put("/api/v1/models/chat", &model).is(422);
        assert!(refused.text.contains("carries a secret") && refused.text.contains("`secrets`"), "{}", refused.text);
        assert!(!refused.text.contains(PART), "{}", refused.text);
        let job = json!({ "model": "chat", "kind": "job", "job": { "args": args } });
        let refused = fleet.api.post("/api/v1/workloads", &job).is(422);
        assert!(refused.text.contains("carries a secret") && !refused.text.contains(PART), "{}", refused.text);
    }
    // A command of the agent's own has no table of options.
    let fine = json!({ "runtime": "engine", "memory": "1GiB", "args": ["--api-key-file", "/etc/berth/vllm.key"] });
    let _ = fleet.api.put("/api/v1/models/chat", &fine).is(201);
    let log = fleet.server.log();
    assert!(!log.contains(PART), "{log}");
}
