//! What every engine goes through, in this order and in one fleet.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::bench::Bench;
use crate::trees;

/// One stage leaves a lease that runs, which the next one takes over.
type Stage = fn(&mut Bench, Option<Lease>) -> Option<Lease>;

/// A lease and the model that it asked for.
struct Lease {
    id: String,
    model: &'static str,
}

const STAGES: [(&str, Stage); 7] = [
    ("asked for its version and options, and offered", is_offered),
    ("serves a completion through the slot's endpoint", serves),
    ("its agent is killed: the next agent takes the slot over", is_adopted),
    ("evicted by a second model: gone before that starts", is_evicted),
    ("killed while it serves: gone whole, and started again", is_killed_while_it_serves),
    ("killed while it starts: gone whole, and started again", is_killed_while_it_starts),
    ("killed while it stops: gone whole, its memory free", is_killed_while_it_stops),
];

/// How many starts the stages have between them: one to serve, one that evicts, one after each of the two kills, and the
/// one that is killed while it starts.
const STARTS: usize = 5;

/// Plays all stages. The first that fails fails the test, and its line is the last that is printed.
pub(crate) fn play(mut bench: Bench) {
    let mut lease = None;
    for (number, (title, stage)) in STAGES.iter().enumerate() {
        let begun = Instant::now();
        eprintln!("   {}/{} {}: {title} ...", number + 1, STAGES.len(), bench.engine.name);
        lease = stage(&mut bench, lease);
        eprintln!(
            "   {}/{} {}: passed ({:.1} s)",
            number + 1,
            STAGES.len(),
            bench.engine.name,
            begun.elapsed().as_secs_f64()
        );
    }
    bench.trees.saw_one_at_a_time(STARTS);
}

fn kill(pid: u32) {
    kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), Signal::KILL).unwrap();
}

fn is_offered(bench: &mut Bench, _: Option<Lease>) -> Option<Lease> {
    let name = bench.engine.name;
    let row = bench.wait("the runtime is offered", || {
        let row = bench.fleet.api.get(&format!("/api/v1/runners/{}", bench.agent.id())).body;
        row["runtimes"].as_array()?.iter().any(|runtime| runtime == name).then_some(row)
    });
    let report = &row["engines"][name];
    let version = report["version"].as_str().unwrap_or_else(|| panic!("it did not say its version: {report}"));
    assert!(version.starts_with(|c: char| c.is_ascii_digit()), "{report}");
    assert!(report["note"].is_null() && report["missing"].is_null(), "the template's options are known: {report}");
    eprintln!("       {name} is version {version}");
    None
}

fn serves(bench: &mut Bench, _: Option<Lease>) -> Option<Lease> {
    let id = bench.fleet.lease("first");
    let running = bench.running(&id);
    bench.completes(&running, "first");
    assert_eq!(bench.held(), 9, "it is charged");
    Some(Lease { id, model: "first" })
}

fn is_adopted(bench: &mut Bench, lease: Option<Lease>) -> Option<Lease> {
    let lease = lease?;
    let running = bench.running(&lease.id);
    let pids = bench.pids(&running.slot);
    bench.agent.kill();
    assert_eq!(bench.pids(&running.slot), pids, "the engine outlives its agent");
    bench.completes(&running, lease.model);
    bench.agent.restart();
    bench.agent.is_heard(&bench.fleet);
    bench.heard_again();
    assert_eq!(bench.running(&lease.id).slot, running.slot);
    assert_eq!(bench.pids(&running.slot), pids, "nothing was started or ended");
    assert_eq!(bench.fleet.slot_state(&running.slot), "ready");
    bench.completes(&running, lease.model);
    Some(lease)
}

