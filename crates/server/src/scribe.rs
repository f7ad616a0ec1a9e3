//! Writes down what was decided and what happened, off the writer's thread.
//!
//! One line for each decision that gives work a slot at `info`, its device rows at `debug`; one line for each event, as
//! loud as [`severity`] says. At `debug`, the lines with a workload's id are its story in order. If the log cannot keep
//! up, lines are dropped and counted: a slow disk for logs must not slow a decision.

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
use crate::views::history::Decided;
use crate::views::stream::Happened;

/// How many stories may wait to be written down.
const LINE: usize = 4096;
/// Whoever comes within this after the first is written down with it: waking a thread costs more than a line does.
const GATHER: Duration = Duration::from_millis(10);

/// What is written down of one batch, in order of revisions.
#[derive(Debug, Default)]
pub struct Story {
    decisions: Vec<Verdict>,
    events: Vec<Happened>,
}

/// What is written down of a decision: its line, and the whole of it where the rows are wanted too.
#[derive(Debug)]
struct Verdict {
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
    rows: Option<Arc<Decided>>,
}

/// The way to the one who writes.
#[derive(Clone, Debug)]
pub struct Scribe {
    line: SyncSender<Option<Story>>,
    dropped: Arc<AtomicU64>,
}

impl Scribe {
    /// Starts writing. It ends after [`Scribe::finish`], when all before it is written.
    pub fn start() -> std::io::Result<(Self, JoinHandle<()>)> {
        let (line, stories) = sync_channel(LINE);
        let dropped = Arc::new(AtomicU64::new(0));
        let missed = dropped.clone();
        let thread = std::thread::Builder::new().name("scribe".into()).spawn(move || write(&stories, &missed))?;
        Ok((Self { line, dropped }, thread))
    }

    /// What of a batch somebody reads. The rest is left alone: words cost more than asking for them.
    #[must_use]
    pub fn pick(&self, decisions: &[Arc<Decided>], events: &[Happened], passing: &[Happened]) -> Story {
        let threshold = Threshold::of_events();
        let told = events.iter().chain(passing).filter(|happened| threshold.allows(severity::of_event(happened)));
        let lines = Threshold::of_decisions();
        let rows = lines.allows(Level::DEBUG);
        let verdict = |decided: &Arc<Decided>| {
            let report = &decided.report;
            let level = severity::of_decision(report.kind, report.workload.is_some(), report.outcome);
            lines.allows(level).then(|| Verdict {
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
        Story { decisions: decisions.iter().filter_map(verdict).collect(), events: told.cloned().collect() }
    }

    /// Hands over what should be written down.
    pub fn write_down(&self, story: Story) {
        let lines = (story.decisions.len() + story.events.len()) as u64;
        if lines > 0 && self.line.try_send(Some(story)).is_err() {
            self.dropped.fetch_add(lines, Ordering::Relaxed);
        }
    }

    /// Nothing comes after this.
    pub fn finish(&self) {
        drop(self.line.send(None));
    }
}

fn write(stories: &Receiver<Option<Story>>, dropped: &AtomicU64) {
    logging::hold();
    while let Ok(first) = stories.recv() {
        if first.is_some() {
            std::thread::sleep(GATHER);
        }
        for story in std::iter::once(first).chain(stories.try_iter()) {
            let Some(story) = story else { return logging::flush() };
            tell(&story);
        }
        let missed = dropped.swap(0, Ordering::Relaxed);
        if missed > 0 {
            tracing::warn!(target: "berth::decision", missed, "lines were dropped: the log cannot keep up");
        }
        logging::flush();
    }
}

fn tell(story: &Story) {
    // A decision comes before what it made happen.
    let mut decisions = story.decisions.iter().peekable();
    for happened in &story.events {
        while let Some(verdict) = decisions.next_if(|verdict| verdict.revision <= happened.revision) {
            write_decision(verdict);
        }
        write_event(happened);
    }
    decisions.for_each(write_decision);
}

fn write_decision(verdict: &Verdict) {
    let workload = verdict.workload.map(tracing::field::display);
    let id = verdict.id.get();
    macro_rules! line {
        ($level:expr) => {
            tracing::event!(
                target: "berth::decision",
                $level,
                decision = id,
                workload,
                model = %verdict.model,
                outcome = verdict.outcome.as_str(),
                code = verdict.outcome.code(),
                runner = verdict.runner.as_ref().map(tracing::field::display),
                slot = verdict.slot.map(tracing::field::display),
                evicts = Some(verdict.evicts).filter(|evicts| *evicts > 0),
                examined = verdict.examined,
                revision = verdict.revision.get(),
                us = u64::try_from(verdict.duration.as_micros()).unwrap_or(u64::MAX),
            )
        };
    }
    match verdict.level {
        Level::ERROR | Level::WARN => line!(Level::WARN),
        Level::INFO => line!(Level::INFO),
        _ => line!(Level::DEBUG),
    }
    for row in verdict.rows.iter().flat_map(|decided| &decided.report.devices) {
        let before = row.before;
        tracing::debug!(
            target: "berth::decision",
            decision = verdict.id.get(),
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

fn write_event(happened: &Happened) {
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
