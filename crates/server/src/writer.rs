//! The single writer: one thread owns the state, and everything that changes it comes in through its channel.
//!
//! ```text
//! channel -> a batch of commands -> each decided and applied to the private state, in turn
//!         -> one durable append -> published -> answered
//! ```
//!
//! Nothing is visible or acknowledged before it is durable. An append that fails is the end of the process: nobody
//! is answered, and the journal is the truth at the next start.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use berth_core::{Answer, Command, Refusal, Snapshot, State, invariants};
use berth_domain::{ClusterId, EpochTag, Timestamp};
use berth_store::{AppendError, Journal, RecordRef};
use tokio::sync::oneshot;

use crate::clock;
use crate::engine::{Engine, Outcome, Record};
use crate::views::Views;

/// The most commands of one batch: what they wait for is one append.
const LARGEST_BATCH: usize = 512;
/// What a batch has room for at first.
const ORDINARY_BATCH: usize = 64;
/// How many may stand in line for the writer.
const LINE: usize = 8192;
/// Room that is reserved before a batch is decided, beside what its commands carry: for what else may follow from them.
const ROOM_FOR_BATCH: usize = 256 * 1024;
/// Room for what follows from one command, beside what it carries.
const ROOM_FOR_COMMAND: usize = 8 * 1024;
/// A batch is closed when its commands carry more than this.
const LARGEST_LOAD: usize = 8 * 1024 * 1024;
/// The buffer for a batch's records is kept up to this size.
const LARGEST_ENCODED: usize = 1024 * 1024;
/// How many rows of a snapshot are copied between two batches: less than a batch takes.
const ROWS_AT_ONCE: usize = 512;
/// The longest sleep: time passes for the core at least this often.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);
/// How often every ledger is checked against the fold of its claims.
const AUDIT_EVERY: Duration = Duration::from_secs(60);

/// Why the writer did not even look at a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unavailable {
    /// There is no room in the journal.
    #[error(
        "the journal has no room left: free space on the data directory's disk; reading goes on, and so does whatever gives memory back"
    )]
    NoRoom,
    /// Too many stand in line.
    #[error("too many requests stand in line for the writer")]
    Busy,
    /// The server shuts down.
    #[error("the server shuts down")]
    Stopping,
}

/// What there is right after a batch: all of it durable and published.
#[derive(Clone, Copy, Debug)]
pub struct Moment<'a> {
    /// What the core knows.
    pub state: &'a State,
    /// What others read.
    pub views: &'a Views,
}

type Then = Box<dyn FnOnce(Moment<'_>, Result<Result<Answer, Refusal>, Unavailable>) + Send>;

/// What is asked of the writer: a command, or only a look at the state. `then` runs once everything is durable.
struct Ask {
    command: Option<Command>,
    then: Then,
    /// Whoever asks wants to read about runners, devices, hosts or models.
    fleet: bool,
}

/// What stands in line.
enum InLine {
    Ask(Ask),
    /// Somebody wants the state as data.
    Snapshot(SyncSender<Snapshot>),
    /// Nobody comes after this one.
    Last,
}

/// The door to the writer.
#[derive(Clone)]
pub struct Writer {
    line: SyncSender<InLine>,
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Writer")
    }
}

impl Writer {
    /// Carries out a command. What comes back is durable and published.
    ///
    /// The command is in line when this returns, not when it is awaited: who waits does not carry the command along.
    pub fn carry_out(
        &self,
        command: Command,
    ) -> impl Future<Output = Result<Result<Answer, Refusal>, Unavailable>> + use<> {
        self.carry_out_and_read(command, |_, answer| answer)
    }

