//! The core of a server whose history went back: what is charged, what is placed, and what runs a second time.

#![expect(clippy::expect_used, clippy::indexing_slicing, reason = "tests")]

use std::collections::BTreeMap;

use berth_core::{Answer, Command, Refusal, Settings, Snapshot, State, invariants, step};
use berth_domain::*;
use berth_sim::SimulatedAgent;
use uuid::Uuid;

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_millis(seconds * 1000)
}

fn name<T: std::str::FromStr<Err: std::fmt::Debug>>(text: &str) -> T {
    text.parse().expect("a name")
}

/// A server with its core, which a test starts again, copies and puts back.
#[derive(Clone)]
struct Server {
    state: State,
    now: u64,
    workloads: u128,
}

impl Server {
    fn new() -> Self {
        let mut server = Self { state: State::new(Settings::default()), now: 0, workloads: 0 };
        server.start(1);
        for (model, gib) in [("large", 60), ("small", 20), ("batch", 20)] {
            let memory = MemorySource::stated(Memory::Total(Bytes::gib(gib)));
            let spec = ModelSpec::new(name(model), name("vllm"), memory);
            server.send(&Command::PutModel { spec: Box::new(spec) });
        }
        server
    }

    fn start(&mut self, tag: u32) {
        let cluster = ClusterId::new(Uuid::from_u128(7));
        self.send(&Command::Start { cluster, tag: EpochTag::new(tag) });
    }

    fn try_send(&mut self, command: &Command) -> Result<Answer, Refusal> {
        self.now += 1;
        let done = step(&mut self.state, command, at(self.now));
        invariants::check(&self.state).expect("what must be true is true");
        done.answer
    }

    fn send(&mut self, command: &Command) -> Answer {
        self.try_send(command).expect("it is taken")
    }

    /// The same state, read back from a copy.
    fn read_back(&self) -> Self {
        let mut state = self.state.clone();
        state.begin_snapshot();
        let snapshot = std::iter::repeat_with(|| state.continue_snapshot(1000)).flatten().next().expect("a snapshot");
        let bytes = serde_json::to_vec(&snapshot).expect("it can be written");
        let snapshot: Snapshot = serde_json::from_slice(&bytes).expect("it can be read");
        Self { state: State::restore(Settings::default(), snapshot).expect("it is sound"), ..self.clone() }
    }

    fn submit(&mut self, model: &str, kind: WorkloadKind) -> WorkloadId {
        self.workloads += 1;
        let workload = WorkloadId::new(Uuid::from_u128(self.workloads));
        let submission = Submission { kind, ..Submission::lease(name(model)) };
        self.send(&Command::Submit { workload, submission, limits: None });
        workload
    }

    fn state_of(&self, workload: WorkloadId) -> (WorkloadState, Option<&'static str>) {
        let row = self.state.workload(workload).expect("it is known");
        (row.state, row.waits.map(berth_core::WaitReason::code).or(row.cause.map(berth_core::Cause::code)))
    }

    fn held(&self, uuid: &str) -> Bytes {
        let device = self.state.devices().into_iter().find(|device| device.uuid.as_str() == uuid);
        device.map(|device| device.balance.held).unwrap_or_default()
    }

    fn barred(&self, runner: &str) -> Option<&'static str> {
        self.state.runner(&name(runner)).expect("it is known").barred.map(berth_core::Exclusion::code)
    }
}

/// A runner with one GPU of 80 GiB, and an agent that obeys the newest answer of its server.
#[derive(Clone)]
struct Agent {
    sim: SimulatedAgent,
    obeyed: Option<HistoryPoint>,
    /// Every slot that it ever started, in order.
    started: Vec<SlotId>,
}

impl Agent {
    fn new(id: &str, machine: &str, gpu: &str) -> Self {
        let gpu = GpuReport {
            uuid: name(gpu),
            index: 0,
            name: name("GPU"),
            memory_total: Bytes::gib(80),
            memory_used: Bytes::ZERO,
            memory_reserved: Bytes::ZERO,
            parent: None,
            health: GpuHealth::Ok,
        };
        let sim = SimulatedAgent::new(RunnerReport {
            runner: name(id),
            incarnation: None,
            cluster: Some(ClusterId::new(Uuid::from_u128(7))),
            obeyed: None,
            shares_machine: true,
            sequence: Sequence::default(),
            machine: name(machine),
            boot: name("boot"),
            version: name(""),
            address: name(""),
            pool: name("default"),
            labels: BTreeMap::new(),
            allowed: BTreeMap::new(),
            engines: BTreeMap::new(),
            runtimes: BTreeMap::from([(name("vllm"), RuntimeKind::Both)]),
            host: HostReport { cpu: Millicores::new(1000), ram: Bytes::gib(100) },
            gpus: vec![gpu],
            slots: Vec::new(),
        });
        Self { sim, obeyed: None, started: Vec::new() }
    }

