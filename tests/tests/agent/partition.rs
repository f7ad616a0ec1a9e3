//! Network partitions: an agent in a network namespace whose link to the server is cut, in both directions or in one.

use std::path::PathBuf;
use std::time::Duration;

use berth_tests::fleet::{Agent, Fleet, LedgerWatch, Machine, Model, NetworkNamespace, Running};
use berth_tests::service::{Options, Server, eventually};
use tempfile::TempDir;

/// A server that listens beyond loopback, so it has a certificate and tokens.
struct RemoteFleet {
    network: NetworkNamespace,
    fleet: Fleet,
    credentials: TempDir,
}

impl RemoteFleet {
    fn with(settings: &[&str]) -> Self {
        let network = NetworkNamespace::create();
        let credentials = tempfile::tempdir().unwrap();
        let made = rcgen::generate_simple_self_signed([network.here.clone()]).unwrap();
        let file = |name: &str| credentials.path().join(name);
        std::fs::write(file("cert.pem"), made.cert.pem()).unwrap();
        std::fs::write(file("key.pem"), made.signing_key.serialize_pem()).unwrap();
        // The first token is made while the server listens on loopback only.
        let mut at_home = Server::start();
        let secret = at_home.api().token("ops", "admin", None);
        assert!(at_home.terminate().success());
        let tls = ["cert", "key"].map(|name| format!("tls.{name}={}", file(&format!("{name}.pem")).display()));
        let options: Options = at_home.options().listen(&format!("{}:0", network.here)).trusting(&made.cert.pem());
        let mut fleet = Fleet::of(options.set(&[&tls[0], &tls[1]]), settings);
        fleet.api = fleet.api.with_token(&secret);
        Self { network, fleet, credentials }
    }

    /// Starts an agent with credentials, in the namespace or on the host.
    fn agent(&self, machine: &Machine, inside: bool) -> Agent {
        let plan = machine.plan(&self.fleet);
        let secret = self.fleet.api.token(plan.name(), "runner", Some(plan.name()));
        let token: PathBuf = self.credentials.path().join(plan.name());
        std::fs::write(&token, secret).unwrap();
        let plan = plan
            .set(&format!("token_file = \"{}\"", token.display()))
            .set(&format!("ca = \"{}\"", self.credentials.path().join("cert.pem").display()));
        let plan = if inside { plan.through(&self.network.enter()) } else { plan };
        plan.start(&self.fleet)
    }
}

/// Starts one machine in the namespace, with a slot that runs.
fn one_beyond(remote: &RemoteFleet) -> (Machine, Agent, Running) {
    let machine = Machine::new(&[80]);
    let agent = remote.agent(&machine, true);
    remote.fleet.model(&Model::new("chat", 60));
    let chat = remote.fleet.run("chat");
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
    let remote = RemoteFleet::with(&["scheduler.suspect_after=1s", "scheduler.lost_after=1m"]);
    let (machine, agent, chat) = one_beyond(&remote);
    let (fleet, alive) = (&remote.fleet, machine.living());
    let watch = LedgerWatch::of(&machine, fleet, 1);
    remote.network.cut();
    eventually("it is suspected", || (fleet.runner_state(&agent) == "suspect").then_some(()));
    is_as_before(fleet, &machine, &chat);
    remote.network.mend();
    eventually("it is back", || (fleet.runner_state(&agent) == "ready").then_some(()));
    fleet.until_heard_again(&agent);
    assert_eq!(machine.living(), alive);
    is_as_before(fleet, &machine, &chat);
    assert_eq!(fleet.api.workload(&chat.workload)["attempt"], 1);
    // And it obeys again.
    fleet.stop(&chat);
    fleet.until_slot(&chat.slot, "released");
    assert!(machine.living().is_empty());
    watch.saw_nothing_wrong();
}

