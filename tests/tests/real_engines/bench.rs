//! A machine with one real engine on it, and what the stages do with them.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use berth_tests::fleet::{Agent, Fleet, Machine, Model, Running};
use berth_tests::service::within;
use serde_json::{Value, json};

use crate::trees::{self, TreeWatch};

/// What is different from engine to engine.
pub(crate) struct RealEngine {
    /// The name of its built-in runtime.
    pub(crate) name: &'static str,
    /// Its program, under the name that the template has.
    pub(crate) program: PathBuf,
    /// Where the models are.
    pub(crate) models: PathBuf,
    /// How many GPUs the machine has, all of which a slot takes.
    pub(crate) gpus: usize,
    /// The arguments of both model entries.
    pub(crate) args: Vec<String>,
    /// What it needs on a machine without GPUs.
    pub(crate) env: &'static [(&'static str, &'static str)],
    /// It is killed while it starts once it has so many processes.
    pub(crate) processes_while_loading: usize,
    /// How long a start of it may take.
    pub(crate) patience: Duration,
}

/// The engine, in a fleet.
pub(crate) struct Bench {
    pub(crate) engine: RealEngine,
    pub(crate) fleet: Fleet,
    pub(crate) machine: Machine,
    pub(crate) agent: Agent,
    pub(crate) trees: TreeWatch,
}

/// GiB of a GPU, and what each of the two models takes of it: there is room for one.
const GPU: u64 = 16;
const MODEL: u64 = 9;

