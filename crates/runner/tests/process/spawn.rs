//! Starting, watching and adopting, with real programs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use crate::support::{Agent, PATIENCE, is_alive, look, own_user, read_when_there, stop, through_the_door, until};
use berth_domain::{BootId, FailureReason, RuntimeKind, WorkloadKind};
use berth_runner::process::{
    Adoption, Exit, ExitFile, ExitNote, Liveness, MarkedStart, OnAgentExit, Process, ProcessId, ProcessTable,
    SpawnError, SpawnOptions, Spawner, UnexpectedEnd, classify, find_marked_processes, find_marked_starts,
    has_readable_environment,
};
use berth_runner::runtime::{Launch, RuntimeConfig, UserId};

/// The list that the kernel shows of a process: its arguments or its environment, as it was started.
fn list(pid: u32, file: &str) -> Vec<String> {
    let bytes = std::fs::read(format!("/proc/{pid}/{file}")).unwrap();
    let text = String::from_utf8(bytes).unwrap();
    text.strip_suffix('\0').unwrap().split('\0').map(str::to_owned).collect()
}

fn descriptors(pid: u32) -> Vec<u32> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    entries.map(|entry| entry.unwrap().file_name().to_str().unwrap().parse().unwrap()).collect()
}

/// Descriptors that this program was started with and that are passed on: none of its own.
fn inherited() -> BTreeSet<u32> {
    const CLOSE_ON_EXEC: u32 = 0o2_000_000;
    let passes = |number: &u32| {
        let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{number}")).unwrap_or_default();
        let flags = text.lines().find_map(|line| u32::from_str_radix(line.strip_prefix("flags:")?.trim(), 8).ok());
        flags.is_some_and(|flags| flags & CLOSE_ON_EXEC == 0)
    };
    [0, 1, 2].into_iter().chain(descriptors(std::process::id()).into_iter().filter(passes)).collect()
}

#[test]
fn b3_what_a_model_says_reaches_a_process_only_as_arguments() {
    for options in [through_the_door(), SpawnOptions::default()] {
        let agent = Agent::new(options);
        let harm = agent.path("harm");
        let nasty = [
            format!("$(touch {})", harm.display()),
            format!("; touch {} #", harm.display()),
            format!("`touch {}`", harm.display()),
            "LD_PRELOAD=/evil.so".to_owned(),
            "--".to_owned(),
            "--session".to_owned(),
            "'\"\\ \u{fffd}{model}".to_owned(),
            String::new(),
            "last".to_owned(),
        ];
        let args: Vec<&str> = nasty.iter().map(String::as_str).collect();
        let own = ("OWN".to_owned(), "a b\nc=$HOME".to_owned());
        let config = RuntimeConfig { env: BTreeMap::from([own]), ..RuntimeConfig::default() };
        let script = "echo READY; while :; do sleep 0.1; done";
        let slot = agent.start_launch(agent.launch(&config, &["sh", "-c", script, "a\nb", "{args}"], &args));
        slot.says("READY");
        let pid = slot.process.id().pid;
        let given = ["sh", "-c", script, "a\nb"].map(str::to_owned).into_iter().chain(nasty.clone());
        assert_eq!(list(pid, "cmdline"), given.collect::<Vec<_>>());
        let wanted = slot.launch.env.iter();
        let wanted = wanted.map(|(name, value)| format!("{}={}", name.to_str().unwrap(), value.to_str().unwrap()));
        let wanted: BTreeSet<String> = wanted.collect();
        let env: BTreeSet<String> = list(pid, "environ").into_iter().collect();
        assert_eq!(env, wanted, "the environment is exactly what was rendered");
        assert!(env.contains("OWN=a b\nc=$HOME"));
        let names: BTreeSet<&str> = env.iter().filter_map(|pair| Some(pair.split_once('=')?.0)).collect();
        assert!(!names.contains("LD_PRELOAD") && !names.contains("CARGO_MANIFEST_DIR"), "{names:?}");
        assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some(), "the agent has it, and keeps it");
        let strangers: Vec<u32> = descriptors(pid).into_iter().filter(|number| !inherited().contains(number)).collect();
        assert_eq!(strangers, Vec::<u32>::new(), "a descriptor of the agent came along");
        assert!(!harm.exists());
    }
}

