//! The core of a server whose history went back: what is charged, what is placed, and what runs a second time.

#![expect(clippy::expect_used, clippy::indexing_slicing, reason = "tests")]

use std::collections::BTreeMap;

use berth_core::{Answer, Command, Refusal, Settings, Snapshot, State, invariants, step};
use berth_domain::*;
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

/// A runner with one GPU of 80 GiB, and an agent that obeys whom it should.
#[derive(Clone)]
struct Agent {
    id: RunnerId,
    machine: &'static str,
    gpu: &'static str,
    incarnation: Option<Incarnation>,
    sequence: u64,
    obeyed: Option<HistoryPoint>,
    slots: BTreeMap<SlotId, (Generation, Bytes)>,
    /// Every slot that it ever started, in order.
    started: Vec<SlotId>,
}

impl Agent {
    fn new(id: &str, machine: &'static str, gpu: &'static str) -> Self {
        Self {
            id: name(id),
            machine,
            gpu,
            incarnation: None,
            sequence: 0,
            obeyed: None,
            slots: BTreeMap::new(),
            started: Vec::new(),
        }
    }

    /// What it says of the slots that it runs.
    fn living(&self) -> Vec<SlotReport> {
        let slot = |(id, (generation, bytes)): (&SlotId, &(Generation, Bytes))| SlotReport {
            id: *id,
            generation: *generation,
            model: None,
            state: ReportedState::Ready,
            exit: None,
            endpoint: Some(name(&format!("http://{}:{generation}", self.id))),
            claims: vec![ReportedClaim { uuid: name(self.gpu), bytes: *bytes }],
            memory: vec![ReportedMemory { uuid: name(self.gpu), used: *bytes, peak: *bytes }],
        };
        self.slots.iter().map(slot).collect()
    }

    fn report(&mut self, server: &mut Server) {
        let slots = self.living();
        self.report_slots(server, slots);
    }

    fn report_slots(&mut self, server: &mut Server, slots: Vec<SlotReport>) {
        self.sequence += 1;
        let used =
            slots.iter().flat_map(|slot| &slot.memory).fold(Bytes::ZERO, |sum, row| sum.saturating_add(row.used));
        let report = RunnerReport {
            runner: self.id.clone(),
            incarnation: self.incarnation,
            cluster: Some(ClusterId::new(Uuid::from_u128(7))),
            obeyed: self.obeyed.map(ObeyedAnswer::Verified),
            shares_machine: true,
            sequence: Sequence::new(self.sequence),
            machine: name(self.machine),
            boot: name("boot"),
            version: name(""),
            address: name(""),
            pool: name("default"),
            labels: BTreeMap::new(),
            allowed: BTreeMap::new(),
            engines: BTreeMap::new(),
            runtimes: BTreeMap::from([(name("vllm"), RuntimeKind::Both)]),
            host: HostReport { cpu: Millicores::new(1000), ram: Bytes::gib(100) },
            gpus: vec![GpuReport {
                uuid: name(self.gpu),
                index: 0,
                name: name("GPU"),
                memory_total: Bytes::gib(80),
                memory_used: used,
                memory_reserved: Bytes::ZERO,
                parent: None,
                health: GpuHealth::Ok,
            }],
            slots,
        };
        match server.try_send(&Command::Report(Box::new(report.clone()))) {
            Ok(Answer::Reported { incarnation }) => self.incarnation = Some(incarnation),
            // The server forgot that this agent registered: it registers anew.
            Err(refusal) if refusal.code() == "not_registered" => {
                let report = RunnerReport { incarnation: None, ..report };
                let Answer::Reported { incarnation } = server.send(&Command::Report(Box::new(report))) else {
                    unreachable!("a report is answered with an incarnation")
                };
                self.incarnation = Some(incarnation);
            }
            other => unreachable!("a report is taken: {other:?}"),
        }
    }

    /// Reports, hears what is wanted, and does it if the answer is not older than one that it obeyed.
    fn obey(&mut self, server: &mut Server) {
        self.report(server);
        let runner = server.state.runner(&self.id).expect("it is known");
        let point = HistoryPoint { revision: runner.desired, ..server.state.point() };
        let is_older = |known: HistoryPoint| (point.epoch, point.revision) < (known.epoch, known.revision);
        if self.obeyed.is_some_and(is_older) {
            return;
        }
        self.obeyed = Some(point);
        let mut gone = Vec::new();
        for slot in server.state.desired(&self.id) {
            let bytes = slot.gpus.first().map(|gpu| gpu.memory_bytes).unwrap_or_default();
            match slot.action {
                DesiredAction::Run(_) if !self.slots.contains_key(&slot.id) => {
                    self.slots.insert(slot.id, (slot.generation, bytes));
                    self.started.push(slot.id);
                }
                DesiredAction::Run(_) => {}
                DesiredAction::Account if self.slots.contains_key(&slot.id) => {}
                DesiredAction::Stop | DesiredAction::Account => {
                    self.slots.remove(&slot.id);
                    gone.push(SlotReport {
                        id: slot.id,
                        generation: slot.generation,
                        model: None,
                        state: ReportedState::Gone {
                            why: SlotEnd::NoTrace,
                            evidence: Evidence { tree_gone: true, driver_clear: true },
                        },
                        exit: None,
                        endpoint: None,
                        claims: Vec::new(),
                        memory: Vec::new(),
                    });
                }
            }
        }
        gone.extend(self.living());
        self.report_slots(server, gone);
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
    assert_eq!(agent.slots.len(), 1);

    copy.start(9);
    agent.report(&mut copy);
    assert!(copy.state.went_back().is_some(), "epoch 2 is above epoch 1, but the copy forgot some of epoch 1");
    assert_eq!(copy.held("GPU-1"), Bytes::gib(60), "the slot that it does not know is charged");
    let lease = copy.submit("small", WorkloadKind::Lease);
    assert_eq!(copy.state_of(lease), (WorkloadState::Queued, Some("history_went_back")));
    agent.obey_for_a_while(&mut copy);
    assert_eq!(agent.slots.len(), 1, "nothing is stopped, and nothing is started");

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
    agent.slots.clear();

    copy.send(&Command::Restore);
    copy.start(3);
    let incarnation = agent.incarnation.expect("it is registered");
    let obeyed = agent.obeyed.map(ObeyedAnswer::Verified);
    copy.send(&Command::Poll { runner: agent.id.clone(), incarnation, obeyed });
    assert!(copy.state.epoch() > server.state.epoch(), "the poll shows what was obeyed");
    assert_eq!(copy.state.desired(&agent.id), [], "the slot that is known from the copy is not started again");
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
    agent.slots.insert(slot, (Generation::new(4), Bytes::gib(60)));
    agent.obeyed = Some(HistoryPoint { epoch: Epoch::new(9), ..agent.obeyed.expect("it obeyed") });

    copy.send(&Command::Restore);
    copy.start(2);
    agent.obey_for_a_while(&mut copy);
    let view = copy.state.slots().into_iter().find(|view| view.id == slot).expect("it is known");
    assert_eq!((view.generation, view.state), (Generation::new(4), SlotState::Ready));
    assert_eq!(view.endpoint.map(|endpoint| endpoint.to_string()), Some("http://r1:4".to_owned()));
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
    assert_eq!((agents[0].slots.len(), agents[1].slots.len()), (0, 1), "r2 has a slot on the shared GPU");

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
