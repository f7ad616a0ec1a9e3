//! Asking an engine.
//!
//! A slot's engine runs whatever its model's owner gave it, so its answer is not trusted: redirects are not followed,
//! hyper bounds the size of its headers, and an answer that does not begin in time is given up.

use std::error::Error;
use std::time::Duration;

use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use berth_domain::Endpoint;
use bytes::Bytes;
use http_body_util::BodyExt;
use reqwest::redirect;

/// Headers of a request that engines get to see. Everything else stays here, above all what proves who asks.
const PASSED_ON: [&str; 12] = [
    "accept",
    "accept-language",
    "anthropic-beta",
    "anthropic-version",
    "content-type",
    "idempotency-key",
    "openai-beta",
    "traceparent",
    "tracestate",
    "user-agent",
    "x-request-id",
    "x-session-id",
];

/// Headers of an answer that callers do not get to see: they are about the connection to the slot, or would make a
/// client do something at the gateway's address on the word of a slot.
const KEPT_BACK: [&str; 17] = [
    "alt-svc",
    "clear-site-data",
    "connection",
    "keep-alive",
    "location",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "refresh",
    "server",
    "set-cookie",
    "strict-transport-security",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "www-authenticate",
];

/// How many idle connections to one slot are kept.
const IDLE_CONNECTIONS: usize = 256;

/// What engines are asked with.
#[derive(Clone, Debug)]
pub(crate) struct Slots {
    http: reqwest::Client,
    silence: Duration,
}

/// What an engine is asked.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    /// With the query.
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// An engine's answer, from its first byte on.
#[derive(Debug)]
pub(crate) struct SlotAnswer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    /// Nothing if the answer is empty.
    pub(crate) first: Option<Bytes>,
    pub(crate) rest: reqwest::Body,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SlotError {
    /// It broke off, cannot be reached, or speaks no HTTP.
    Broke(String),
    /// It sends the caller elsewhere.
    Redirects,
}

impl Slots {
    /// Fails only where there is no TLS.
    pub(crate) fn new(silence: Duration) -> Result<Self, reqwest::Error> {
        // Whoever came first has installed it.
        drop(rustls::crypto::ring::default_provider().install_default());
        let http = reqwest::Client::builder()
            .redirect(redirect::Policy::none())
            .connect_timeout(Duration::from_secs(5))
            .pool_max_idle_per_host(IDLE_CONNECTIONS)
            .tcp_nodelay(true)
            .http1_only()
            .no_proxy()
            .build()?;
        Ok(Self { http, silence })
    }

    /// Asks, and waits for the first byte of the answer.
    pub(crate) async fn ask(&self, endpoint: &Endpoint, question: &Question) -> Result<SlotAnswer, SlotError> {
        let late = |_| SlotError::Broke(format!("it sent nothing for {} s", self.silence.as_secs()));
        tokio::time::timeout(self.silence, self.ask_unhurried(endpoint, question)).await.map_err(late)?
    }

    async fn ask_unhurried(&self, endpoint: &Endpoint, question: &Question) -> Result<SlotAnswer, SlotError> {
        let broke = |error: &(dyn Error + 'static)| SlotError::Broke(innermost(error));
        let request = self.http.request(Method::POST, url(endpoint, &question.path));
        let request = request.headers(question.headers.clone()).body(question.body.clone());
        let response = request.send().await.map_err(|error| broke(&error))?;
        if response.status().is_redirection() {
            return Err(SlotError::Redirects);
        }
        let (parts, mut rest) = axum::http::Response::from(response).into_parts();
        let first = loop {
            match rest.frame().await {
                None => break None,
                Some(Err(error)) => return Err(broke(&error)),
                Some(Ok(frame)) => {
                    if let Ok(bytes) = frame.into_data()
                        && !bytes.is_empty()
                    {
                        break Some(bytes);
                    }
                }
            }
        };
        Ok(SlotAnswer { status: parts.status, headers: shown_headers(&parts.headers), first, rest })
    }
}

fn url(endpoint: &Endpoint, path: &str) -> String {
    let base = endpoint.as_str().trim_end_matches('/');
    if base.contains("://") { format!("{base}{path}") } else { format!("http://{base}{path}") }
}

/// The headers that engines get to see.
pub(crate) fn passed_headers(headers: &HeaderMap) -> HeaderMap {
    let names = PASSED_ON.iter().copied().map(HeaderName::from_static);
    names.filter_map(|name| headers.get(&name).map(|value| (name, value.clone()))).collect()
}

/// The headers that callers get to see.
fn shown_headers(headers: &HeaderMap) -> HeaderMap {
    let named = headers.get_all(header::CONNECTION).into_iter().filter_map(|value| value.to_str().ok());
    let named: Vec<String> =
        named.flat_map(|list| list.split(',')).map(|name| name.trim().to_ascii_lowercase()).collect();
    let is_shown = |name: &HeaderName| {
        let name = name.as_str();
        let is_ours = name.starts_with("access-control-") || name.starts_with("berth-");
        !is_ours && !KEPT_BACK.contains(&name) && !named.iter().any(|hidden| hidden == name)
    };
    let shown = headers.iter().filter(|(name, _)| is_shown(name));
    shown.map(|(name, value)| (name.clone(), value.clone())).collect::<HeaderMap<HeaderValue>>()
}

/// The last error of a chain says it best.
pub(crate) fn innermost(error: &(dyn Error + 'static)) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    last.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(list: &[(&'static str, &'static str)]) -> HeaderMap {
        let entry = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        list.iter().map(entry).collect()
    }

    #[test]
    fn a_callers_key_and_cookies_stay_here() {
        let sent = map(&[("authorization", "Bearer x"), ("x-api-key", "x"), ("cookie", "x"), ("content-type", "a/b")]);
        assert_eq!(passed_headers(&sent), map(&[("content-type", "a/b")]));
    }

    #[test]
    fn a_slot_sets_no_cookies_and_speaks_for_its_own_connection() {
        let sent = map(&[("set-cookie", "x"), ("connection", "close, x-hop"), ("x-hop", "1"), ("x-kept", "1")]);
        assert_eq!(shown_headers(&sent), map(&[("x-kept", "1")]));
    }
}