#[test]
fn a_slot_has_a_session_of_its_own_and_keeps_its_pid_through_the_trampoline() {
    let agent = Agent::with_sessions();
    let slot = agent.sh("echo pid $$; exec sleep 1000", &[]);
    let pid = slot.process.id().pid;
    assert_eq!(slot.number("pid"), pid);
    let table = ProcessTable::read().unwrap();
    let row = table.get(pid).unwrap();
    assert_eq!((row.session, row.group), (pid, pid));
    assert!(slot.process.id().is_alive().unwrap(), "its start time is still the same");
}

#[test]
fn n9_a_bad_binary_is_told_apart_from_a_crash() {
    let agent = Agent::new(SpawnOptions::default());
    let launch = agent.launch(&RuntimeConfig::default(), &["/nowhere/at/all"], &[]);
    let log = agent.logs.slot(launch.slot, launch.generation).unwrap();
    assert!(matches!(agent.spawner.spawn(&launch, &log), Err(SpawnError::Program { .. })));

    let agent = Agent::with_sessions();
    let text = agent.path("text");
    std::fs::write(&text, "not a program").unwrap();
    for (program, code) in [("/nowhere/at/all", 127), ("berth-no-such-program", 127), (text.to_str().unwrap(), 126)] {
        let slot = agent.start(&[program], &[]);
        assert_eq!(slot.exit(), Exit::Code(code), "{program}");
        let log = slot.says("berth: cannot run");
        let death = UnexpectedEnd { exit: slot.exit(), log: log.as_bytes(), oom_kills: 0 };
        assert_eq!(classify(&death), FailureReason::BadBinary);
    }
    let crash = agent.sh("kill -SEGV $$", &[]);
    assert_eq!(crash.exit(), Exit::Signal(11));
    let death = UnexpectedEnd { exit: crash.exit(), log: &[], oom_kills: 0 };
    assert_eq!(classify(&death), FailureReason::Crashed);
}

#[test]
fn n9_a_slot_that_flaps_leaves_nothing_behind() {
    let agent = Agent::with_sessions();
    for code in 1..=8 {
        let slot = agent.sh("echo try $1; exit $1", &[&code.to_string()]);
        assert_eq!(slot.exit(), Exit::Code(code));
        slot.says(&format!("try {code}"));
        assert_eq!(look(&mut slot.tree()), Vec::<u32>::new());
        assert!(ProcessTable::read().unwrap().get(slot.process.id().pid).is_none(), "it was not waited for");
    }
}

