//! A data directory with a long past: many workloads, many slots, written by the real engine into the real journal.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, ensure};
use berth_core::{Command, Settings, State};
use berth_domain::{
    BootId, Bytes, ClusterId, DeviceUuid, EpochTag, GpuHealth, GpuName, GpuReport, HostReport, MachineId, Memory,
    MemorySource, Millicores, ModelName, ModelSpec, PoolName, ReasonText, RunnerId, RunnerReport, RuntimeKind,
    RuntimeName, Sequence, Submission, Timestamp, WorkloadId,
};
use berth_server::engine::{Engine, Record};
use berth_store::{Journal, LogJournal, Options, RecordRef};
use uuid::Uuid;

/// A past that is being written.
struct Past {
    engine: Engine,
    journal: LogJournal,
    now: Timestamp,
}

impl Past {
    fn send(&mut self, command: &Command) -> anyhow::Result<()> {
        let (done, answer) = self.engine.execute(command, self.now);
        answer.with_context(|| format!("{command:?}"))?;
        if !done.kept.is_empty() {
            let payload = Record::new(done.at, &done.kept).encode()?;
            let record = RecordRef { last: done.revision, payload: &payload };
            self.journal.append(self.engine.state().epoch(), self.journal.revision(), &[record])?;
        }
        drop(self.engine.take_work_changes());
        Ok(())
    }
}

fn report(number: usize) -> anyhow::Result<RunnerReport> {
    let gpu = |index: u16| -> anyhow::Result<GpuReport> {
        Ok(GpuReport {
            uuid: DeviceUuid::new(format!("GPU-{number}-{index}"))?,
            index,
            name: GpuName::new("H100")?,
            memory_total: Bytes::gib(80),
            memory_used: Bytes::ZERO,
            memory_reserved: Bytes::ZERO,
            parent: None,
            health: GpuHealth::Ok,
        })
    };
    Ok(RunnerReport {
        runner: RunnerId::new(format!("runner-{number}"))?,
        incarnation: None,
        cluster: None,
        obeyed: None,
        shares_machine: true,
        sequence: Sequence::new(1),
        machine: MachineId::new(format!("machine-{number}"))?,
        boot: BootId::new("boot")?,
        version: ReasonText::new("bench")?,
        address: ReasonText::new("")?,
        pool: PoolName::default_pool(),
        labels: BTreeMap::new(),
        allowed: Default::default(),
        engines: Default::default(),
        runtimes: BTreeMap::from([(RuntimeName::new("bench")?, RuntimeKind::Both)]),
        host: HostReport { cpu: Millicores::new(128_000), ram: Bytes::gib(1024) },
        gpus: (0..8).map(gpu).collect::<anyhow::Result<_>>()?,
        slots: Vec::new(),
    })
}

/// Writes a past with `workloads` workloads, `slots` of which have a slot of their own; the others have ended.
/// Returns the size of the journal in bytes.
pub fn write(data_dir: &Path, workloads: usize, slots: usize) -> anyhow::Result<u64> {
    let opened = berth_store::open(data_dir, Options { segment_bytes: 4 << 20, ..Options::default() })?;
    let settings = Settings { queue_limit: 100_000, keep_ended: workloads, ..Settings::default() };
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
    let now = Timestamp::from_millis(u64::try_from(now.as_millis())?);
    let mut past = Past { engine: Engine::new(State::new(settings)), journal: opened.journal, now };
    past.send(&Command::Start { cluster: ClusterId::new(Uuid::now_v7()), tag: EpochTag::default() })?;
    let model = ModelName::new("bench")?;
    let memory = MemorySource::stated(Memory::Total(Bytes::gib(1)));
    let spec = ModelSpec::new(model.clone(), RuntimeName::new("bench")?, memory);
    past.send(&Command::PutModel { spec: Box::new(spec) })?;
    for number in 0..slots.div_ceil(8) {
        past.send(&Command::Report(Box::new(report(number)?)))?;
    }
    for number in 0..workloads {
        let workload = WorkloadId::new(Uuid::now_v7());
        past.send(&Command::Submit { workload, submission: Submission::job(model.clone()), limits: None })?;
        if number >= slots {
            past.send(&Command::Cancel { workload })?;
        }
    }
    ensure!(past.engine.state().workloads().len() == workloads, "{} workloads", past.engine.state().workloads().len());
    let journal = data_dir.join("journal");
    let sizes = std::fs::read_dir(journal)?.map(|entry| Ok(entry?.metadata()?.len()));
    sizes.sum::<std::io::Result<u64>>().map_err(Into::into)
}
