//! Which web pages may ask.

use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};

/// What pages may send, and what they may read.
const ALLOWED_HEADERS: &str = "authorization, content-type, x-api-key, anthropic-version, anthropic-beta, \
                               openai-beta, traceparent, x-session-id";
const EXPOSED_HEADERS: &str = "berth-workload, retry-after";

/// The origin of the page that asks, if pages from there may.
pub(crate) fn allowed_origin(origins: &[String], headers: &HeaderMap) -> Option<HeaderValue> {
    let origin = headers.get(header::ORIGIN)?;
    let is_allowed = |allowed: &String| allowed == "*" || allowed.as_bytes() == origin.as_bytes();
    origins.iter().any(is_allowed).then(|| origin.clone())
}

/// Whether a browser asks what it may ask.
pub(crate) fn is_preflight(method: &Method, headers: &HeaderMap) -> bool {
    *method == Method::OPTIONS && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
}

/// The answer to such a question.
pub(crate) fn preflight(origin: HeaderValue) -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST"));
    headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static(ALLOWED_HEADERS));
    headers.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
    allow(headers, origin);
    response
}

/// Lets the page read the answer.
pub(crate) fn allow(headers: &mut HeaderMap, origin: HeaderValue) {
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED_HEADERS));
    headers.append(header::VARY, HeaderValue::from_static("origin"));
}
