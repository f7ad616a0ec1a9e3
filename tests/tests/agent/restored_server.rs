//! A server that goes on from an older copy of its data: restored from a backup, or on a disk that was rolled back.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use berth_tests::fleet::{Agent, Fleet, Machine, Model};
use berth_tests::service::{GIB, berth, eventually, ledgers, within};
use serde_json::{Value, json};
use tempfile::TempDir;

/// The fleet must obey a restored server within this time.
const OBEYED_WITHIN: Duration = Duration::from_secs(10);

/// Runs the real command line against the fleet's server.
fn berth_command(fleet: &Fleet, words: &[&str]) -> Output {
    let mut command = Command::new(berth());
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("BERTH_")) {
        command.env_remove(name);
    }
    command.args(["--server", &fleet.api.base()]).args(words).output().unwrap()
}

#[track_caller]
fn succeeds(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

/// Watches the physical memory of machines: what living processes use never exceeds what a GPU has.
struct PhysicalWatch {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<String>>,
}

impl PhysicalWatch {
    fn of(machines: &[&Machine], gib: u64) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, machines) = (stop.clone(), machines.iter().map(|&machine| machine.clone()).collect::<Vec<_>>());
        let thread = std::thread::spawn(move || {
            let mut wrong = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                for machine in &machines {
                    let used: u64 = machine.used(&machine.uuid(0)).iter().map(|(_, bytes)| bytes).sum();
                    if used > gib * GIB {
                        wrong.push(format!("{used} bytes are in use on {}", machine.uuid(0)));
                    }
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            wrong
        });
        Self { stop, thread }
    }

    #[track_caller]
    fn saw_no_overcommitment(self) {
        self.stop.store(true, Ordering::Relaxed);
        let wrong = self.thread.join().unwrap();
        assert!(wrong.is_empty(), "{wrong:?}");
    }
}

/// Gateways that submit and complete all the time, until they are told to stop.
fn load(fleet: &Fleet, model: &str) -> (Arc<AtomicBool>, JoinHandle<u32>) {
    let stop = Arc::new(AtomicBool::new(false));
    let (stopped, api, model) = (stop.clone(), fleet.api.clone(), model.to_owned());
    let thread = std::thread::spawn(move || {
        let mut served = 0;
        while !stopped.load(Ordering::Relaxed) {
            let lease = api.lease(&model).is(201).id();
            let state = || api.workload(&lease);
            let row = eventually("a lease runs under load", || Some(state()).filter(|row| row["state"] == "running"));
            let _ = api.complete(&lease, ledgers::number(&row["attempt"])).is(200);
            served += 1;
        }
        served
    });
    (stop, thread)
}

/// Two machines with one GPU of 80 GiB each, and models of some sizes.
fn two_machines(fleet: &Fleet) -> [(Machine, Agent); 2] {
    for (name, gib) in [("chat", 30), ("code", 30), ("vision", 45), ("small", 5)] {
        fleet.model(&Model::new(name, gib).with("keep_alive", json!("1h")));
    }
    fleet.model(&Model::new("batch", 75).with("runtime", json!("job")));
    [(); 2].map(|()| {
        let machine = Machine::new(&[80]);
        let agent = machine.agent(fleet);
        (machine, agent)
    })
}

fn all_starts(machines: &[(Machine, Agent)]) -> Vec<(String, usize)> {
    let entries = machines.iter().flat_map(|(machine, _)| machine.diary());
    let mut starts = std::collections::BTreeMap::<String, usize>::new();
    for entry in entries.filter(|entry| entry.what == "start") {
        *starts.entry(entry.slot).or_default() += 1;
    }
    starts.into_iter().collect()
}

/// The commands of a section of the operations manual that begin with these words, with its paths in `here`.
fn documented(section: &str, begins: &str, here: &Path) -> Vec<String> {
    let manual = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/OPERATIONS.md")).unwrap();
    let (_, rest) = manual.split_once(&format!("\n{section}\n")).unwrap();
    let level = section.split(' ').next().unwrap().len();
    let is_end = |line: &str| {
        let hashes = line.bytes().take_while(|byte| *byte == b'#').count();
        hashes > 0 && hashes <= level && line.as_bytes().get(hashes) == Some(&b' ')
    };
    let lines = rest.lines().take_while(|line| !is_end(line)).filter(|line| line.starts_with(begins));
    let line = lines.map(str::to_owned).next().unwrap_or_else(|| panic!("{section} has no line `{begins}`"));
    let line = line.replace("/backups", &here.display().to_string());
    let line = line.replace("/var/lib/berth", &here.join("restored").display().to_string());
    shell_words(line.strip_prefix("berth ").unwrap())
}

