//! A body that the handler did not read.
//!
//! What is left of it stands in front of the next request of an HTTP/1 connection. The server reads up to 64 KiB of it
//! and drops them, so that the client sees the answer instead of a reset connection; after a larger one it closes.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::http::{HeaderValue, Version, header};
use axum::response::{IntoResponse, Response};
use http_body_util::{BodyExt, Limited};
use hyper::body::{Frame, SizeHint};
use tokio::sync::oneshot;

use crate::http::problem::Failure;

/// The largest body that the server reads only to drop it.
const SMALL_BODY: usize = 64 * 1024;
/// How long the server reads a body only to drop it.
const READ_DEADLINE: Duration = Duration::from_secs(1);

/// Answers a request that does not pass, and reads its body if that is small.
pub(in crate::http) async fn refuse(failure: Failure, body: Body, version: Version) -> Response {
    let mut response = failure.into_response();
    let rest = Limited::new(body, SMALL_BODY).collect();
    if !matches!(tokio::time::timeout(READ_DEADLINE, rest).await, Ok(Ok(_))) {
        close_after(&mut response, version);
    }
    response
}

/// Ends the connection with this answer. In HTTP/2 the stream ends by itself, and the connection goes on.
pub(in crate::http) fn close_after(response: &mut Response, version: Version) {
    if version < Version::HTTP_2 {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
}

/// Tracks the body of a request: what the handler leaves of it comes back.
pub(super) fn track(request: Request) -> (Request, UnreadBody) {
    if request.body().is_end_stream() {
        return (request, UnreadBody(None));
    }
    let (sender, receiver) = oneshot::channel();
    let request = request.map(|body| Body::new(TrackedBody { body, unread: Some(sender) }));
    (request, UnreadBody(Some(receiver)))
}

/// What a handler left of a body.
pub(super) struct UnreadBody(Option<oneshot::Receiver<Body>>);

impl UnreadBody {
    /// Reads what was left if it is known to be small, and says whether anything still stands in front of the next request.
    pub(super) async fn blocks_connection(self) -> bool {
        let Some(rest) = self.0.and_then(|mut receiver| receiver.try_recv().ok()) else { return false };
        let is_small = rest.size_hint().upper().is_some_and(|most| most <= SMALL_BODY as u64);
        !is_small || !tokio::time::timeout(READ_DEADLINE, rest.collect()).await.is_ok_and(|read| read.is_ok())
    }
}

/// A body that is sent back if it is dropped before its end.
struct TrackedBody {
    body: Body,
    unread: Option<oneshot::Sender<Body>>,
}

impl HttpBody for TrackedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for TrackedBody {
    fn drop(&mut self) {
        if let Some(unread) = self.unread.take().filter(|_| !self.body.is_end_stream()) {
            // The receiver is gone once the answer is on its way.
            drop(unread.send(std::mem::take(&mut self.body)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_small_rest_is_read_and_a_large_one_blocks_connection() {
        for (size, expected) in [(10, false), (SMALL_BODY + 1, true)] {
            let (request, unread) = track(Request::new(Body::from(vec![b'x'; size])));
            drop(request);
            assert_eq!(unread.blocks_connection().await, expected, "{size} bytes");
        }
    }

    #[tokio::test]
    async fn a_body_that_was_read_is_not_in_the_way() {
        let (request, unread) = track(Request::new(Body::from("short")));
        assert_eq!(request.into_body().collect().await.unwrap().to_bytes(), "short");
        assert!(!unread.blocks_connection().await);
    }
}
