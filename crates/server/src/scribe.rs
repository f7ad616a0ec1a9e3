//! Writes down what was decided and what happened, off the writer's thread.
//!
//! One line for each decision at `info`, its device rows at `debug`; one line at `info` for each event that is a turn
//! in somebody's life, the rest at `debug`. Whoever greps for a workload's id reads its story in order. If the log
//! cannot keep up, lines are dropped and counted: a slow disk for logs must not slow a decision.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use berth_core::Event;

use crate::present;
use crate::views::history::Decided;
use crate::views::stream::Happened;

/// How many batches may wait to be written down.
const LINE: usize = 4096;

type Batch = (Vec<Arc<Decided>>, Vec<Arc<Happened>>);

/// The way to the one who writes.
#[derive(Clone, Debug)]
pub struct Scribe {
    line: SyncSender<Option<Batch>>,
    dropped: Arc<AtomicU64>,
}

impl Scribe {
    /// Starts writing. It ends after [`Scribe::finish`], when all before it is written.
    pub fn start() -> std::io::Result<(Self, JoinHandle<()>)> {
        let (line, batches) = sync_channel(LINE);
        let dropped = Arc::new(AtomicU64::new(0));
        let missed = dropped.clone();
        let thread = std::thread::Builder::new().name("scribe".into()).spawn(move || write(&batches, &missed))?;
        Ok((Self { line, dropped }, thread))
    }

    /// Hands over what should be written down.
    pub fn write_down(&self, decisions: Vec<Arc<Decided>>, events: Vec<Arc<Happened>>) {
        let heard = tracing::enabled!(target: "berth::decision", tracing::Level::INFO);
        if !heard || (decisions.is_empty() && events.is_empty()) {
            return;
        }
        let lines = (decisions.len() + events.len()) as u64;
        if self.line.try_send(Some((decisions, events))).is_err() {
            self.dropped.fetch_add(lines, Ordering::Relaxed);
        }
    }

    /// Nothing comes after this.
    pub fn finish(&self) {
        drop(self.line.send(None));
    }
}

fn write(batches: &Receiver<Option<Batch>>, dropped: &AtomicU64) {
    while let Ok(Some((decisions, events))) = batches.recv() {
        let missed = dropped.swap(0, Ordering::Relaxed);
        if missed > 0 {
            tracing::warn!(target: "berth::decision", missed, "lines were dropped: the log cannot keep up");
        }
        // A decision comes before what it made happen.
        let mut decisions = decisions.into_iter().peekable();
        for happened in events {
            while let Some(decided) = decisions.next_if(|decided| decided.revision <= happened.revision) {
                write_decision(&decided);
            }
            write_event(&happened);
        }
        decisions.for_each(|decided| write_decision(&decided));
    }
}

fn write_decision(decided: &Decided) {
    let report = &decided.report;
    let workload = report.workload.map(tracing::field::display);
    tracing::info!(
        target: "berth::decision",
        decision = decided.id.get(),
        workload,
        model = %report.model,
        outcome = report.outcome.as_str(),
        code = report.outcome.code(),
        runner = report.runner.as_ref().map(tracing::field::display),
        slot = report.slot.map(tracing::field::display),
        evicts = report.evictions.len(),
        examined = report.examined,
        revision = decided.revision.get(),
        us = u64::try_from(decided.duration.as_micros()).unwrap_or(u64::MAX),
    );
    if !tracing::enabled!(target: "berth::decision", tracing::Level::DEBUG) {
        return;
    }
    for row in &report.devices {
        let before = row.before;
        tracing::debug!(
            target: "berth::decision",
            decision = decided.id.get(),
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
    let turn = is_a_turn(&happened.event);
    // Words cost more than asking whether anybody reads them.
    if !turn && !tracing::enabled!(target: "berth::event", tracing::Level::DEBUG) {
        return;
    }
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
    if turn { line!(tracing::Level::INFO) } else { line!(tracing::Level::DEBUG) }
}

/// Whether an event is a turn in somebody's life that a decision's own line does not tell.
fn is_a_turn(event: &Event) -> bool {
    !matches!(
        event,
        Event::WorkloadSubmitted { .. }
            | Event::WorkloadWaits { .. }
            | Event::WorkloadAssigned { .. }
            | Event::WorkloadForgotten { .. }
            | Event::WorkloadEligible { .. }
            | Event::SlotPlaced(_)
            | Event::SlotSeen { .. }
            | Event::SlotGranted { .. }
            | Event::SlotRipened { .. }
            | Event::ForeignChanged { .. }
            | Event::HostSized { .. }
            | Event::DeviceAttached { .. }
            | Event::RunnerDescribed { .. }
    )
}
