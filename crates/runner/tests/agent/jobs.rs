//! Jobs end once, with their own code, and are started once; whatever becomes of their agent and of its disk.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::machine::{Machine, until};
use crate::server::{Server, run};

/// An agent with a job that waits at a gate, and ends with this code.
fn with_job(server: &Server, machine: Machine, code: &str) -> (Machine, String, String) {
    let mut machine = machine;
    let before = server.reports();
    machine.start();
    until("a report", || server.reports() > before);
    let (slot, gate) = (server.slot(7), machine.gate("gate"));
    server.wants(&[run(&slot, "job", "job", &[&gate, code])]);
    machine.until_runs_at(&gate);
    server.until_told(&slot, "ready");
    (machine, slot, gate)
}

/// One report says that it is gone, how it ended, and what was seen.
#[track_caller]
fn is_over(server: &Server, slot: &str, field: &str, value: &Value) {
    let row = server.until_told(slot, "gone");
    assert_eq!(&row[field], value, "{row}");
    assert_eq!(row["evidence"], json!({ "tree_gone": true, "driver_clear": true }), "{row}");
    let gone: Vec<Value> = server.all_of(slot).into_iter().filter(|row| row["state"] == "gone").collect();
    assert!(gone.iter().all(|row| row[field] == *value), "every word of its end is the whole word: {gone:?}");
}

#[test]
fn the_end_of_a_job_is_one_report() {
    for (code, value) in [("0", json!(0)), ("3", json!(3))] {
        let server = Server::start();
        let (machine, slot, gate) = with_job(&server, Machine::new(&server), code);
        machine.open(&gate);
        is_over(&server, &slot, "exit_code", &value);
        assert_eq!(machine.runs_at(&gate), 1);
    }
}

#[test]
fn n3_a_job_that_ended_while_its_agent_was_dying_is_not_started_again() {
    for killing in [false, true] {
        let server = Server::start();
        let machine = Machine::new(&server);
        let machine = if killing { machine.killing() } else { machine };
        let (mut machine, slot, gate) = with_job(&server, machine, "0");
        machine.kill();
        // The agent died before it could note that it had started it.
        machine.rewrite_as_planned(&slot);
        machine.open(&gate);
        until("its end", || machine.carriers(&slot).is_empty());
        machine.start();
        if killing {
            // It died with its agent, and no process was left to note how.
            is_over(&server, &slot, "reason", &json!("crashed"));
        } else {
            is_over(&server, &slot, "exit_code", &json!(0));
        }
        server.until_heard();
        assert_eq!(machine.runs_at(&gate), 1, "it ran once");
    }
}

#[test]
fn n3_a_job_whose_end_was_not_observed_has_failed_and_is_not_started_again() {
    for is_noted in [false, true] {
        let server = Server::start();
        let (mut machine, slot, gate) = with_job(&server, Machine::new(&server), "0");
        machine.kill();
        if !is_noted {
            machine.rewrite_as_planned(&slot);
        }
        machine.end(&slot);
        machine.start();
        is_over(&server, &slot, "reason", &json!("crashed"));
        server.until_heard();
        assert_eq!(machine.runs_at(&gate), 1, "it ran once");
    }
}

#[test]
fn n3_a_job_that_was_never_started_is_started_once() {
    let server = Server::start();
    let (mut machine, slot, gate) = with_job(&server, Machine::new(&server), "0");
    machine.kill();
    // The agent died before it could start it.
    machine.rewrite_as_planned(&slot);
    machine.end(&slot);
    fs::remove_file(exit_file(machine.data_dir(), &slot)).unwrap();
    fs::remove_file(format!("{gate}.ran")).unwrap();
    machine.start();
    machine.until_runs_at(&gate);
    machine.open(&gate);
    is_over(&server, &slot, "exit_code", &json!(0));
    assert_eq!(machine.runs_at(&gate), 1);
}

fn exit_file(data_dir: &Path, slot: &str) -> PathBuf {
    data_dir.join("logs").join(slot).join("1.exit")
}

#[test]
fn n3_a_job_that_left_an_exit_file_is_not_started_though_nothing_else_is_on_record() {
    for (text, field, value) in [
        ("code 4 end\n", "exit_code", json!(4)),
        ("", "reason", json!("crashed")),
        ("code 0 en", "reason", json!("crashed")),
        ("who knows", "reason", json!("crashed")),
    ] {
        let server = Server::start();
        let machine = Machine::started(&server);
        let (slot, gate) = (server.slot(7), machine.gate("gate"));
        let file = exit_file(machine.data_dir(), &slot);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
        server.wants(&[run(&slot, "job", "job", &[&gate, "0"])]);
        is_over(&server, &slot, field, &value);
        assert_eq!(machine.runs_at(&gate), 0, "{text:?}");
    }
}