impl Bench {
    /// The built-in template as it is; the agent finds the engine's program by its name.
    pub(crate) fn set(engine: RealEngine) -> Self {
        let settings = ["scheduler.attempts=50", "scheduler.backoff=20ms", "scheduler.backoff_limit=20ms"];
        let fleet = Fleet::with(&settings);
        let machine = Machine::new(&vec![GPU; engine.gpus]);
        let trees = TreeWatch::of(&machine);
        let mut path = engine.program.parent().unwrap().as_os_str().to_owned();
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap());
        let mut wrapper = vec!["env".to_owned(), format!("PATH={}", path.to_str().unwrap())];
        wrapper.push(format!("OLLAMA_MODELS={}", engine.models.join("ollama").display()));
        wrapper.extend(engine.env.iter().map(|(name, value)| format!("{name}={value}")));
        let wrapper: Vec<&str> = wrapper.iter().map(String::as_str).collect();
        let passed: Vec<&str> = engine.env.iter().map(|(name, _)| *name).collect();
        let plan = machine.plan(&fleet).through(&wrapper).set(&format!("model_dirs = [{:?}]", engine.models));
        // Longer than a test waits: whatever ends before is not ended by the clock.
        let plan = plan.builtin(engine.name).runtime_line("stop_grace = \"10m\"");
        let plan = plan.runtime_line(&format!("env_pass = {passed:?}\ndir = {:?}", engine.models));
        let agent = plan.start(&fleet);
        let bench = Self { engine, fleet, machine, agent, trees };
        for name in ["first", "second"] {
            let args: Vec<&str> = bench.engine.args.iter().map(String::as_str).collect();
            let gpus = bench.engine.gpus;
            let model = Model::new(name, MODEL * gpus as u64).with("gpu_counts", json!([gpus]));
            let model = model.args(&args).with("runtime", json!(bench.engine.name));
            bench.fleet.model(&model.with("min_run", json!("0s")));
        }
        bench
    }

    /// Looks until there is an answer, as long as this engine may take.
    #[track_caller]
    pub(crate) fn wait<T>(&self, what: &str, look: impl FnMut() -> Option<T>) -> T {
        let patience = self.engine.patience;
        within(patience, look).unwrap_or_else(|| panic!("{}: not within {patience:?}: {what}", self.engine.name))
    }

    /// Waits until a lease runs. The driver lists its processes from then on.
    #[track_caller]
    pub(crate) fn running(&self, lease: &str) -> Running {
        self.wait(&format!("lease {lease} runs"), || {
            let row = self.fleet.api.workload(lease);
            assert_ne!(row["state"], "failed", "{row:#}");
            (row["state"] == "running").then_some(())
        });
        let running = self.fleet.running(lease);
        for pid in self.pids(&running.slot) {
            for uuid in (0..self.engine.gpus).map(|index| self.machine.uuid(index)) {
                fs::write(self.machine.claims().join(format!("{pid}.{uuid}")), "1048576").unwrap();
            }
        }
        running
    }

    /// The living processes of a slot.
    pub(crate) fn pids(&self, slot: &str) -> Vec<u32> {
        self.trees.pids(slot)
    }

    /// The process that the agent started for a slot, once it is on record.
    #[track_caller]
    pub(crate) fn main_pid(&self, slot: &str) -> u32 {
        let pid =
            self.wait("the agent has a process on record", || self.agent.record_of(slot)?["process"]["pid"].as_u64());
        u32::try_from(pid).unwrap()
    }

    /// Waits until a slot is on its way to be ready, with all the processes that the engine has by then.
    #[track_caller]
    pub(crate) fn loading(&self, lease: &str) -> String {
        self.wait("it loads", || {
            let slot = self.fleet.api.workload(lease)["slot"]["id"].as_str()?.to_owned();
            let has_all = self.pids(&slot).len() >= self.engine.processes_while_loading;
            (has_all && self.agent.record_of(&slot)?["process"]["pid"].is_u64()).then_some(slot)
        })
    }

    /// Waits until the server has taken in two more reports of the agent, begun after this call.
    #[track_caller]
    pub(crate) fn heard_again(&self) {
        let path = format!("/api/v1/runners/{}/status", self.agent.id());
        let sequence = || self.fleet.api.get(&path).body["sequence"].as_u64();
        let before = self.wait("a report", sequence);
        self.wait("two more reports", || (sequence()? > before + 1).then_some(()));
    }

    /// Waits until a slot is released: then none of these processes is left.
    #[track_caller]
    pub(crate) fn released(&self, slot: &str, pids: &[u32]) {
        self.wait(&format!("slot {slot} is released"), || (self.fleet.slot_state(slot) == "released").then_some(()));
        self.is_gone(slot, pids);
    }

    /// Nothing of a slot is left.
    #[track_caller]
    pub(crate) fn is_gone(&self, slot: &str, pids: &[u32]) {
        assert!(!pids.is_empty(), "there was something to end");
        assert_eq!(self.pids(slot), Vec::<u32>::new(), "processes of the slot live on");
        let left: Vec<&u32> = pids.iter().filter(|pid| trees::is_alive(**pid)).collect();
        assert!(left.is_empty(), "{left:?} of {pids:?} live on");
    }

    /// Asks a model for eight tokens through the endpoint of its slot.
    #[track_caller]
    pub(crate) fn completes(&self, running: &Running, model: &str) {
        let endpoint = self.fleet.slot(&running.slot).unwrap()["endpoint"].as_str().unwrap().to_owned();
        let messages = json!([{ "role": "user", "content": "hello" }]);
        let body = json!({ "model": model, "messages": messages, "max_tokens": 8, "ignore_eos": true }).to_string();
        let url = format!("{endpoint}/v1/chat/completions");
        let asked = ["-sS", "--max-time", "120", "-H", "content-type: application/json", "-d", &body, &url];
        let answer = Command::new("curl").args(asked).output().unwrap();
        let answer: Value = serde_json::from_slice(&answer.stdout).unwrap_or_else(|_| panic!("{answer:?}"));
        assert_eq!(answer["object"], "chat.completion", "{answer:#}");
        let tokens = answer["usage"]["completion_tokens"].as_u64().unwrap_or_else(|| panic!("{answer:#}"));
        assert!((1..=8).contains(&tokens), "{answer:#}");
    }

    /// What slots hold of the first GPU, in GiB.
    pub(crate) fn held(&self) -> u64 {
        self.fleet.charge(&self.machine.uuid(0)).used()
    }
}