#[test]
fn waiting_for_an_end_takes_no_looking() {
    let agent = Agent::with_sessions();
    let go = agent.path("go");
    let slot = agent.sh("while [ ! -e \"$1\" ]; do sleep 0.02; done; exit 7", &[go.to_str().unwrap()]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let exit = runtime.block_on(async {
        let opens = async { std::fs::write(&go, "").unwrap() };
        let (exit, ()) = tokio::join!(tokio::time::timeout(PATIENCE, slot.process.exited()), opens);
        exit.unwrap()
    });
    assert_eq!(exit, Exit::Code(7));
    assert_eq!(slot.process.poll_exit(), Some(Exit::Code(7)), "it is remembered");
}

#[test]
fn orphans_that_came_back_to_the_agent_are_waited_for() {
    let agent = Agent::with_sessions();
    let slot = agent.sh("sleep 0.1 & echo child $!; exit 0", &[]);
    let child = slot.number("child");
    assert_eq!(slot.exit(), Exit::Code(0));
    until("the orphan to be reaped", || {
        let table = ProcessTable::read().unwrap();
        agent.spawner.reap(&table);
        table.get(child).is_none()
    });
}

/// In a container, or below `unshare --pid`, the session and the group of the agent were begun outside its pid namespace
/// and have the number 0 inside. Tests that read them run there again, since root may make such a namespace.
#[test]
fn an_agent_whose_session_began_outside_its_pid_namespace_reaps_and_ends_slots() {
    if !UserId::own().is_root() {
        eprintln!("left out: only root may make a pid namespace");
        return;
    }
    let again = [
        "spawn::orphans_that_came_back_to_the_agent_are_waited_for",
        "process_tree::n10_a_slot_that_ignores_term_is_ended_by_force_after_its_grace",
    ];
    let output = Command::new("unshare")
        .args(["--pid", "--fork", "--mount-proc", "--kill-child"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture"])
        .args(again)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("2 passed"), "{text}");
}

#[test]
fn n3_a_slot_that_dies_with_its_agent_does_not_die_with_the_thread_that_asked_for_it() {
    assert!(Spawner::start(SpawnOptions { on_agent_exit: OnAgentExit::Kill, ..SpawnOptions::default() }).is_err());
    let agent = Agent::new(SpawnOptions { on_agent_exit: OnAgentExit::Kill, ..through_the_door() });
    let slot = std::thread::scope(|scope| scope.spawn(|| agent.sh("echo READY; exec sleep 1000", &[])).join().unwrap());
    slot.says("READY");
    assert_eq!(slot.process.poll_exit(), None, "the thread that asked is gone, and the slot is not");
    // The thread that spawns ends with its spawner: to the slot that is the agent's death.
    drop(agent.spawner);
    assert_eq!(slot.exit(), Exit::Signal(15));
}

#[test]
fn n3_a_pid_with_another_start_time_or_boot_is_not_adopted() {
    let agent = Agent::with_sessions();
    let slot = agent.sh("echo READY; exec sleep 1000", &[]);
    let id = slot.process.id().clone();
    let another = id.clone();
    let gone = |id: ProcessId| matches!(Process::adopt(id, None).unwrap(), Adoption::Gone(Exit::Unknown));
    assert!(gone(ProcessId { start_ticks: id.start_ticks + 1, ..id.clone() }), "the pid was given to somebody else");
    assert!(gone(ProcessId { boot: BootId::new("another").unwrap(), ..another }), "the machine was rebooted");
    let elsewhere = ProcessId { pid_namespace: 1, ..id.clone() };
    assert_eq!(elsewhere.liveness().unwrap(), Liveness::Unknown);
    assert!(matches!(Process::adopt(elsewhere, None).unwrap(), Adoption::Unknown));
    assert!(matches!(Process::adopt(id, None).unwrap(), Adoption::Alive(_)));
}

/// An agent that starts one slot, notes it and is gone: `FILE job|server`.
#[test]
#[ignore = "another agent, started by other tests"]
fn first_agent() {
    let args: Vec<String> = std::env::args().skip_while(|arg| arg != "--").skip(1).collect();
    let [file, kind, go] = args.as_slice() else { return };
    let agent = Agent::with_sessions();
    let kind = if kind == "job" { RuntimeKind::Job } else { RuntimeKind::Server };
    let config = RuntimeConfig { kind: Some(kind), ..RuntimeConfig::default() };
    let script = "echo READY; while [ ! -e \"$1\" ]; do sleep 0.02; done; exit 5";
    let launch: Launch = agent.launch(&config, &["sh", "-c", script, "sh", "{args}"], &[go]);
    let slot = agent.start_launch(launch);
    slot.says("READY");
    let note = (slot.process.id(), agent.runner.as_str(), slot.log.exit_file(), slot.log.path());
    std::fs::write(format!("{file}.new"), serde_json::to_string(&note).unwrap() + "\n").unwrap();
    std::fs::rename(format!("{file}.new"), file).unwrap();
    // Without a word to anybody.
    rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).unwrap();
}

type Note = (ProcessId, berth_domain::RunnerId, std::path::PathBuf, std::path::PathBuf);

fn run_first_agent(dir: &Path, kind: &str) -> Note {
    let file = dir.join("note");
    let words = ["--exact", "spawn::first_agent", "--ignored", "--nocapture", "--"];
    let status = Command::new(std::env::current_exe().unwrap())
        .args(words)
        .args([file.as_os_str(), kind.as_ref(), dir.join("go").as_os_str()])
        .env("TMPDIR", dir)
        .stdout(std::process::Stdio::null())
        .status()
        .unwrap();
    assert!(!status.success(), "it was to die of a signal");
    serde_json::from_str(&read_when_there(&file)).unwrap()
}

#[test]
fn n3_a_slot_that_outlived_its_agent_is_adopted_with_its_log_and_its_children() {
    let dir = tempfile::tempdir().unwrap();
    let (id, runner, _, log) = run_first_agent(dir.path(), "server");
    let Adoption::Alive(process) = Process::adopt(id.clone(), None).unwrap() else { panic!("{id:?} is gone") };
    assert_eq!(process.poll_exit(), None);
    let table = ProcessTable::read().unwrap();
    let found = find_marked_processes(&table, &runner, &own_user()).unwrap();
    let (mark, members) = found.first_key_value().unwrap();
    assert!(found.len() == 1 && members.contains(&id), "{found:?}");
    let logs =
        berth_runner::process::LogDir::open(log.parent().unwrap().parent().unwrap(), Default::default()).unwrap();
    let log = logs.slot(mark.slot, mark.generation).unwrap();
    assert!(String::from_utf8_lossy(&log.tail(1000).unwrap()).contains("READY"));
    let trust = berth_runner::process::MarkTrust::Users(own_user());
    let tree = berth_runner::process::Tree::new(mark.clone(), trust, Some(id.clone()), None);
    stop(tree, 5_000);
    until("its end to be seen", || process.poll_exit().is_some());
    assert!(!is_alive(id.pid));
}

#[test]
fn n3_how_a_job_ended_is_known_though_its_agent_was_gone() {
    let dir = tempfile::tempdir().unwrap();
    let (id, _, exit_file, _) = run_first_agent(dir.path(), "job");
    let Adoption::Alive(process) = Process::adopt(id.clone(), Some(exit_file.clone())).unwrap() else {
        panic!("{id:?} is gone")
    };
    std::fs::write(dir.path().join("go"), "").unwrap();
    until("the end of the job", || process.poll_exit().is_some());
    assert_eq!(process.poll_exit(), Some(Exit::Code(5)));
    // And so it is for an agent that came even later.
    assert!(matches!(Process::adopt(id, Some(exit_file)).unwrap(), Adoption::Gone(Exit::Code(5))));
}

fn job() -> RuntimeConfig {
    RuntimeConfig { kind: Some(RuntimeKind::Job), ..RuntimeConfig::default() }
}

#[test]
fn a_job_that_a_signal_ended_says_so_through_its_keeper() {
    let agent = Agent::with_sessions();
    let slot = agent.start_launch(agent.launch(&job(), &["sh", "-c", "kill -KILL $$"], &[]));
    assert_eq!(slot.exit(), Exit::Signal(9));
}

#[test]
fn n3_a_job_that_could_not_be_run_is_told_from_one_that_ended_with_that_code() {
    for on_agent_exit in [OnAgentExit::Keep, OnAgentExit::Kill] {
        let agent = Agent::new(SpawnOptions { on_agent_exit, ..through_the_door() });
        let absent = agent.start_launch(agent.launch(&job(), &["/nowhere/at/all"], &[]));
        assert_eq!(absent.exit(), Exit::NotRun, "{on_agent_exit:?}");
        let death = UnexpectedEnd { exit: absent.exit(), log: &[], oom_kills: 0 };
        assert_eq!(classify(&death), FailureReason::BadBinary);
        let ended = agent.start_launch(agent.launch(&job(), &["sh", "-c", "exit 127"], &[]));
        assert_eq!(ended.exit(), Exit::Code(127), "{on_agent_exit:?}");
    }
}

#[test]
fn n3_that_a_job_was_started_is_noted_before_it_is_and_it_is_not_started_twice() {
    for on_agent_exit in [OnAgentExit::Keep, OnAgentExit::Kill] {
        let agent = Agent::new(SpawnOptions { on_agent_exit, ..through_the_door() });
        let ran = agent.path("ran");
        let script = "echo x >> \"$1\"; echo READY; while :; do sleep 0.05; done";
        let launch = agent.launch(&job(), &["sh", "-c", script, "sh", "{args}"], &[ran.to_str().unwrap()]);
        let slot = agent.start_launch(launch.clone());
        slot.says("READY");
        let exit_file = ExitFile::at(slot.log.exit_file());
        assert_eq!(exit_file.read(), Some(ExitNote::Started), "{on_agent_exit:?}");
        stop(slot.tree(), 5_000);
        // An agent that does not know of it tries to start it once more.
        let again = agent.start_launch(launch);
        assert_eq!(again.exit(), Exit::Code(125), "{on_agent_exit:?}");
        again.says("the job is not started");
        assert_eq!(read_when_there(&ran), "x\n", "{on_agent_exit:?}: it ran once");
        assert_eq!(exit_file.read(), Some(ExitNote::Started), "{on_agent_exit:?}: nothing was written over");
    }
}

#[test]
fn n3_how_a_job_ended_is_read_through_its_keeper_though_the_file_was_removed() {
    let dir = tempfile::tempdir().unwrap();
    let (id, runner, exit_file, _) = run_first_agent(dir.path(), "job");
    let table = ProcessTable::read().unwrap();
    let mark = find_marked_processes(&table, &runner, &own_user()).unwrap().into_keys().next().unwrap();
    // The record, the logs and the exit file are gone; the mark says what it is, and who its keeper is.
    std::fs::remove_dir_all(exit_file.parent().unwrap()).unwrap();
    let found = find_marked_starts(&table, &runner, mark.slot, &own_user()).unwrap();
    let expected = MarkedStart { generation: mark.generation, process: id.clone(), kind: Some(WorkloadKind::Job) };
    assert_eq!(found, [expected], "the keeper, and not the program below it");
    let Adoption::Alive(process) = Process::adopt(id, Some(exit_file)).unwrap() else { panic!("it is gone") };
    std::fs::write(dir.path().join("go"), "").unwrap();
    until("the end of the job", || process.poll_exit().is_some());
    assert_eq!(process.poll_exit(), Some(Exit::Code(5)));
}

#[test]
fn every_start_of_a_slot_is_found_by_its_mark_the_newest_first() {
    let agent = Agent::with_sessions();
    let older = agent.sh("echo READY; exec sleep 1000", &[]);
    older.says("READY");
    let mut launch = older.launch.clone();
    launch.generation = berth_domain::Generation::new(7);
    launch.env.insert("BERTH_SLOT_GENERATION".into(), "7".into());
    let newer = agent.start_launch(launch);
    newer.says("READY");
    let table = ProcessTable::read().unwrap();
    let found = find_marked_starts(&table, &agent.runner, older.launch.slot, &own_user()).unwrap();
    let found: Vec<_> =
        found.iter().map(|carrier| (carrier.generation.get(), carrier.process.pid, carrier.kind)).collect();
    let kind = Some(WorkloadKind::Lease);
    assert_eq!(found, [(7, newer.process.id().pid, kind), (1, older.process.id().pid, kind)]);
    let another = berth_domain::RunnerId::new("another-runner").unwrap();
    assert_eq!(find_marked_starts(&table, &another, older.launch.slot, &own_user()).unwrap(), []);
}

#[test]
fn a_process_that_overwrote_its_environment_cannot_be_attributed() {
    let agent = Agent::with_sessions();
    let plain = agent.sh("echo READY; exec sleep 1000", &[]);
    plain.says("READY");
    assert!(has_readable_environment(plain.process.id().pid).unwrap());
    let bare = agent.sh("echo READY; exec env -i sleep 1000", &[]);
    until("it has no environment", || !has_readable_environment(bare.process.id().pid).unwrap());
}
