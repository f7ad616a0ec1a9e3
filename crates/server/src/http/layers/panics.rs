//! A handler that panics is answered with 500, and its connection goes on.

use std::panic::AssertUnwindSafe;

use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;

use crate::http::problem::Failure;

/// Returns the handler's answer, or a 500 if it panicked. The panic itself is in the log.
pub(super) async fn catch(answering: impl Future<Output = Response>) -> Response {
    AssertUnwindSafe(answering).catch_unwind().await.unwrap_or_else(|_| Failure::bug().into_response())
}

#[cfg(test)]
mod tests {
    use axum::http::StatusCode;

    use super::*;

    #[test]
    fn a_handler_that_panics_is_a_500_and_not_a_dead_connection() {
        let buggy = async { if true { panic!("a bug") } else { StatusCode::OK.into_response() } };
        let response = catch(buggy).now_or_never().unwrap();
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
        let fine = catch(async { StatusCode::OK.into_response() }).now_or_never().unwrap();
        assert_eq!(fine.status(), StatusCode::OK);
    }
}
