//! An agent in a network namespace of its own, and a wire that is cut: in both directions, or in one.

use std::path::PathBuf;
use std::time::Duration;

use berth_tests::fleet::{Agent, Fleet, Machine, Model, Running, Wire, Witness};
use berth_tests::service::{Options, Server, eventually};
use tempfile::TempDir;

/// A server that others reach, with what that takes: a certificate and tokens.
struct Abroad {
    wire: Wire,
    fleet: Fleet,
    papers: TempDir,
}

impl Abroad {
    fn with(settings: &[&str]) -> Self {
        let wire = Wire::lay();
        let papers = tempfile::tempdir().unwrap();
        let made = rcgen::generate_simple_self_signed([wire.here.clone()]).unwrap();
        let file = |name: &str| papers.path().join(name);
        std::fs::write(file("cert.pem"), made.cert.pem()).unwrap();
        std::fs::write(file("key.pem"), made.signing_key.serialize_pem()).unwrap();
        // The first token is made where nobody else can reach the server.
        let mut at_home = Server::start();
        let secret = at_home.api().token("ops", "admin", None);
        assert!(at_home.terminate().success());
        let tls = ["cert", "key"].map(|name| format!("tls.{name}={}", file(&format!("{name}.pem")).display()));
        let options: Options = at_home.options().listen(&format!("{}:0", wire.here)).trusting(&made.cert.pem());
        let mut fleet = Fleet::of(options.set(&[&tls[0], &tls[1]]), settings);
        fleet.api = fleet.api.with_token(&secret);
        Self { wire, fleet, papers }
    }

    /// An agent with papers, in the namespace or here.
    fn agent(&self, machine: &Machine, inside: bool) -> Agent {
        let plan = machine.plan(&self.fleet);
        let secret = self.fleet.api.token(plan.name(), "runner", Some(plan.name()));
        let token: PathBuf = self.papers.path().join(plan.name());
        std::fs::write(&token, secret).unwrap();
        let plan = plan
            .set(&format!("token_file = \"{}\"", token.display()))
            .set(&format!("ca = \"{}\"", self.papers.path().join("cert.pem").display()));
        let plan = if inside { plan.through(&self.wire.enter()) } else { plan };
        plan.start(&self.fleet)
    }
}

/// One machine beyond the wire with a slot that runs.
fn one_beyond(abroad: &Abroad) -> (Machine, Agent, Running) {
    let machine = Machine::new(&[80]);
    let agent = abroad.agent(&machine, true);
    abroad.fleet.model(&Model::new("chat", 60));
    let chat = abroad.fleet.run("chat");
    (machine, agent, chat)
}

/// Nothing was ended, started again or charged twice.
#[track_caller]
fn is_as_before(fleet: &Fleet, machine: &Machine, chat: &Running) {
    assert_eq!(machine.living_of(&chat.slot).len(), 1);
    assert_eq!(machine.starts_of(&chat.slot), 1);
    let charge = fleet.charge(&machine.uuid(0));
    assert_eq!((charge.used(), charge.foreign), (60, 0));
}

#[test]
fn n1_a_short_partition_changes_nothing() {
    let abroad = Abroad::with(&["scheduler.suspect_after=1s", "scheduler.lost_after=1m"]);
    let (machine, agent, chat) = one_beyond(&abroad);
    let (fleet, alive) = (&abroad.fleet, machine.living());
    let witness = Witness::of(&machine, fleet, 1);
    abroad.wire.cut();
    eventually("it is suspected", || (fleet.runner_state(&agent) == "suspect").then_some(()));
    is_as_before(fleet, &machine, &chat);
    abroad.wire.mend();
    eventually("it is back", || (fleet.runner_state(&agent) == "ready").then_some(()));
    fleet.until_heard_again(&agent);
    assert_eq!(machine.living(), alive);
    is_as_before(fleet, &machine, &chat);
    assert_eq!(fleet.api.workload(&chat.workload)["attempt"], 1);
    // And it obeys again.
    fleet.stop(&chat);
    fleet.until_slot(&chat.slot, "released");
    assert!(machine.living().is_empty());
    witness.saw_nothing_wrong();
}

