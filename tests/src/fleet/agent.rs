//! A real agent: one `berth runner` process, over and over.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::processes::HOME;
use super::{Fleet, Machine, engine};
use crate::service::{PATIENCE, berth, eventually, within};

/// How an agent is to be started.
#[derive(Clone, Debug)]
pub struct Plan {
    machine: Machine,
    id: String,
    server: String,
    machine_id: String,
    agent: Vec<String>,
    inventory: Vec<String>,
    live: bool,
    runtimes: String,
    wrapper: Vec<String>,
    home: PathBuf,
    ports: (u16, u16),
}

impl Plan {
    pub(super) fn new(machine: Machine, fleet: &Fleet, id: &str) -> Self {
        let home = machine.directory().join(id);
        fs::create_dir_all(&home).unwrap();
        Self {
            server: fleet.api.base(),
            machine_id: machine.name().to_owned(),
            machine,
            id: id.to_owned(),
            agent: Vec::new(),
            inventory: Vec::new(),
            live: false,
            runtimes: String::new(),
            wrapper: Vec::new(),
            home,
            ports: ports(),
        }
    }

    /// With a line of its own in `[agent]`; later lines replace earlier ones of the same name.
    #[must_use]
    pub fn set(mut self, line: &str) -> Self {
        self.agent.push(line.to_owned());
        self
    }

    /// With a line of its own in `[inventory]`.
    #[must_use]
    pub fn see(mut self, line: &str) -> Self {
        self.inventory.push(line.to_owned());
        self
    }

    /// Its id in the fleet.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.id
    }

    /// Under this id.
    #[must_use]
    pub fn id(self, id: &str) -> Self {
        Self { id: id.to_owned(), ..self }
    }

    /// As if on a machine of this id.
    #[must_use]
    pub fn machine_id(self, id: &str) -> Self {
        Self { machine_id: id.to_owned(), ..self }
    }

    /// Asks another address for the server.
    #[must_use]
    pub fn server(self, url: &str) -> Self {
        Self { server: url.to_owned(), ..self }
    }

    /// Engines are asked again and again whether they still serve.
    #[must_use]
    pub fn watching(self) -> Self {
        Self { live: true, ..self }
    }

    /// With one more runtime: its name, and its command as words.
    #[must_use]
    pub fn runtime(mut self, name: &str, command: &[&str]) -> Self {
        let env = format!("env = {{ {HOME} = \"{}\" }}", self.machine.directory().display());
        self.runtimes += &format!("[runtime.{name}]\ncommand = {command:?}\n{env}\n");
        self
    }

    /// With a built-in runtime, whose program the agent finds by its name.
    #[must_use]
    pub fn builtin(mut self, name: &str) -> Self {
        let env = format!("env = {{ {HOME} = \"{}\" }}", self.machine.directory().display());
        self.runtimes += &format!("[runtime.{name}]\n{env}\n");
        self
    }

    /// With a line of its own in the runtime that was added last.
    #[must_use]
    pub fn runtime_line(mut self, line: &str) -> Self {
        assert!(!self.runtimes.is_empty(), "no runtime was added");
        self.runtimes += &format!("{line}\n");
        self
    }

    /// Through a program that ends by becoming the agent (`exec`), so that the pid stays.
    #[must_use]
    pub fn through(self, wrapper: &[&str]) -> Self {
        Self { wrapper: wrapper.iter().map(|&word| word.to_owned()).collect(), ..self }
    }

    /// In another boot of the machine.
    #[must_use]
    pub fn booted(self, boot: &str) -> Self {
        let file = self.home.join("boot_id");
        fs::write(&file, format!("{boot}\n")).unwrap();
        let script = "mount --bind \"$0\" /proc/sys/kernel/random/boot_id && exec \"$@\"";
        let file = file.display().to_string();
        self.through(&["unshare", "--mount", "sh", "-c", script, &file])
    }

    /// Starts it, and waits until the server has heard of it.
    #[must_use]
    pub fn start(self, fleet: &Fleet) -> Agent {
        let agent = self.launch();
        agent.is_heard(fleet);
        agent
    }

    /// Starts it, whatever becomes of it.
    #[must_use]
    pub fn launch(self) -> Agent {
        let mut agent = Agent { plan: self, child: None };
        agent.restart();
        agent
    }

    fn file(&self) -> PathBuf {
        self.home.join("runner.toml")
    }

    fn log(&self) -> PathBuf {
        self.home.join("agent.log")
    }

    fn text(&self) -> String {
        let Self { id, server, machine_id, machine, home, .. } = self;
        let (first, last) = self.ports;
        let usual = [
            format!("id = \"{id}\""),
            format!("server = \"{server}\""),
            format!("data_dir = \"{}\"", home.join("data").display()),
            format!("ports = [{first}, {last}]"),
            "stop_grace = \"300ms\"".to_owned(),
            "report_every = \"200ms\"".to_owned(),
        ];
        let inventory = [
            format!("library = \"{}\"", machine.library().display()),
            format!("machine_id = \"{machine_id}\""),
            "deadline = \"2s\"".to_owned(),
            "reopen = \"1s\"".to_owned(),
        ];
        let command = format!(
            "command = [\"{}\", \"--port\", \"{{port}}\", \"--memory\", \"{{memory_bytes}}\", \"--claims\", \"{}\", \
             \"--diary\", \"{}\", \"{{args}}\"]",
            engine().display(),
            machine.claims().display(),
            machine.diary_file().display(),
        );
        let env = format!("env = {{ {HOME} = \"{}\" }}", machine.directory().display());
        let live = if self.live { "live = { path = \"/health\", every = \"100ms\", failures = 3 }\n" } else { "" };
        let garbage = home.join("no-program");
        format!(
            "[agent]\n{}\n[inventory]\n{}\n\
             [runtime.engine]\n{command}\n{env}\nendpoint = \"http://{{address}}:{{port}}\"\n\
             ready = {{ path = \"/health\", every = \"50ms\", deadline = \"1500ms\" }}\n{live}\
             [runtime.job]\n{command}\n{env}\nkind = \"job\"\nallow = [\"*\"]\n\
             [runtime.broken]\ncommand = [\"{}\"]\n{env}\n{}",
            merged(&usual, &self.agent),
            merged(&inventory, &self.inventory),
            garbage.display(),
            self.runtimes,
        )
    }
}

