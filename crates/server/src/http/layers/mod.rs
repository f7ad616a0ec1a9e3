//! What happens to every request before and after its handler, in the order of [`around_handler`].
//!
//! | file | what it does |
//! | --- | --- |
//! | [`authentication`] | finds out who asks, and lets them pass or not |
//! | [`refusal_audit`] | puts refused requests on record |
//! | [`unread_body`] | deals with a body that the handler did not read |
//! | [`panics`] | turns a panic of a handler into an answer |
//! | [`response_headers`] | adds the headers that every answer has |
//!
//! They are functions that one middleware calls in turn, and not tower layers of their own: each tower layer would
//! allocate a future for every request.

pub mod authentication;
mod panics;
pub(super) mod refusal_audit;
pub(super) mod response_headers;
pub(super) mod unread_body;

use std::time::Instant;

use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{Method, Version};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::problem::Failure;
use super::refused_reports::RefusedReports;
use super::revocation;
use crate::trust::{Access, Caller};
use authentication::{RouteAccess, authorize};
use refusal_audit::AuditedRequest;
use unread_body::{close_after, refuse};

/// Takes a request to its handler and the answer back.
pub async fn around_handler(State(route): State<RouteAccess>, request: Request, next: Next) -> Response {
    let begun = Instant::now();
    let (mut parts, body) = request.into_parts();
    let (version, method) = (parts.version, parts.method.clone());
    let path = parts.extensions.get::<MatchedPath>().cloned();
    let reporting_runner = RefusedReports::runner_of(&parts, path.as_ref().map(MatchedPath::as_str));
    let mut audited = AuditedRequest::new(&parts);

    let mut response = match authorize(&route, &mut parts).await {
        Ok(caller) => {
            audited.caller = Some(caller.clone());
            parts.extensions.insert(caller.clone());
            call_handler(&route, &caller, &method, version, (Request::from_parts(parts, body), next)).await
        }
        Err(failure) => {
            audited.caller = parts.extensions.remove::<Caller>();
            refuse(failure, body, version).await
        }
    };

    // The server asks for a client certificate when a connection is made, so the client needs another connection.
    if response.extensions().get::<Failure>().is_some_and(Failure::is_about_certificate) {
        close_after(&mut response, version);
    }
    if let Some(runner) = reporting_runner {
        route.app.refused_reports.note(&runner, &response);
    }
    audited.record_refusal(&route.app, &response);
    response_headers::add(response.headers_mut(), &route.app);
    let path = path.as_ref().map_or("other", MatchedPath::as_str);
    route.app.views.metrics.answered(&method, path, response.status().as_u16(), begun.elapsed());
    response
}

/// Calls the handler of a request that may pass, for as long as the caller's token counts.
async fn call_handler(
    route: &RouteAccess,
    caller: &Caller,
    method: &Method,
    version: Version,
    (request, next): (Request<Body>, Next),
) -> Response {
    let (request, unread) = unread_body::track(request);
    let answering = panics::catch(next.run(request));
    let mut response = if may_be_abandoned(method, route.access) {
        let answer = route.app.unless_revoked(caller, answering).await;
        answer.unwrap_or_else(IntoResponse::into_response)
    } else {
        answering.await
    };
    revocation::end_stream_when_revoked(&route.app, caller, &mut response);
    if unread.blocks_connection().await {
        close_after(&mut response, version);
    }
    response
}

/// Whether the work on a request may be abandoned when its token is revoked. A request that changes something is
/// finished, so that it goes on record; agents repeat theirs.
fn may_be_abandoned(method: &Method, access: Access) -> bool {
    method.is_safe() || access == Access::OwnRunner
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_changes_something_is_not_abandoned() {
        assert!(may_be_abandoned(&Method::GET, Access::Operate));
        assert!(may_be_abandoned(&Method::PUT, Access::OwnRunner));
        assert!(!may_be_abandoned(&Method::POST, Access::Submit));
        assert!(!may_be_abandoned(&Method::DELETE, Access::Operate));
    }
}