    /// Carries out a command, in the same way, and looks at what there is right after its batch.
    pub fn carry_out_and_read<T, L>(
        &self,
        command: Command,
        look: L,
    ) -> impl Future<Output = Result<T, Unavailable>> + use<T, L>
    where
        T: Send + 'static,
        L: FnOnce(Moment<'_>, Result<Answer, Refusal>) -> T + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let then: Then = Box::new(move |moment, answer| {
            // Whoever asked may have gone: that is no reason to stop.
            drop(reply.send(answer.map(|answer| look(moment, answer))));
        });
        let in_line = self.stand_in_line(Ask { command: Some(command), then, fleet: false });
        async move {
            in_line?;
            answer.await.unwrap_or(Err(Unavailable::Stopping))
        }
    }

    /// Looks at the state without changing it: for what no view can hold, such as a dry run.
    pub async fn read<T: Send + 'static>(
        &self,
        look: impl FnOnce(&State) -> T + Send + 'static,
    ) -> Result<T, Unavailable> {
        let (reply, answer) = oneshot::channel();
        let then: Then = Box::new(move |moment, _| drop(reply.send(look(moment.state))));
        self.stand_in_line(Ask { command: None, then, fleet: false })?;
        answer.await.map_err(|_| Unavailable::Stopping)
    }

    /// Has everything about runners, devices, hosts and models published that was decided before this.
    pub async fn publish_fleet(&self) -> Result<(), Unavailable> {
        let (reply, answer) = oneshot::channel();
        let then: Then = Box::new(move |_, _| {
            let _ = reply.send(());
        });
        self.stand_in_line(Ask { command: None, then, fleet: true })?;
        answer.await.map_err(|_| Unavailable::Stopping)
    }

    /// The state as data, after some batch that was not done yet. It is copied between batches, and this waits for it.
    pub fn snapshot(&self) -> Result<Snapshot, Unavailable> {
        let (to, copied) = sync_channel(1);
        self.line.send(InLine::Snapshot(to)).map_err(|_| Unavailable::Stopping)?;
        copied.recv().map_err(|_| Unavailable::Stopping)
    }

    fn stand_in_line(&self, ask: Ask) -> Result<(), Unavailable> {
        self.line.try_send(InLine::Ask(ask)).map_err(|error| match error {
            TrySendError::Full(_) => Unavailable::Busy,
            TrySendError::Disconnected(_) => Unavailable::Stopping,
        })
    }

    /// Lets the writer finish what stands in line, and no more.
    pub fn finish(&self) {
        // Whoever has finished already needs no telling.
        drop(self.line.send(InLine::Last));
    }
}

/// What the writer thread owns.
pub struct Desk<J> {
    /// The state and its door.
    engine: Engine,
    /// Where everything is kept.
    journal: J,
    /// What others read.
    views: Arc<Views>,
    /// What to do when an append fails.
    fatal: Box<dyn Fn(&AppendError) + Send>,
    /// The records of the last batch, one behind the other: only the room for them matters.
    encoded: Vec<u8>,
    /// Where the snapshot that is being copied goes.
    copying_for: Option<SyncSender<Snapshot>>,
    /// Those who asked for one meanwhile: each gets one of its own, after the one before it.
    next_copies: VecDeque<SyncSender<Snapshot>>,
}

impl<J> Desk<J> {
    /// A writer's desk. `fatal` is what to do when an append fails: end the process. Whoever waits for an answer must
    /// not get one.
    pub fn new(engine: Engine, journal: J, views: Arc<Views>, fatal: impl Fn(&AppendError) + Send + 'static) -> Self {
        Self {
            engine,
            journal,
            views,
            fatal: Box::new(fatal),
            encoded: Vec::new(),
            copying_for: None,
            next_copies: VecDeque::new(),
        }
    }
}

/// Starts the writer on a state, as cluster `cluster`, in an epoch with this tag. It ends after [`Writer::finish`], when all before it is done.
pub fn start<J: Journal + 'static>(
    mut desk: Desk<J>,
    cluster: ClusterId,
    tag: EpochTag,
) -> Result<(Writer, JoinHandle<()>), StartError> {
    let started = desk.engine.carry_out(&Command::Start { cluster, tag }, clock::now());
    started.answer.clone().map_err(StartError::Refused)?;
    desk.journal.reserve(ROOM_FOR_BATCH, true).map_err(|_| StartError::NoRoom)?;
    desk.keep(std::slice::from_ref(&started)).map_err(StartError::Append)?;
    // A server that starts on a full disk is not ready before anybody has asked it for anything.
    desk.room(&[]);
    let changes = desk.engine.take_work_changes();
    desk.views.publish(changes, vec![started], &[Duration::ZERO], desk.engine.state());
    desk.publish_fleet();
    let (line, asks) = sync_channel(LINE);
    let thread = std::thread::Builder::new().name("writer".into()).spawn(move || {
        let _guard = EndWithTheWriter;
        desk.work(&asks);
    });
    Ok((Writer { line }, thread.map_err(StartError::Thread)?))
}

/// A writer that panicked has a state that nobody knows. The process ends with it; the journal is the truth.
struct EndWithTheWriter;