#[test]
fn n2_a_long_partition_moves_leases_and_frees_nothing() {
    let remote = RemoteFleet::with(&["scheduler.suspect_after=500ms", "scheduler.lost_after=2s"]);
    let (machine, agent, chat) = one_beyond(&remote);
    let (fleet, alive) = (&remote.fleet, machine.living());
    let other = Machine::new(&[80]);
    let _other_agent = remote.agent(&other, false);
    let watch = LedgerWatch::of(&machine, fleet, 1);
    remote.network.cut();
    eventually("it is lost", || (fleet.runner_state(&agent) == "lost").then_some(()));
    eventually("its lease runs elsewhere", || {
        let row = fleet.api.workload(&chat.workload);
        (row["state"] == "running" && row["attempt"] == 2).then_some(())
    });
    assert_eq!((other.living().len(), machine.living()), (1, alive.clone()));
    assert_eq!(fleet.charge(&machine.uuid(0)).used(), 60, "what may still run is charged");
    remote.network.mend();
    eventually("it is back", || (fleet.runner_state(&agent) == "ready").then_some(()));
    fleet.until_slot(&chat.slot, "ready");
    is_as_before(fleet, &machine, &chat);
    assert_eq!(fleet.api.workload(&chat.workload)["attempt"], 2);
    assert_eq!((other.living().len(), machine.living()), (1, alive));
    watch.saw_nothing_wrong();
}

#[test]
fn n1_an_agent_whose_reports_do_not_arrive_keeps_its_slots() {
    let remote = RemoteFleet::with(&["scheduler.suspect_after=1s", "scheduler.lost_after=1m"]);
    let (machine, agent, chat) = one_beyond(&remote);
    let (fleet, alive) = (&remote.fleet, machine.living());
    let watch = LedgerWatch::of(&machine, fleet, 1);
    remote.network.drop_outgoing();
    eventually("it is suspected", || (fleet.runner_state(&agent) == "suspect").then_some(()));
    is_as_before(fleet, &machine, &chat);
    remote.network.restore_outgoing();
    eventually("it is back", || (fleet.runner_state(&agent) == "ready").then_some(()));
    fleet.until_heard_again(&agent);
    is_as_before(fleet, &machine, &chat);
    assert_eq!(machine.living(), alive);
    watch.saw_nothing_wrong();
}

#[test]
fn n8_slots_decided_while_answers_do_not_arrive_are_started_once_afterwards() {
    let remote = RemoteFleet::with(&["scheduler.suspect_after=10s", "scheduler.lost_after=1m"]);
    let (machine, agent, chat) = one_beyond(&remote);
    let fleet = &remote.fleet;
    let watch = LedgerWatch::of(&machine, fleet, 1);
    fleet.model(&Model::new("small", 10));
    remote.network.drop_incoming();
    // What is decided meanwhile is charged, is not heard of, and is started once: an agent that gets no answer asks again.
    let small = fleet.lease("small");
    assert_eq!(fleet.charge(&machine.uuid(0)).used(), 70);
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(machine.living().len(), 1);
    remote.network.restore_incoming();
    let small = fleet.running(&small);
    assert_eq!(machine.starts_of(&small.slot), 1);
    fleet.until_heard_again(&agent);
    assert_eq!(machine.starts_of(&chat.slot), 1);
    let charge = fleet.charge(&machine.uuid(0));
    assert_eq!((charge.used(), charge.foreign), (70, 0));
    watch.saw_nothing_wrong();
}

#[test]
fn r5_proof_of_a_stop_during_a_partition_arrives_after_it() {
    let remote = RemoteFleet::with(&["scheduler.suspect_after=10s", "scheduler.lost_after=1m"]);
    let machine = Machine::new(&[80]);
    let agent = remote.agent(&machine, true);
    let fleet = &remote.fleet;
    fleet.model(&Model::new("chat", 60).args(&["--ignore-term"]));
    let chat = fleet.run("chat");
    let watch = LedgerWatch::of(&machine, fleet, 1);
    fleet.stop(&chat);
    eventually("it is being ended", || agent.life_of(&chat.slot).filter(|life| life == "ending"));
    remote.network.cut();
    eventually("it is gone", || agent.life_of(&chat.slot).filter(|life| life == "gone"));
    assert!(machine.living().is_empty());
    assert_eq!(fleet.charge(&machine.uuid(0)).used(), 60, "nobody has heard the proof");
    remote.network.mend();
    fleet.until_slot(&chat.slot, "released");
    assert_eq!(fleet.charge(&machine.uuid(0)).used(), 0);
    watch.saw_nothing_wrong();
}
