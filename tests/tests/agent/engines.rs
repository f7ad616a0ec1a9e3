//! Engines as programs: asked for their version and options before they are offered, ready when they have the model,
//! ended quickly while they load. The engines here are scripts that answer as the real ones do.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use berth_tests::fleet::{Agent, Fleet, Machine, Model, Plan};
use berth_tests::service::eventually;
use serde_json::{Value, json};

/// Answers as `ollama` does: told by its environment, with a store of models that is a directory.
const OLLAMA: &str = r#"#!/usr/bin/env python3
import http.server, json, os, pathlib, signal, sys, time
here = pathlib.Path(__file__).parent
if sys.argv[1:] == ["--version"]:
    print("Warning: client version is VERSION"); sys.exit()
if sys.argv[1:] == ["serve", "--help"]:
    print("Environment Variables:\n" + "\n".join("  " + name for name in "VARIABLES".split())); sys.exit()
assert sys.argv[1:] == ["serve"], sys.argv
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        name = self.path.removeprefix("/v1/models/")
        body = {"version": "VERSION"}
        if name != self.path:
            body = {"id": name, "object": "model"} if (here / "store" / name).exists() else None
        self.send_response(200 if body else 404)
        self.end_headers()
        self.wfile.write(json.dumps(body or {"error": "model not found"}).encode())
    def log_message(self, *args): pass
host, port = os.environ["OLLAMA_HOST"].rsplit(":", 1)
http.server.ThreadingHTTPServer((host, int(port)), Answer).serve_forever()
"#;

const VARIABLES: &str = "OLLAMA_HOST OLLAMA_KEEP_ALIVE OLLAMA_MAX_LOADED_MODELS OLLAMA_NUM_PARALLEL \
                         OLLAMA_CONTEXT_LENGTH OLLAMA_KV_CACHE_TYPE OLLAMA_FLASH_ATTENTION";

fn install(machine: &Machine, name: &str, text: &str) -> PathBuf {
    let directory = machine.directory().join("bin");
    fs::create_dir_all(directory.join("store")).unwrap();
    let (program, new) = (directory.join(name), directory.join("new"));
    fs::write(&new, text).unwrap();
    fs::set_permissions(&new, fs::Permissions::from_mode(0o755)).unwrap();
    // As a package manager does it: the new program takes the place of the old one at once.
    fs::rename(new, &program).unwrap();
    program
}

fn install_ollama(machine: &Machine, version: &str, variables: &str) -> PathBuf {
    install(machine, "ollama", &OLLAMA.replace("VERSION", version).replace("VARIABLES", variables))
}

fn with_ollama(plan: Plan, program: &Path) -> Plan {
    plan.runtime("ollama", &[program.to_str().unwrap(), "serve"])
}

fn runner(fleet: &Fleet, agent: &Agent) -> Value {
    fleet.api.get(&format!("/api/v1/runners/{}", agent.id())).body
}

fn offers(row: &Value, runtime: &str) -> bool {
    row["runtimes"].as_array().unwrap().iter().any(|name| name == runtime)
}

#[track_caller]
fn until_offered(fleet: &Fleet, agent: &Agent, runtime: &str) -> Value {
    eventually(&format!("{runtime} is offered"), || {
        let row = runner(fleet, agent);
        offers(&row, runtime).then_some(row)
    })
}

#[test]
fn an_engine_is_offered_with_its_version_once_it_was_asked() {
    let fleet = Fleet::start();
    let machine = Machine::new(&[80]);
    let program = install_ollama(&machine, "0.17.4", VARIABLES);
    let agent = with_ollama(machine.plan(&fleet), &program).start(&fleet);
    let row = until_offered(&fleet, &agent, "ollama");
    assert_eq!(row["engines"]["ollama"], json!({ "version": "0.17.4" }));
}

