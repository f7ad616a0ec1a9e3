//! A driver worker: a thread that handles one request at a time, and may hang for ever.

use std::fmt;
use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The requester's side of a worker. Dropping it ends the thread, once the thread returns from its call.
pub(super) struct DriverWorker<Q, A> {
    questions: Sender<Q>,
    answers: Receiver<A>,
    step: Step,
    asked: Option<Instant>,
    overdue: bool,
    thread: JoinHandle<()>,
}

/// The thread's side of a worker.
pub(super) struct WorkerInbox<Q, A> {
    questions: Receiver<Q>,
    answers: Sender<A>,
    step: Step,
}

/// What the thread is doing, for the message about a thread that hangs.
#[derive(Clone, Debug)]
pub(super) struct Step(Arc<Mutex<&'static str>>);

/// The outcome of a request.
#[derive(Debug)]
pub(super) enum Reply<A> {
    /// The thread answered in time.
    Answer(A),
    /// The thread answered a request that had timed out. The answer may have been read long before the thread was
    /// stuck.
    Late(A),
    /// The thread has not answered yet.
    Pending,
    /// There is no open request.
    Idle,
    /// The thread has ended.
    Ended,
}

impl<Q: Send + 'static, A: Send + 'static> DriverWorker<Q, A> {
    /// Starts a thread that handles the requests of its inbox.
    pub(super) fn start(name: String, work: impl FnOnce(&WorkerInbox<Q, A>) + Send + 'static) -> io::Result<Self> {
        let (questions, to_answer) = mpsc::channel();
        let (answered, answers) = mpsc::channel();
        let step = Step(Arc::new(Mutex::new("starting")));
        let inbox = WorkerInbox { questions: to_answer, answers: answered, step: step.clone() };
        let thread = thread::Builder::new().name(name).spawn(move || work(&inbox))?;
        Ok(Self { questions, answers, step, asked: None, overdue: false, thread })
    }

    /// Sends a request, unless the last one is still open.
    pub(super) fn ask(&mut self, question: Q) {
        // A thread that ended is noticed when its answer is awaited.
        if self.asked.is_none() {
            self.asked = Some(Instant::now());
            let _ = self.questions.send(question);
        }
    }

    /// Waits for the answer until the deadline. After a timeout the thread is not waited for again: a thread that hangs
    /// must not cost each look its whole deadline.
    pub(super) fn answer(&mut self, until: Instant) -> Reply<A> {
        if self.asked.is_none() {
            return Reply::Idle;
        }
        let wait = if self.overdue { Duration::ZERO } else { until.saturating_duration_since(Instant::now()) };
        match self.answers.recv_timeout(wait) {
            Ok(answer) => {
                self.asked = None;
                if std::mem::take(&mut self.overdue) { Reply::Late(answer) } else { Reply::Answer(answer) }
            }
            Err(RecvTimeoutError::Timeout) => {
                self.overdue = true;
                Reply::Pending
            }
            Err(RecvTimeoutError::Disconnected) => {
                self.asked = None;
                Reply::Ended
            }
        }
    }

    /// Returns whether a request is open.
    pub(super) fn is_busy(&self) -> bool {
        self.asked.is_some()
    }

    /// Returns what the thread is doing and for how long, as text.
    pub(super) fn describe_delay(&self) -> String {
        let since = self.asked.map(|asked| asked.elapsed()).unwrap_or_default();
        let step = *self.step.0.lock().unwrap_or_else(PoisonError::into_inner);
        format!("the driver has not answered for {}.{} s ({step})", since.as_secs(), since.subsec_millis() / 100)
    }

    /// Ends an idle thread and waits for its end.
    pub(super) fn end(self) {
        drop(self.questions);
        let _ = self.thread.join();
    }
}

impl<Q, A> WorkerInbox<Q, A> {
    /// Handles requests until the requester is dropped.
    pub(super) fn work(&self, mut answer: impl FnMut(Q) -> A) {
        while let Ok(question) = self.questions.recv() {
            if self.answers.send(answer(question)).is_err() {
                return;
            }
        }
    }

    /// Returns where the thread notes what it is doing.
    pub(super) fn step(&self) -> &Step {
        &self.step
    }
}

impl Step {
    /// Notes what the thread is doing.
    pub(super) fn set(&self, doing: &'static str) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = doing;
    }
}

impl<Q, A> fmt::Debug for DriverWorker<Q, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clerk").field("asked", &self.asked).field("overdue", &self.overdue).finish_non_exhaustive()
    }
}
