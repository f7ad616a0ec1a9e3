//! Who may pass. Every route belongs to one [`Access`]; what is not allowed is denied.

use berth_wire::ProblemCode;
use std::net::{IpAddr, SocketAddr};
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, Version, header, request::Parts};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use berth_wire::Role;
use futures_util::FutureExt;
use http_body_util::{BodyExt, Limited};
use hyper::body::{Frame, SizeHint};
use tokio::sync::oneshot;

use super::App;
use super::body::path_name;
use super::origin;
use super::problem::Failure;
use super::refused_reports::RefusedReports;
use super::revocation;
use crate::clock;
use crate::serve::connection::Exchange;
use crate::trust::runner_certificate::ClientCertificate;
use crate::trust::{Access, Caller};

const REVISION: HeaderName = HeaderName::from_static(berth_wire::REVISION_HEADER);
const HISTORY: HeaderName = HeaderName::from_static(berth_wire::HISTORY_HEADER);

/// The largest body that is read only to be dropped.
const SMALL_BODY: usize = 64 * 1024;

/// Where a request came from; put there by whoever accepted the connection.
#[derive(Clone, Copy, Debug)]
pub struct Peer(pub SocketAddr);

/// What a route asks of its caller, as the state of a layer.
#[derive(Clone, Debug)]
pub struct Gate {
    /// What it works with.
    pub app: App,
    /// What it asks for.
    pub access: Access,
}

/// Lets a request pass to its route, with its [`Caller`] known, or answers why not; counts it, and puts on every answer
/// what every answer carries. A handler that panics is an answer too. One layer for all of it: each layer costs every
/// request.
pub async fn guard(State(gate): State<Gate>, request: Request, next: Next) -> Response {
    let begun = Instant::now();
    let (mut parts, body) = request.into_parts();
    let version = parts.version;
    let (method, route) = (parts.method.clone(), parts.extensions.get::<MatchedPath>().cloned());
    let reports_for = RefusedReports::runner_of(&parts, route.as_ref().map(MatchedPath::as_str));
    let mut asking = Asking::of(&parts);
    let mut response = match admit(&gate, &mut parts).await {
        Ok(caller) => {
            asking.caller = Some(caller.clone());
            parts.extensions.insert(caller.clone());
            let (body, unread) = lend(body);
            let answering = whatever_happens(next.run(Request::from_parts(parts, body)));
            let mut response = if may_be_dropped(&method, gate.access) {
                let answer = gate.app.unless_revoked(&caller, answering).await;
                answer.unwrap_or_else(IntoResponse::into_response)
            } else {
                answering.await
            };
            revocation::end_stream_when_revoked(&gate.app, &caller, &mut response);
            // What was left unread of a body stands in the way of the next request.
            if let Some(rest) = unread.and_then(|mut unread| unread.try_recv().ok())
                && !is_soon_read(rest).await
            {
                close_after(&mut response, version);
            }
            response
        }
        Err(failure) => {
            asking.caller = parts.extensions.remove::<Caller>();
            refuse(failure, body, version).await
        }
    };
    // The server asks for a certificate when a connection is made: the client needs another one.
    if response.extensions().get::<Failure>().is_some_and(Failure::is_about_certificate) {
        close_after(&mut response, version);
    }
    if let Some(runner) = reports_for {
        gate.app.refused_reports.note(&runner, &response);
    }
    asking.record_refusal(&gate.app, &response);
    furnish(response.headers_mut(), &gate.app);
    let route = route.as_ref().map_or("other", MatchedPath::as_str);
    gate.app.views.metrics.answered(&method, route, response.status().as_u16(), begun.elapsed());
    response
}

/// Whether the work on a request may be dropped halfway when its token is revoked. What changes something is finished,
/// so that it goes on record; what agents send is repeated by them.
fn may_be_dropped(method: &Method, access: Access) -> bool {
    method.is_safe() || access == Access::OwnRunner
}

