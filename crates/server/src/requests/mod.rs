//! What the server asks of agents beside their slots: a slot's log, say.
//!
//! ```text
//! reader ── ask ──> a row, and a call to the runner's long poll
//! agent ─── poll ─> gets the row with its desired slots ─ POST ─> takes the row: its body goes to the reader
//! ```
//!
//! Nothing of it is journaled, and nothing outlives its reader: whoever stops reading closes the row, and the upload ends.
//! There are so many rows for each runner and in all; a row that no agent takes in time is closed. The reader's pace is
//! the agent's: a few pieces are in flight, no more.

mod table;

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Bytes;
use berth_domain::RunnerId;
use berth_wire::{AgentRequest, Problem, RequestId, RequestKind};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use tokio::sync::{mpsc, oneshot};

use crate::limits::Limits;
use crate::views::Views;
pub use table::{Bounds, Due, Full, NotOpen};
use table::{Row, Table};

/// How many pieces of an answer are between an agent and its reader.
const IN_FLIGHT: usize = 4;

/// The largest answer that is read as a whole.
const LARGEST_WHOLE: usize = 1 << 20;

/// Why an agent was asked in vain.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    /// As many are open as may be.
    #[error("{0}")]
    Full(Full),
    /// The agent did not take it.
    #[error(
        "runner {runner} did not answer within {} s: see whether its agent runs (`berth runners {runner}`), then try again",
        after.as_secs()
    )]
    Silent {
        /// Who.
        runner: RunnerId,
        /// How long it was waited for.
        after: Duration,
    },
    /// The agent said why not.
    #[error("runner {runner}: {}", problem.detail)]
    Refused {
        /// Who.
        runner: RunnerId,
        /// What it said.
        problem: Box<Problem>,
    },
    /// The answer is none.
    #[error("runner {runner} answered with something else than it was asked for: {why}")]
    Unreadable {
        /// Who.
        runner: RunnerId,
        /// What is wrong with it.
        why: String,
    },
}

/// The upload ended before the answer was whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the runner's answer broke off")]
pub struct BrokenOff;

/// What an agent sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Media {
    /// Bytes as they are.
    Bytes,
    /// A JSON document.
    Json,
    /// A problem: why not.
    Problem,
}

/// An answer that is on its way.
#[derive(Debug)]
pub struct Incoming {
    media: Media,
    pieces: mpsc::Receiver<Result<Bytes, BrokenOff>>,
}

/// The agent's end of an answer.
#[derive(Debug)]
pub struct Outgoing {
    /// Where pieces go. It is closed once nobody reads.
    pub pieces: mpsc::Sender<Result<Bytes, BrokenOff>>,
    /// No more bytes than this, if there is an end at all.
    pub limit: Option<u64>,
}

/// What waits in a row for an agent to come.
#[derive(Debug)]
struct Taker {
    answer: oneshot::Sender<Incoming>,
    limit: Option<u64>,
}

/// All requests that are open.
#[derive(Debug)]
pub struct Requests {
    views: Arc<Views>,
    limits: Limits,
    table: Mutex<Table<Taker>>,
}

impl Requests {
    /// None yet.
    #[must_use]
    pub fn new(views: Arc<Views>, limits: Limits) -> Arc<Self> {
        let bounds = limits.current().bounds();
        Arc::new(Self { views, limits, table: Mutex::new(Table::new(bounds)) })
    }

    /// How long an agent may take to answer.
    fn patience(&self) -> Duration {
        self.limits.current().agent_patience()
    }

    /// Asks a runner for bytes that come as they come; with a `limit`, so many at most.
    pub async fn ask_for_bytes(
        self: &Arc<Self>,
        runner: &RunnerId,
        kind: RequestKind,
        limit: Option<u64>,
    ) -> Result<Pieces, AskError> {
        let (open, answer) = self.ask(runner, kind, limit).await?;
        let pieces = Pieces { answer, _open: open };
        match pieces.answer.media {
            Media::Bytes => Ok(pieces),
            Media::Problem => Err(pieces.refusal(runner).await),
            Media::Json => Err(AskError::Unreadable { runner: runner.clone(), why: "JSON".into() }),
        }
    }