#[test]
fn an_engine_without_what_the_template_needs_is_not_offered_until_it_is_replaced() {
    let fleet = Fleet::start();
    let machine = Machine::new(&[80]);
    let program = install_ollama(&machine, "0.1.2", &VARIABLES.replace("OLLAMA_KV_CACHE_TYPE", ""));
    let mut agent = with_ollama(machine.plan(&fleet), &program).start(&fleet);
    let lacks = json!({ "version": "0.1.2", "missing": ["OLLAMA_KV_CACHE_TYPE"] });
    let row = eventually("the report says what is missing", || {
        let row = runner(&fleet, &agent);
        (row["engines"]["ollama"] == lacks).then_some(row)
    });
    assert!(!offers(&row, "ollama"), "{row}");
    let words = ["WARN", "runtime ollama is not offered", "0.1.2", "OLLAMA_KV_CACHE_TYPE"];
    assert!(agent.log().lines().any(|line| words.iter().all(|word| line.contains(word))), "{}", agent.log());

    install_ollama(&machine, "0.17.4", VARIABLES);
    until_offered(&fleet, &agent, "ollama");

    // The next agent knows it without asking: a program that fails when it is asked changes nothing before it is asked.
    agent.kill();
    agent.restart();
    until_offered(&fleet, &agent, "ollama");
    let asked = |line: &&str| line.contains("runtime ollama") && line.contains("is version");
    assert_eq!(agent.log().lines().filter(asked).count(), 1, "{}", agent.log());
}

#[test]
fn an_engine_that_cannot_be_asked_is_offered_with_a_note() {
    let fleet = Fleet::start();
    let machine = Machine::new(&[80]);
    let program = install(&machine, "vllm", "#!/bin/sh\necho cannot import torch >&2; exit 1\n");
    let agent = machine.plan(&fleet).runtime("vllm", &[program.to_str().unwrap(), "serve"]).start(&fleet);
    let row = until_offered(&fleet, &agent, "vllm");
    let note = row["engines"]["vllm"]["note"].as_str().unwrap();
    assert!(note.contains("its options are not known"), "{row}");
}

#[test]
fn a_script_of_another_name_is_not_run_to_ask_it() {
    let fleet = Fleet::start();
    let machine = Machine::new(&[80]);
    let program = install(&machine, "start-vllm", "#!/bin/sh\ntouch \"$0.was-run\"\n");
    let agent = machine.plan(&fleet).runtime("vllm", &[program.to_str().unwrap()]).start(&fleet);
    let row = until_offered(&fleet, &agent, "vllm");
    assert_eq!(row["engines"], Value::Null);
    assert!(!program.with_extension("was-run").exists());
}

#[test]
fn ollama_is_ready_when_it_has_the_model_and_not_when_it_merely_runs() {
    let fleet = Fleet::start();
    let machine = Machine::new(&[80]);
    let program = install_ollama(&machine, "0.17.4", VARIABLES);
    let agent = with_ollama(machine.plan(&fleet), &program).start(&fleet);
    until_offered(&fleet, &agent, "ollama");
    fleet.model(&Model::new("tiny:1b", 10).with("runtime", json!("ollama")));
    let lease = fleet.lease("tiny:1b");
    let slot = eventually("it has a slot", || fleet.api.workload(&lease)["slot"]["id"].as_str().map(str::to_owned));
    eventually("the program answers", || {
        let port = agent.record_of(&slot)?["port"].as_u64()?;
        std::net::TcpStream::connect(("127.0.0.1", u16::try_from(port).unwrap())).ok()
    });
    // Several looks later it is still not ready.
    fleet.until_heard_again(&agent);
    fleet.until_heard_again(&agent);
    assert_eq!(agent.life_of(&slot).as_deref(), Some("starting"));
    assert_eq!(fleet.api.workload(&lease)["state"], "assigned");

    fs::write(program.with_file_name("store").join("tiny:1b"), "").unwrap();
    assert_eq!(fleet.running(&lease).slot, slot);
}

