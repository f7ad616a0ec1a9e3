//! What is under way for a token ends when the token is revoked.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use axum::response::Response;
use hyper::body::{Frame, SizeHint};

use super::App;
use super::problem::Failure;
use crate::trust::Caller;

impl App {
    /// Waits for `work`, or until the caller's token does not count any more.
    pub(super) async fn unless_revoked<T>(&self, caller: &Caller, work: impl Future<Output = T>) -> Result<T, Failure> {
        let Some(token) = caller.token else { return Ok(work.await) };
        tokio::select! {
            // Whoever has an answer gets it.
            biased;
            done = work => Ok(done),
            () = self.tokens.until_revoked(token) => Err(Failure::revoked()),
        }
    }
}

/// Breaks off an answer that comes bit by bit when the caller's token is revoked. An answer that is there as a whole is
/// left as it is.
pub(super) fn end_stream_when_revoked(app: &App, caller: &Caller, response: &mut Response) {
    let is_whole = response.body().size_hint().exact().is_some();
    let Some(token) = caller.token.filter(|_| !is_whole) else { return };
    let body = std::mem::take(response.body_mut());
    let app = app.clone();
    let revoked = Box::pin(async move { app.tokens.until_revoked(token).await });
    *response.body_mut() = Body::new(Revocable { body, revoked });
}

/// A body that breaks off when a token is revoked.
struct Revocable {
    body: Body,
    revoked: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl HttpBody for Revocable {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.revoked.as_mut().poll(context).is_ready() {
            // An end would say that this was all of it.
            return Poll::Ready(Some(Err(axum::Error::new("the token was revoked"))));
        }
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