impl Drop for EndWithTheWriter {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::abort();
        }
    }
}

/// Why the writer did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The core said no.
    #[error("the journal cannot be taken over: {0}")]
    Refused(Refusal),
    /// No room for a first record.
    #[error("the journal has no room for one record: free space on the data directory's disk")]
    NoRoom,
    /// The first append failed.
    #[error("the journal cannot be written: {0}")]
    Append(#[source] AppendError),
    /// The operating system gave no thread.
    #[error("no thread for the writer: {0}")]
    Thread(#[source] std::io::Error),
}

impl<J: Journal> Desk<J> {
    fn work(mut self, asks: &Receiver<InLine>) {
        let mut audited = Instant::now();
        let mut line = Line { asks, wants_snapshot: VecDeque::new(), last: false };
        while !line.last {
            self.views.note_writer_waits(clock::now());
            let batch = line.batch(self.sleep());
            if self.carry_out(batch).is_err() {
                return;
            }
            self.next_copies.append(&mut line.wants_snapshot);
            self.copy_rows();
            if audited.elapsed() >= AUDIT_EVERY {
                audited = Instant::now();
                self.views.audited(invariants::check_ledgers(self.engine.state()).err());
            }
        }
        tracing::info!(revision = self.engine.state().revision().get(), "the writer has finished what it had");
    }

    /// Copies some more of the state for whoever wants it as data. What is copied is durable.
    fn copy_rows(&mut self) {
        if self.copying_for.is_none()
            && let Some(wanted_by) = self.next_copies.pop_front()
        {
            self.engine.begin_snapshot();
            self.copying_for = Some(wanted_by);
        }
        if self.copying_for.is_some()
            && let Some(snapshot) = self.engine.continue_snapshot(ROWS_AT_ONCE)
            && let Some(waiting) = self.copying_for.take()
        {
            // Whoever wanted it may have gone.
            drop(waiting.send(snapshot));
        }
    }

    /// Until somebody asks, or a timer of the core is due; not at all while there are rows to copy.
    fn sleep(&self) -> Duration {
        if self.copying_for.is_some() || !self.next_copies.is_empty() {
            return Duration::ZERO;
        }
        let due = self.engine.state().next_timer();
        let left = due.map_or(LONGEST_SLEEP, |at| Duration::from_millis(at.since(clock::now()).millis()));
        left.clamp(Duration::from_millis(1), LONGEST_SLEEP)
    }

    /// Whether time must pass for the core, whoever asks for what: those who only look do not move it.
    fn is_due(&self, now: Timestamp) -> bool {
        let state = self.engine.state();
        let waited = now.since(state.now()).millis() >= u64::try_from(LONGEST_SLEEP.as_millis()).unwrap_or(u64::MAX);
        waited || state.next_timer().is_some_and(|at| at <= now)
    }

    fn carry_out(&mut self, batch: Vec<Ask>) -> Result<(), AppendError> {
        let now = clock::now();
        let mut room = self.room(&batch);
        let tick = self.is_due(now).then(tick);
        let mut outcomes = Vec::with_capacity(batch.len());
        let mut durations = Vec::with_capacity(batch.len());
        let mut answers = Vec::with_capacity(batch.len());
        let fleet = batch.iter().any(|ask| ask.fleet);
        let mut begun = Instant::now();
        for Ask { command, then, .. } in tick.into_iter().chain(batch) {
            let Some(command) = command else {
                answers.push((Err(Unavailable::Stopping), then));
                continue;
            };
            if !room.allows(&command, &mut self.journal) {
                answers.push((Err(Unavailable::NoRoom), then));
                continue;
            }
            let mut outcome = self.engine.carry_out(&command, now);
            let done = Instant::now();
            durations.push(done - std::mem::replace(&mut begun, done));
            answers.push((Ok(std::mem::replace(&mut outcome.answer, Ok(Answer::Done))), then));
            outcomes.push(outcome);
        }
        if let Err(error) = self.keep(&outcomes) {
            // Before anything is dropped: a closed line would be an answer, and nobody knows the right one.
            (self.fatal)(&error);
            return Err(error);
        }
        let changes = self.engine.take_work_changes();
        self.views.publish(changes, outcomes, &durations, self.engine.state());
        if fleet {
            self.publish_fleet();
        }
        let moment = Moment { state: self.engine.state(), views: &self.views };
        for (answer, then) in answers {
            then(moment, answer);
        }
        Ok(())
    }

    fn publish_fleet(&mut self) {
        let changes = self.engine.take_fleet_changes();
        self.views.publish_fleet(changes, self.engine.state().revision());
    }

    /// Appends what must be kept of a batch: all of it, durably, in one go.
    fn keep(&mut self, outcomes: &[Outcome]) -> Result<(), AppendError> {
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

    /// The room that there is for a batch. Whether the server is ready goes by what an ordinary write needs.
    fn room(&mut self, batch: &[Ask]) -> Room {
        let load: usize = batch.iter().filter_map(|ask| ask.command.as_ref()).map(load).sum();
        let plenty = self.journal.reserve(ROOM_FOR_BATCH + load, false).is_ok();
        let ordinary = plenty && load >= ROOM_FOR_COMMAND;
        let ready = ordinary || self.journal.reserve(ROOM_FOR_BATCH + ROOM_FOR_COMMAND, false).is_ok();
        self.views.set_read_only(!ready);
        Room { plenty, taken: ROOM_FOR_BATCH }
    }
}

/// The room that there is for a batch.
#[derive(Clone, Copy, Debug)]
struct Room {
    /// Enough for all of it.
    plenty: bool,
    /// Where there is not: what was given away so far.
    taken: usize,
}

impl Room {
    /// Whether there is room for one more command. What gives memory back may use the last of it.
    fn allows(&mut self, command: &Command, journal: &mut impl Journal) -> bool {
        if self.plenty {
            return true;
        }
        let with_it = self.taken + load(command);
        let fits =
            journal.reserve(with_it, false).is_ok() || (gives_back(command) && journal.reserve(with_it, true).is_ok());
        if fits {
            self.taken = with_it;
        }
        fits
    }
}

/// Those who stand in line.
struct Line<'a> {
    asks: &'a Receiver<InLine>,
    /// Who wants the state as data.
    wants_snapshot: VecDeque<SyncSender<Snapshot>>,
    /// Nobody comes any more.
    last: bool,
}

impl Line<'_> {
    /// Whoever is there, or comes within `wait`: as many as one batch takes. Nobody, if time alone has passed.
    fn batch(&mut self, wait: Duration) -> Vec<Ask> {
        let mut batch = Vec::with_capacity(ORDINARY_BATCH);
        let first = match self.asks.recv_timeout(wait) {
            Ok(first) => Some(first),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(InLine::Last),
        };
        let mut carried = 0;
        for next in first.into_iter().chain(self.asks.try_iter()) {
            match next {
                InLine::Ask(ask) => {
                    carried += ask.command.as_ref().map_or(0, load);
                    batch.push(ask);
                }
                InLine::Snapshot(to) => self.wants_snapshot.push_back(to),
                InLine::Last => self.last = true,
            }
            if self.last || batch.len() == LARGEST_BATCH || carried >= LARGEST_LOAD {
                break;
            }
        }
        batch
    }
}

