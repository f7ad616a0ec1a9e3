//! The body of an answer: comment lines while nothing is there to pass on, then what the engine says, as it says it.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Bytes, HttpBody};
use axum::http::{HeaderMap, header};
use http_body_util::{BodyExt, Limited};
use hyper::body::Frame;
use tokio::time::{Instant, Sleep};

use crate::events::WholeEvents;
use crate::lease::{Lease, LeaseEnd};
use crate::obtain::Obtained;
use crate::slot::{SlotAnswer, innermost};
use crate::trouble::{Shape, Trouble};

/// A line that clients of server-sent events read and ignore.
const COMMENT: &[u8] = b":\n\n";
/// The most that is read of an answer that comes as a whole where a stream has begun.
const LARGEST_WHOLE: usize = 8 * 1024 * 1024;

type Obtaining<C> = Pin<Box<dyn Future<Output = Result<Obtained<C>, Trouble>> + Send>>;

/// The body of an answer. It owns the lease.
pub(crate) struct AnswerBody<C: Clone> {
    state: State<C>,
    shape: Shape,
    silence: Duration,
}

enum State<C: Clone> {
    /// The client has its headers, and the engine has said nothing yet.
    Waiting {
        obtaining: Obtaining<C>,
        timer: Pin<Box<Sleep>>,
        every: Duration,
    },
    /// The engine answers a stream with something that is none.
    Collecting {
        whole: Pin<Box<dyn Future<Output = Bytes> + Send>>,
        lease: Lease<C>,
    },
    /// The engine answers.
    Passing(Passing<C>),
    Over,
}

struct Passing<C: Clone> {
    first: Option<Bytes>,
    rest: reqwest::Body,
    lease: Lease<C>,
    /// There is one if this is a stream of events.
    events: Option<WholeEvents>,
    /// What is still to come, where the engine said how much that is.
    remaining: Option<u64>,
    heard: Instant,
    timer: Pin<Box<Sleep>>,
}

/// What came of looking at an engine's answer.
enum Looked {
    Piece(Bytes),
    /// The last piece, and then nothing.
    Last(Bytes),
    Broke(String),
}

impl<C: Clone> AnswerBody<C> {
    /// An answer that has begun.
    pub(crate) fn passing(obtained: Obtained<C>, shape: Shape, silence: Duration) -> Self {
        Self { state: State::Passing(Passing::new(obtained.answer, obtained.lease, silence)), shape, silence }
    }

    /// An answer that may take long: comment lines pass the time.
    pub(crate) fn waiting(obtaining: Obtaining<C>, every: Duration, shape: Shape, silence: Duration) -> Self {
        // The wait before this was as long already.
        let timer = Box::pin(tokio::time::sleep(Duration::ZERO));
        Self { state: State::Waiting { obtaining, timer, every }, shape, silence }
    }

    /// Goes on with what was waited for. Returns the last event, if it came to nothing.
    fn begin(&mut self, obtained: Result<Obtained<C>, Trouble>) -> Option<Bytes> {
        let Obtained { answer, lease, .. } = match obtained {
            Ok(obtained) => obtained,
            Err(trouble) => {
                self.state = State::Over;
                return Some(trouble.to_event(self.shape));
            }
        };
        self.state = if is_event_stream(&answer.headers) {
            State::Passing(Passing::new(answer, lease, self.silence))
        } else {
            let whole = collect(answer, self.shape);
            State::Collecting { whole: Box::pin(whole), lease }
        };
        None
    }