    /// Asks a runner for a JSON document, and reads it.
    pub async fn ask_for_json<T: DeserializeOwned>(
        self: &Arc<Self>,
        runner: &RunnerId,
        kind: RequestKind,
    ) -> Result<T, AskError> {
        let (open, answer) = self.ask(runner, kind, Some(LARGEST_WHOLE as u64)).await?;
        let pieces = Pieces { answer, _open: open };
        match pieces.answer.media {
            Media::Json => pieces.json(runner, self.patience()).await,
            Media::Problem => Err(pieces.refusal(runner).await),
            Media::Bytes => Err(AskError::Unreadable { runner: runner.clone(), why: "bytes".into() }),
        }
    }

    async fn ask(
        self: &Arc<Self>,
        runner: &RunnerId,
        kind: RequestKind,
        limit: Option<u64>,
    ) -> Result<(Open, Incoming), AskError> {
        let (answer, coming) = oneshot::channel();
        let id = RequestId(uuid::Uuid::now_v7());
        let row = Row::new(kind, Taker { answer, limit });
        self.table.lock().within(self.limits.current().bounds()).open(runner, id, row).map_err(AskError::Full)?;
        let open = Open { requests: self.clone(), runner: runner.clone(), id };
        self.views.runner_waiters.wake(runner);
        let patience = self.patience();
        match tokio::time::timeout(patience, coming).await {
            Ok(Ok(incoming)) => Ok((open, incoming)),
            _ => Err(AskError::Silent { runner: runner.clone(), after: patience }),
        }
    }

    /// Whether a runner has to be told of a request.
    #[must_use]
    pub fn due(&self, runner: &RunnerId) -> Due {
        self.table.lock().due(runner, Instant::now())
    }

    /// What a runner is to be told, now that it is.
    #[must_use]
    pub fn hand_out(&self, runner: &RunnerId) -> Vec<AgentRequest> {
        self.table.lock().hand_out(runner, Instant::now())
    }

    /// An agent answers one of its runner's requests. Whoever asked may have gone in the meantime.
    pub fn take(&self, runner: &RunnerId, id: RequestId, media: Media) -> Result<Outgoing, NotOpen> {
        let Taker { answer, limit } = self.table.lock().take(runner, id)?;
        let (pieces, coming) = mpsc::channel(IN_FLIGHT);
        answer.send(Incoming { media, pieces: coming }).map_err(|_| NotOpen::Unknown)?;
        Ok(Outgoing { pieces, limit })
    }

    /// How many are open.
    #[must_use]
    pub fn len(&self) -> usize {
        self.table.lock().len()
    }

    /// Whether none is open.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A row that is closed when its reader goes.
#[derive(Debug)]
struct Open {
    requests: Arc<Requests>,
    runner: RunnerId,
    id: RequestId,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.requests.table.lock().close(&self.runner, self.id);
    }
}

/// The bytes of an answer, piece by piece. Dropping it tells the agent to stop.
#[derive(Debug)]
pub struct Pieces {
    answer: Incoming,
    _open: Open,
}

impl Pieces {
    /// The next piece; none when the answer is whole.
    pub async fn next(&mut self) -> Option<Result<Bytes, BrokenOff>> {
        self.answer.pieces.recv().await
    }

    /// Everything, if it is no more than a document should be.
    async fn whole(mut self, patience: Duration) -> Result<Vec<u8>, String> {
        let mut all = Vec::new();
        let reading = async {
            while let Some(piece) = self.next().await {
                all.extend_from_slice(&piece.map_err(|error| error.to_string())?);
                if all.len() > LARGEST_WHOLE {
                    return Err(format!("it is larger than {LARGEST_WHOLE} bytes"));
                }
            }
            Ok(())
        };
        tokio::time::timeout(patience, reading).await.map_err(|_| "it does not end".to_owned())??;
        Ok(all)
    }

    async fn json<T: DeserializeOwned>(self, runner: &RunnerId, patience: Duration) -> Result<T, AskError> {
        let unreadable = |why| AskError::Unreadable { runner: runner.clone(), why };
        let text = self.whole(patience).await.map_err(unreadable)?;
        serde_json::from_slice(&text).map_err(|error| unreadable(error.to_string()))
    }

    async fn refusal(self, runner: &RunnerId) -> AskError {
        const PATIENCE: Duration = Duration::from_secs(5);
        match self.json(runner, PATIENCE).await {
            Ok(problem) => AskError::Refused { runner: runner.clone(), problem: Box::new(problem) },
            Err(error) => error,
        }
    }
}
