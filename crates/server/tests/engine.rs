//! The step driven by a simulator: its own clock, its own disk, and crashes wherever it likes.

#![expect(clippy::unwrap_used, reason = "a test says so when it fails")]

use std::collections::BTreeSet;
use std::path::Path;

use berth_core::{Answer, Command, Settings};
use berth_domain::{
    BootId, Bytes, ClusterId, DeviceUuid, EpochTag, GpuHealth, GpuName, GpuReport, HostReport, MachineId, Memory,
    MemorySource, Millicores, ModelName, ModelSpec, PoolName, ReasonText, RunnerId, RunnerReport, RuntimeName,
    Sequence, Submission, Timestamp, WorkloadId,
};
use berth_server::engine::{Engine, Record, Recovery};
use berth_store::sim::{Effect, Fault, SimDisk, survivals};
use berth_store::{Journal, LogJournal, Options, RecordRef};
use uuid::Uuid;

fn report() -> RunnerReport {
    RunnerReport {
        runner: RunnerId::new("r1").unwrap(),
        incarnation: None,
        cluster: None,
        obeyed: None,
        shares_machine: true,
        sequence: Sequence::new(1),
        machine: MachineId::new("m1").unwrap(),
        boot: BootId::new("b1").unwrap(),
        version: ReasonText::new("sim").unwrap(),
        address: ReasonText::new("").unwrap(),
        pool: PoolName::default_pool(),
        labels: std::collections::BTreeMap::new(),
        allowed: std::collections::BTreeMap::new(),
        engines: std::collections::BTreeMap::new(),
        runtimes: std::collections::BTreeMap::from([(
            RuntimeName::new("sim").unwrap(),
            berth_domain::RuntimeKind::Both,
        )]),
        host: HostReport { cpu: Millicores::new(8000), ram: Bytes::gib(64) },
        gpus: vec![GpuReport {
            uuid: DeviceUuid::new("GPU-a").unwrap(),
            index: 0,
            name: GpuName::new("sim").unwrap(),
            memory_total: Bytes::gib(80),
            memory_used: Bytes::ZERO,
            memory_reserved: Bytes::ZERO,
            parent: None,
            health: GpuHealth::Ok,
        }],
        slots: Vec::new(),
    }
}

/// A server without threads, sockets or a clock.
struct Simulated {
    engine: Engine,
    journal: LogJournal<SimDisk>,
    now: Timestamp,
}

fn options() -> Options {
    Options { segment_bytes: 64 * 1024, ..Options::default() }
}

impl Simulated {
    fn start(disk: &SimDisk, now: Timestamp) -> Result<Self, String> {
        let opened =
            LogJournal::open_on(disk.clone(), Path::new("/data"), options()).map_err(|error| error.to_string())?;
        let mut recovery = Recovery::begin(Settings::default(), None).unwrap();
        for record in opened.recovered.records {
            let record = record.unwrap();
            recovery.replay(record.last, &record.payload).unwrap();
        }
        let mut server = Self { engine: Engine::new(recovery.finish()), journal: opened.journal, now };
        let cluster = server.engine.state().cluster().unwrap_or(ClusterId::new(Uuid::from_u128(7)));
        server.batch(&[Command::Start { cluster, tag: EpochTag::default() }])?;
        Ok(server)
    }

    /// A batch as the writer does it; an error is a crash, and nobody was answered.
    fn batch(&mut self, commands: &[Command]) -> Result<Vec<Answer>, String> {
        self.now = self.now.after(berth_domain::Span::from_millis(10));
        self.journal.reserve(64 * 1024, false).map_err(|error| error.to_string())?;
        let (outcomes, answers): (Vec<_>, Vec<_>) =
            commands.iter().map(|command| self.engine.execute(command, self.now)).unzip();
        let kept: Vec<_> = outcomes
            .iter()
            .filter(|outcome| !outcome.kept.is_empty())
            .map(|outcome| (outcome.revision, Record::new(outcome.at, &outcome.kept).encode().unwrap()))
            .collect();
        let records: Vec<_> = kept.iter().map(|(last, payload)| RecordRef { last: *last, payload }).collect();
        let expected = self.journal.revision();
        self.journal.append(self.engine.state().epoch(), expected, &records).map_err(|error| error.to_string())?;
        Ok(answers.into_iter().filter_map(Result::ok).collect())
    }
}

fn submit(number: u128, job: bool) -> Command {
    let model = ModelName::new("m").unwrap();
    let submission = if job { Submission::job(model) } else { Submission::lease(model) };
    Command::Submit { workload: WorkloadId::new(Uuid::from_u128(number)), submission, limits: None }
}

/// A life of some batches on a disk that may stop working at any moment. What was acknowledged comes back.
fn live(disk: &SimDisk) -> BTreeSet<WorkloadId> {
    let mut acknowledged = BTreeSet::new();
    let Ok(mut server) = Simulated::start(disk, Timestamp::from_millis(1_000_000)) else { return acknowledged };
    let spec = ModelSpec::new(
        ModelName::new("m").unwrap(),
        RuntimeName::new("sim").unwrap(),
        MemorySource::stated(Memory::Total(Bytes::gib(30))),
    );
    let opening = [Command::PutModel { spec: Box::new(spec) }, Command::Report(Box::new(report()))];
    if server.batch(&opening).is_err() {
        return acknowledged;
    }
    for round in 0..8u128 {
        let commands: Vec<Command> = (0..5).map(|n| submit(round * 5 + n + 1, n % 2 == 0)).collect();
        match server.batch(&commands) {
            Ok(answers) => acknowledged.extend(answers.into_iter().filter_map(|answer| match answer {
                Answer::Submitted { workload, .. } => Some(workload),
                _ => None,
            })),
            Err(_) => return acknowledged,
        }
    }
    acknowledged
}

/// After a crash everything acknowledged is there, every ledger is right, and life goes on.
fn check_after(disk: &SimDisk, acknowledged: &BTreeSet<WorkloadId>, when: &str) {
    let mut again = Simulated::start(disk, Timestamp::from_millis(2_000_000)).unwrap();
    let there: BTreeSet<WorkloadId> = again.engine.state().workloads().into_iter().map(|view| view.id).collect();
    assert!(acknowledged.is_subset(&there), "{when}: some were lost");
    berth_core::invariants::check(again.engine.state()).unwrap();
    again.batch(&[Command::Tick]).unwrap();
}

#[test]
fn s1_whatever_was_acknowledged_is_there_after_a_crash_at_every_write_and_sync() {
    let mut crashes = 0;
    for at in 1.. {
        let disk = SimDisk::new();
        disk.plan(Some(Fault::Stop { at, effect: Effect::Nothing }));
        let acknowledged = live(&disk);
        for survival in survivals(&disk.pending()) {
            let after = disk.crash(&survival);
            check_after(&after, &acknowledged, &format!("stopped at {at}, {survival:?}"));
            crashes += 1;
        }
        if acknowledged.len() == 40 && disk.operations() < at {
            assert!(crashes > 50, "the disk failed too seldom for this to mean anything: {crashes}");
            return;
        }
    }
}

#[test]
fn a_write_that_fails_is_the_end_of_this_life_and_of_no_acknowledged_workload() {
    for at in 1..60 {
        let disk = SimDisk::new();
        let kind = std::io::ErrorKind::Other;
        disk.plan(Some(Fault::Fail { at, kind, effect: Effect::Nothing, lasting: true }));
        let acknowledged = live(&disk);
        let after = disk.fork();
        check_after(&after, &acknowledged, &format!("failed at {at}"));
    }
}
