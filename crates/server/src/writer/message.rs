//! What the writer thread is asked to do. Each kind of message has its own typed reply.

use std::sync::mpsc::SyncSender;

use berth_core::{Answer, Command, Refusal, Snapshot, State};
use tokio::sync::oneshot;

use super::Unavailable;
use crate::views::Views;

/// The state and the views right after a batch was committed: everything in them is durable and published.
#[derive(Clone, Copy, Debug)]
pub struct Committed<'a> {
    /// The writer's own state.
    pub state: &'a State,
    /// The rows that requests read.
    pub views: &'a Views,
}

/// What the sender of a command hears: the core's answer or refusal, unless the writer could not look at the command.
pub(super) type Executed = Result<Result<Answer, Refusal>, Unavailable>;

/// A command, and what to do with its answer once its batch is committed.
pub(super) struct Execution {
    pub(super) command: Command,
    pub(super) reply: Box<dyn FnOnce(Committed<'_>, Executed) + Send>,
}

/// A look at the state between two batches.
pub(super) type Read = Box<dyn FnOnce(&State) + Send>;

/// One message to the writer thread.
pub(super) enum Message {
    /// Execute a command, as part of the next batch.
    Execute(Execution),
    /// Read from the state, after the next batch.
    Read(Read),
    /// Publish runners, devices, hosts and models as they are after the next batch.
    PublishFleet(oneshot::Sender<()>),
    /// Copy the whole state, some rows after each batch.
    Snapshot(SyncSender<Snapshot>),
    /// Finish what was received before this message, then end.
    Stop,
}