    /// Reports, and registers anew if the server forgot that this agent registered.
    fn report(&mut self, server: &mut Server) {
        self.sim.facts.obeyed = self.obeyed.map(ObeyedAnswer::Verified);
        let report = self.sim.report(|uuid| self.sim.uses(uuid));
        let answer = match server.try_send(&Command::Report(Box::new(report.clone()))) {
            Err(refusal) if refusal.code() == "not_registered" => {
                server.send(&Command::Report(Box::new(RunnerReport { incarnation: None, ..report })))
            }
            answer => answer.expect("a report is taken"),
        };
        let Answer::Reported { incarnation } = answer else { unreachable!("a report is answered: {answer:?}") };
        self.sim.facts.incarnation = Some(incarnation);
        self.sim.sent_report(at(server.now));
        self.sim.forget_acknowledged();
    }

    /// Reports, hears what is desired, and follows it if the answer is not older than one that it obeyed.
    fn obey(&mut self, server: &mut Server) {
        self.report(server);
        let runner = server.state.runner(&self.sim.facts.runner).expect("it is known");
        let point = HistoryPoint { revision: runner.desired, ..server.state.point() };
        let is_older = |known: HistoryPoint| (point.epoch, point.revision) < (known.epoch, known.revision);
        if self.obeyed.is_some_and(is_older) {
            return;
        }
        self.obeyed = Some(point);
        for slot in server.state.desired(&self.sim.facts.runner) {
            self.started.extend(self.sim.is_new(&slot).then_some(slot.id));
            self.sim.follow(&slot);
        }
        self.report(server);
    }

    fn obey_for_a_while(&mut self, server: &mut Server) {
        (0..4).for_each(|_| self.obey(server));
    }
}

#[test]
fn slots_of_two_servers_that_go_on_from_one_copy_have_different_ids() {
    let mut server = Server::new();
    let mut agent = Agent::new("r1", "m1", "GPU-1");
    agent.obey(&mut server);
    let mut copy = server.read_back();
    server.start(2);
    copy.start(3);
    let mut other = agent.clone();
    for (server, agent) in [(&mut server, &mut agent), (&mut copy, &mut other)] {
        agent.obey(server);
        server.submit("small", WorkloadKind::Lease);
        agent.obey_for_a_while(server);
    }
    assert_eq!(agent.started.len(), 1);
    assert_eq!(other.started.len(), 1);
    assert_ne!(agent.started, other.started);
    assert_eq!(server.state.epoch(), copy.state.epoch(), "both are in the same epoch");
}

#[test]
fn an_answer_of_the_same_epoch_that_is_not_known_is_noticed() {
    let mut server = Server::new();
    let mut agent = Agent::new("r1", "m1", "GPU-1");
    agent.obey(&mut server);
    let mut copy = server.read_back();
    server.submit("large", WorkloadKind::Lease);
    agent.obey_for_a_while(&mut server);
    assert_eq!(agent.sim.slots.len(), 1);

    copy.start(9);
    agent.report(&mut copy);
    assert!(copy.state.went_back().is_some(), "epoch 2 is above epoch 1, but the copy forgot some of epoch 1");
    assert_eq!(copy.held("GPU-1"), Bytes::gib(60), "the slot that it does not know is charged");
    let lease = copy.submit("small", WorkloadKind::Lease);
    assert_eq!(copy.state_of(lease), (WorkloadState::Queued, Some("history_went_back")));
    agent.obey_for_a_while(&mut copy);
    assert_eq!(agent.sim.slots.len(), 1, "nothing is stopped, and nothing is started");

    copy.send(&Command::ContinueHistory { reason: name("test") });
    agent.obey_for_a_while(&mut copy);
    assert_eq!(copy.state.went_back(), None);
    assert_eq!(copy.state_of(lease).0, WorkloadState::Running);
    assert_eq!(copy.held("GPU-1"), Bytes::gib(20), "what was not known is gone, with proof");
    let again = copy.try_send(&Command::ContinueHistory { reason: name("test") }).expect_err("it is whole");
    assert_eq!(again.code(), "history_is_whole");
}

