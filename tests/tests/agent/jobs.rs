//! Jobs run once and end with their own code, whatever becomes of their agent and of its disk.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use berth_tests::fleet::{Agent, Fleet, Machine, Model, Plan};
use berth_tests::service::eventually;
use serde_json::json;
use tempfile::TempDir;

/// A job that runs until a test lets it go.
struct Stage {
    fleet: Fleet,
    machine: Machine,
    agent: Agent,
    workload: String,
    slot: String,
    gate: PathBuf,
}

impl Stage {
    fn with(code: &str, plan: impl FnOnce(Plan) -> Plan) -> Self {
        let fleet = Fleet::start();
        let machine = Machine::new(&[80]);
        let agent = plan(machine.plan(&fleet)).start(&fleet);
        let gate = machine.directory().join("gate");
        let args = ["--wait-for", gate.to_str().unwrap(), "--exit", code];
        fleet.model(&Model::new("train", 60).with("runtime", json!("job")).args(&args));
        let workload = fleet.api.job("train").is(201).id();
        let slot = fleet.running(&workload).slot;
        eventually("it runs", || (machine.starts_of(&slot) == 1).then_some(()));
        Self { fleet, machine, agent, workload, slot, gate }
    }

    fn opens(&self) {
        fs::write(&self.gate, "").unwrap();
    }

    /// It came to this end, ran once, and its memory is back.
    #[track_caller]
    fn ends(&self, state: &str) {
        self.fleet.until(&self.workload, state);
        self.fleet.until_slot(&self.slot, "released");
        assert_eq!(self.fleet.charge(&self.machine.uuid(0)).used(), 0);
        assert_eq!(self.machine.diary().iter().filter(|entry| entry.what == "start").count(), 1, "it ran once");
    }
}

#[test]
fn n3_a_job_that_ended_while_its_agent_was_dying_has_succeeded() {
    let mut stage = Stage::with("0", |plan| plan);
    stage.agent.kill();
    // As if it had died between starting the job and noting that.
    stage.agent.rewrite_as_planned();
    stage.opens();
    eventually("it ends", || stage.machine.living().is_empty().then_some(()));
    stage.agent.restart();
    stage.ends("succeeded");
}

#[test]
fn n3_a_job_whose_end_was_not_observed_has_failed_and_is_not_started_again() {
    let mut stage = Stage::with("0", |plan| plan);
    stage.agent.kill();
    stage.agent.rewrite_as_planned();
    stage.machine.end_all();
    stage.agent.restart();
    stage.ends("failed");
}

#[test]
fn n3_a_job_that_died_with_its_agent_is_not_started_again() {
    let mut stage = Stage::with("0", |plan| plan.set("on_agent_exit = \"kill\""));
    stage.agent.kill();
    eventually("it ends", || stage.machine.living().is_empty().then_some(()));
    stage.agent.rewrite_as_planned();
    stage.agent.restart();
    stage.ends("failed");
}

#[test]
fn n3_an_agent_that_lost_its_record_knows_a_job_and_how_it_ended() {
    for (code, state) in [("0", "succeeded"), ("3", "failed")] {
        let mut stage = Stage::with(code, |plan| plan);
        stage.agent.kill();
        fs::remove_dir_all(stage.agent.data_dir()).unwrap();
        stage.agent.restart();
        eventually("it is found", || stage.agent.record_of(&stage.slot));
        stage.fleet.until_heard_again(&stage.agent);
        stage.opens();
        stage.ends(state);
    }
}

/// A small disk of its own. It is gone with this.
struct SmallDisk {
    at: TempDir,
}

impl SmallDisk {
    /// None where mounting is not allowed.
    fn mount() -> Option<Self> {
        let at = tempfile::tempdir().unwrap();
        let output = Command::new("mount").args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"]).arg(at.path()).output();
        output.is_ok_and(|output| output.status.success()).then_some(Self { at })
    }

    fn path(&self) -> &Path {
        self.at.path()
    }

    /// Leaves no room at all.
    fn fill(&self) {
        let mut ballast = File::options().create(true).append(true).open(self.path().join("ballast")).unwrap();
        for size in [64 << 10, 4096, 1] {
            while ballast.write_all(&vec![1; size]).is_ok() {}
        }
        assert!(fs::write(self.path().join("probe"), [1; 100]).is_err(), "there is room left");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").args(["-l"]).arg(self.path()).status();
    }
}

#[test]
fn a_job_that_ends_on_a_full_disk_has_succeeded() {
    let Some(disk) = SmallDisk::mount() else {
        eprintln!("not run: no disk can be mounted here");
        return;
    };
    let data_dir = format!("data_dir = \"{}\"", disk.path().join("data").display());
    let mut stage = Stage::with("0", |plan| plan.set(&data_dir));
    disk.fill();
    stage.opens();
    stage.ends("succeeded");
    assert!(stage.agent.runs(), "a full disk is no reason to end");

    // Nothing is started that cannot be put on record, until there is room.
    let record = disk.path().join("data").join("slots").join(format!("{}.json", stage.slot));
    eventually("the agent has forgotten it", || (!record.exists()).then_some(()));
    disk.fill();
    stage.fleet.model(&Model::new("chat", 30));
    let chat = stage.fleet.lease("chat");
    eventually("it says why", || stage.agent.log().contains("nothing is started until there is room").then_some(()));
    stage.fleet.until_heard_again(&stage.agent);
    assert_eq!(stage.machine.diary().iter().filter(|entry| entry.what == "start").count(), 1);
    fs::remove_file(disk.path().join("ballast")).unwrap();
    let _ = stage.fleet.running(&chat);
}