/// Who asks for what, kept for the record in case it is refused.
pub(super) struct Asking {
    address: IpAddr,
    method: Method,
    uri: Uri,
    caller: Option<Caller>,
}

impl Asking {
    pub(super) fn of(parts: &Parts) -> Self {
        let (method, uri) = (parts.method.clone(), parts.uri.clone());
        Self { address: address(parts), method, uri, caller: None }
    }

    /// Puts a refusal on record: 401 and 403, as many as the configuration says.
    pub(super) fn record_refusal(&self, app: &App, response: &Response) {
        if !matches!(response.status(), StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            return;
        }
        let failure = response.extensions().get::<Failure>();
        let code = failure.map_or("refused", |failure| failure.0.code.as_str());
        app.record_refusal(self.caller.as_ref(), self.address, &self.method, self.uri.path(), code);
    }
}

fn address(parts: &Parts) -> IpAddr {
    parts.extensions.get::<Peer>().map_or(IpAddr::from([0, 0, 0, 0]), |peer| peer.0.ip())
}

/// The answer of a handler, or that it has a bug: the panic itself is in the log.
async fn whatever_happens(answering: impl Future<Output = Response>) -> Response {
    AssertUnwindSafe(answering).catch_unwind().await.unwrap_or_else(|_| Failure::bug().into_response())
}

/// Answers a request that does not pass. A small body is read and dropped, so that the connection can go on; after a
/// larger one it cannot, and says so.
pub(super) async fn refuse(failure: Failure, body: Body, version: Version) -> Response {
    let mut response = failure.into_response();
    let rest = Limited::new(body, SMALL_BODY).collect();
    if !matches!(tokio::time::timeout(Duration::from_secs(1), rest).await, Ok(Ok(_))) {
        close_after(&mut response, version);
    }
    response
}

/// Reads the rest of a body that nobody wants, if it is known to be small: whoever still sends it would otherwise find
/// the connection closed, and not the answer.
async fn is_soon_read(rest: Body) -> bool {
    let is_small = rest.size_hint().upper().is_some_and(|most| most <= SMALL_BODY as u64);
    is_small && tokio::time::timeout(Duration::from_secs(1), rest.collect()).await.is_ok_and(|read| read.is_ok())
}

/// A body that comes back if it was not read to its end.
struct Lent {
    body: Body,
    back: Option<oneshot::Sender<Body>>,
}

/// Lends a body, if there is one.
fn lend(body: Body) -> (Body, Option<oneshot::Receiver<Body>>) {
    if body.is_end_stream() {
        return (body, None);
    }
    let (back, returned) = oneshot::channel();
    (Body::new(Lent { body, back: Some(back) }), Some(returned))
}

impl HttpBody for Lent {
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

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(back) = self.back.take().filter(|_| !self.body.is_end_stream()) {
            // Nobody waits for it once the answer is on its way.
            drop(back.send(std::mem::take(&mut self.body)));
        }
    }
}

