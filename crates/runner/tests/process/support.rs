//! An agent's hands, for tests: starts real programs through the real path, from a runtime's template to a process.
//!
//! The trampoline is this very test program, entered through an ignored test ([`trampoline_door`]).

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use berth_domain::{
    Arg, Bytes, Generation, Millicores, ModelName, RunSpec, RunnerId, RuntimeName, SlotId, WorkloadKind,
};
use berth_runner::process::{
    Depth, LogDir, LogLimits, MarkTrust, Process, ProcessId, ProcessTable, SlotLog, SlotMark, SlotSecret, SpawnOptions,
    Spawner, StartedAs, Tree, trampoline,
};
use berth_runner::runtime::{Launch, LaunchContext, Runtime, RuntimeConfig, StartRequest, UserId, render};

/// Long enough for a busy machine; nothing waits that long if it works.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

#[test]
#[ignore = "a door for the trampoline, opened by other tests"]
fn trampoline_door() {
    let args: Vec<OsString> = std::env::args_os().skip_while(|arg| arg != "--").skip(1).collect();
    if !args.is_empty() {
        trampoline(args)
    }
}

/// What makes this program call the trampoline.
pub(crate) fn door() -> Vec<OsString> {
    let program = std::env::current_exe().unwrap().into_os_string();
    let words = ["--exact", "support::trampoline_door", "--ignored", "--nocapture", "--test-threads=1", "--"];
    [program].into_iter().chain(words.map(Into::into)).collect()
}

pub(crate) fn through_the_door() -> SpawnOptions {
    SpawnOptions { trampoline: Some(door()), ..SpawnOptions::default() }
}

pub(crate) struct Agent {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) runner: RunnerId,
    pub(crate) logs: LogDir,
    pub(crate) spawner: Spawner,
}

/// One slot that was started.
pub(crate) struct Started {
    pub(crate) launch: Launch,
    pub(crate) process: Process,
    pub(crate) log: SlotLog,
    pub(crate) mark: SlotMark,
}

impl Agent {
    pub(crate) fn new(options: SpawnOptions) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let logs = LogDir::open(&dir.path().join("logs"), LogLimits::default()).unwrap();
        let spawner = Spawner::start(options).unwrap();
        Self { dir, runner: RunnerId::new(format!("test-{}", std::process::id())).unwrap(), logs, spawner }
    }

    /// With a session for each slot.
    pub(crate) fn with_sessions() -> Self {
        Self::new(through_the_door())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn start(&self, command: &[&str], args: &[&str]) -> Started {
        self.start_launch(self.launch(&RuntimeConfig::default(), command, args))
    }

    pub(crate) fn sh(&self, script: &str, args: &[&str]) -> Started {
        self.start(&["sh", "-c", script, "sh", "{args}"], args)
    }

    pub(crate) fn python(&self, script: &str, args: &[&str]) -> Started {
        self.start(&["python3", "-c", script, "{args}"], args)
    }

    pub(crate) fn start_launch(&self, launch: Launch) -> Started {
        let log = self.logs.slot(launch.slot, launch.generation).unwrap();
        let process = self.spawner.spawn(&launch, &log).unwrap();
        let mark = SlotMark { runner: self.runner.clone(), slot: launch.slot, generation: launch.generation };
        Started { launch, process, log, mark }
    }

    pub(crate) fn launch(&self, config: &RuntimeConfig, command: &[&str], args: &[&str]) -> Launch {
        self.launch_at(config, command, args, 1)
    }

    pub(crate) fn launch_at(&self, config: &RuntimeConfig, command: &[&str], args: &[&str], port: u16) -> Launch {
        let name = RuntimeName::new("test").unwrap();
        let braces = |text: &&str| {
            if text.starts_with('{') { (*text).to_owned() } else { text.replace('{', "{{").replace('}', "}}") }
        };
        let command = Some(command.iter().map(braces).collect());
        let runtime = Runtime::new(&name, &RuntimeConfig { command, ..config.clone() }).unwrap();
        let spec = RunSpec {
            model: ModelName::new("some model").unwrap(),
            runtime: name,
            kind: WorkloadKind::Lease,
            model_args: args.len(),
            args: args.iter().map(|arg| Arg::new(arg).unwrap()).collect(),
            cpu_millicores: Millicores::ZERO,
            ram_bytes: Bytes::ZERO,
            concurrency: 1,
        };
        let secret = SlotSecret::random().unwrap();
        let (slot, generation) = (new_slot(), Generation::new(1));
        let request = StartRequest { slot, generation, gpus: &[], spec: &spec, secret: Some(&secret) };
        let environment = std::env::vars_os().collect();
        let around = LaunchContext {
            runner: &self.runner,
            address: "127.0.0.1",
            bind: IpAddr::V4(Ipv4Addr::LOCALHOST),
            port,
            totals: &BTreeMap::new(),
            environment: &environment,
        };
        render(&runtime, request, &around).unwrap()
    }

    /// All that carry the mark of any slot of this test program.
    pub(crate) fn find_marked_processes(&self, mark: &SlotMark) -> Vec<ProcessId> {
        let table = ProcessTable::read().unwrap();
        berth_runner::process::find_marked_processes(&table, &self.runner, &own_user())
            .unwrap()
            .remove(mark)
            .unwrap_or_default()
    }
}