#[test]
fn a_restored_server_goes_on_above_every_runner_whenever_it_comes() {
    let mut server = Server::new();
    let mut agents = [Agent::new("r1", "m1", "GPU-1"), Agent::new("r2", "m2", "GPU-2")];
    agents.iter_mut().for_each(|agent| agent.obey(&mut server));
    let mut copy = server.read_back();
    // One runner is offline while the server starts again and again; another one registers.
    for tag in 2..6 {
        server.start(tag);
        agents[0].obey(&mut server);
    }
    let mut late = Agent::new("r3", "m3", "GPU-3");
    late.obey(&mut server);
    server.submit("large", WorkloadKind::Lease);
    late.obey_for_a_while(&mut server);
    agents[0].obey_for_a_while(&mut server);

    copy.send(&Command::Restore);
    copy.start(10);
    agents[1].obey_for_a_while(&mut copy);
    assert!(copy.state.epoch() < server.state.epoch(), "nobody has shown more yet");
    for agent in [&mut agents[0], &mut late] {
        agent.obey_for_a_while(&mut copy);
        assert!(copy.state.epoch() > server.state.epoch());
    }
    agents[1].obey_for_a_while(&mut copy);
    assert_eq!(copy.state.went_back(), None);
    let leases: Vec<WorkloadId> = (0..6).map(|_| copy.submit("large", WorkloadKind::Lease)).collect();
    for _ in 0..4 {
        agents.iter_mut().chain([&mut late]).for_each(|agent| agent.obey(&mut copy));
    }
    let running = leases.iter().filter(|lease| copy.state_of(**lease).0 == WorkloadState::Running).count();
    assert_eq!(running, 3, "each of the three runners serves one");
    let all: Vec<SlotId> = agents.iter().chain([&late]).flat_map(|agent| agent.started.clone()).collect();
    let distinct: std::collections::BTreeSet<SlotId> = all.iter().copied().collect();
    assert_eq!(all.len(), distinct.len(), "no slot is started twice: {all:?}");
}

#[test]
fn a_job_that_waited_in_the_copy_does_not_run_again_and_a_new_one_does() {
    for restored in [true, false] {
        let mut server = Server::new();
        let mut agent = Agent::new("r1", "m1", "GPU-1");
        agent.obey(&mut server);
        server.submit("large", WorkloadKind::Lease);
        server.submit("small", WorkloadKind::Lease);
        agent.obey_for_a_while(&mut server);
        let waiting = server.submit("batch", WorkloadKind::Job);
        assert_eq!(server.state_of(waiting).0, WorkloadState::Queued);
        let mut copy = server.read_back();
        server.start(2);
        agent.obey_for_a_while(&mut server);

        if restored {
            copy.send(&Command::Restore);
        }
        copy.start(3);
        let fresh = copy.submit("batch", WorkloadKind::Job);
        agent.obey_for_a_while(&mut copy);
        assert_eq!(
            copy.state_of(waiting),
            (WorkloadState::Ended(WorkloadEnd::Failed), Some("history_went_back")),
            "restored: {restored}"
        );
        assert_eq!(copy.state_of(fresh).0, WorkloadState::Queued, "this server took it in itself");
        assert_eq!(copy.state.went_back().is_some(), !restored);
    }
}

#[test]
fn a_runner_is_told_nothing_before_it_has_reported_since_a_restore() {
    let mut server = Server::new();
    let mut agent = Agent::new("r1", "m1", "GPU-1");
    agent.obey(&mut server);
    server.submit("large", WorkloadKind::Lease);
    agent.obey_for_a_while(&mut server);
    let mut copy = server.read_back();
    server.start(2);
    agent.obey(&mut server);
    // The slot goes after the copy was made.
    agent.sim.slots.clear();

    copy.send(&Command::Restore);
    copy.start(3);
    let incarnation = agent.sim.facts.incarnation.expect("it is registered");
    let obeyed = agent.obeyed.map(ObeyedAnswer::Verified);
    copy.send(&Command::Poll { runner: agent.sim.facts.runner.clone(), incarnation, obeyed });
    assert!(copy.state.epoch() > server.state.epoch(), "the poll shows what was obeyed");
    assert_eq!(
        copy.state.desired(&agent.sim.facts.runner),
        [],
        "the slot that is known from the copy is not started again"
    );
    agent.obey_for_a_while(&mut copy);
    assert_eq!(agent.started.iter().filter(|slot| **slot == agent.started[0]).count(), 1);
}

