//! `kill -9` in the middle: of the agent and of the server, in every step of a slot's life.
//!
//! Whatever the moment: one process of the slot lives or none, what lives is charged, and everything comes to its right
//! end.

use std::time::{Duration, Instant};

use berth_tests::fleet::{Agent, Fleet, LedgerWatch, Machine, Model, Running};
use berth_tests::service::{eventually, within};

/// One GPU, one agent, and a model whose start, stop and release take a while each.
struct Setup {
    fleet: Fleet,
    machine: Machine,
    agent: Agent,
    watch: Option<LedgerWatch>,
}

impl Setup {
    fn new() -> Self {
        let fleet = Fleet::with(&["scheduler.attempts=50", "scheduler.backoff=20ms", "scheduler.backoff_limit=20ms"]);
        let machine = Machine::new(&[80]);
        let agent = machine.plan(&fleet).set("stop_grace = \"150ms\"").start(&fleet);
        fleet.model(&Model::new("chat", 60).args(&["--ready-after", "100", "--ignore-term"]));
        let watch = Some(LedgerWatch::of(&machine, &fleet, 1));
        Self { fleet, machine, agent, watch }
    }

    /// Kills the agent with SIGKILL and starts it again.
    fn kill_and_restart_agent(&mut self) {
        self.agent.kill();
        self.assert_at_most_one_process();
        self.agent.restart();
    }

    /// Checks that no slot has more than one process, and that one slot at most lives.
    #[track_caller]
    fn assert_at_most_one_process(&self) {
        let living = self.machine.living();
        for process in &living {
            let same = living.iter().filter(|other| other.slot == process.slot).count();
            assert_eq!(same, 1, "more than one process of a slot: {living:?}");
        }
        assert!(living.len() <= 1, "60 and 60 on 80: {living:?}");
    }

    /// Waits until the lease runs, and checks that its slot is one process that was started once.
    #[track_caller]
    fn assert_runs(&self, lease: &str) -> Running {
        let running = self.fleet.running(lease);
        self.assert_at_most_one_process();
        let alive = self.machine.living_of(&running.slot);
        assert_eq!(alive.len(), 1, "{:?}", self.machine.living());
        assert_eq!(self.machine.starts_of(&running.slot), 1, "nothing is started twice");
        assert_eq!(self.fleet.charge(&self.machine.uuid(0)).used(), 60);
        running
    }

    /// Waits until all memory is free, and checks that no process is left.
    #[track_caller]
    fn assert_all_memory_comes_back(&self) {
        let uuid = self.machine.uuid(0);
        self.fleet.until_charge(&uuid, "everything is free", |charge| charge.used() == 0 && charge.free == 80);
        assert!(self.machine.living().is_empty(), "what is free is gone");
        eventually("the agent has forgotten it", || self.agent.lives().is_empty().then_some(()));
    }

    fn finish(mut self) {
        self.watch.take().unwrap().saw_nothing_wrong();
    }

