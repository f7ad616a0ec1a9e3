//! The receiving end of the writer's channel: messages become batches.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::Duration;

use berth_core::Snapshot;
use tokio::sync::oneshot;

use super::journal_space::journal_bytes_of;
use super::message::{Execution, Message, Read};

/// The most messages of one batch: all of them wait for one append.
const LARGEST_BATCH: usize = 512;
/// The number of commands that a batch has capacity for at first.
const ORDINARY_BATCH: usize = 64;
/// The inbox closes a batch when its commands may put more bytes than this into the journal.
const LARGEST_BATCH_BYTES: usize = 8 * 1024 * 1024;

/// The messages that are handled together, with one append.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) executions: Vec<Execution>,
    pub(super) reads: Vec<Read>,
    pub(super) fleet_readers: Vec<oneshot::Sender<()>>,
    pub(super) snapshots: Vec<SyncSender<Snapshot>>,
    /// The writer ends after this batch.
    pub(super) is_last: bool,
}

/// The writer's channel, seen from the writer.
pub(super) struct Inbox {
    messages: Receiver<Message>,
}

impl Inbox {
    pub(super) fn new(messages: Receiver<Message>) -> Self {
        Self { messages }
    }

    /// Returns the messages that are there, or the first ones that arrive within `wait`. The batch is empty if none
    /// came: time has passed, and that alone may make something due.
    pub(super) fn next_batch(&self, wait: Duration) -> Batch {
        let mut batch = Batch { executions: Vec::with_capacity(ORDINARY_BATCH), ..Batch::default() };
        let first = match self.messages.recv_timeout(wait) {
            Ok(first) => Some(first),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(Message::Stop),
        };
        let mut journal_bytes = 0;
        for (count, message) in first.into_iter().chain(self.messages.try_iter()).enumerate() {
            match message {
                Message::Execute(execution) => {
                    journal_bytes += journal_bytes_of(&execution.command);
                    batch.executions.push(execution);
                }
                Message::Read(read) => batch.reads.push(read),
                Message::PublishFleet(reader) => batch.fleet_readers.push(reader),
                Message::Snapshot(reader) => batch.snapshots.push(reader),
                Message::Stop => batch.is_last = true,
            }
            if batch.is_last || count + 1 == LARGEST_BATCH || journal_bytes >= LARGEST_BATCH_BYTES {
                break;
            }
        }
        batch
    }
}