/// Lines `name = value`, the last of a name.
fn merged(usual: &[String], more: &[String]) -> String {
    let name = |line: &str| line.split('=').next().unwrap_or_default().trim().to_owned();
    let is_last = |at: usize, line: &str, all: &[&String]| !all[at + 1..].iter().any(|other| name(other) == name(line));
    let all: Vec<&String> = usual.iter().chain(more).collect();
    let kept: Vec<&str> =
        all.iter().enumerate().filter(|(at, line)| is_last(*at, line, &all)).map(|(_, line)| line.as_str()).collect();
    kept.join("\n")
}

/// Ports that no other agent of this run is given.
fn ports() -> (u16, u16) {
    const EACH: u16 = 24;
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = 10_000 + NEXT.fetch_add(1, Ordering::Relaxed) % 800 * EACH;
    (first, first + EACH - 1)
}

/// The name of a life; a start that is not ready yet is told from one that is.
fn life(record: &Value) -> Option<String> {
    let life = &record["life"];
    let name = life.as_str().or_else(|| life.as_object()?.keys().next().map(String::as_str))?;
    Some(match (name, life["started"]["ready"].as_bool()) {
        ("started", Some(true)) => "ready".to_owned(),
        ("started", _) => "starting".to_owned(),
        (name, _) => name.to_owned(),
    })
}

/// An agent that runs, or ran. It is killed when this is dropped; its slots are ended with their machine.
#[derive(Debug)]
pub struct Agent {
    plan: Plan,
    child: Option<Child>,
}