    /// Waits until the agent has a slot on record that is in this life.
    fn until_life(&self, life: &str) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !self.agent.lives().iter().any(|(_, now)| now == life) {
            assert!(Instant::now() < deadline, "never {life}: {:?}", self.agent.lives());
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

#[test]
fn n3_an_agent_killed_while_a_slot_starts_or_is_ready_adopts_it() {
    let mut setup = Setup::new();
    for life in ["starting", "ready"] {
        let lease = setup.fleet.lease("chat");
        setup.until_life(life);
        setup.kill_and_restart_agent();
        let running = setup.assert_runs(&lease);
        setup.fleet.stop(&running);
        setup.assert_all_memory_comes_back();
    }
    setup.finish();
}

#[test]
fn n3_an_agent_killed_while_a_slot_ends_proves_the_end_after_its_restart() {
    let mut setup = Setup::new();
    for life in ["ending", "tree_gone", "gone"] {
        let lease = setup.fleet.lease("chat");
        let running = setup.assert_runs(&lease);
        // The driver takes its time in the middle one.
        setup.machine.change(|scene| scene.lists_the_dead = life == "tree_gone");
        if life == "gone" {
            setup.fleet.stop(&running);
            setup.until_life("ending");
            setup.fleet.server.signal(rustix::process::Signal::STOP);
            setup.until_life(life);
            setup.agent.kill();
            setup.fleet.server.signal(rustix::process::Signal::CONT);
        } else {
            setup.fleet.stop(&running);
            setup.until_life(life);
            setup.agent.kill();
        }
        assert_eq!(setup.fleet.charge(&setup.machine.uuid(0)).used(), 60, "{life}: nobody has heard any proof");
        setup.agent.restart();
        if life == "tree_gone" {
            setup.fleet.until_heard_again(&setup.agent);
            assert_eq!(setup.fleet.charge(&setup.machine.uuid(0)).used(), 60, "the driver lists it");
            setup.machine.change(|scene| scene.lists_the_dead = false);
        }
        setup.fleet.until_slot(&running.slot, "released");
        setup.assert_all_memory_comes_back();
    }
    setup.finish();
}

#[test]
fn n3_an_agent_that_died_before_it_could_note_the_process_finds_it() {
    let mut setup = Setup::new();
    let lease = setup.fleet.lease("chat");
    setup.until_life("starting");
    setup.agent.kill();
    setup.agent.rewrite_as_planned();
    setup.agent.restart();
    let running = setup.assert_runs(&lease);
    setup.fleet.stop(&running);
    setup.assert_all_memory_comes_back();
    setup.finish();
}

#[test]
fn n3_an_agent_that_died_before_it_could_start_starts_it_or_says_that_it_did_not() {
    let mut setup = Setup::new();
    let lease = setup.fleet.lease("chat");
    setup.until_life("starting");
    setup.agent.kill();
    setup.machine.end_all();
    setup.agent.rewrite_as_planned();
    let _ = std::fs::remove_file(setup.machine.diary_file());
    setup.agent.restart();
    let running = setup.assert_runs(&lease);
    setup.fleet.stop(&running);
    setup.assert_all_memory_comes_back();
    setup.finish();
}

#[test]
fn n3_an_agent_killed_at_any_moment_of_a_start_starts_nothing_twice() {
    let mut setup = Setup::new();
    for moment in 0..16 {
        let lease = setup.fleet.lease("chat");
        std::thread::sleep(Duration::from_millis(moment * 3));
        setup.kill_and_restart_agent();
        let running = setup.assert_runs(&lease);
        setup.fleet.stop(&running);
        setup.assert_all_memory_comes_back();
    }
    setup.finish();
}

#[test]
fn n3_an_agent_killed_at_any_moment_of_a_stop_frees_memory_on_proof() {
    let mut setup = Setup::new();
    for moment in 0..10 {
        let lease = setup.fleet.lease("chat");
        let running = setup.assert_runs(&lease);
        setup.fleet.stop(&running);
        std::thread::sleep(Duration::from_millis(moment * 25));
        setup.kill_and_restart_agent();
        setup.fleet.until_slot(&running.slot, "released");
        setup.assert_all_memory_comes_back();
    }
    setup.finish();
}

#[test]
fn n3_an_agent_that_is_killed_again_and_again_still_starts_and_stops_a_slot_once() {
    let mut setup = Setup::new();
    let lease = setup.fleet.lease("chat");
    for moment in 0..8 {
        std::thread::sleep(Duration::from_millis(20 + moment * 10));
        setup.kill_and_restart_agent();
    }
    let running = setup.assert_runs(&lease);
    setup.fleet.stop(&running);
    for moment in 0..8 {
        std::thread::sleep(Duration::from_millis(20 + moment * 10));
        setup.kill_and_restart_agent();
    }
    setup.fleet.until_slot(&running.slot, "released");
    setup.assert_all_memory_comes_back();
    setup.finish();
}

#[test]
fn s1_a_server_killed_at_any_moment_of_a_start_or_a_stop_starts_nothing_twice() {
    let mut setup = Setup::new();
    for moment in 0..6 {
        let lease = setup.fleet.lease("chat");
        std::thread::sleep(Duration::from_millis(moment * 25));
        setup.fleet.server.kill();
        setup.assert_at_most_one_process();
        setup.fleet.restart();
        let running = setup.assert_runs(&lease);
        setup.fleet.stop(&running);
        std::thread::sleep(Duration::from_millis(moment * 35));
        setup.fleet.server.kill();
        setup.fleet.restart();
        setup.fleet.until_slot(&running.slot, "released");
        setup.assert_all_memory_comes_back();
    }
    setup.finish();
}

#[test]
fn s1_an_agent_and_a_server_killed_together_start_nothing_twice() {
    let mut setup = Setup::new();
    for moment in 0..5 {
        let lease = setup.fleet.lease("chat");
        std::thread::sleep(Duration::from_millis(moment * 30));
        setup.fleet.server.kill();
        setup.agent.kill();
        setup.fleet.restart();
        setup.agent.restart();
        let running = setup.assert_runs(&lease);
        let alive = setup.machine.living();
        setup.fleet.server.kill();
        setup.agent.kill();
        setup.agent.restart();
        let ended = within(Duration::from_millis(200), || (setup.machine.living() != alive).then_some(()));
        assert!(ended.is_none(), "an agent without a server ends nothing");
        setup.fleet.restart();
        setup.fleet.stop(&running);
        setup.assert_all_memory_comes_back();
    }
    setup.finish();
}