fn is_evicted(bench: &mut Bench, lease: Option<Lease>) -> Option<Lease> {
    let lease = lease?;
    let first = bench.running(&lease.id);
    let pids = bench.pids(&first.slot);
    bench.fleet.complete(&lease.id);
    let id = bench.fleet.lease("second");
    // Before the second has a process, nothing of the first is left.
    bench.wait("the second is started", || {
        let slot = bench.fleet.api.workload(&id)["slot"]["id"].as_str()?.to_owned();
        (!bench.pids(&slot).is_empty()).then_some(())
    });
    bench.is_gone(&first.slot, &pids);
    let second = bench.running(&id);
    assert_ne!(second.slot, first.slot);
    bench.completes(&second, "second");
    bench.released(&first.slot, &pids);
    assert_eq!(bench.held(), 9, "one of the two is charged");
    Some(Lease { id, model: "second" })
}

fn is_killed_while_it_serves(bench: &mut Bench, lease: Option<Lease>) -> Option<Lease> {
    let lease = lease?;
    let running = bench.running(&lease.id);
    let pids = bench.pids(&running.slot);
    kill(bench.main_pid(&running.slot));
    started_again(bench, lease, &running.slot, &pids)
}

fn is_killed_while_it_starts(bench: &mut Bench, lease: Option<Lease>) -> Option<Lease> {
    let lease = lease?;
    let running = bench.running(&lease.id);
    let pids = bench.pids(&running.slot);
    bench.fleet.stop(&running);
    bench.released(&running.slot, &pids);
    let id = bench.fleet.lease("first");
    let slot = bench.loading(&id);
    // It goes no further while the test makes sure that it is still on its way.
    let (main, pids) = (bench.main_pid(&slot), bench.pids(&slot));
    bench.machine.pause(main);
    assert_eq!(bench.agent.life_of(&slot).as_deref(), Some("starting"), "it was quicker than the test");
    kill(main);
    started_again(bench, Lease { id, model: "first" }, &slot, &pids)
}

/// The slot whose engine was killed is gone with every process, and the lease runs again.
#[track_caller]
fn started_again(bench: &Bench, lease: Lease, killed: &str, pids: &[u32]) -> Option<Lease> {
    bench.wait("the lease has another slot", || {
        let slot = bench.fleet.api.workload(&lease.id)["slot"]["id"].as_str()?.to_owned();
        (slot != killed && !bench.pids(&slot).is_empty()).then_some(())
    });
    bench.is_gone(killed, pids);
    let running = bench.running(&lease.id);
    bench.completes(&running, lease.model);
    bench.released(killed, pids);
    assert_eq!(bench.held(), 9, "what was killed is not charged");
    Some(lease)
}

fn is_killed_while_it_stops(bench: &mut Bench, lease: Option<Lease>) -> Option<Lease> {
    let lease = lease?;
    let running = bench.running(&lease.id);
    let (main, pids) = (bench.main_pid(&running.slot), bench.pids(&running.slot));
    let was_alive = std::thread::scope(|scope| {
        let killer = scope.spawn(|| kill_once_it_stops(bench, &running.slot, main));
        bench.fleet.stop(&running);
        killer.join().unwrap()
    });
    assert!(was_alive, "it was quicker than the test");
    bench.released(&running.slot, &pids);
    assert_eq!(bench.held(), 0, "everything is free");
    let log = bench.agent.log();
    let ended = log.lines().rfind(|line| line.contains("its process has ended") && line.contains(&running.slot));
    assert!(ended.is_some_and(|line| line.contains("as it was asked to")), "{ended:?}");
    None
}

/// Kills a process as soon as the agent has on record that it stops the slot. Says whether the process still lived.
///
/// The agent lets a process go on that it asks to end. Stopped again and again, it cannot end before it is killed.
fn kill_once_it_stops(bench: &Bench, slot: &str, pid: u32) -> bool {
    let deadline = Instant::now() + bench.engine.patience;
    while bench.agent.life_of(slot).as_deref() != Some("ending") {
        assert!(Instant::now() < deadline, "the agent does not stop slot {slot}");
        bench.machine.pause(pid);
        std::thread::sleep(Duration::from_micros(100));
    }
    let was_alive = trees::is_alive(pid);
    kill(pid);
    was_alive
}
