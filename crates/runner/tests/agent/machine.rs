//! A machine with one GPU and an agent, and what tests do to them.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use berth_nvml_mock::ScriptedDriver;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::doors;
use crate::server::Server;

/// Long enough for a busy machine; nothing waits that long if it works.
const PATIENCE: Duration = Duration::from_secs(30);

#[track_caller]
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "waited too long: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// An agent on a machine of its own. What it started is ended when this is dropped.
#[derive(Debug)]
pub(crate) struct Machine {
    dir: TempDir,
    driver: ScriptedDriver,
    id: String,
    server: String,
    data_dir: PathBuf,
    on_agent_exit: &'static str,
    ports: u16,
    child: Option<Child>,
}

impl Machine {
    /// A machine whose agent has not been started.
    pub(crate) fn new(server: &Server) -> Self {
        static MACHINES: AtomicU16 = AtomicU16::new(0);
        let number = MACHINES.fetch_add(1, Ordering::Relaxed);
        let dir = TempDir::new().unwrap();
        let driver = ScriptedDriver::in_directory(dir.path()).unwrap();
        let machine = Self {
            id: format!("a{}-{number}", std::process::id()),
            server: server.url(),
            data_dir: dir.path().join("data"),
            on_agent_exit: "keep",
            ports: 40_000 + number % 100 * 20,
            child: None,
            driver,
            dir,
        };
        machine.shows("");
        machine
    }

    /// An agent that has reported.
    pub(crate) fn started(server: &Server) -> Self {
        let mut machine = Self::new(server);
        machine.start();
        until("a report", || server.reports() > 0);
        machine
    }

    /// Slots die with the agent.
    pub(crate) fn killing(mut self) -> Self {
        self.on_agent_exit = "kill";
        self
    }

    /// With its record and its logs in another place.
    pub(crate) fn keeps_in(mut self, data_dir: &Path) -> Self {
        self.data_dir = data_dir.to_owned();
        self
    }

    /// What the driver shows of `GPU-a`, in more lines of its script.
    pub(crate) fn shows(&self, lines: &str) {
        let gpu = "[[gpu]]\nuuid = \"GPU-a\"\nmemory_total = \"80GiB\"\n";
        self.driver.rewrite(&format!("{gpu}{lines}\n")).unwrap();
    }

    pub(crate) fn start(&mut self) {
        assert!(self.child.is_none(), "it runs");
        let file = self.path("runner.toml");
        fs::write(&file, self.config()).unwrap();
        let log = File::options().create(true).append(true).open(self.path("agent.log")).unwrap();
        let words = doors::agent();
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).arg(file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.child = Some(command.spawn().unwrap());
    }

