//! The writer thread: batch after batch, each decided, appended, published and answered.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use berth_core::{Answer, Command, Snapshot, invariants};
use berth_domain::Timestamp;
use berth_store::{AppendError, Journal, RecordRef};

use super::Unavailable;
use super::inbox::{Batch, Inbox};
use super::journal_space::JournalSpace;
use super::message::{Committed, Executed};
use crate::clock;
use crate::engine::{Engine, Outcome, Record};
use crate::views::Views;

/// The buffer for a batch's records is kept up to this size.
const LARGEST_ENCODED: usize = 1024 * 1024;
/// How many rows of a snapshot are copied between two batches: copying them takes less time than a batch does.
const SNAPSHOT_ROWS_PER_BATCH: usize = 512;
/// The longest wait for messages: time passes for the core at least this often.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// How often the writer checks every ledger against the fold of its claims.
const CHECK_LEDGERS_EVERY: Duration = Duration::from_secs(60);

/// What the writer thread owns.
pub struct WriterLoop<J> {
    pub(super) engine: Engine,
    pub(super) journal: J,
    pub(super) views: Arc<Views>,
    /// Called when an append fails.
    on_append_error: Box<dyn Fn(&AppendError) + Send>,
    /// The encoded records of the last batch. It is kept for its capacity.
    encoded: Vec<u8>,
    snapshots: SnapshotQueue,
}

/// The snapshots that were asked for. One is copied at a time, and each reader gets one of its own.
#[derive(Default)]
struct SnapshotQueue {
    copying_for: Option<SyncSender<Snapshot>>,
    waiting: VecDeque<SyncSender<Snapshot>>,
}

impl SnapshotQueue {
    fn is_empty(&self) -> bool {
        self.copying_for.is_none() && self.waiting.is_empty()
    }

    /// Copies some more rows for the reader whose turn it is. What is copied is durable.
    fn copy_rows(&mut self, engine: &mut Engine) {
        if self.copying_for.is_none()
            && let Some(reader) = self.waiting.pop_front()
        {
            engine.begin_snapshot();
            self.copying_for = Some(reader);
        }
        if self.copying_for.is_some()
            && let Some(snapshot) = engine.continue_snapshot(SNAPSHOT_ROWS_PER_BATCH)
            && let Some(reader) = self.copying_for.take()
        {
            // The reader may have gone meanwhile.
            drop(reader.send(snapshot));
        }
    }
}

impl<J: Journal> WriterLoop<J> {
    /// Prepares a writer. `on_append_error` must end the process: clients that wait for an answer must not get one.
    pub fn new(
        engine: Engine,
        journal: J,
        views: Arc<Views>,
        on_append_error: impl Fn(&AppendError) + Send + 'static,
    ) -> Self {
        Self {
            engine,
            journal,
            views,
            on_append_error: Box::new(on_append_error),
            encoded: Vec::new(),
            snapshots: SnapshotQueue::default(),
        }
    }

    /// Handles batches until one of them is the last.
    pub(super) fn run(mut self, inbox: &Inbox) {
        let mut checked = Instant::now();
        loop {
            self.views.note_writer_waits(clock::now());
            let mut batch = inbox.next_batch(self.wait_for_messages());
            let is_last = batch.is_last;
            self.snapshots.waiting.extend(batch.snapshots.drain(..));
            if self.commit(batch).is_err() {
                return;
            }
            self.snapshots.copy_rows(&mut self.engine);
            if checked.elapsed() >= CHECK_LEDGERS_EVERY {
                checked = Instant::now();
                self.views.note_ledger_check(invariants::check_ledgers(self.engine.state()).err());
            }
            if is_last {
                break;
            }
        }
        tracing::info!(revision = self.engine.state().revision().get(), "the writer has finished what it had");
    }

    /// Returns how long to wait for messages: until a timer of the core is due, and not at all while a snapshot is copied.
    fn wait_for_messages(&self) -> Duration {
        if !self.snapshots.is_empty() {
            return Duration::ZERO;
        }
        let due = self.engine.state().next_timer();
        let left = due.map_or(LONGEST_WAIT, |at| Duration::from_millis(at.since(clock::now()).millis()));
        left.clamp(Duration::from_millis(1), LONGEST_WAIT)
    }