impl Drop for Agent {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("== agent {}\n{}", self.plan.id, self.log());
        }
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Agent {
    /// Its id in the fleet.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.plan.id
    }

    /// How it was started, to start it again in another way.
    #[must_use]
    pub fn plan(&self) -> Plan {
        self.plan.clone()
    }

    /// Its own record and logs.
    #[must_use]
    pub fn data_dir(&self) -> PathBuf {
        self.plan.home.join("data")
    }

    /// Everything that it ever said.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.plan.log()).unwrap_or_default()
    }

    /// What it has on record of a slot.
    #[must_use]
    pub fn record_of(&self, slot: &str) -> Option<Value> {
        let text = fs::read_to_string(self.data_dir().join("slots").join(format!("{slot}.json"))).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// Where a slot is in its life, as the agent has it on record: `planned`, `starting`, `ready`, `ending` ...
    #[must_use]
    pub fn life_of(&self, slot: &str) -> Option<String> {
        life(&self.record_of(slot)?)
    }

    /// Every slot on record and where it is in its life.
    #[must_use]
    pub fn lives(&self) -> Vec<(String, String)> {
        let entries = fs::read_dir(self.data_dir().join("slots")).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().to_str()?.strip_suffix(".json").map(str::to_owned));
        names.filter_map(|slot| Some((slot.clone(), self.life_of(&slot)?))).collect()
    }

    /// Puts its record back to where it was before it noted that it started anything: as if it had died right then.
    pub fn rewrite_as_planned(&self) {
        for (slot, life) in self.lives() {
            assert!(["starting", "ready"].contains(&life.as_str()), "{slot} is {life}");
            let mut record = self.record_of(&slot).unwrap();
            record["life"] = "planned".into();
            record["process"] = Value::Null;
            record["pids"] = Value::Array(Vec::new());
            let path = self.data_dir().join("slots").join(format!("{slot}.json"));
            fs::write(path, record.to_string()).unwrap();
        }
    }

    /// Waits until the server has heard of this start of it.
    pub fn is_heard(&self, fleet: &Fleet) {
        eventually(&format!("{} registers: {}", self.plan.id, self.log()), || {
            let runner = fleet.api.get(&format!("/api/v1/runners/{}", self.plan.id));
            (runner.status == 200 && runner.body["reported"] == true && runner.body["state"] == "ready").then_some(())
        });
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        let mut child = self.child.take().expect("it runs");
        child.kill().expect("it can be killed");
        child.wait().expect("it ends");
    }

    /// SIGTERM, and how it ended.
    pub fn terminate(&mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.ended()
    }

    /// How it ended; waits for the end.
    pub fn ended(&mut self) -> ExitStatus {
        let mut child = self.child.take().expect("it was started");
        let ended = within(PATIENCE, || child.try_wait().expect("a child of ours"));
        ended.unwrap_or_else(|| {
            self.child = Some(child);
            panic!("the agent runs on")
        })
    }

    /// Whether it runs.
    pub fn runs(&mut self) -> bool {
        self.child.as_mut().is_some_and(|child| child.try_wait().expect("a child of ours").is_none())
    }

    /// It does nothing more, hears nothing and says nothing, but is not gone.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// It goes on.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        let child = self.child.as_ref().expect("it runs");
        kill_process(Pid::from_raw(child.id().cast_signed()).expect("a pid"), signal).expect("a signal can be sent");
    }

    /// Starts it again, as it was.
    pub fn restart(&mut self) {
        let plan = self.plan.clone();
        self.restart_as(plan);
    }

    /// Starts it again in another way.
    pub fn restart_as(&mut self, plan: Plan) {
        assert!(!self.runs(), "it still runs");
        fs::write(plan.file(), plan.text()).unwrap();
        let garbage = plan.home.join("no-program");
        fs::write(&garbage, [0x7f, b'E', b'L', b'F', 0, 0, 0, 0]).unwrap();
        fs::set_permissions(&garbage, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let log = File::options().create(true).append(true).open(plan.log()).unwrap();
        let words: Vec<String> = plan.wrapper.iter().cloned().chain([berth().display().to_string()]).collect();
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).args(["runner", "--log", "debug", "--config"]).arg(plan.file());
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("BERTH_")) {
            command.env_remove(name);
        }
        command.env_remove("RUST_LOG").stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.child = Some(command.spawn().expect("berth can be run"));
        self.plan = plan;
    }
}
