//! The log of decisions and events, written by a thread of its own.
//!
//! The log has one line for each decision that gives work a slot at `info`, its device rows at `debug`; one line for each event, as
//! loud as [`severity`] says. At `debug`, the lines with a workload's id are its whole history in order. If the
//! disk cannot keep up, lines are dropped and counted: a slow disk for logs must not slow a decision.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use berth_core::Outcome;
use berth_domain::{DecisionId, ModelName, Revision, RunnerId, SlotId, WorkloadId};
use tracing::Level;

use crate::logging;
use crate::present;
use crate::severity;
use crate::views::history::RecordedDecision;
use crate::views::stream::PublishedEvent;

/// How many batches may wait for the thread that writes them.
const CHANNEL_CAPACITY: usize = 4096;
/// How long the thread waits for more batches after the first: waking it costs more than writing a line does.
const GATHER_TIME: Duration = Duration::from_millis(10);

/// The lines of one batch, in order of revisions.
#[derive(Debug, Default)]
pub struct LogBatch {
    decisions: Vec<DecisionLine>,
    events: Vec<PublishedEvent>,
}

/// The line of one decision, with the whole decision where the device rows are logged too.
#[derive(Debug)]
struct DecisionLine {
    id: DecisionId,
    level: Level,
    workload: Option<WorkloadId>,
    model: ModelName,
    outcome: Outcome,
    runner: Option<RunnerId>,
    slot: Option<SlotId>,
    evicts: usize,
    examined: u32,
    revision: Revision,
    duration: Duration,
    rows: Option<Arc<RecordedDecision>>,
}

/// Sends batches of lines to the thread that writes them.
#[derive(Clone, Debug)]
pub struct DecisionLog {
    channel: SyncSender<Option<LogBatch>>,
    dropped: Arc<AtomicU64>,
}

impl DecisionLog {
    /// Starts the thread. It ends after [`DecisionLog::stop`], once it has written what was sent before.
    pub fn start() -> std::io::Result<(Self, JoinHandle<()>)> {
        let (channel, batches) = sync_channel(CHANNEL_CAPACITY);
        let dropped = Arc::new(AtomicU64::new(0));
        let missed = dropped.clone();
        let thread =
            std::thread::Builder::new().name("decision-log".into()).spawn(move || write_batches(&batches, &missed))?;
        Ok((Self { channel, dropped }, thread))
    }

    /// Prepares the lines of a batch that the log filter lets through. Nothing is formatted for the others.
    #[must_use]
    pub fn prepare(
        &self,
        decisions: &[Arc<RecordedDecision>],
        events: &[PublishedEvent],
        passing: &[PublishedEvent],
    ) -> LogBatch {
        let threshold = Threshold::of_events();
        let told = events.iter().chain(passing).filter(|happened| threshold.allows(severity::of_event(happened)));
        let lines = Threshold::of_decisions();
        let rows = lines.allows(Level::DEBUG);
        let line = |decided: &Arc<RecordedDecision>| {
            let report = &decided.report;
            let level = severity::of_decision(report.kind, report.workload.is_some(), report.outcome);
            lines.allows(level).then(|| DecisionLine {
                id: decided.id,
                level,
                workload: report.workload,
                model: report.model.clone(),
                outcome: report.outcome,
                runner: report.runner.clone(),
                slot: report.slot,
                evicts: report.evictions.len(),
                examined: report.examined,
                revision: decided.revision,
                duration: decided.duration,
                rows: rows.then(|| decided.clone()),
            })
        };
        LogBatch { decisions: decisions.iter().filter_map(line).collect(), events: told.cloned().collect() }
    }

    /// Hands a batch of lines to the thread. If the channel is full, they are dropped and counted.
    pub fn write(&self, batch: LogBatch) {
        let lines = (batch.decisions.len() + batch.events.len()) as u64;
        if lines > 0 && self.channel.try_send(Some(batch)).is_err() {
            self.dropped.fetch_add(lines, Ordering::Relaxed);
        }
    }

    /// Ends the thread once it has written what was sent before.
    pub fn stop(&self) {
        drop(self.channel.send(None));
    }
}