/// The words of a command line with plain quotes.
fn shell_words(line: &str) -> Vec<String> {
    let pieces = line.split('"').enumerate();
    pieces
        .flat_map(|(at, piece)| match at % 2 {
            0 => piece.split_whitespace().map(str::to_owned).collect::<Vec<_>>(),
            _ => vec![piece.to_owned()],
        })
        .collect()
}

/// Ends the server for good and starts another one on a directory, at the address that agents ask.
fn move_server(fleet: &mut Fleet, data_dir: &Path) {
    let options = fleet.server.options().listen(&fleet.server.address()).data_dir(data_dir);
    fleet.server.kill();
    std::fs::remove_dir_all(fleet.server.data_dir()).unwrap();
    fleet.server.restart_with(options);
}

/// The server is killed and comes back.
fn restart(fleet: &mut Fleet) {
    fleet.server.kill();
    fleet.restart();
}

fn run_documented(fleet: &Fleet, section: &str, begins: &str, here: &Path) -> String {
    let words = documented(section, begins, here);
    succeeds(&berth_command(fleet, &words.iter().map(String::as_str).collect::<Vec<_>>()))
}

#[test]
fn an_operator_restores_a_backup_on_another_machine_and_nothing_is_started_twice() {
    let here = TempDir::new().unwrap();
    let mut fleet = Fleet::start();
    let machines = two_machines(&fleet);
    let watch = PhysicalWatch::of(&[&machines[0].0, &machines[1].0], 80);

    // Work that the backup knows: two slots that serve, and a job that has no room yet.
    let (chat, code) = (fleet.run("chat"), fleet.run("code"));
    let job = fleet.api.job("batch").is(201).id();
    assert_eq!(fleet.api.state(&job), "queued");
    let (stop, gateway) = load(&fleet, "small");
    run_documented(&fleet, "## Backup and restore", "berth backup", here.path());
    stop.store(true, Ordering::Relaxed);
    assert!(gateway.join().unwrap() > 0, "the backup was taken under load");

    // What happens after it: three restarts, slots that go, a job that runs, slots that come.
    for _ in 0..3 {
        restart(&mut fleet);
        machines.iter().for_each(|(_, agent)| agent.is_heard(&fleet));
    }
    fleet.stop(&code);
    fleet.until_slot(&code.slot, "released");
    for slot in fleet.slots().iter().filter(|slot| slot["model"] == "small") {
        fleet.stop_slot(slot["id"].as_str().unwrap());
    }
    let job_slot = fleet.running(&job).slot;
    eventually("the job runs", || machines.iter().any(|(machine, _)| machine.starts_of(&job_slot) == 1).then_some(()));
    machines.iter().for_each(|(machine, _)| {
        machine.living_of(&job_slot).iter().for_each(|process| {
            rustix::process::kill_process(
                rustix::process::Pid::from_raw(process.pid.cast_signed()).unwrap(),
                rustix::process::Signal::KILL,
            )
            .unwrap();
        });
    });
    fleet.until(&job, "failed");
    fleet.until_slot(&job_slot, "released");
    let vision = fleet.run("vision");
    let newest = fleet.api.get("/api/v1/version").is(200).body;

    // The machine is lost. Another one is restored from the backup, and the fleet obeys it.
    run_documented(&fleet, "## Backup and restore", "berth restore", here.path());
    assert_eq!(documented("## Backup and restore", "berth serve", here.path())[1], "--data-dir");
    move_server(&mut fleet, &here.path().join("restored"));
    let begun = Instant::now();
    let again = within(OBEYED_WITHIN, || {
        machines
            .iter()
            .all(|(_, agent)| {
                let runner = fleet.api.get(&format!("/api/v1/runners/{}", agent.id()));
                runner.body["reported"] == true && runner.body["barred"].is_null()
            })
            .then_some(())
    });
    assert!(again.is_some(), "the fleet is heard: {}", fleet.server.log());
    let submitted = fleet.lease("code");
    let code_again = within(OBEYED_WITHIN.saturating_sub(begun.elapsed()), || {
        let row = fleet.api.workload(&submitted);
        (row["state"] == "running").then(|| row["slot"]["id"].as_str().unwrap().to_owned())
    });
    let code_again = code_again.unwrap_or_else(|| panic!("not obeyed in time: {}", fleet.api.workload(&submitted)));

    // The server went on above what the fleet had obeyed.
    let now = fleet.api.get("/api/v1/version").is(200).body;
    assert_eq!(now["cluster_id"], newest["cluster_id"]);
    assert!(now["epoch"].as_u64() > newest["epoch"].as_u64(), "{now} after {newest}");
    assert_eq!(fleet.api.get("/readyz").status, 200);
    assert!(fleet.api.get("/api/v1/history").is(200).body["waits_for"].as_array().unwrap().is_empty());

    // What the backup knew and still lives is the same process; what it did not know is accounted for.
    assert_eq!(fleet.slot_state(&chat.slot), "ready");
    let starts = all_starts(&machines);
    assert!(starts.iter().all(|(_, count)| *count == 1), "nothing is started twice: {starts:?}");
    eventually("the slot that the backup does not know is stopped and proven gone", || {
        let lives = machines.iter().any(|(machine, _)| !machine.living_of(&vision.slot).is_empty());
        let is_charged = fleet.slots().iter().any(|slot| slot["id"] == vision.slot.as_str());
        (!lives && !is_charged).then_some(())
    });
    eventually("the slot that went after the backup is proven gone", || {
        (fleet.slot_state(&code.slot) == "released").then_some(())
    });
    assert_ne!(code_again, code.slot, "an id is not given out twice");

    // The job ran after the backup was made: it does not run again, and says why.
    let row = fleet.api.workload(&job);
    assert_eq!((row["state"].as_str(), row["reason"]["code"].as_str()), (Some("failed"), Some("history_went_back")));
    let ledger = fleet.api.get("/scheduler/ledger").is(200).body;
    assert!(ledger["devices"].as_array().unwrap().iter().all(|device| device["overcommitted"] != true), "{ledger}");
    watch.saw_no_overcommitment();
}

