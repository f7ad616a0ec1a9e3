//! `kill -9` in the middle: of the agent and of the server, in every step of a slot's life.
//!
//! Whatever the moment: one process of the slot lives or none, what lives is charged, and everything comes to its right
//! end.

use std::time::{Duration, Instant};

use berth_tests::fleet::{Agent, Fleet, Machine, Model, Running, Witness};
use berth_tests::service::{eventually, within};

/// One GPU, one agent, and a model whose start, stop and release take a while each.
struct Stage {
    fleet: Fleet,
    machine: Machine,
    agent: Agent,
    witness: Option<Witness>,
}

impl Stage {
    fn set() -> Self {
        let fleet = Fleet::with(&["scheduler.attempts=50", "scheduler.backoff=20ms", "scheduler.backoff_limit=20ms"]);
        let machine = Machine::new(&[80]);
        let agent = machine.plan(&fleet).set("stop_grace = \"150ms\"").start(&fleet);
        fleet.model(&Model::new("chat", 60).args(&["--ready-after", "100", "--ignore-term"]));
        let witness = Some(Witness::of(&machine, &fleet, 1));
        Self { fleet, machine, agent, witness }
    }

    /// The agent dies and comes back.
    fn fell(&mut self) {
        self.agent.kill();
        self.one_or_none();
        self.agent.restart();
    }

    /// Of no slot is there more than one.
    #[track_caller]
    fn one_or_none(&self) {
        let living = self.machine.living();
        for process in &living {
            let same = living.iter().filter(|other| other.slot == process.slot).count();
            assert_eq!(same, 1, "more than one process of a slot: {living:?}");
        }
        assert!(living.len() <= 1, "60 and 60 on 80: {living:?}");
    }

    /// Its lease runs, on one process that was started once.
    #[track_caller]
    fn runs(&self, lease: &str) -> Running {
        let running = self.fleet.running(lease);
        self.one_or_none();
        let alive = self.machine.living_of(&running.slot);
        assert_eq!(alive.len(), 1, "{:?}", self.machine.living());
        assert_eq!(self.machine.starts_of(&running.slot), 1, "nothing is started twice");
        assert_eq!(self.fleet.charge(&self.machine.uuid(0)).used(), 60);
        running
    }

    /// Everything is back.
    #[track_caller]
    fn is_clear(&self) {
        let uuid = self.machine.uuid(0);
        self.fleet.until_charge(&uuid, "everything is free", |charge| charge.used() == 0 && charge.free == 80);
        assert!(self.machine.living().is_empty(), "what is free is gone");
        eventually("the agent has forgotten it", || self.agent.lives().is_empty().then_some(()));
    }