#[test]
fn n3_the_exit_code_of_a_job_survives_the_loss_of_the_agents_record() {
    let server = Server::start();
    let (mut machine, slot, gate) = with_job(&server, Machine::new(&server), "0");
    machine.kill();
    fs::remove_dir_all(machine.data_dir()).unwrap();
    machine.start();
    until("it is found", || machine.record_file(&slot).exists());
    let row = server.until_told(&slot, "ready");
    assert!(machine.carriers(&slot).iter().any(|pid| row["pid"] == *pid), "{row}");
    machine.open(&gate);
    is_over(&server, &slot, "exit_code", &json!(0));
    assert_eq!(machine.runs_at(&gate), 1);
}

#[test]
fn a_job_that_cannot_be_run_has_not_ended_with_a_code() {
    let server = Server::start();
    let machine = Machine::started(&server);
    let slot = server.slot(7);
    server.wants(&[run(&slot, "absent", "job", &[])]);
    is_over(&server, &slot, "reason", &json!("bad_binary"));
    assert_eq!(server.heard_of(&slot).unwrap().get("exit_code"), None, "nothing of it ever ran");
    drop(machine);
}

#[test]
fn whether_an_end_is_a_failure_is_for_the_runtime_and_the_slot_to_say() {
    let server = Server::start();
    let machine = Machine::started(&server);
    for (number, runtime, kind, field, value) in [
        (1, "both", "job", "exit_code", json!(0)),
        (2, "both", "lease", "reason", json!("crashed")),
        (3, "job", "lease", "exit_code", json!(0)),
    ] {
        let (slot, gate) = (server.slot(number), machine.gate(&format!("gate-{number}")));
        server.wants(&[run(&slot, runtime, kind, &[&gate, "0"])]);
        machine.until_runs_at(&gate);
        machine.open(&gate);
        is_over(&server, &slot, field, &value);
    }
}

/// A small disk of its own. It is gone with this.
struct SmallDisk {
    at: TempDir,
}

impl SmallDisk {
    /// None where mounting is not allowed.
    fn mount() -> Option<Self> {
        let at = TempDir::new().unwrap();
        let output = Command::new("mount").args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"]).arg(at.path()).output();
        output.is_ok_and(|output| output.status.success()).then_some(Self { at })
    }

    fn ballast(&self) -> PathBuf {
        self.at.path().join("ballast")
    }

    /// Leaves no room at all.
    fn fill(&self) {
        let mut file = File::options().create(true).append(true).open(self.ballast()).unwrap();
        for size in [64 << 10, 4096, 1] {
            while file.write_all(&vec![1; size]).is_ok() {}
        }
        let probe = fs::write(self.at.path().join("probe"), [1; 100]);
        assert!(probe.is_err(), "there is room left");
        let _ = fs::remove_file(self.at.path().join("probe"));
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").args(["-l"]).arg(self.at.path()).status();
    }
}

#[test]
fn on_a_full_disk_a_job_ends_with_its_code_and_nothing_is_started_that_is_not_on_record() {
    let Some(disk) = SmallDisk::mount() else {
        eprintln!("not run: no disk can be mounted here");
        return;
    };
    let server = Server::start();
    let machine = Machine::new(&server).keeps_in(&disk.at.path().join("data"));
    let (mut machine, slot, gate) = with_job(&server, machine, "0");
    disk.fill();
    machine.open(&gate);
    is_over(&server, &slot, "exit_code", &json!(0));

    // Nothing new is started, and the agent says why. What it knew is not lost with it.
    let (next, next_gate) = (server.slot(8), machine.gate("next"));
    server.wants(&[run(&slot, "job", "job", &[&gate, "0"]), run(&next, "job", "job", &[&next_gate, "0"])]);
    until("it says why", || machine.log().contains("nothing is started"));
    server.until_heard();
    assert!(machine.is_running());
    assert_eq!((machine.runs_at(&next_gate), machine.record_of(&next)), (0, None));
    machine.kill();
    machine.start();
    let before = server.reports();
    until("it reports again", || server.reports() > before);
    is_over(&server, &slot, "exit_code", &json!(0));
    server.until_heard();
    assert_eq!((machine.runs_at(&gate), machine.runs_at(&next_gate)), (1, 0));

    // There is room again: what is known is written, and what was held back is started.
    fs::remove_file(disk.ballast()).unwrap();
    machine.until_runs_at(&next_gate);
    let life = || machine.record_of(&slot).map(|record| record["life"]["gone"]["why"].clone());
    until("the record is written", || life() == Some(json!({ "exited": 0 })));

    // With nothing left to write, the next answer finds no room: what was obeyed last goes on record before anything is
    // done for it.
    let (last, last_gate) = (server.slot(9), machine.gate("last"));
    server.until_told(&next, "ready");
    let said = || machine.log().matches("nothing is started until there is room").count();
    let before = said();
    disk.fill();
    server.wants(&[
        run(&slot, "job", "job", &[&gate, "0"]),
        run(&next, "job", "job", &[&next_gate, "0"]),
        run(&last, "job", "job", &[&last_gate, "0"]),
    ]);
    until("it says why", || said() > before);
    server.until_heard();
    assert_eq!((machine.runs_at(&last_gate), machine.record_of(&last)), (0, None));
    assert!(machine.is_running());
    fs::remove_file(disk.ballast()).unwrap();
    machine.until_runs_at(&last_gate);
}