/// A copy of a data directory, as a file system snapshot makes it.
fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap();
    assert!(copied.success());
}

/// A fleet whose server goes on from a copy that is `restarts` restarts old. Returns the slot that the copy lacks.
fn rolled_back(fleet: &mut Fleet, restarts: usize, here: &Path) -> String {
    let old = here.join("old");
    fleet.server.kill();
    copy(fleet.server.data_dir(), &old);
    fleet.restart();
    for _ in 0..restarts {
        restart(fleet);
    }
    let vision = fleet.run("vision");
    fleet.server.kill();
    let data_dir: PathBuf = fleet.server.data_dir().to_owned();
    std::fs::remove_dir_all(&data_dir).unwrap();
    copy(&old, &data_dir);
    fleet.restart();
    vision.slot
}

#[test]
fn a_disk_that_was_rolled_back_is_noticed_and_nothing_happens_until_an_operator_continues() {
    for restarts in [0, 2] {
        let here = TempDir::new().unwrap();
        let mut fleet = Fleet::start();
        let machines = two_machines(&fleet);
        let chat = fleet.run("chat");
        let vision = rolled_back(&mut fleet, restarts, here.path());
        let alive = |slot: &str| machines.iter().any(|(machine, _)| !machine.living_of(slot).is_empty());

        let ready = eventually("the server says that its history went back", || {
            Some(fleet.api.get("/readyz")).filter(|reply| reply.status == 503)
        });
        assert!(ready.text.contains("history of this server went back"), "{}", ready.text);
        assert!(fleet.api.get("/metrics").text.contains("berth_history_went_back 1"));
        eventually("the log says so", || fleet.server.log().contains("ERROR").then_some(()));
        assert!(fleet.server.log().contains("went back"), "{}", fleet.server.log());
        let shown = berth_command(&fleet, &["history"]);
        assert_eq!(shown.status.code(), Some(1));
        assert!(String::from_utf8_lossy(&shown.stdout).contains("its history went back"), "{shown:?}");
        let warned = berth_command(&fleet, &["slots"]);
        assert!(String::from_utf8_lossy(&warned.stderr).contains("history of this server went back"), "{warned:?}");

        // Nothing is placed, nothing is stopped, and what is not known is charged.
        let code = fleet.lease("code");
        eventually("every runner was heard since", || {
            let history = fleet.api.get("/api/v1/history").body;
            (history["waits_for"] == json!([])).then_some(())
        });
        let row = fleet.api.workload(&code);
        assert_eq!(
            (row["state"].as_str(), row["reason"]["code"].as_str()),
            (Some("queued"), Some("history_went_back"))
        );
        assert!(alive(&vision) && alive(&chat.slot));
        let charged: u64 = machines.iter().map(|(machine, _)| fleet.charge(&machine.uuid(0)).used()).sum();
        assert_eq!(charged, 30 + 45, "the slot that is not known is charged");

        // A server that is started again still knows it.
        restart(&mut fleet);
        assert_eq!(eventually("it is not ready", || Some(fleet.api.get("/readyz").status)), 503);

        run_documented(&fleet, "### A history that went back", "berth history continue", here.path());
        let begun = Instant::now();
        let runs = within(OBEYED_WITHIN, || (fleet.api.state(&code) == "running").then_some(()));
        assert!(runs.is_some(), "obeyed within 10 s: {}", fleet.api.workload(&code));
        eventually("what is not known is stopped", || (!alive(&vision)).then_some(()));
        assert!(begun.elapsed() < OBEYED_WITHIN, "{:?}", begun.elapsed());
        assert!(alive(&chat.slot), "what is known goes on");
        assert_eq!(fleet.api.get("/readyz").status, 200);
        assert!(fleet.api.get("/metrics").text.contains("berth_history_went_back 0"));
        assert!(all_starts(&machines).iter().all(|(_, count)| *count == 1), "{:?}", all_starts(&machines));
        let again = berth_command(&fleet, &["history", "continue", "--reason", "once more"]);
        assert!(String::from_utf8_lossy(&again.stderr).contains("did not go back"), "{again:?}");
    }
}