    fn ends(mut self) {
        self.witness.take().unwrap().saw_nothing_wrong();
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
    let mut stage = Stage::set();
    for life in ["starting", "ready"] {
        let lease = stage.fleet.lease("chat");
        stage.until_life(life);
        stage.fell();
        let running = stage.runs(&lease);
        stage.fleet.stop(&running);
        stage.is_clear();
    }
    stage.ends();
}

#[test]
fn n3_an_agent_killed_while_a_slot_ends_proves_the_end_after_its_restart() {
    let mut stage = Stage::set();
    for life in ["ending", "tree_gone", "gone"] {
        let lease = stage.fleet.lease("chat");
        let running = stage.runs(&lease);
        // The driver takes its time in the middle one.
        stage.machine.change(|scene| scene.lists_the_dead = life == "tree_gone");
        if life == "gone" {
            stage.fleet.stop(&running);
            stage.until_life("ending");
            stage.fleet.server.signal(rustix::process::Signal::STOP);
            stage.until_life(life);
            stage.agent.kill();
            stage.fleet.server.signal(rustix::process::Signal::CONT);
        } else {
            stage.fleet.stop(&running);
            stage.until_life(life);
            stage.agent.kill();
        }
        assert_eq!(stage.fleet.charge(&stage.machine.uuid(0)).used(), 60, "{life}: nobody has heard any proof");
        stage.agent.restart();
        if life == "tree_gone" {
            stage.fleet.until_heard_again(&stage.agent);
            assert_eq!(stage.fleet.charge(&stage.machine.uuid(0)).used(), 60, "the driver lists it");
            stage.machine.change(|scene| scene.lists_the_dead = false);
        }
        stage.fleet.until_slot(&running.slot, "released");
        stage.is_clear();
    }
    stage.ends();
}

#[test]
fn n3_an_agent_that_died_before_it_could_note_the_process_finds_it() {
    let mut stage = Stage::set();
    let lease = stage.fleet.lease("chat");
    stage.until_life("starting");
    stage.agent.kill();
    stage.agent.rewrite_as_planned();
    stage.agent.restart();
    let running = stage.runs(&lease);
    stage.fleet.stop(&running);
    stage.is_clear();
    stage.ends();
}

#[test]
fn n3_an_agent_that_died_before_it_could_start_starts_it_or_says_that_it_did_not() {
    let mut stage = Stage::set();
    let lease = stage.fleet.lease("chat");
    stage.until_life("starting");
    stage.agent.kill();
    stage.machine.end_all();
    stage.agent.rewrite_as_planned();
    let _ = std::fs::remove_file(stage.machine.diary_file());
    stage.agent.restart();
    let running = stage.runs(&lease);
    stage.fleet.stop(&running);
    stage.is_clear();
    stage.ends();
}

#[test]
fn n3_an_agent_killed_at_any_moment_of_a_start_starts_nothing_twice() {
    let mut stage = Stage::set();
    for moment in 0..16 {
        let lease = stage.fleet.lease("chat");
        std::thread::sleep(Duration::from_millis(moment * 3));
        stage.fell();
        let running = stage.runs(&lease);
        stage.fleet.stop(&running);
        stage.is_clear();
    }
    stage.ends();
}

#[test]
fn n3_an_agent_killed_at_any_moment_of_a_stop_frees_memory_on_proof() {
    let mut stage = Stage::set();
    for moment in 0..10 {
        let lease = stage.fleet.lease("chat");
        let running = stage.runs(&lease);
        stage.fleet.stop(&running);
        std::thread::sleep(Duration::from_millis(moment * 25));
        stage.fell();
        stage.fleet.until_slot(&running.slot, "released");
        stage.is_clear();
    }
    stage.ends();
}

#[test]
fn n3_an_agent_that_is_killed_again_and_again_still_starts_and_stops_a_slot_once() {
    let mut stage = Stage::set();
    let lease = stage.fleet.lease("chat");
    for moment in 0..8 {
        std::thread::sleep(Duration::from_millis(20 + moment * 10));
        stage.fell();
    }
    let running = stage.runs(&lease);
    stage.fleet.stop(&running);
    for moment in 0..8 {
        std::thread::sleep(Duration::from_millis(20 + moment * 10));
        stage.fell();
    }
    stage.fleet.until_slot(&running.slot, "released");
    stage.is_clear();
    stage.ends();
}

#[test]
fn s1_a_server_killed_at_any_moment_of_a_start_or_a_stop_starts_nothing_twice() {
    let mut stage = Stage::set();
    for moment in 0..6 {
        let lease = stage.fleet.lease("chat");
        std::thread::sleep(Duration::from_millis(moment * 25));
        stage.fleet.server.kill();
        stage.one_or_none();
        stage.fleet.restart();
        let running = stage.runs(&lease);
        stage.fleet.stop(&running);
        std::thread::sleep(Duration::from_millis(moment * 35));
        stage.fleet.server.kill();
        stage.fleet.restart();
        stage.fleet.until_slot(&running.slot, "released");
        stage.is_clear();
    }
    stage.ends();
}

#[test]
fn s1_an_agent_and_a_server_killed_together_start_nothing_twice() {
    let mut stage = Stage::set();
    for moment in 0..5 {
        let lease = stage.fleet.lease("chat");
        std::thread::sleep(Duration::from_millis(moment * 30));
        stage.fleet.server.kill();
        stage.agent.kill();
        stage.fleet.restart();
        stage.agent.restart();
        let running = stage.runs(&lease);
        let alive = stage.machine.living();
        stage.fleet.server.kill();
        stage.agent.kill();
        stage.agent.restart();
        let ended = within(Duration::from_millis(200), || (stage.machine.living() != alive).then_some(()));
        assert!(ended.is_none(), "an agent without a server ends nothing");
        stage.fleet.restart();
        stage.fleet.stop(&running);
        stage.is_clear();
    }
    stage.ends();
}