/// The only user that a test's slots run as, unless it says otherwise.
pub(crate) fn own_user() -> BTreeSet<UserId> {
    [UserId::own()].into()
}

impl Started {
    /// By what its processes are known.
    pub(crate) fn trust(&self) -> MarkTrust {
        let secret = self.launch.env[OsStr::new("BERTH_SLOT_SECRET")].to_str().unwrap();
        let secret = serde_json::from_value(secret.into()).unwrap();
        let user = self.launch.user.as_ref().map_or_else(UserId::own, |user| user.uid);
        MarkTrust::Start(StartedAs { user, secret })
    }

    /// A tree that knows no more than what is on record.
    pub(crate) fn tree(&self) -> Tree {
        Tree::new(self.mark.clone(), self.trust(), Some(self.process.id().clone()), None)
    }

    /// Waits until the program has written this.
    pub(crate) fn says(&self, words: &str) -> String {
        let text = || String::from_utf8_lossy(&self.log.tail(usize::MAX).unwrap()).into_owned();
        until(&format!("{words:?} in the log"), || text().contains(words));
        text()
    }

    /// The number behind a word in the log.
    pub(crate) fn number(&self, word: &str) -> u32 {
        let after = |text: String| {
            let rest = text.split_once(&format!("{word} "))?.1.to_owned();
            rest.split_once('\n')?.0.trim().parse().ok()
        };
        until(&format!("{word} and a number"), || after(self.says(word)).is_some());
        after(self.says(word)).unwrap()
    }

    pub(crate) fn exit(&self) -> berth_runner::process::Exit {
        until("the end of the first process", || self.process.poll_exit().is_some());
        self.process.poll_exit().unwrap()
    }
}

/// A test that fails leaves no process behind.
impl Drop for Started {
    fn drop(&mut self) {
        let mut tree = self.tree();
        for _ in 0..20 {
            match ProcessTable::read().and_then(|table| tree.look(&table, Depth::Thorough)) {
                Ok(left) if left.is_empty() => return,
                _ => tree.kill(),
            }
        }
    }
}

pub(crate) fn look(tree: &mut Tree) -> Vec<u32> {
    let found = tree.look(&ProcessTable::read().unwrap(), Depth::Thorough).unwrap();
    found.iter().map(|process| process.pid).collect()
}

/// Ends a tree as the agent does: asks once, then forces at every look until no process is left.
pub(crate) fn stop(mut tree: Tree, grace_ms: u64) {
    let begun = Instant::now();
    let mut left = look(&mut tree);
    tree.term();
    while !left.is_empty() {
        assert!(begun.elapsed() < PATIENCE, "{left:?} cannot be ended");
        if begun.elapsed() >= Duration::from_millis(grace_ms) {
            tree.kill();
        }
        std::thread::sleep(Duration::from_millis(20));
        left = look(&mut tree);
    }
}

pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "waited too long for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn is_alive(pid: u32) -> bool {
    ProcessId::of(pid).unwrap().is_some_and(|process| process.is_alive().unwrap())
}

pub(crate) fn read_when_there(path: &Path) -> String {
    until(&format!("{}", path.display()), || std::fs::read_to_string(path).is_ok_and(|text| text.ends_with('\n')));
    std::fs::read_to_string(path).unwrap()
}

/// A slot id that no other test uses, in this program or in one beside it.
pub(crate) fn new_slot() -> SlotId {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let started = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos();
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    SlotId::new(uuid::Uuid::from_u128((started << 48) ^ (u128::from(std::process::id()) << 16) ^ u128::from(number)))
}