/// What a command may put into the journal: what it carries, and what follows from it.
fn load(command: &Command) -> usize {
    let args = |args: &[berth_domain::Arg]| args.iter().map(|arg| arg.as_str().len() * 2 + 8).sum::<usize>();
    let carried = match command {
        Command::Submit { submission, .. } => args(&submission.job.args),
        Command::PutModel { spec } => {
            let labels = spec.constraints.labels.iter().map(|(key, value)| key.as_str().len() + value.as_str().len());
            args(&spec.args) + labels.sum::<usize>() * 2 + spec.constraints.gpu_uuids.len() * 256
        }
        Command::Report(report) => {
            let labels = report.labels.iter().map(|(key, value)| key.as_str().len() + value.as_str().len());
            (report.gpus.len() + report.slots.len()) * 1024 + labels.sum::<usize>() * 2 + report.runtimes.len() * 128
        }
        _ => 0,
    };
    ROOM_FOR_COMMAND + carried
}

/// Whether a command may prove a release, or only says that somebody lives.
fn gives_back(command: &Command) -> bool {
    matches!(
        command,
        Command::Report(_)
            | Command::Poll { .. }
            | Command::Tick
            | Command::Heartbeat { .. }
            | Command::Complete { .. }
            | Command::Cancel { .. }
            | Command::ForceRelease { .. }
    )
}

fn tick() -> Ask {
    Ask { command: Some(Command::Tick), then: Box::new(|_, _| ()), fleet: false }
}
