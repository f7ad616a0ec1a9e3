//! Slots that run as another user. Only root can start them, so for others there is nothing to see here.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use berth_domain::RuntimeKind;
use berth_runner::process::{
    Exit, ExitFile, ExitNote, OnAgentExit, ProcessTable, SlotMark, SpawnError, SpawnOptions, find_marked_processes,
};
use berth_runner::runtime::{Account, RuntimeConfig, UserId};

use crate::support::{Agent, Started, look, own_user, stop, through_the_door, until};

/// A number that the machine knows nothing of, so that nothing on it is that user's.
const UID: u32 = 3_000_000_017;
const GID: u32 = 3_000_000_018;

fn is_root() -> bool {
    UserId::own().is_root()
}

fn as_another(kind: RuntimeKind) -> RuntimeConfig {
    let (user, group) = (Some(Account::Number(UID)), Some(Account::Number(GID)));
    RuntimeConfig { user, group, kind: Some(kind), ..RuntimeConfig::default() }
}

fn start(agent: &Agent, kind: RuntimeKind, script: &str) -> Started {
    agent.start_launch(agent.launch(&as_another(kind), &["sh", "-c", script], &[]))
}

/// A line of `/proc/PID/status`, its words parted by one blank.
fn status(pid: u32, name: &str) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap();
    line.split_ascii_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn a_slot_becomes_its_user_in_every_respect_and_keeps_its_pid() {
    if !is_root() {
        return;
    }
    let agent = Agent::with_sessions();
    let slot = start(&agent, RuntimeKind::Server, "echo pid $$; exec sleep 1000");
    let pid = slot.process.id().pid;
    assert_eq!(slot.number("pid"), pid);
    assert_eq!(status(pid, "Uid"), [UID.to_string().as_str(); 4].join(" "));
    assert_eq!(status(pid, "Gid"), [GID.to_string().as_str(); 4].join(" "));
    assert_eq!(status(pid, "Groups"), GID.to_string());
    assert_eq!(status(pid, "NoNewPrivs"), "1");
    for set in ["CapPrm", "CapEff", "CapInh", "CapAmb"] {
        assert_eq!(status(pid, set), "0000000000000000", "{set}");
    }
    assert!(look(&mut slot.tree()).contains(&pid));
}

