//! How machines become part of a fleet with tokens, by real agents; and the page of the manual about it.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use berth_tests::service::{Api, Options, Server, berth, eventually};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A server with an admin's token.
fn guarded(settings: &[&str]) -> (Server, Api) {
    let server = Options::default().set(settings).start();
    let admin = server.api().with_token(&server.api().token("ops", "admin", None));
    (server, admin)
}

/// A join token as the body says.
fn join_token(admin: &Api, mut body: Value) -> String {
    body["role"] = json!("join");
    if body["name"].is_null() {
        body["name"] = json!("join");
    }
    admin.token_with(&body)
}

/// A machine on which `berth runner --join` is run.
struct Box {
    directory: TempDir,
    id: String,
}

impl Box {
    fn new(server: &Server, id: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().join("data");
        let text = format!(
            "[agent]\nid = '{id}'\nserver = '{}'\ndata_dir = '{}'\nreport_every = '200ms'\non_agent_exit = 'kill'\n\
             [inventory]\nmachine_id = 'machine-of-{id}'\n\
             [[inventory.simulated]]\nuuid = 'GPU-{id}'\nname = 'H100'\nmemory = '80GiB'\n",
            server.api().base(),
            data.display()
        );
        std::fs::write(directory.path().join("runner.toml"), text).unwrap();
        Self { directory, id: id.to_owned() }
    }

    fn command(&self, join: Option<&str>) -> Command {
        let mut command = Command::new(berth());
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("BERTH_")) {
            command.env_remove(name);
        }
        command.args(["runner", "--config"]).arg(self.directory.path().join("runner.toml"));
        command.args(join.into_iter().flat_map(|token| ["--join", token])).stdin(Stdio::null());
        command
    }

    /// Starts the agent, which ends when this is dropped.
    fn start(&self, join: Option<&str>) -> Running {
        let log = std::fs::File::create(self.directory.path().join("log")).unwrap();
        Running(self.command(join).stdout(Stdio::null()).stderr(log).spawn().unwrap())
    }

    /// Runs the agent to its end.
    fn run(&self, join: Option<&str>) -> Output {
        self.command(join).output().unwrap()
    }

    fn membership(&self) -> PathBuf {
        self.directory.path().join("data/membership.json")
    }

    fn secret(&self) -> String {
        let text = std::fs::read_to_string(self.membership()).unwrap();
        let stored: Value = serde_json::from_str(&text).unwrap();
        stored["token"]["secret"].as_str().unwrap_or_default().to_owned()
    }

    fn is_heard(&self, admin: &Api) -> Value {
        eventually(&format!("{} is part of the fleet: {}", self.id, self.log()), || {
            let reply = admin.get(&format!("/api/v1/runners/{}", self.id));
            (reply.status == 200 && reply.body["state"] == "ready").then_some(reply.body)
        })
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }
}

