//! Process trees that resist their end, with real programs.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::support::{Agent, is_alive, look, stop, through_the_door, until};
use berth_runner::process::{Cgroups, Depth, Exit, ProcessTable, SpawnOptions, Tree};

#[test]
fn a_slot_that_ends_when_asked_is_not_forced() {
    let agent = Agent::with_sessions();
    let slot = agent.sh("trap 'echo bye; exit 3' TERM; echo READY; while :; do sleep 0.05; done", &[]);
    slot.says("READY");
    stop(slot.tree(), 20_000);
    assert_eq!(slot.exit(), Exit::Code(3));
    slot.says("bye");
}

#[test]
fn n10_a_slot_that_ignores_term_is_ended_by_force_after_its_grace() {
    let agent = Agent::with_sessions();
    let slot = agent.sh("trap '' TERM; echo READY; while :; do sleep 0.05; done", &[]);
    slot.says("READY");
    let begun = Instant::now();
    stop(slot.tree(), 300);
    assert!(begun.elapsed().as_millis() >= 300, "it was not given its grace");
    assert_eq!(slot.exit(), Exit::Signal(9));
}

#[test]
fn n10_a_child_that_survives_its_parent_is_part_of_the_tree_until_it_is_gone() {
    let agent = Agent::with_sessions();
    let slot = agent.sh("sleep 1000 & echo child $!; exit 0", &[]);
    let child = slot.number("child");
    assert_eq!(slot.exit(), Exit::Code(0));
    let mut tree = slot.tree();
    assert_eq!(look(&mut tree), [child]);
    stop(tree, 5_000);
    assert!(!is_alive(child));
}

#[test]
fn n10_a_daemon_that_forked_twice_and_left_its_session_is_found_by_its_mark() {
    let agent = Agent::with_sessions();
    let script = "
import os, signal, time
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
os.setsid()
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print('daemon', os.getpid(), flush=True)
os.close(0); os.close(1); os.close(2)
os.chdir('/')
while True: time.sleep(1000)
";
    let slot = agent.python(script, &[]);
    let daemon = slot.number("daemon");
    assert_eq!(slot.exit(), Exit::Code(0));
    // As after a restart of the agent: nothing was seen before.
    let mut tree = slot.tree();
    assert!(tree.look(&ProcessTable::read().unwrap(), Depth::Quick).unwrap().is_empty(), "it has left everything");
    assert_eq!(look(&mut tree), [daemon]);
    stop(tree, 200);
    assert!(!is_alive(daemon));
}

#[test]
fn n10_a_tree_without_a_root_is_found_by_its_mark() {
    let agent = Agent::with_sessions();
    let slot = agent.sh("sleep 1000 & echo READY; wait", &[]);
    slot.says("READY");
    let mut tree = Tree::new(slot.mark.clone(), slot.trust(), None, None);
    until("the shell and its child", || look(&mut tree).len() == 2);
    stop(tree, 5_000);
    assert_eq!(slot.exit(), Exit::Signal(15));
}

#[test]
fn n10_a_process_seen_once_is_recognised_after_it_left_its_session_and_wiped_its_environment() {
    let agent = Agent::with_sessions();
    let script = "
import os, subprocess, sys, time
child = subprocess.Popen(['sleep', '1000'], env={}, start_new_session=True)
print('child', child.pid, flush=True)
while not os.path.exists(sys.argv[1]): time.sleep(0.01)
";
    let leave = agent.path("leave");
    let slot = agent.python(script, &[leave.to_str().unwrap()]);
    let child = slot.number("child");
    let mut tree = slot.tree();
    until("both", || tree.look(&ProcessTable::read().unwrap(), Depth::Quick).unwrap().len() == 2);
    std::fs::write(&leave, "").unwrap();
    assert_eq!(slot.exit(), Exit::Code(0));
    assert_eq!(look(&mut slot.tree()), Vec::<u32>::new(), "who never saw it cannot know it: hence the memory");
    assert_eq!(look(&mut tree), [child]);
    stop(tree, 5_000);
    assert!(!is_alive(child));
}