    fn poll_bytes(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, axum::Error>>> {
        loop {
            match &mut self.state {
                State::Over => return Poll::Ready(None),
                State::Waiting { obtaining, timer, every } => {
                    if let Poll::Ready(obtained) = obtaining.as_mut().poll(context) {
                        match self.begin(obtained) {
                            Some(last) => return Poll::Ready(Some(Ok(last))),
                            None => continue,
                        }
                    }
                    std::task::ready!(timer.as_mut().poll(context));
                    timer.as_mut().reset(Instant::now() + *every);
                    return Poll::Ready(Some(Ok(Bytes::from_static(COMMENT))));
                }
                State::Collecting { whole, .. } => {
                    let event = std::task::ready!(whole.as_mut().poll(context));
                    if let State::Collecting { lease, .. } = std::mem::replace(&mut self.state, State::Over) {
                        lease.end(LeaseEnd::Succeeded);
                    }
                    return Poll::Ready(Some(Ok(event)));
                }
                State::Passing(passing) => match std::task::ready!(passing.poll_next(context, self.silence)) {
                    Looked::Piece(piece) => return Poll::Ready(Some(Ok(piece))),
                    Looked::Last(piece) => {
                        self.end(LeaseEnd::Succeeded);
                        return Poll::Ready((!piece.is_empty()).then_some(Ok(piece)));
                    }
                    Looked::Broke(why) => return Poll::Ready(Some(self.break_off(&why))),
                },
            }
        }
    }

    fn end(&mut self, end: LeaseEnd) {
        if let State::Passing(passing) = std::mem::replace(&mut self.state, State::Over) {
            passing.lease.end(end);
        }
    }

    /// A stream of events can say that it broke. What is no stream ends without its end, and the client sees that.
    fn break_off(&mut self, why: &str) -> Result<Bytes, axum::Error> {
        let is_stream = matches!(&self.state, State::Passing(passing) if passing.events.is_some());
        self.end(LeaseEnd::Failed);
        match is_stream {
            true => Ok(Trouble::slot_failed(why).to_event(self.shape)),
            false => Err(axum::Error::new(std::io::Error::other(why.to_owned()))),
        }
    }
}

impl<C: Clone> Passing<C> {
    fn new(answer: SlotAnswer, lease: Lease<C>, silence: Duration) -> Self {
        let events = is_event_stream(&answer.headers).then(WholeEvents::default);
        let length = answer.headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
        Self {
            first: answer.first,
            rest: answer.rest,
            lease,
            events,
            remaining: length.and_then(|text| text.parse().ok()),
            heard: Instant::now(),
            timer: Box::pin(tokio::time::sleep(silence)),
        }
    }

    fn poll_next(&mut self, context: &mut Context<'_>, silence: Duration) -> Poll<Looked> {
        loop {
            let piece = match self.first.take() {
                Some(first) => first,
                None => match Pin::new(&mut self.rest).poll_frame(context) {
                    Poll::Pending => return self.poll_silence(context, silence),
                    Poll::Ready(None) => {
                        let rest = self.events.as_mut().map(WholeEvents::rest).unwrap_or_default();
                        return Poll::Ready(Looked::Last(rest));
                    }
                    Poll::Ready(Some(Err(error))) => return Poll::Ready(Looked::Broke(innermost(&error))),
                    Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                        Ok(piece) => piece,
                        Err(_) => continue,
                    },
                },
            };
            self.heard = Instant::now();
            if let Some(remaining) = &mut self.remaining {
                *remaining = remaining.saturating_sub(piece.len() as u64);
            }
            let is_last = self.remaining == Some(0);
            let mut passed = match &mut self.events {
                Some(events) => events.take(&piece),
                None => piece,
            };
            if is_last {
                // Whoever knows the length does not ask for more.
                if let Some(rest) = self.events.as_mut().map(WholeEvents::rest).filter(|rest| !rest.is_empty()) {
                    passed = [passed, rest].concat().into();
                }
                return Poll::Ready(Looked::Last(passed));
            }
            if !passed.is_empty() {
                return Poll::Ready(Looked::Piece(passed));
            }
        }
    }

    /// The timer is set anew only when it fires: an answer comes in many pieces.
    fn poll_silence(&mut self, context: &mut Context<'_>, silence: Duration) -> Poll<Looked> {
        loop {
            std::task::ready!(self.timer.as_mut().poll(context));
            let until = self.heard + silence;
            if until <= Instant::now() {
                return Poll::Ready(Looked::Broke(format!("it sent nothing for {} s", silence.as_secs())));
            }
            self.timer.as_mut().reset(until);
        }
    }
}

impl<C: Clone + Unpin> HttpBody for AnswerBody<C> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        self.poll_bytes(context).map(|piece| piece.map(|piece| piece.map(Frame::data)))
    }
}

/// Whether an answer is a stream of server-sent events.
pub(crate) fn is_event_stream(headers: &HeaderMap) -> bool {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("text/event-stream")
}

/// An answer that is no stream, as one event of the stream that the client was promised.
async fn collect(answer: SlotAnswer, shape: Shape) -> Bytes {
    let SlotAnswer { status, first, rest, .. } = answer;
    let Ok(rest) = Limited::new(rest, LARGEST_WHOLE).collect().await else {
        return Trouble::slot_failed("its answer broke off").to_event(shape);
    };
    let whole = [first.unwrap_or_default(), rest.to_bytes()].concat();
    match serde_json::from_slice::<serde_json::Value>(&whole) {
        Ok(value) if shape == Shape::Anthropic && !status.is_success() => {
            format!("event: error\ndata: {value}\n\n").into()
        }
        Ok(value) => format!("data: {value}\n\n").into(),
        Err(_) => {
            Trouble::slot_failed(&format!("it answered {status} with something that is no stream")).to_event(shape)
        }
    }
}
