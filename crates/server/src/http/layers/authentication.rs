//! Authentication and authorisation: finds out who asks, and lets them pass or not.
//!
//! Every route belongs to one [`Access`]; what is not allowed is denied.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::http::header;
use axum::http::request::Parts;
use berth_wire::{ProblemCode, Role};

use crate::clock;
use crate::http::App;
use crate::http::body::path_name;
use crate::http::origin;
use crate::http::problem::Failure;
use crate::serve::connection::Exchange;
use crate::trust::runner_certificate::ClientCertificate;
use crate::trust::{Access, Caller};

/// The address of the client, an extension of every request. The connection server adds it.
#[derive(Clone, Copy, Debug)]
pub struct Peer(pub SocketAddr);

/// The access that a route asks for, as the state of the middleware around its handler.
#[derive(Clone, Debug)]
pub struct RouteAccess {
    /// What handlers work with.
    pub app: App,
    /// What the route asks of its caller.
    pub access: Access,
}

/// Returns the address that a request came from.
pub(super) fn address_of(parts: &Parts) -> IpAddr {
    parts.extensions.get::<Peer>().map_or(IpAddr::from([0, 0, 0, 0]), |peer| peer.0.ip())
}

/// Returns the caller if it may use the route. If it may not, the extensions of `parts` name it as far as it is known.
pub(in crate::http) async fn authorize(route: &RouteAccess, parts: &mut Parts) -> Result<Caller, Failure> {
    let caller = identify(&route.app, parts);
    // A client that guesses tokens is limited by its address.
    let known = caller.as_ref().ok().and_then(Option::as_ref);
    note_authentication(&route.app, parts, known.is_some())?;
    route.app.rates.check(known, address_of(parts)).map_err(Failure::rate_limited)?;
    let caller = caller?;
    if route.access == Access::Public {
        return Ok(caller.unwrap_or_else(Caller::local));
    }
    let caller = caller.ok_or_else(Failure::unauthenticated)?;
    // A server without tokens lets every local caller do everything, runners included.
    if caller.token.is_none() {
        return Ok(caller);
    }
    parts.extensions.insert(caller.clone());
    if !route.access.allows(caller.role) {
        return Err(Failure::forbidden(format!("a token of role {} may not do this", caller.role)));
    }
    if route.access == Access::OwnRunner {
        let (_, named) = path_name(parts, &route.app).await?;
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

/// Identifies the caller by its token. Returns `None` if the server has tokens and the request carries none; a wrong
/// token is an error. A runner's token without the runner's key does not authenticate, whatever the route; the extensions
/// then name the token's owner.
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

/// Refuses a request to a server without tokens that does not come from this machine. A web page from elsewhere must not
/// send one through a local browser: its requests carry the name of its own host (in a header, or in the target itself),
/// or an origin.
fn check_host(parts: &Parts) -> Result<(), Failure> {
    origin::check(&parts.headers, &parts.uri).map_err(|stranger| {
        let detail = format!(
            "a server without tokens answers only to loopback names, and this request says {stranger}; make a token first"
        );
        Failure::new(ProblemCode::NotLoopback, detail)
    })
}