#[test]
fn a_set_user_id_program_gives_a_slot_nothing() {
    let agent = Agent::with_sessions();
    fs::set_permissions(agent.dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let program = agent.path("cat");
    let own = ["/bin/cat", "/usr/bin/cat"].into_iter().find(|path| fs::copy(path, &program).is_ok());
    assert!(own.is_some(), "there is no cat to copy");
    fs::set_permissions(&program, PermissionsExt::from_mode(0o4755)).unwrap();
    let script = format!("grep '^NoNewPrivs' /proc/self/status; {} /proc/self/status; echo DONE", program.display());
    let config = if is_root() { as_another(RuntimeKind::Server) } else { RuntimeConfig::default() };
    let slot = agent.start_launch(agent.launch(&config, &["sh", "-c", &script], &[]));
    let said = slot.says("DONE");
    assert!(said.contains("NoNewPrivs:\t1\nName:\tcat"), "{said}");
    if is_root() {
        assert!(said.contains(&format!("Uid:\t{UID}\t{UID}\t{UID}\t{UID}")), "{said}");
    }
}

#[test]
fn how_a_job_of_another_user_ended_is_noted_where_it_cannot_write() {
    if !is_root() {
        return;
    }
    for on_agent_exit in [OnAgentExit::Keep, OnAgentExit::Kill] {
        let agent = Agent::new(SpawnOptions { on_agent_exit, ..through_the_door() });
        fs::set_permissions(agent.dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let script =
            "echo; ls /proc/$$/fd | tr '\\n' ' '; echo; echo parent $PPID; kill -KILL $PPID && echo KILLED; exit 5";
        let job = start(&agent, RuntimeKind::Job, script);
        assert_eq!(job.exit(), Exit::Code(5), "{on_agent_exit:?}");
        let said = job.says("parent");
        assert!(said.contains("\n0 1 2 \n"), "the exit file came along: {said}");
        assert!(!said.contains("KILLED"), "{said}");
        if on_agent_exit == OnAgentExit::Keep {
            assert_eq!(ExitFile::at(job.log.exit_file()).read(), Some(ExitNote::Ended(Exit::Code(5))));
        }
        assert_eq!(fs::metadata(job.log.exit_file()).unwrap().permissions().mode() & 0o777, 0o600);
        let absent = agent.start_launch(agent.launch(&as_another(RuntimeKind::Job), &["/nowhere/at/all"], &[]));
        assert_eq!(absent.exit(), Exit::NotRun, "{on_agent_exit:?}");
    }
}

#[test]
fn the_keeper_of_a_job_stays_the_agents_user_and_both_are_of_the_slot() {
    if !is_root() {
        return;
    }
    let agent = Agent::with_sessions();
    let job = start(&agent, RuntimeKind::Job, "echo program $$; exec sleep 1000");
    let (keeper, program) = (job.process.id().pid, job.number("program"));
    assert_ne!(keeper, program);
    assert_eq!(status(keeper, "Uid"), "0 0 0 0");
    assert_eq!(status(program, "Uid"), [UID.to_string().as_str(); 4].join(" "));
    // The program may run before the thread that started it has ended.
    until("the thread that became the user to be gone", || {
        let threads = fs::read_dir(format!("/proc/{keeper}/task")).unwrap().map(|entry| entry.unwrap().path());
        threads.filter_map(|thread| fs::read_to_string(thread.join("status")).ok()).all(|status| {
            let users = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap();
            users.split_whitespace().eq(["0"; 4])
        })
    });
    // By the mark alone, as after a loss of the record, and by mark and secret.
    let table = ProcessTable::read().unwrap();
    let users = own_user().into_iter().chain([UserId::new(UID)]).collect();
    let found = find_marked_processes(&table, &agent.runner, &users).unwrap();
    let pids: Vec<u32> = found[&job.mark].iter().map(|process| process.pid).collect();
    assert_eq!(pids, [keeper, program]);
    let found = find_marked_processes(&table, &agent.runner, &own_user()).unwrap();
    assert_eq!(found[&job.mark].len(), 1, "the program is of no user that this agent has");
    assert_eq!(look(&mut job.tree()), [keeper, program]);
    stop(job.tree(), 5_000);
}

#[test]
fn a_slot_of_another_user_dies_with_its_agent() {
    if !is_root() {
        return;
    }
    let agent = Agent::new(SpawnOptions { on_agent_exit: OnAgentExit::Kill, ..through_the_door() });
    let slot = start(&agent, RuntimeKind::Server, "echo READY; exec sleep 1000");
    slot.says("READY");
    drop(agent.spawner);
    assert_eq!(slot.exit(), Exit::Signal(15));
}

#[test]
fn without_the_agents_own_program_nothing_is_started_as_another_user() {
    if !is_root() {
        return;
    }
    let agent = Agent::new(SpawnOptions::default());
    let launch = agent.launch(&as_another(RuntimeKind::Server), &["sleep", "1000"], &[]);
    let log = agent.logs.slot(launch.slot, launch.generation).unwrap();
    assert!(matches!(agent.spawner.spawn(&launch, &log), Err(SpawnError::NoTrampoline)));
    // Tests beside this one start slots under the same runner id, so only this slot's mark is looked for.
    let mark = SlotMark { runner: agent.runner.clone(), slot: launch.slot, generation: launch.generation };
    assert_eq!(agent.find_marked_processes(&mark), []);
    assert!(log.tail(usize::MAX).unwrap().is_empty(), "a refused program wrote a log");
}