#[test]
fn two_servers_that_go_on_from_one_copy_do_not_share_the_fleet() {
    let here = TempDir::new().unwrap();
    let mut fleet = Fleet::start();
    let [(machine, agent), other] = two_machines(&fleet);
    drop(other);
    let chat = fleet.run("chat");
    fleet.server.kill();
    copy(fleet.server.data_dir(), &here.path().join("fork"));
    // Both are started once more, so both are in the same epoch.
    fleet.restart();
    agent.is_heard(&fleet);
    fleet.until_heard_again(&agent);
    let options = fleet.server.options().listen(&fleet.server.address());
    fleet.server.kill();
    fleet.server.restart_with(options.data_dir(&here.path().join("fork")));
    let ready =
        eventually("the other one finds out", || Some(fleet.api.get("/readyz")).filter(|reply| reply.status == 503));
    assert!(ready.text.contains("went back"), "{}", ready.text);
    assert_eq!(machine.living_of(&chat.slot).len(), 1);
}

#[test]
fn a_server_that_was_only_restarted_has_a_whole_history() {
    let mut fleet = Fleet::start();
    let machines = two_machines(&fleet);
    let chat = fleet.run("chat");
    for _ in 0..3 {
        restart(&mut fleet);
        machines.iter().for_each(|(_, agent)| agent.is_heard(&fleet));
        machines.iter().for_each(|(_, agent)| fleet.until_heard_again(agent));
        assert_eq!(fleet.api.get("/readyz").status, 200);
    }
    let history: Value = fleet.api.get("/api/v1/history").is(200).body;
    assert_eq!(history["epochs"].as_array().unwrap().len(), 4, "{history}");
    assert!(history["went_back"].is_null());
    assert_eq!(fleet.slot_state(&chat.slot), "ready");
}