    /// Whether time must pass for the core, whatever the batch contains: reads do not move the core's clock.
    fn is_tick_due(&self, now: Timestamp) -> bool {
        let state = self.engine.state();
        let waited = now.since(state.now()).millis() >= u64::try_from(LONGEST_WAIT.as_millis()).unwrap_or(u64::MAX);
        waited || state.next_timer().is_some_and(|at| at <= now)
    }

    /// Takes one batch from its commands to its answers.
    fn commit(&mut self, batch: Batch) -> Result<(), AppendError> {
        let Batch { executions, reads, fleet_readers, .. } = batch;
        let now = clock::now();
        let (mut space, takes_writes) = JournalSpace::reserve(&mut self.journal, &executions);
        self.views.set_read_only(!takes_writes);
        let mut executed = ExecutedBatch::with_capacity(executions.len() + 1);
        if self.is_tick_due(now) && space.admits(&Command::Tick, &mut self.journal) {
            // No client waits for the answer to a tick.
            drop(executed.execute(&mut self.engine, &Command::Tick, now));
        }
        let mut replies = Vec::with_capacity(executions.len());
        for execution in executions {
            let answer: Executed = match space.admits(&execution.command, &mut self.journal) {
                true => Ok(executed.execute(&mut self.engine, &execution.command, now)),
                false => Err(Unavailable::NoRoom),
            };
            replies.push((execution.reply, answer));
        }
        if let Err(error) = self.append(&executed.outcomes) {
            // This comes before anything is dropped: a dropped reply would be an answer, and the right one is unknown.
            (self.on_append_error)(&error);
            return Err(error);
        }
        let changes = self.engine.take_work_changes();
        self.views.publish(changes, executed.outcomes, &executed.durations, self.engine.state());
        if !fleet_readers.is_empty() {
            self.publish_fleet();
        }
        let committed = Committed { state: self.engine.state(), views: &self.views };
        replies.into_iter().for_each(|(reply, answer)| reply(committed, answer));
        reads.into_iter().for_each(|read| read(committed.state));
        for reader in fleet_readers {
            // The reader may have gone meanwhile.
            let _ = reader.send(());
        }
        Ok(())
    }

    pub(super) fn publish_fleet(&mut self) {
        let changes = self.engine.take_fleet_changes();
        self.views.publish_fleet(changes, self.engine.state().revision());
    }

    /// Appends the durable events of a batch: all of them, in one write and one sync.
    pub(super) fn append(&mut self, outcomes: &[Outcome]) -> Result<(), AppendError> {
        self.encoded.clear();
        let mut ends = Vec::with_capacity(outcomes.len());
        for outcome in outcomes.iter().filter(|outcome| !outcome.kept.is_empty()) {
            let encoded = Record::new(outcome.at, &outcome.kept).encode_to(&mut self.encoded);
            encoded.map_err(|error| AppendError::Io(std::io::Error::other(error)))?;
            ends.push((outcome.revision, self.encoded.len()));
        }
        if ends.is_empty() {
            return Ok(());
        }
        let starts = std::iter::once(0).chain(ends.iter().map(|(_, end)| *end));
        let records: Vec<RecordRef<'_>> = ends
            .iter()
            .zip(starts)
            .map(|((last, end), start)| RecordRef { last: *last, payload: &self.encoded[start..*end] })
            .collect();
        let begun = Instant::now();
        let expected = self.journal.revision();
        self.journal.append(self.engine.state().epoch(), expected, &records)?;
        self.views.metrics.appended(records.len(), self.encoded.len(), begun.elapsed());
        self.encoded.shrink_to(LARGEST_ENCODED);
        Ok(())
    }
}

/// The commands of a batch that were executed: decided, and applied to the writer's private state.
struct ExecutedBatch {
    outcomes: Vec<Outcome>,
    durations: Vec<Duration>,
    last_done: Instant,
}

impl ExecutedBatch {
    fn with_capacity(capacity: usize) -> Self {
        let (outcomes, durations) = (Vec::with_capacity(capacity), Vec::with_capacity(capacity));
        Self { outcomes, durations, last_done: Instant::now() }
    }

    /// Executes one command and returns what its sender will hear once the batch is durable.
    fn execute(
        &mut self,
        engine: &mut Engine,
        command: &Command,
        now: Timestamp,
    ) -> Result<Answer, berth_core::Refusal> {
        let (outcome, answer) = engine.execute(command, now);
        let done = Instant::now();
        self.durations.push(done - std::mem::replace(&mut self.last_done, done));
        self.outcomes.push(outcome);
        answer
    }
}