#[test]
fn a_slot_that_was_started_again_since_is_followed_to_its_newest_start() {
    let mut server = Server::new();
    let mut agent = Agent::new("r1", "m1", "GPU-1");
    agent.obey(&mut server);
    let lease = server.submit("large", WorkloadKind::Lease);
    agent.obey_for_a_while(&mut server);
    let mut copy = server.read_back();
    let slot = agent.started[0];
    // The lost history has started it again in its place.
    agent.sim.slots.get_mut(&slot).expect("it runs").generation = Generation::new(4);
    agent.obeyed = Some(HistoryPoint { epoch: Epoch::new(9), ..agent.obeyed.expect("it obeyed") });

    copy.send(&Command::Restore);
    copy.start(2);
    agent.obey_for_a_while(&mut copy);
    let view = copy.state.slots().into_iter().find(|view| view.id == slot).expect("it is known");
    assert_eq!((view.generation, view.state), (Generation::new(4), SlotState::Ready));
    let endpoint = view.endpoint.map(|endpoint| endpoint.to_string());
    assert_eq!(endpoint, Some(format!("r1:{slot}:4")), "the endpoint of the newest start");
    assert_eq!(copy.state_of(lease).0, WorkloadState::Running);
    assert_eq!(copy.held("GPU-1"), Bytes::gib(60), "charged once");
    // It can be stopped, and its memory comes back.
    let attempt = copy.state.workload(lease).expect("it is known").attempt;
    copy.send(&Command::Complete { workload: lease, attempt, succeeded: true });
    copy.send(&Command::StopSlot { slot });
    agent.obey_for_a_while(&mut copy);
    assert_eq!(copy.held("GPU-1"), Bytes::ZERO);
}

#[test]
fn nothing_is_placed_on_a_machine_before_all_its_runners_were_heard() {
    let mut server = Server::new();
    let mut agents = [Agent::new("r1", "m1", "GPU-1"), Agent::new("r2", "m1", "GPU-1")];
    agents.iter_mut().for_each(|agent| agent.obey(&mut server));
    let mut copy = server.read_back();
    server.start(2);
    server.send(&Command::CordonRunner { runner: name("r1") });
    agents.iter_mut().for_each(|agent| agent.obey(&mut server));
    server.submit("large", WorkloadKind::Lease);
    agents.iter_mut().for_each(|agent| agent.obey_for_a_while(&mut server));
    assert_eq!((agents[0].sim.slots.len(), agents[1].sim.slots.len()), (0, 1), "r2 has a slot on the shared GPU");

    copy.send(&Command::Restore);
    copy.start(3);
    let lease = copy.submit("large", WorkloadKind::Lease);
    agents[0].obey_for_a_while(&mut copy);
    assert_eq!(copy.barred("r1"), Some("neighbour_not_reported"));
    assert_eq!(copy.state_of(lease).0, WorkloadState::Queued, "the shared GPU may have a slot of r2");
    agents[1].obey_for_a_while(&mut copy);
    assert_eq!(copy.barred("r1"), None);
    agents.iter_mut().for_each(|agent| agent.obey_for_a_while(&mut copy));
    assert_eq!(copy.state_of(lease).0, WorkloadState::Running);
    assert_eq!(copy.held("GPU-1"), Bytes::gib(60));
}

#[test]
fn a_runner_that_comes_long_after_a_restore_is_accepted_or_raises_the_alarm() {
    let mut server = Server::new();
    let mut agent = Agent::new("r1", "m1", "GPU-1");
    agent.obey(&mut server);
    let mut copy = server.read_back();
    server.start(2);
    agent.obey(&mut server);
    copy.send(&Command::Restore);
    copy.start(3);
    agent.obey_for_a_while(&mut copy);
    let reached = copy.state.epoch();

    // Two hours later every known runner has long been heard.
    copy.now += 2 * 60 * 60;
    let mut below = Agent::new("r2", "m2", "GPU-2");
    below.obeyed = Some(HistoryPoint { epoch: Epoch::new(2), tag: EpochTag::new(2), revision: Revision::new(900) });
    below.report(&mut copy);
    assert_eq!(copy.state.went_back(), None, "the server goes on above that answer already");
    let mut above = Agent::new("r3", "m3", "GPU-3");
    above.obeyed = Some(HistoryPoint { epoch: reached, tag: EpochTag::new(77), revision: Revision::new(1) });
    above.report(&mut copy);
    assert!(copy.state.went_back().is_some(), "another server of this cluster is at work");
}
