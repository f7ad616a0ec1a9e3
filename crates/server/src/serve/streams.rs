//! Answers on their way, and HTTP/2 streams whose client takes none of them.
//!
//! A client of HTTP/2 says how much of each answer it wants to take. One that takes nothing would hold its streams, and
//! what they were to send, for as long as it likes. Hyper has no timeout for that. So each stream runs in a task that
//! looks whether its answer waits for the client; one that has waited for too long is dropped, which resets the stream.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};
use parking_lot::Mutex;

use super::connection::Exchange;

/// The largest piece of an answer that is handed to HTTP/2 at once. A stream is noticed as stalled from piece to piece.
const PIECE: usize = 16 * 1024;

/// How often a stream is looked at within the time that it may stall.
const LOOKS: u32 = 4;

tokio::task_local! {
    static SENDING: Arc<Sending>;
}

/// Since when an answer waits for its client to take it.
#[derive(Debug, Default)]
struct Sending(Mutex<Option<Instant>>);

impl Sending {
    fn waits_for_client(&self) {
        *self.0.lock() = Some(Instant::now());
    }

    fn waits_for_server(&self) {
        *self.0.lock() = None;
    }

    fn is_stalled(&self, patience: Duration) -> bool {
        self.0.lock().is_some_and(|since| since.elapsed() >= patience)
    }
}

/// Runs the streams of HTTP/2 connections, and drops those that stall.
#[derive(Clone, Copy, Debug)]
pub(super) struct StreamExecutor {
    /// How long an answer may wait for its client.
    pub(super) patience: Duration,
}

impl<F> hyper::rt::Executor<F> for StreamExecutor
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    fn execute(&self, stream: F) {
        tokio::spawn(run_unless_stalled(stream, self.patience));
    }
}

async fn run_unless_stalled(stream: impl Future + Send, patience: Duration) {
    let sending = Arc::new(Sending::default());
    let mut stream = pin!(SENDING.scope(sending.clone(), stream));
    while tokio::time::timeout(patience / LOOKS, stream.as_mut()).await.is_err() {
        if sending.is_stalled(patience) {
            tracing::debug!("a stream is reset: its client took nothing of the answer in time");
            return;
        }
    }
}

/// The body of an answer on its way to the client.
pub(super) struct Answer {
    body: Body,
    /// What of the last piece was not handed over yet.
    rest: Bytes,
    /// There is one in HTTP/2.
    sending: Option<Arc<Sending>>,
    /// The request is over when its answer is.
    _exchange: Arc<Exchange>,
}

impl Answer {
    /// Called within the task of the request.
    pub(super) fn new(body: Body, exchange: Arc<Exchange>) -> Self {
        let sending = SENDING.try_with(Arc::clone).ok();
        Self { body, rest: Bytes::new(), sending, _exchange: exchange }
    }

    fn next_piece(&mut self, mut bytes: Bytes) -> Bytes {
        if self.sending.is_some() && bytes.len() > PIECE {
            self.rest = bytes.split_off(PIECE);
        }
        bytes
    }
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = if self.rest.is_empty() {
            Pin::new(&mut self.body).poll_frame(context)
        } else {
            Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut self.rest)))))
        };
        if let Some(sending) = &self.sending {
            match polled {
                Poll::Pending => sending.waits_for_server(),
                Poll::Ready(_) => sending.waits_for_client(),
            }
        }
        polled.map(|frame| {
            frame.map(|frame| {
                frame.map(|frame| match frame.into_data() {
                    Ok(bytes) => Frame::data(self.next_piece(bytes)),
                    Err(other) => other,
                })
            })
        })
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (inner, rest) = (self.body.size_hint(), self.rest.len() as u64);
        let mut hint = SizeHint::new();
        hint.set_lower(inner.lower() + rest);
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper + rest);
        }
        hint
    }
}
