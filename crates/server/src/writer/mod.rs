//! The single writer: one thread owns the state, and everything that changes it comes in through its channel.
//!
//! ```text
//! channel -> a batch of messages -> each command decided and applied to the private state, in turn
//!         -> one durable append -> published -> answered
//! ```
//!
//! What the journal keeps is durable before it is visible or acknowledged. (Heartbeats and telemetry are not kept.)
//! A failed append ends the process: no client is answered, and the journal is the truth at the next start.
//!
//! [`Writer`] is what the rest of the server holds. [`message`](self) lists what may be asked, `inbox` makes batches of
//! it, `journal_space` turns commands away before they are decided, and `writer_loop` is the thread.

mod inbox;
mod journal_space;
mod message;
mod writer_loop;

use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use berth_core::{Answer, Command, Refusal, Snapshot, State};
use berth_domain::{ClusterId, EpochTag};
use berth_store::{AppendError, Journal};
use tokio::sync::oneshot;

pub use message::Committed;
pub use writer_loop::WriterLoop;

use crate::clock;
use inbox::Inbox;
use message::{Execution, Message};

/// How many messages may wait for the writer. One more is answered with 503 `busy`.
const CHANNEL_CAPACITY: usize = 8192;

/// Why the writer did not look at a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unavailable {
    /// There is no space in the journal.
    #[error(
        "the journal has no room left: free space on the data directory's disk; reading goes on, and so does whatever gives memory back"
    )]
    NoRoom,
    /// The writer's channel is full.
    #[error("too many requests stand in line for the writer")]
    Busy,
    /// The server shuts down.
    #[error("the server shuts down")]
    Stopping,
}

/// Sends messages to the writer thread.
#[derive(Clone)]
pub struct Writer {
    channel: SyncSender<Message>,
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Writer")
    }
}

impl Writer {
    /// Executes a command. Its effects are durable and published when the future is done.
    ///
    /// The command is sent when this is called, not when the future is awaited, so that the future does not carry it.
    pub fn execute(
        &self,
        command: Command,
    ) -> impl Future<Output = Result<Result<Answer, Refusal>, Unavailable>> + use<> {
        self.execute_and_read(command, |_, answer| answer)
    }

    /// Executes a command, in the same way, and reads from the state and the views right after its batch.
    pub fn execute_and_read<T, R>(
        &self,
        command: Command,
        read: R,
    ) -> impl Future<Output = Result<T, Unavailable>> + use<T, R>
    where
        T: Send + 'static,
        R: FnOnce(Committed<'_>, Result<Answer, Refusal>) -> T + Send + 'static,
    {
        let (sender, receiver) = oneshot::channel();
        let reply = Box::new(move |committed: Committed<'_>, answer: message::Executed| {
            // The client may have gone meanwhile: its command was executed all the same.
            drop(sender.send(answer.map(|answer| read(committed, answer))));
        });
        let sent = self.send(Message::Execute(Execution { command, reply }));
        async move {
            sent?;
            receiver.await.unwrap_or(Err(Unavailable::Stopping))
        }
    }

    /// Reads from the state without changing it: for what no view can hold, such as a dry run.
    pub async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&State) -> T + Send + 'static,
    ) -> Result<T, Unavailable> {
        let (sender, receiver) = oneshot::channel();
        self.send(Message::Read(Box::new(move |state| drop(sender.send(read(state))))))?;
        receiver.await.map_err(|_| Unavailable::Stopping)
    }

    /// Publishes runners, devices, hosts and models as they are after everything that was sent before this.
    pub async fn publish_fleet(&self) -> Result<(), Unavailable> {
        let (sender, receiver) = oneshot::channel();
        self.send(Message::PublishFleet(sender))?;
        receiver.await.map_err(|_| Unavailable::Stopping)
    }

    /// Copies the state. The writer copies some rows after each batch, and this call blocks until the copy is complete.
    pub fn snapshot(&self) -> Result<Snapshot, Unavailable> {
        let (sender, receiver) = sync_channel(1);
        self.channel.send(Message::Snapshot(sender)).map_err(|_| Unavailable::Stopping)?;
        receiver.recv().map_err(|_| Unavailable::Stopping)
    }

    /// Ends the writer thread once it has finished what was sent before this.
    pub fn stop(&self) {
        // A writer that has ended already needs no message.
        drop(self.channel.send(Message::Stop));
    }

    fn send(&self, message: Message) -> Result<(), Unavailable> {
        self.channel.try_send(message).map_err(|error| match error {
            TrySendError::Full(_) => Unavailable::Busy,
            TrySendError::Disconnected(_) => Unavailable::Stopping,
        })
    }
}

/// Why the writer did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The core refused to start on this state.
    #[error("the journal cannot be taken over: {0}")]
    Refused(Refusal),
    /// There is no space for the first record.
    #[error("the journal has no room for one record: free space on the data directory's disk")]
    NoRoom,
    /// The first append failed.
    #[error("the journal cannot be written: {0}")]
    Append(#[source] AppendError),
    /// The operating system gave no thread.
    #[error("no thread for the writer: {0}")]
    Thread(#[source] std::io::Error),
}

/// Starts the writer thread: the cluster's next epoch begins with this tag. The thread ends after [`Writer::stop`].
pub fn start<J: Journal + 'static>(
    mut writer_loop: WriterLoop<J>,
    cluster: ClusterId,
    tag: EpochTag,
) -> Result<(Writer, JoinHandle<()>), StartError> {
    let (started, answer) = writer_loop.engine.execute(&Command::Start { cluster, tag }, clock::now());
    answer.map_err(StartError::Refused)?;
    writer_loop.journal.reserve(journal_space::BYTES_PER_BATCH, true).map_err(|_| StartError::NoRoom)?;
    writer_loop.append(std::slice::from_ref(&started)).map_err(StartError::Append)?;
    // A server that starts on a full disk is not ready before the first request asks for anything.
    let (_, takes_writes) = journal_space::JournalSpace::reserve(&mut writer_loop.journal, &[]);
    writer_loop.views.set_read_only(!takes_writes);
    let changes = writer_loop.engine.take_work_changes();
    writer_loop.views.publish(changes, vec![started], &[Duration::ZERO], writer_loop.engine.state());
    writer_loop.publish_fleet();
    let (channel, messages) = sync_channel(CHANNEL_CAPACITY);
    let thread = std::thread::Builder::new().name("writer".into()).spawn(move || {
        let _guard = AbortOnPanic;
        writer_loop.run(&Inbox::new(messages));
    });
    Ok((Writer { channel }, thread.map_err(StartError::Thread)?))
}

/// Ends the process if the writer thread panics: its state is unknown then, and the journal is the truth.
struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::abort();
        }
    }
}