/// The connection ends with this answer; in HTTP/2 only the stream does, by itself.
pub(super) fn close_after(response: &mut Response, version: Version) {
    if version < Version::HTTP_2 {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
}

/// Puts on an answer the revision, and what a browser must not do with it.
pub(super) fn furnish(headers: &mut HeaderMap, app: &App) {
    /// An answer of the API is no page: it loads nothing and is shown in nothing.
    const NO_PAGE: HeaderValue = HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'");
    let views = &app.views;
    headers.insert(REVISION, HeaderValue::from(views.revision().get()));
    if views.went_back().is_some() {
        headers.insert(HISTORY, HeaderValue::from_static("went-back"));
    }
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.entry(header::CONTENT_SECURITY_POLICY).or_insert(NO_PAGE);
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    if app.tls.is_some() {
        headers.insert(header::STRICT_TRANSPORT_SECURITY, HeaderValue::from_static("max-age=31536000"));
    }
}

/// Who asks, if they may. Where they may not, the extensions of `parts` say who it was, if that is known.
pub(super) async fn admit(gate: &Gate, parts: &mut Parts) -> Result<Caller, Failure> {
    let caller = identify(&gate.app, parts);
    // Whoever guesses is counted by their address.
    let known = caller.as_ref().ok().and_then(Option::as_ref);
    note_authentication(&gate.app, parts, known.is_some())?;
    gate.app.rates.check(known, address(parts)).map_err(Failure::rate_limited)?;
    let caller = caller?;
    if gate.access == Access::Public {
        return Ok(caller.unwrap_or_else(Caller::local));
    }
    let caller = caller.ok_or_else(Failure::unauthenticated)?;
    // On a server without tokens everybody is everybody, runners included.
    if caller.token.is_none() {
        return Ok(caller);
    }
    parts.extensions.insert(caller.clone());
    if !gate.access.allows(caller.role) {
        return Err(Failure::forbidden(format!("a token of role {} may not do this", caller.role)));
    }
    if gate.access == Access::OwnRunner {
        let (_, named) = path_name(parts, &gate.app).await?;
        if caller.runner.as_ref().is_none_or(|own| own.as_str() != named) {
            return Err(Failure::forbidden("a runner's token is for its own runner only"));
        }
    }
    Ok(caller)
}

/// Tells the connection whether this request has authenticated: there may be only a few at once that have not.
fn note_authentication(app: &App, parts: &Parts, is_known: bool) -> Result<(), Failure> {
    let Some(exchange) = parts.extensions.get::<Arc<Exchange>>() else { return Ok(()) };
    if is_known {
        exchange.authenticate();
        return Ok(());
    }
    let limit = app.limits.current().unauthenticated_streams;
    if exchange.enter_unauthenticated(limit) { Ok(()) } else { Err(Failure::too_many_streams(limit)) }
}

/// Who asks: nobody, if the server has tokens and none was sent. A token that is wrong is never nobody. A runner's token
/// without the runner's key has not authenticated, whatever is asked for; the extensions say whose token it is.
fn identify(app: &App, parts: &mut Parts) -> Result<Option<Caller>, Failure> {
    let sent = parts.headers.get(header::AUTHORIZATION);
    if app.tokens.is_empty() {
        check_host(parts)?;
        return Ok(Some(Caller::local()));
    }
    let Some(sent) = sent else { return Ok(None) };
    let bearer = sent.to_str().ok().and_then(|value| value.split_once(' '));
    let secret = bearer.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")).map(|(_, secret)| secret.trim());
    let secret = secret.ok_or_else(Failure::unauthenticated)?;
    let certificate = parts.extensions.get::<Arc<ClientCertificate>>().map(Arc::as_ref);
    let mut without_key = None;
    let caller = app.tokens.bearer_if(secret, clock::now(), |caller| {
        let Some(runner) = caller.runner.as_ref().filter(|_| caller.role == Role::Runner) else { return Ok(()) };
        app.expect_certificate_of(runner, certificate).inspect_err(|_| without_key = Some(caller.clone()))
    });
    if let Some(caller) = without_key {
        parts.extensions.insert(caller);
    }
    caller.map(Some)
}

/// Without tokens only this machine may ask. A web page from elsewhere must not do it through somebody's browser: its
/// requests carry the name of its own host (in a header, or in the target itself), or an origin.
fn check_host(parts: &Parts) -> Result<(), Failure> {
    origin::check(&parts.headers, &parts.uri).map_err(|stranger| {
        let detail = format!(
            "a server without tokens answers only to loopback names, and this request says {stranger}; make a token first"
        );
        Failure::new(ProblemCode::NotLoopback, detail)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handler_that_panics_is_a_500_and_not_a_dead_connection() {
        let buggy = async { if true { panic!("a bug") } else { StatusCode::OK.into_response() } };
        let response = whatever_happens(buggy).now_or_never().unwrap();
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
        let fine = whatever_happens(async { StatusCode::OK.into_response() }).now_or_never().unwrap();
        assert_eq!(fine.status(), StatusCode::OK);
    }
}
