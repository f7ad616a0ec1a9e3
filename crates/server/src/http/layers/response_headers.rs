//! Headers that every answer has: the revision, and what a browser must not do with the answer.

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};

use crate::http::App;

const REVISION: HeaderName = HeaderName::from_static(berth_wire::REVISION_HEADER);
const HISTORY: HeaderName = HeaderName::from_static(berth_wire::HISTORY_HEADER);
/// The policy of an answer that is not a page: it loads nothing and is shown in nothing.
const NO_PAGE: HeaderValue = HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'");

/// Adds the headers to an answer. A handler that serves a page has set a policy of its own.
pub(in crate::http) fn add(headers: &mut HeaderMap, app: &App) {
    headers.insert(REVISION, HeaderValue::from(app.views.revision().get()));
    if app.views.went_back().is_some() {
        headers.insert(HISTORY, HeaderValue::from_static("went-back"));
    }
    add_security_headers(headers, app.tls.is_some());
}

fn add_security_headers(headers: &mut HeaderMap, is_encrypted: bool) {
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.entry(header::CONTENT_SECURITY_POLICY).or_insert(NO_PAGE);
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    if is_encrypted {
        headers.insert(header::STRICT_TRANSPORT_SECURITY, HeaderValue::from_static("max-age=31536000"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_keeps_its_own_policy_and_hsts_needs_tls() {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("default-src 'self'"));
        add_security_headers(&mut headers, false);
        assert_eq!(headers[header::CONTENT_SECURITY_POLICY], "default-src 'self'");
        assert!(!headers.contains_key(header::STRICT_TRANSPORT_SECURITY));
        add_security_headers(&mut headers, true);
        assert!(headers.contains_key(header::STRICT_TRANSPORT_SECURITY));
    }
}