    fn config(&self) -> String {
        let script =
            "echo \"$BERTH_SLOT_GENERATION\" >> \"$1.ran\"; while [ ! -e \"$1\" ]; do sleep 0.02; done; exit $2";
        let command = format!("command = [\"sh\", \"-c\", {script:?}, \"sh\", \"{{args}}\"]");
        format!(
            "[agent]\nid = \"{}\"\nserver = \"{}\"\ndata_dir = \"{}\"\nports = [{}, {}]\nstop_grace = \"5s\"\n\
             report_every = \"50ms\"\non_agent_exit = \"{}\"\n\
             [inventory]\nlibrary = \"{}\"\nmachine_id = \"{}\"\ndeadline = \"500ms\"\nreopen = \"1s\"\n\
             [runtime.server]\n{command}\n[runtime.job]\n{command}\nkind = \"job\"\n\
             [runtime.both]\n{command}\nkind = \"both\"\n\
             [runtime.slow]\n{command}\nready = {{ path = \"/health\", deadline = \"1h\" }}\n\
             [runtime.listed]\n{command}\nkind = \"job\"\nallow = [\"--quick\"]\n\
             [runtime.vllm]\n{command}\nkind = \"both\"\n\
             [runtime.absent]\ncommand = [\"/nowhere/at/all\"]\n\
             kind = \"job\"\n",
            self.id,
            self.server,
            self.data_dir.display(),
            self.ports,
            self.ports + 19,
            self.on_agent_exit,
            self.driver.library().display(),
            self.id,
        )
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The path that the program of a slot waits for, and that it is told as its first argument.
    pub(crate) fn gate(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// Lets a program go on that waits at a gate.
    pub(crate) fn open(&self, gate: &str) {
        fs::write(gate, "").unwrap();
    }

    /// How often a program came to a gate.
    pub(crate) fn runs_at(&self, gate: &str) -> usize {
        fs::read_to_string(format!("{gate}.ran")).unwrap_or_default().lines().count()
    }

    /// Waits until a program has come to a gate.
    #[track_caller]
    pub(crate) fn until_runs_at(&self, gate: &str) {
        until(&format!("somebody at {gate}"), || self.runs_at(gate) > 0);
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.path("agent.log")).unwrap_or_default()
    }

    pub(crate) fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    pub(crate) fn record_file(&self, slot: &str) -> PathBuf {
        self.data_dir.join("slots").join(format!("{slot}.json"))
    }

    pub(crate) fn record_of(&self, slot: &str) -> Option<Value> {
        serde_json::from_slice(&fs::read(self.record_file(slot)).ok()?).ok()
    }

    /// Changes what is on record of a slot, while no agent runs.
    pub(crate) fn rewrite(&self, slot: &str, change: impl FnOnce(&mut Value)) {
        assert!(self.child.is_none(), "it runs");
        let mut record = self.record_of(slot).unwrap();
        change(&mut record);
        fs::write(self.record_file(slot), record.to_string()).unwrap();
    }

    /// Puts the record of a slot back to where it was before its process was noted.
    pub(crate) fn rewrite_as_planned(&self, slot: &str) {
        self.rewrite(slot, |record| {
            record["life"] = "planned".into();
            record["process"] = Value::Null;
            record["pids"] = serde_json::json!([]);
        });
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self) {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = self.child.as_ref().unwrap().id();
        kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), signal).unwrap();
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.as_mut().unwrap().try_wait().unwrap().is_none()
    }

    /// Everybody who carries the mark of a slot of this agent.
    pub(crate) fn carriers(&self, slot: &str) -> Vec<u32> {
        let marks = [format!("BERTH_RUNNER_ID={}", self.id), format!("BERTH_SLOT_ID={slot}")];
        let entries = fs::read_dir("/proc").unwrap().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        pids.filter(|pid| {
            let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            let environ = String::from_utf8_lossy(&environ);
            marks.iter().all(|mark| environ.split('\0').any(|pair| pair == mark))
        })
        .collect()
    }

    /// Ends everybody who carries the mark of a slot, by force.
    #[track_caller]
    pub(crate) fn end(&self, slot: &str) {
        until("nobody is left", || {
            let left = self.carriers(slot);
            for pid in &left {
                let _ = kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), Signal::KILL);
            }
            left.is_empty()
        });
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("== agent {}\n{}", self.id, self.log());
        }
        if self.child.is_some() {
            self.kill();
        }
        let mine = format!("BERTH_RUNNER_ID={}", self.id);
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
            let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            if String::from_utf8_lossy(&environ).split('\0').any(|pair| pair == mine) {
                let _ = kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL);
            }
        }
    }
}

/// A process that carries the mark of a slot and that no agent of the test started.
#[derive(Debug)]
pub(crate) struct Stranger(Child);

impl Stranger {
    pub(crate) fn of(machine: &Machine, slot: &str, generation: u64, kind: &str) -> Self {
        Self(Self::marked(machine, slot, generation, kind).spawn().unwrap())
    }

    /// One that runs as another user. Only root can start it.
    pub(crate) fn of_user(uid: u32, machine: &Machine, slot: &str, generation: u64, kind: &str) -> Self {
        Self(Self::marked(machine, slot, generation, kind).uid(uid).gid(uid).spawn().unwrap())
    }

    fn marked(machine: &Machine, slot: &str, generation: u64, kind: &str) -> Command {
        let mut command = Command::new("sleep");
        command.arg("600").stdin(Stdio::null());
        command.env("BERTH_RUNNER_ID", machine.id()).env("BERTH_SLOT_ID", slot);
        command.env("BERTH_SLOT_GENERATION", generation.to_string()).env("BERTH_SLOT_KIND", kind);
        command
    }

    /// One that shows nothing of where it comes from.
    pub(crate) fn without_environment() -> Self {
        let mut command = Command::new("sleep");
        let stranger = Self(command.arg("600").env_clear().stdin(Stdio::null()).spawn().unwrap());
        let environ = format!("/proc/{}/environ", stranger.pid());
        until("it has no environment", || fs::read(&environ).unwrap().is_empty());
        stranger
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Whether it still lives.
    pub(crate) fn is_alive(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