fn write_batches(batches: &Receiver<Option<LogBatch>>, dropped: &AtomicU64) {
    logging::hold();
    while let Ok(first) = batches.recv() {
        if first.is_some() {
            std::thread::sleep(GATHER_TIME);
        }
        for batch in std::iter::once(first).chain(batches.try_iter()) {
            let Some(batch) = batch else { return logging::flush() };
            write_batch(&batch);
        }
        let missed = dropped.swap(0, Ordering::Relaxed);
        if missed > 0 {
            tracing::warn!(target: "berth::decision", missed, "lines were dropped: the log cannot keep up");
        }
        logging::flush();
    }
}

fn write_batch(batch: &LogBatch) {
    // A decision comes before what it made happen.
    let mut decisions = batch.decisions.iter().peekable();
    for happened in &batch.events {
        while let Some(line) = decisions.next_if(|line| line.revision <= happened.revision) {
            write_decision(line);
        }
        write_event(happened);
    }
    decisions.for_each(write_decision);
}

fn write_decision(line: &DecisionLine) {
    let workload = line.workload.map(tracing::field::display);
    let id = line.id.get();
    macro_rules! line {
        ($level:expr) => {
            tracing::event!(
                target: "berth::decision",
                $level,
                decision = id,
                workload,
                model = %line.model,
                outcome = line.outcome.as_str(),
                code = line.outcome.code(),
                runner = line.runner.as_ref().map(tracing::field::display),
                slot = line.slot.map(tracing::field::display),
                evicts = Some(line.evicts).filter(|evicts| *evicts > 0),
                examined = line.examined,
                revision = line.revision.get(),
                us = u64::try_from(line.duration.as_micros()).unwrap_or(u64::MAX),
            )
        };
    }
    match line.level {
        Level::ERROR | Level::WARN => line!(Level::WARN),
        Level::INFO => line!(Level::INFO),
        _ => line!(Level::DEBUG),
    }
    for row in line.rows.iter().flat_map(|decided| &decided.report.devices) {
        let before = row.before;
        tracing::debug!(
            target: "berth::decision",
            decision = line.id.get(),
            workload,
            device = %row.uuid,
            runner = %row.runner,
            capacity = before.capacity.get(),
            held = before.held.get(),
            releasing = before.releasing.get(),
            promised = before.promised.get(),
            foreign = before.foreign.get(),
            free = before.free.get(),
            free_after = row.after.map(|after| after.free.get()),
            needed = row.needed.get(),
            verdict = present::verdict_code(&row.verdict),
        );
    }
}

fn write_event(happened: &PublishedEvent) {
    let told = present::event(happened);
    macro_rules! line {
        ($level:expr) => {
            tracing::event!(
                target: "berth::event",
                $level,
                revision = told.revision.get(),
                kind = told.kind.as_str(),
                workload = told.workload_id.map(tracing::field::display),
                slot = told.slot_id.map(tracing::field::display),
                runner = told.runner_id.as_ref().map(tracing::field::display),
                device = told.device_uuid.as_ref().map(tracing::field::display),
                model = told.model.as_ref().map(tracing::field::display),
                "{}",
                told.text
            )
        };
    }
    match severity::of_event(happened) {
        Level::ERROR => line!(Level::ERROR),
        Level::WARN => line!(Level::WARN),
        Level::INFO => line!(Level::INFO),
        _ => line!(Level::DEBUG),
    }
}

/// The quietest level that somebody reads.
struct Threshold(Option<Level>);

impl Threshold {
    fn of_events() -> Self {
        Self(quietest([
            tracing::enabled!(target: "berth::event", Level::ERROR),
            tracing::enabled!(target: "berth::event", Level::WARN),
            tracing::enabled!(target: "berth::event", Level::INFO),
            tracing::enabled!(target: "berth::event", Level::DEBUG),
        ]))
    }

    fn of_decisions() -> Self {
        Self(quietest([
            tracing::enabled!(target: "berth::decision", Level::ERROR),
            tracing::enabled!(target: "berth::decision", Level::WARN),
            tracing::enabled!(target: "berth::decision", Level::INFO),
            tracing::enabled!(target: "berth::decision", Level::DEBUG),
        ]))
    }

    fn allows(&self, level: Level) -> bool {
        self.0.is_some_and(|quietest| level <= quietest)
    }
}

fn quietest(enabled: [bool; 4]) -> Option<Level> {
    let levels = [Level::ERROR, Level::WARN, Level::INFO, Level::DEBUG];
    levels.into_iter().zip(enabled).rfind(|(_, enabled)| *enabled).map(|(level, _)| level)
}