struct Running(std::process::Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn an_agent_joins_once_and_needs_its_own_token_only_from_then_on() {
    let (server, admin) = guarded(&[]);
    let grant = json!({ "pool": "big", "labels": { "zone": "a" } });
    let join = join_token(&admin, json!({ "grant": grant }));
    let machine = Box::new(&server, "box-1");
    {
        let _agent = machine.start(Some(&join));
        let shown = machine.is_heard(&admin);
        assert_eq!((&shown["pool"], &shown["labels"]["zone"]), (&json!("big"), &json!("a")));
    }
    assert_eq!((mode(&machine.membership()), mode(machine.membership().parent().unwrap())), (0o600, 0o700));
    let secret = machine.secret();
    let incarnation = admin.get("/api/v1/runners/box-1").is(200).body["incarnation"].as_u64();
    {
        // With the old join token on its command line, or without one: it is a member already.
        let _agent = machine.start(Some(&join));
        let later = || admin.get("/api/v1/runners/box-1").is(200).body["incarnation"].as_u64();
        eventually("the next start of the agent", || (later() > incarnation).then_some(()));
    }
    assert_eq!(machine.secret(), secret);
    let role = |secret: &str| server.api().with_token(secret).get("/api/v1/runners").status;
    assert_eq!(role(&secret), 403, "a runner's token reads nothing of the fleet");
    assert_eq!(role(&join), 403, "nor does a join token");

    // The token is used up, and an id that is taken stays taken.
    let other = Box::new(&server, "box-2").run(Some(&join));
    let said = String::from_utf8_lossy(&other.stderr).into_owned();
    assert!(!other.status.success() && said.contains("used up"), "{said}");
    let impostor = Box::new(&server, "box-1").run(Some(&join_token(&admin, json!({ "name": "another" }))));
    let said = String::from_utf8_lossy(&impostor.stderr).into_owned();
    assert!(!impostor.status.success() && said.contains("--runner box-1"), "{said}");
    assert!(
        server.api().with_token(&secret).get("/api/v1/runners").status == 403,
        "the member's token is as good as before"
    );
}

#[test]
fn a_join_token_expires() {
    let (server, admin) = guarded(&[]);
    let join = join_token(&admin, json!({ "expires_in": "1ms" }));
    let late = Box::new(&server, "late").run(Some(&join));
    let said = String::from_utf8_lossy(&late.stderr).into_owned();
    assert!(!late.status.success() && said.contains("expired") && said.contains("berth join-token create"), "{said}");
    assert_eq!(admin.get("/api/v1/runners/late").status, 404);
}

#[test]
fn a_machine_that_lost_its_token_joins_again_with_a_join_token_of_its_own() {
    let (server, admin) = guarded(&[]);
    let machine = Box::new(&server, "box-1");
    {
        let _agent = machine.start(Some(&join_token(&admin, json!({}))));
        machine.is_heard(&admin);
    }
    let old = machine.secret();
    std::fs::remove_file(machine.membership()).unwrap();
    let join = join_token(&admin, json!({ "name": "again", "runner_id": "box-1" }));
    let incarnation = admin.get("/api/v1/runners/box-1").is(200).body["incarnation"].as_u64();
    let _agent = machine.start(Some(&join));
    let later = || admin.get("/api/v1/runners/box-1").is(200).body["incarnation"].as_u64();
    eventually("the machine is back", || (later() > incarnation).then_some(()));
    assert_eq!(server.api().with_token(&old).get("/healthz").status, 401, "its old token is worth nothing");
}

#[test]
fn an_agent_rotates_its_token_before_it_expires() {
    let (server, admin) = guarded(&["tokens.runner_lifetime=3s"]);
    let machine = Box::new(&server, "box-1");
    let mut agent = machine.start(Some(&join_token(&admin, json!({}))));
    machine.is_heard(&admin);
    let first = machine.secret();
    let mut seen = vec![first.clone()];
    while seen.len() < 4 {
        let newest = seen.last().unwrap().clone();
        seen.push(eventually(&format!("another secret: {}", machine.log()), || {
            Some(machine.secret()).filter(|secret| *secret != newest && !secret.is_empty())
        }));
    }
    assert_eq!(server.api().with_token(&first).get("/healthz").status, 401);
    assert!(agent.0.try_wait().unwrap().is_none(), "the agent goes on: {}", machine.log());
    machine.is_heard(&admin);
    let heard = |body: &Value| body["last_seen"].as_str().unwrap().to_owned();
    let before = heard(&machine.is_heard(&admin));
    eventually("it reports with its newest token", || (heard(&machine.is_heard(&admin)) != before).then_some(()));
}

/// Every `sh` block of a section of the manual, in order.
fn shell_blocks(section: &str) -> String {
    let manual = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/OPERATIONS.md")).unwrap();
    let (_, rest) = manual.split_once(&format!("\n{section}\n")).unwrap();
    let section = rest.split("\n## ").next().unwrap();
    let blocks = section.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    blocks.collect::<Vec<_>>().concat()
}

/// Ends every process of a group.
struct Group(u32);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = rustix::process::Pid::from_raw(self.0.cast_signed()) {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::TERM);
        }
    }
}

#[test]
fn the_page_about_a_fleet_with_tls_works_as_it_stands() {
    let here = tempfile::tempdir().unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    for directory in ["etc/berth", "var/lib"] {
        std::fs::create_dir_all(here.path().join(directory)).unwrap();
    }
    // Other directories, another port, and nothing that outlives the test; the commands are the manual's.
    let script = shell_blocks("## A fleet with TLS")
        .replace("/etc/berth", &here.path().join("etc/berth").display().to_string())
        .replace("/var/lib", &here.path().join("var/lib").display().to_string())
        .replace("8443", &port.to_string())
        .replace("[agent]\n", "[agent]\non_agent_exit = \"kill\"\n");
    let path = format!("{}:{}", berth().parent().unwrap().display(), std::env::var("PATH").unwrap());
    let output = here.path().join("output");
    let file = std::fs::File::create(&output).unwrap();
    let mut command = Command::new("sh");
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("BERTH_")) {
        command.env_remove(name);
    }
    let mut shell = command
        .args(["-e", "-c", &script])
        .env("PATH", path)
        .stdin(Stdio::null())
        .stdout(file.try_clone().unwrap())
        .stderr(file)
        .process_group(0)
        .spawn()
        .unwrap();
    let _group = Group(shell.id());
    let said = || std::fs::read_to_string(&output).unwrap();
    let ended = berth_tests::service::within(std::time::Duration::from_secs(90), || shell.try_wait().unwrap());
    let ended = ended.unwrap_or_else(|| panic!("the page did not come to its end: {}", said()));
    let said = said();
    assert!(ended.success(), "{said}");
    let slot = |model: &str, runner: &str| {
        said.lines().any(|line| line.contains(model) && line.contains(runner) && line.contains("ready"))
    };
    assert!(slot("chat", "box-1") && slot("patients", "box-2"), "{said}");
    assert!(said.contains("<!DOCTYPE"), "the slot answers: {said}");
}