#[test]
fn a_template_may_differ_by_the_version_of_its_engine() {
    let fleet = Fleet::start();
    let machine = Machine::new(&[80]);
    let text = r#"#!/bin/sh
case "$1" in --version) echo "version: 0.31.0 (abc)"; exit ;; --help) echo "--host --port --new-way"; exit ;; esac
echo "started with $*"; exec sleep 1000
"#;
    let program = install(&machine, "llama-server", text);
    let program = program.to_str().unwrap();
    let versions = [
        format!("[runtime.llama-server.versions.\"0.30\"]\ncommand = [{program:?}, \"--new-way\"]"),
        format!("[runtime.llama-server.versions.\"0.9\"]\ncommand = [{program:?}, \"--middle-way\"]"),
        format!("[runtime.llama-server.versions.\"0.32\"]\ncommand = [{program:?}, \"--future-way\"]"),
    ];
    let plan = machine.plan(&fleet).runtime("llama-server", &[program, "--old-way"]);
    let plan = plan.runtime_line("kind = \"job\"").runtime_line(&versions.join("\n"));
    let agent = plan.start(&fleet);
    let row = until_offered(&fleet, &agent, "llama-server");
    assert_eq!(row["engines"]["llama-server"]["version"], "0.31.0");
}

/// The engine takes long to load and ignores SIGTERM meanwhile, as vLLM's API server does.
#[test]
fn a_slot_that_is_stopped_while_it_loads_is_ended_soon_and_not_called_a_crash() {
    let fleet = Fleet::start();
    let machine = Machine::new(&[80]);
    let loads = "trap '' TERM; while :; do sleep 0.05; done";
    let plan = machine.plan(&fleet).set("stop_grace = \"1h\"").set("loading_grace = \"200ms\"");
    let agent = plan.runtime("slow", &["sh", "-c", loads]).runtime_line("ready = { path = \"/health\" }").start(&fleet);
    fleet.model(&Model::new("chat", 30).with("runtime", json!("slow")));
    let lease = fleet.lease("chat");
    let slot = eventually("it loads", || {
        let slot = fleet.api.workload(&lease)["slot"]["id"].as_str()?.to_owned();
        (agent.life_of(&slot).as_deref() == Some("starting") && !machine.living_of(&slot).is_empty()).then_some(slot)
    });
    fleet.stop_slot(&slot);
    eventually("it is gone", || machine.living_of(&slot).is_empty().then_some(()));
    fleet.until_slot(&slot, "released");
    let log = agent.log();
    let ended = log.lines().find(|line| line.contains("its process has ended") && line.contains(&slot));
    assert!(ended.is_some_and(|line| line.contains("as it was asked to")), "{log}");
    assert!(!log.contains("Crashed"), "{log}");
}

#[test]
fn what_a_slot_leaves_behind_dead_is_waited_for_at_once() {
    let fleet = Fleet::start();
    let machine = Machine::new(&[80]);
    // A child whose parent ends becomes the agent's, and ends when the file appears.
    let script =
        "(sh -c 'echo $$ > \"$1.pid\"; while [ ! -e \"$1\" ]; do sleep 0.01; done' child \"$0\" &) ; sleep 1000";
    let file = machine.directory().join("end");
    let command = ["sh", "-c", script, file.to_str().unwrap()];
    let _agent = machine.plan(&fleet).set("report_every = \"1m\"").runtime("orphans", &command).start(&fleet);
    fleet.model(&Model::new("chat", 30).with("runtime", json!("orphans")));
    let chat = fleet.run("chat");
    let child = eventually("the child runs", || {
        fs::read_to_string(machine.directory().join("end.pid")).ok()?.trim().parse::<u32>().ok()
    });
    // The agent is at rest: its next look at everything is up to ten seconds away.
    fleet.until_slot(&chat.slot, "ready");
    let begun = std::time::Instant::now();
    fs::write(&file, "").unwrap();
    eventually("the child is in the list of processes no more", || {
        (!Path::new(&format!("/proc/{child}")).exists()).then_some(())
    });
    assert!(begun.elapsed() < std::time::Duration::from_secs(3), "it stayed for {:?}", begun.elapsed());
}