#[test]
fn n10_a_slot_that_leaks_children_while_it_is_being_ended_ends_with_all_of_them() {
    let agent = Agent::with_sessions();
    let script = "
import os, signal, subprocess, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
print('READY', flush=True)
for number in range(2000):
    subprocess.Popen(['sleep', '1000'], start_new_session=number % 2 == 0)
    time.sleep(0.005)
time.sleep(1000)
";
    let slot = agent.python(script, &[]);
    slot.says("READY");
    until("a few children", || agent.find_marked_processes(&slot.mark).len() > 5);
    stop(slot.tree(), 100);
    assert_eq!(slot.exit(), Exit::Signal(9));
    assert_eq!(agent.find_marked_processes(&slot.mark), []);
}

#[test]
fn n10_a_process_that_forks_and_leaves_all_the_time_does_not_slip_past() {
    let agent = Agent::with_sessions();
    let script = "
import os, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print('READY', flush=True)
while True:
    if os.fork(): os._exit(0)
";
    let slot = agent.python(script, &[]);
    slot.says("READY");
    assert_eq!(slot.exit(), Exit::Code(0));
    stop(slot.tree(), 50);
    let group = rustix::process::Pid::from_raw(i32::try_from(slot.process.id().pid).unwrap()).unwrap();
    // The dead are reaped now and then; the living would never go.
    until("an empty group", || {
        agent.spawner.reap(&ProcessTable::read().unwrap());
        rustix::process::test_kill_process_group(group).is_err()
    });
}

#[test]
fn n10_a_bystander_is_left_alone_with_and_without_sessions() {
    for options in [through_the_door(), SpawnOptions::default()] {
        let agent = Agent::new(options);
        let mut bystander = Command::new("sleep").arg("1000").stdin(Stdio::null()).spawn().unwrap();
        let slot = agent.sh("sleep 1000 & sleep 1000 & echo READY; wait", &[]);
        slot.says("READY");
        let mut tree = slot.tree();
        until("three", || look(&mut tree).len() == 3);
        assert!(!look(&mut tree).contains(&bystander.id()));
        stop(tree, 5_000);
        assert!(is_alive(bystander.id()) && is_alive(std::process::id()));
        bystander.kill().unwrap();
        bystander.wait().unwrap();
    }
}

#[test]
fn n10_a_stopped_process_hears_that_it_should_end() {
    let agent = Agent::with_sessions();
    let slot = agent.sh("trap 'exit 4' TERM; echo READY; kill -STOP $$; while :; do sleep 0.05; done", &[]);
    slot.says("READY");
    until("the stop", || ProcessTable::read().unwrap().get(slot.process.id().pid).unwrap().state == 'T');
    stop(slot.tree(), 20_000);
    assert_eq!(slot.exit(), Exit::Code(4));
}

#[test]
fn n10_no_process_leaves_its_cgroup() {
    let Some((cgroups, parent)) = cgroups() else {
        eprintln!("no cgroup v2 that can be written to: not tried here");
        return;
    };
    let agent = Agent::new(SpawnOptions { cgroups: Some(cgroups), ..through_the_door() });
    // It leaves its parent and session and wipes its environment before the agent can look.
    let slot = agent.sh("setsid env -i /bin/sh -c 'trap \"\" TERM; sleep 1000 & echo daemon $!; wait' &", &[]);
    let daemon = slot.number("daemon");
    assert_eq!(slot.exit(), Exit::Code(0));
    let cgroup = agent.spawner.cgroup(slot.launch.slot, slot.launch.generation).unwrap();
    let mut tree = Tree::new(slot.mark.clone(), slot.trust(), Some(slot.process.id().clone()), Some(cgroup.clone()));
    assert!(look(&mut tree).contains(&daemon));
    assert!(cgroup.is_populated().unwrap());
    stop(tree, 100);
    assert!(!is_alive(daemon) && !cgroup.is_populated().unwrap());
    until("the cgroup to be removed", || cgroup.remove().is_ok());
    assert!(cgroup.pids().unwrap().is_empty(), "a cgroup that is no more has nobody in it");
    std::fs::remove_dir(parent).unwrap();
}

/// A subtree for this test, if the machine lets us have one.
fn cgroups() -> Option<(Cgroups, PathBuf)> {
    let mounts = std::fs::read_to_string("/proc/mounts").ok()?;
    let mount = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>()).find(|mount| mount[2] == "cgroup2")?;
    let path = Path::new(mount[1]).join(format!("berth-test-{}", std::process::id()));
    Some((Cgroups::open(&path).ok()?, path))
}
