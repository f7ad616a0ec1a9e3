//! The command line against a real server, with an agent that only reports.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use berth_client::{Client, routes};
use berth_domain::{Incarnation, RunnerId};
use berth_wire::{Desired, DesiredQuery, PageQuery, ReportRequest, Workload};
use serde_json::{Value, json};

const BERTH: &str = env!("CARGO_BIN_EXE_berth");

/// What a command said, and how it ended.
struct Said {
    status: i32,
    out: String,
    err: String,
}

impl From<Output> for Said {
    fn from(output: Output) -> Self {
        Self {
            status: output.status.code().unwrap_or(-1),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

/// A command without anything of the environment that it would listen to.
fn berth() -> Command {
    let mut command = Command::new(BERTH);
    for name in ["BERTH_SERVER", "BERTH_TOKEN", "BERTH_TOKEN_FILE", "BERTH_CA", "NO_COLOR"] {
        command.env_remove(name);
    }
    command
}

fn said(args: &[&str]) -> Said {
    berth().args(args).output().unwrap().into()
}

/// A server in a directory of its own, ended when it is dropped.
struct Server {
    process: Child,
    url: String,
    directory: tempfile::TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Server {
    fn start() -> Self {
        Self::start_in(tempfile::tempdir().unwrap())
    }

    fn start_in(directory: tempfile::TempDir) -> Self {
        let mut process = berth()
            .args(["serve", "--anyone-on-this-machine-is-admin", "--listen", "127.0.0.1:0", "--data-dir"])
            .arg(directory.path().join("data"))
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut log = BufReader::new(process.stderr.take().unwrap());
        let mut seen = String::new();
        let url = loop {
            let mut line = String::new();
            assert!(log.read_line(&mut line).unwrap() > 0, "the server ended: {seen}");
            seen.push_str(&line);
            if let Some((_, rest)) = line.split_once("url=") {
                break rest.split_whitespace().next().unwrap().to_owned();
            }
        };
        // The log is read on, so that the server never waits for a reader.
        std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
        Self { process, url, directory }
    }

    fn said(&self, args: &[&str]) -> Said {
        berth().arg("--server").arg(&self.url).args(args).output().unwrap().into()
    }

    /// What a command said that must go well.
    fn ok(&self, args: &[&str]) -> String {
        let said = self.said(args);
        assert_eq!(said.status, 0, "berth {args:?} said {} {}", said.out, said.err);
        assert!(!said.out.contains('\x1b'), "colours on what is no terminal: {}", said.out);
        said.out
    }

    fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.ok(&[args, &["--output", "json"]].concat())).unwrap()
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }
}

/// An agent that says what it is told to say.
struct Agent {
    runtime: tokio::runtime::Runtime,
    client: Client,
    id: RunnerId,
    incarnation: Option<Incarnation>,
    sequence: u64,
}

impl Agent {
    fn new(server: &Server, id: &str) -> Self {
        let mut agent = Self {
            runtime: tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap(),
            client: Client::builder(&server.url).build().unwrap(),
            id: RunnerId::new(id).unwrap(),
            incarnation: None,
            sequence: 0,
        };
        agent.report(&json!([]));
        agent
    }

    fn report(&mut self, slots: &Value) {
        self.sequence += 1;
        let gpu = json!({"uuid": format!("GPU-{}", self.id), "index": 0, "name": "NVIDIA H100",
            "memory_total_bytes": "80GiB"});
        let mut report: ReportRequest = serde_json::from_value(json!({
            "machine_id": format!("machine-{}", self.id), "boot_id": "b1", "sequence": self.sequence, "version": "test",
            "address": "127.0.0.1", "runtimes": ["vllm"], "gpus": [gpu], "slots": slots,
            "host": {"cpu_millicores": 8000, "ram_bytes": "32GiB"},
        }))
        .unwrap();
        report.incarnation = self.incarnation;
        let answer = self.runtime.block_on(self.client.report(&self.id, &report)).unwrap();
        self.incarnation = Some(answer.incarnation);
    }

    fn desired(&self) -> Desired {
        let incarnation = self.incarnation.unwrap();
        let query = DesiredQuery { epoch: None, after: None, wait: None, incarnation, obeyed: None };
        self.runtime.block_on(self.client.desired(&self.id, &query)).unwrap()
    }

    /// Starts everything it should run, at once and without a process.
    fn make_ready(&mut self) {
        let ready = |slot: &berth_wire::DesiredSlot| {
            let claims: Vec<Value> =
                slot.gpus.iter().map(|gpu| json!({"uuid": gpu.uuid, "bytes": gpu.memory_bytes})).collect();
            json!({"id": slot.id, "generation": slot.generation, "state": "ready",
                "endpoint": "127.0.0.1:4001", "claims": claims})
        };
        let slots: Vec<Value> = self.desired().slots.iter().map(ready).collect();
        self.report(&Value::Array(slots));
    }
}

const MODELS: &str = r#"
[[model]]
name = "org/small"
runtime = "vllm"
memory = "20GiB"
concurrency = 2

[[model]]
name = "huge"
runtime = "vllm"
memory = "500GiB"
"#;

#[test]
fn a_workload_from_its_model_to_its_end() {
    let server = Server::start();
    let models = server.file("models.toml", MODELS);
    assert_eq!(server.ok(&["models", "apply", &models]), "applied org/small (revision 1)\napplied huge (revision 1)\n");
    assert!(server.ok(&["models", "list"]).contains("20 GiB"));
    assert!(server.ok(&["models", "show", "org/small"]).contains("CHARGED BY"));

    // Nobody is there to run it: it waits, and that is told by the status.
    let waited = server.said(&["submit", "org/small", "--wait", "300ms"]);
    assert_eq!(waited.status, 6, "{} {}", waited.out, waited.err);
    assert!(waited.out.contains("queued") && waited.err.contains("berth explain"), "{} {}", waited.out, waited.err);
    let queue = server.json(&["queue"]);
    let id = queue[0]["workload_id"].as_str().unwrap().to_owned();
    assert!(server.ok(&["queue"]).contains(&id));
    assert!(server.ok(&["explain", &id]).contains("waiting (no_runners)"));
    assert!(server.ok(&["demand"]).contains("no_runners"));

    let mut agent = Agent::new(&server, "box");
    agent.make_ready();
    let shown = server.ok(&["workloads", &id]);
    assert!(shown.contains("running") && shown.contains("127.0.0.1:4001"), "{shown}");
    assert!(server.ok(&["workloads", "--state", "running"]).contains(&id));
    assert_eq!(server.ok(&["workloads", "--state", "queued"]), "no workloads\n");

    // A second lease shares the slot at once.
    let second: Workload = serde_json::from_value(server.json(&["submit", "org/small", "--wait", "10s"])).unwrap();
    assert_eq!(second.state, berth_wire::WorkloadState::Running);
    let ledger = server.ok(&["ledger", "-v"]);
    assert!(ledger.contains("[##########......") && ledger.contains("held 20 GiB, free 60 GiB of 80 GiB"), "{ledger}");
    assert!(server.ok(&["slots"]).contains("2/2"));
    assert!(server.ok(&["decisions", "--model", "org/small", "-v"]).contains("placed: org/small on runner box"));
    assert!(server.ok(&["events"]).contains("slot_placed"));
    assert!(server.ok(&["complete", &id]).contains("succeeded"));
    assert!(server.ok(&["cancel", &second.id.to_string()]).contains("cancelled"));
    assert!(server.ok(&["slots"]).contains("0/2"));
}

#[test]
fn jobs_have_arguments_and_keys() {
    let server = Server::start();
    let models = server.file("models.json", r#"[{"name": "t", "runtime": "vllm", "memory": "8000MB"}]"#);
    server.ok(&["models", "apply", &models]);
    let agent = Agent::new(&server, "box");
    let submit =
        ["submit", "t", "--kind", "job", "--priority", "-3", "--key", "k1", "--output", "json", "--", "--seed", "7"];
    let first: Value = serde_json::from_str(&server.ok(&submit)).unwrap();
    let again: Value = serde_json::from_str(&server.ok(&submit)).unwrap();
    assert_eq!(first["id"], again["id"], "the same key is the same workload");
    assert_eq!(first["priority"], -3);
    let slots = agent.desired().slots;
    assert_eq!(slots.len(), 1);
    let berth_wire::DesiredAction::Run(spec) = &slots[0].action else { unreachable!("{:?}", slots[0]) };
    let args: Vec<String> = spec.args.iter().map(ToString::to_string).collect();
    assert_eq!(args, ["--seed", "7"]);
    let lease = server.said(&["submit", "t", "--", "--a"]);
    assert_eq!(lease.status, 2);
    assert!(lease.err.contains("--kind job"), "{}", lease.err);
}

#[test]
fn every_failure_has_its_status_and_says_what_to_do() {
    let server = Server::start();
    let models = server.file("models.toml", MODELS);
    server.ok(&["models", "apply", &models]);
    let nobody = "01932c07-3a5b-7cc2-b7d1-58a1f7f4a921";
    for (args, status, says) in [
        (vec!["submit", "unknown"], 5, "berth models apply"),
        (vec!["workloads", nobody], 5, "no workload"),
        (vec!["slots", nobody], 5, "no slot"),
        (vec!["cordon", "nobody"], 5, "no runner"),
        (vec!["workloads", "not-an-id"], 2, "berth workloads"),
        (vec!["workloads", "--state", "sleeping"], 2, "queued, assigned"),
        (vec!["submit", "org/small", "--ttl", "soon"], 2, "length of time"),
        (vec!["submit", "../x"], 2, "path segment"),
        (vec!["submit"], 2, "Usage"),
        (vec!["token", "create", "r", "--role", "runner"], 2, "names its runner"),
        (vec!["token", "create", "v", "--role", "viewer"], 1, "admin"),
        (vec!["log-level", "no,such=level"], 1, "filter"),
        (vec!["models", "apply", "/no/such/file"], 2, "/no/such/file"),
    ] {
        let said = server.said(&args);
        assert_eq!(said.status, status, "berth {args:?} said {} {}", said.out, said.err);
        assert!(said.err.contains(says), "berth {args:?} said {}", said.err);
        assert_eq!(said.out, "", "errors go to standard error");
    }
    // Something is there, and then it is known that this never fits.
    let _agent = Agent::new(&server, "box");
    let refused = server.said(&["submit", "huge"]);
    assert_eq!(refused.status, 1, "{}", refused.err);
    assert!(refused.err.contains("never_fits"), "{}", refused.err);
    assert_eq!(server.said(&["fit", "huge"]).status, 1);
    assert_eq!(server.said(&["fit", "org/small"]).status, 0);

    let url = server.url.clone();
    drop(server);
    let gone = said(&["--server", &url, "ledger"]);
    assert_eq!(gone.status, 3, "{}", gone.err);
    assert!(gone.err.contains("berth serve") && gone.err.contains(&url), "{}", gone.err);
    assert_eq!(said(&["--server", "localhost", "ledger"]).status, 2);
}

#[test]
fn b1_bad_files_are_refused_before_anything_is_sent() {
    let server = Server::start();
    let good = server.file("good.toml", MODELS);
    for (text, says) in [
        ("[[model]]\nname = \"a\"\nruntime = \"v\"\nmemory = -1\n", "less than nothing"),
        ("[[model]]\nname = \"a\"\nruntime = \"v\"\nmemroy = 1\n", "memroy"),
        ("[[model]]\nname = \"a\"\nruntime = \"v\"\nconcurrency = 0\n", "model a: concurrency"),
        ("", "no model"),
    ] {
        let bad = server.file("bad.toml", text);
        let said = server.said(&["models", "apply", &good, &bad]);
        assert_eq!(said.status, 2, "{text}: {}", said.err);
        assert!(said.err.contains(says) && said.err.contains("bad.toml"), "{}", said.err);
    }
    assert!(server.ok(&["models", "list"]).starts_with("no models"), "nothing was sent");
}

#[test]
fn json_is_what_the_api_said() {
    let server = Server::start();
    server.ok(&["models", "apply", &server.file("models.toml", MODELS)]);
    let _agent = Agent::new(&server, "box");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let client = Client::builder(&server.url).build().unwrap();
    let api = runtime.block_on(client.ask(&routes::models(&PageQuery::default()))).unwrap();
    assert_eq!(server.ok(&["models", "list", "--output", "json"]), format!("{}\n", api.text));
    assert_eq!(server.json(&["runners", "box", "--status"])["gpus"][0]["uuid"], "GPU-box");
    assert_eq!(server.json(&["ledger"])["devices"][0]["capacity_bytes"], 80u64 << 30);
    let event = server.ok(&["events", "--output", "json"]);
    let event: Value = serde_json::from_str(event.lines().next().unwrap()).unwrap();
    assert!(event["revision"].is_u64() && event["type"].is_string(), "{event}");
}

#[test]
fn b4_tokens_open_doors_and_their_lack_shuts_them() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data").display().to_string();
    let made = said(&["token", "create", "ops", "--role", "admin", "--data-dir", &data]);
    assert_eq!(made.status, 0, "{}", made.err);
    let secret = made.out.trim().to_owned();
    assert!(secret.starts_with("berth_") && !made.err.contains(&secret), "{}", made.err);
    let server = Server::start_in(directory);
    let file = server.file("ops.token", &made.out);

    let without = server.said(&["ledger"]);
    assert_eq!(without.status, 4, "{}", without.err);
    assert!(without.err.contains("--token-file"), "{}", without.err);
    assert_eq!(server.said(&["ledger", "--token", "berth_wrong"]).status, 4);
    server.ok(&["ledger", "--token-file", &file]);
    let by_environment =
        berth().args(["--server", &server.url, "ledger"]).env("BERTH_TOKEN", &secret).output().unwrap();
    assert!(by_environment.status.success());

    let created = server.json(&["token", "create", "watch", "--role", "viewer", "--token-file", &file]);
    let viewer = created["token"].as_str().unwrap();
    server.ok(&["slots", "--token", viewer]);
    assert_eq!(server.said(&["token", "list", "--token", viewer]).status, 4);
    assert!(server.ok(&["token", "list", "--token-file", &file]).contains("watch"));
    server.ok(&["token", "revoke", created["id"].as_str().unwrap(), "--token-file", &file]);
    assert_eq!(server.said(&["slots", "--token", viewer]).status, 4);
    let audit = server.ok(&["audit", "--token-file", &file]);
    assert!(audit.contains("revoke_token") && audit.contains("ops"), "{audit}");

    let beside = said(&["token", "create", "x", "--role", "admin", "--data-dir", &data]);
    assert_eq!(beside.status, 1, "a server that runs would not notice: {}", beside.out);
    assert!(beside.err.contains("leave --data-dir out"), "{}", beside.err);
    let help = berth().args(["slots", "--help"]).env("BERTH_TOKEN", "s3cret").output().unwrap();
    assert!(!String::from_utf8_lossy(&help.stdout).contains("s3cret"));
}

#[test]
fn n14_runners_are_closed_drained_and_forgotten() {
    let server = Server::start();
    let mut agent = Agent::new(&server, "box");
    assert!(server.ok(&["runners"]).contains("open"));
    assert_eq!(server.ok(&["cordon", "box"]), "cordoned runner box\n");
    assert!(server.ok(&["runners"]).contains("cordoned"));
    server.ok(&["uncordon", "box"]);
    server.ok(&["cordon", "--gpu", "GPU-box"]);
    assert!(server.ok(&["ledger"]).contains("cordoned"));
    server.ok(&["uncordon", "--gpu", "GPU-box"]);
    assert!(server.ok(&["runners", "box"]).contains("FREE TO PLACE"));

    server.ok(&["models", "apply", &server.file("models.toml", MODELS)]);
    let id = server.json(&["submit", "org/small"])["id"].as_str().unwrap().to_owned();
    agent.make_ready();
    let busy = server.said(&["drain", "box", "--wait=1s"]);
    assert_eq!(busy.status, 6, "a lease holds it up: {} {}", busy.out, busy.err);
    assert!(busy.err.contains("1 slot(s)"), "{}", busy.err);
    server.ok(&["complete", &id]);
    let slot = server.json(&["slots"])[0].clone();
    assert_eq!(slot["state"], "stopping");
    let proof = json!({"tree_gone": true, "driver_clear": true});
    agent.report(&json!([{"id": slot["id"], "generation": slot["generation"], "state": "gone", "evidence": proof}]));
    assert_eq!(server.ok(&["drain", "box", "--wait=30s"]), "runner box is drained\n");
    assert_eq!(server.said(&["forget", "box"]).status, 2, "a reason is needed");
    server.ok(&["forget", "box", "--reason", "sold"]);
    assert!(server.ok(&["audit"]).contains("sold"));
}

#[test]
fn slots_are_stopped_and_released_by_force() {
    let server = Server::start();
    server.ok(&["models", "apply", &server.file("models.toml", MODELS)]);
    let mut agent = Agent::new(&server, "box");
    server.ok(&["submit", "org/small"]);
    agent.make_ready();
    let slot = server.json(&["slots"])[0]["id"].as_str().unwrap().to_owned();
    server.ok(&["stop", &slot]);
    assert!(server.ok(&["slots", &slot]).contains("stopping"));
    assert!(server.ok(&["ledger"]).contains("releasing 20 GiB"));
    assert!(server.ok(&["force-release", &slot, "--reason", "killed by hand"]).contains("is free"));
    assert_eq!(server.said(&["slots", &slot]).status, 5);
    assert_eq!(server.ok(&["log-level", "warn"]), "warn\n");
}

#[test]
fn events_are_followed() {
    let server = Server::start();
    let mut follower =
        berth().args(["--server", &server.url, "events", "-f", "--last", "0"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(follower.stdout.take().unwrap());
    let models = server.file("models.toml", MODELS);
    // It may begin a moment after the first change, so there is a new one until something was heard.
    let heard = std::thread::spawn(move || {
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        line
    });
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut concurrency = 1;
    while !heard.is_finished() && Instant::now() < deadline {
        concurrency += 1;
        let changed = MODELS.replace("concurrency = 2", &format!("concurrency = {concurrency}"));
        std::fs::write(&models, changed).unwrap();
        server.ok(&["models", "apply", &models]);
    }
    let _ = follower.kill();
    let _ = follower.wait();
    assert!(heard.join().unwrap().contains("model_put"));
}

#[test]
fn a_closed_pipe_ends_quietly() {
    let server = Server::start();
    let many: String = (0..3000).map(|n| format!("[[model]]\nname = \"m{n}\"\nruntime = \"vllm\"\n")).collect();
    let file = server.file("many.toml", &many);
    // Nobody reads what applying says, either, from the second line on.
    let shell = |words: &str| -> Said {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("\"$0\" --server {} {words}", server.url), BERTH]);
        command.output().unwrap().into()
    };
    let piped = shell(&format!("models apply {file} | head -n 1"));
    assert_eq!((piped.status, piped.out.as_str(), piped.err.as_str()), (0, "applied m0 (revision 1)\n", ""));
    for words in ["models list | head -n 1", "models list --output json | head -c 1", "completions bash | head -n 1"] {
        let said = shell(words);
        assert_eq!((said.status, said.err.as_str()), (0, ""), "{words}");
        assert!(!said.out.is_empty(), "{words}");
    }
}

#[test]
fn models_come_from_standard_input_too() {
    let server = Server::start();
    let mut apply = berth()
        .args(["--server", &server.url, "models", "apply", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    apply.stdin.take().unwrap().write_all(b"{\"name\": \"a/b\", \"runtime\": \"vllm\"}").unwrap();
    let mut out = String::new();
    apply.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    assert!(apply.wait().unwrap().success());
    assert_eq!(out, "applied a/b (revision 1)\n");
    server.ok(&["models", "rm", "a/b"]);
}

/// A model file as long as its header says, made of a header from the reader's own corpus.
fn model_file(directory: &std::path::Path) -> String {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../estimate/tests/corpus/llama.gguf");
    let path = directory.join("llama.gguf");
    std::fs::copy(corpus, &path).unwrap();
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(64 << 20).unwrap();
    path.display().to_string()
}

#[test]
fn an_estimate_needs_no_server() {
    let directory = tempfile::tempdir().unwrap();
    let file = model_file(directory.path());
    let estimate = |args: &[&str]| said(&[&["--server", "http://127.0.0.1:9", "estimate", &file], args].concat());

    let table = estimate(&["--context", "4096", "--gpus", "1,2", "--gpu-memory", "1GiB"]);
    assert_eq!(table.status, 0, "{}", table.err);
    for part in ["llama.cpp: context 4096 x 1 sequence, cache f16", "weights", "kv cache", "GPU 1 |", "of 1 GiB"] {
        assert!(table.out.contains(part), "{part:?} is not in\n{}", table.out);
    }
    assert!(table.out.contains("start it with: --ctx-size 4096 --parallel 1"), "{}", table.out);

    let json = |args: &[&str]| -> Value {
        let said = estimate(&[args, &["--output", "json"]].concat());
        serde_json::from_str(&said.out).unwrap_or_else(|error| panic!("{error}: {} {}", said.out, said.err))
    };
    let plain = json(&["--context", "4096", "--gpus", "1"]);
    let gpu = &plain["counts"][0]["gpus"][0];
    let parts = ["weights_bytes", "kv_bytes", "compute_bytes", "output_bytes", "projector_bytes", "overhead_bytes"];
    let sum: u64 = parts.iter().map(|part| gpu[part].as_u64().unwrap()).sum();
    assert_eq!(gpu["total_bytes"].as_u64(), Some(sum));
    assert_eq!(gpu["kv_bytes"], 4 << 20, "as llama.cpp prints it: docs/ESTIMATION.md");

    // Every option is heard.
    let kv = |args: &[&str]| json(args)["counts"][0]["gpus"][0]["kv_bytes"].as_u64().unwrap();
    assert_eq!(kv(&["--context", "4096", "--parallel", "2", "--gpus", "1"]), 8 << 20);
    assert!(kv(&["--context", "4096", "--kv-type", "q8_0", "--gpus", "1"]) < 4 << 20);
    let compute = |flash: &str| {
        let made = json(&["--context", "4096", "--gpus", "1", "--flash-attention", flash]);
        made["counts"][0]["gpus"][0]["compute_bytes"].as_u64().unwrap()
    };
    assert!(compute("false") > compute("true"));
    assert_eq!(json(&["--profile", "conservative", "--gpus", "1"])["inputs"]["profile"], "conservative");
    assert_eq!(json(&["--context", "4096"])["counts"].as_array().unwrap().len(), 4, "1, 2, 4 and 8 unless said");
}

#[test]
fn an_estimate_that_cannot_be_made_says_why() {
    let directory = tempfile::tempdir().unwrap();
    let file = model_file(directory.path());
    let missing = said(&["estimate", "/nowhere/at/all.gguf"]);
    assert_eq!(missing.status, 2);
    assert!(missing.err.contains("/nowhere/at/all.gguf"), "{}", missing.err);
    let no_type = said(&["estimate", &file, "--kv-type", "f17"]);
    assert_eq!(no_type.status, 2);
    assert!(no_type.err.contains("f17"), "{}", no_type.err);
    let no_flash = said(&["estimate", &file, "--kv-type", "q8_0", "--flash-attention", "false"]);
    assert_eq!(no_flash.status, 1);
    assert!(no_flash.err.contains("need flash attention"), "{}", no_flash.err);
}