#[test]
fn n2_a_long_partition_moves_leases_and_frees_nothing() {
    let abroad = Abroad::with(&["scheduler.suspect_after=500ms", "scheduler.lost_after=2s"]);
    let (machine, agent, chat) = one_beyond(&abroad);
    let (fleet, alive) = (&abroad.fleet, machine.living());
    let other = Machine::new(&[80]);
    let _other_agent = abroad.agent(&other, false);
    let witness = Witness::of(&machine, fleet, 1);
    abroad.wire.cut();
    eventually("it is lost", || (fleet.runner_state(&agent) == "lost").then_some(()));
    eventually("its lease runs elsewhere", || {
        let row = fleet.api.workload(&chat.workload);
        (row["state"] == "running" && row["attempt"] == 2).then_some(())
    });
    assert_eq!((other.living().len(), machine.living()), (1, alive.clone()));
    assert_eq!(fleet.charge(&machine.uuid(0)).used(), 60, "what may still run is charged");
    abroad.wire.mend();
    eventually("it is back", || (fleet.runner_state(&agent) == "ready").then_some(()));
    fleet.until_slot(&chat.slot, "ready");
    is_as_before(fleet, &machine, &chat);
    assert_eq!(fleet.api.workload(&chat.workload)["attempt"], 2);
    assert_eq!((other.living().len(), machine.living()), (1, alive));
    witness.saw_nothing_wrong();
}

#[test]
fn n1_an_agent_whose_reports_do_not_arrive_keeps_its_slots() {
    let abroad = Abroad::with(&["scheduler.suspect_after=1s", "scheduler.lost_after=1m"]);
    let (machine, agent, chat) = one_beyond(&abroad);
    let (fleet, alive) = (&abroad.fleet, machine.living());
    let witness = Witness::of(&machine, fleet, 1);
    abroad.wire.mute();
    eventually("it is suspected", || (fleet.runner_state(&agent) == "suspect").then_some(()));
    is_as_before(fleet, &machine, &chat);
    abroad.wire.unmute();
    eventually("it is back", || (fleet.runner_state(&agent) == "ready").then_some(()));
    fleet.until_heard_again(&agent);
    is_as_before(fleet, &machine, &chat);
    assert_eq!(machine.living(), alive);
    witness.saw_nothing_wrong();
}

#[test]
fn n8_slots_decided_while_answers_do_not_arrive_are_started_once_afterwards() {
    let abroad = Abroad::with(&["scheduler.suspect_after=10s", "scheduler.lost_after=1m"]);
    let (machine, agent, chat) = one_beyond(&abroad);
    let fleet = &abroad.fleet;
    let witness = Witness::of(&machine, fleet, 1);
    fleet.model(&Model::new("small", 10));
    abroad.wire.deafen();
    // What is decided meanwhile is charged, is not heard of, and is started once: whoever cannot hear asks again.
    let small = fleet.lease("small");
    assert_eq!(fleet.charge(&machine.uuid(0)).used(), 70);
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(machine.living().len(), 1);
    abroad.wire.undeafen();
    let small = fleet.running(&small);
    assert_eq!(machine.starts_of(&small.slot), 1);
    fleet.until_heard_again(&agent);
    assert_eq!(machine.starts_of(&chat.slot), 1);
    let charge = fleet.charge(&machine.uuid(0));
    assert_eq!((charge.used(), charge.foreign), (70, 0));
    witness.saw_nothing_wrong();
}

#[test]
fn r5_proof_of_a_stop_during_a_partition_arrives_after_it() {
    let abroad = Abroad::with(&["scheduler.suspect_after=10s", "scheduler.lost_after=1m"]);
    let machine = Machine::new(&[80]);
    let agent = abroad.agent(&machine, true);
    let fleet = &abroad.fleet;
    fleet.model(&Model::new("chat", 60).args(&["--ignore-term"]));
    let chat = fleet.run("chat");
    let witness = Witness::of(&machine, fleet, 1);
    fleet.stop(&chat);
    eventually("it is being ended", || agent.life_of(&chat.slot).filter(|life| life == "ending"));
    abroad.wire.cut();
    eventually("it is gone", || agent.life_of(&chat.slot).filter(|life| life == "gone"));
    assert!(machine.living().is_empty());
    assert_eq!(fleet.charge(&machine.uuid(0)).used(), 60, "nobody has heard the proof");
    abroad.wire.mend();
    fleet.until_slot(&chat.slot, "released");
    assert_eq!(fleet.charge(&machine.uuid(0)).used(), 0);
    witness.saw_nothing_wrong();
}
